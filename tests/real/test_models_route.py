"""The models that Codex offers, under its names, the user's own, and those of the earlier proxy."""

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from codex_cli_bin import bundled_codex_path
from dirty_equals import IsStr

from tests.support.gateway import Bridge, running_bridge
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

DEFAULT = "gpt-5.6-sol"
# What OpenAI announced, in UTC: 9 July, 3 September and 22 September 2026.
CREATED = {
    **dict.fromkeys(("gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna"), 1_783_555_200),
    "gpt-6-astra": 1_788_393_600,
    **dict.fromkeys(("gpt-6-sol", "gpt-6-luna"), 1_790_035_200),
}
ALIASES = {"gpt-4o": "gpt-5.5", "quick": "gpt-5.5-low", "reviewer": "codex-auto-review"}


@pytest.fixture(scope="module")
async def named(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway whose user has a default model, and names of their own for models."""
    del anyio_backend  # Named so that its scope is this one's.
    aliases = ",".join(f"{name}={model}" for name, model in ALIASES.items())
    data_dir = tmp_path_factory.mktemp("named")
    async with running_bridge(data_dir, PROXY_MODEL_ALIASES=aliases, CODEX_MODEL=DEFAULT) as bridge:
        yield bridge


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> dict[str, JsonObject]:
    """Return how the models that the binary brings along should look, hidden ones last."""
    printed = subprocess.run(
        [bundled_codex_path(), "debug", "models", "--bundled"],
        env={"CODEX_HOME": str(tmp_path_factory.mktemp("catalogue"))},
        capture_output=True,
        check=True,
    )
    models = json.loads(printed.stdout)["models"]
    return {
        model["slug"]: {
            "id": model["slug"],
            "object": "model",
            "created": CREATED.get(model["slug"], 0),
            "owned_by": "codex",
            "name": model["display_name"],
            "display_name": model["display_name"],
            "description": model["description"],
            "context_length": model["context_window"],
            "context_window": model["context_window"],
            "max_context_window": model["max_context_window"],
            "max_output_tokens": 128_000 if model["slug"].startswith("gpt-6") or "gpt-5" in model["slug"] else None,
            "reasoning_efforts": [level["effort"] for level in model["supported_reasoning_levels"]],
            "default_reasoning_effort": model["default_reasoning_level"],
            "input_modalities": model["input_modalities"],
            "output_modalities": ["text"],
            "service_tiers": [tier["id"] for tier in model["service_tiers"]],
        }
        for model in sorted(models, key=lambda model: (model["visibility"] == "hide", model["priority"]))
    }


HIDDEN = ("gpt-daybreak-blue-latest", "gpt-daybreak-red-latest", "codex-auto-review")


@pytest.mark.promise("models.list")
@pytest.mark.parametrize("path", ["/v1/models", "/models"])
async def test_the_list_holds_what_codex_knows_of_its_visible_models(
    bridge: Bridge, catalogue: dict[str, JsonObject], path: str
) -> None:
    visible = [model for name, model in catalogue.items() if name not in HIDDEN]
    listed = await bridge.http.get(path)
    models = listed.json()["data"]
    assert (listed.status_code, listed.json()["object"], models[:-1]) == (200, "list", visible)
    # The name of the default model comes last, and is what it stands for.
    default = next(model for model in visible if model["display_name"] == models[-1]["display_name"])
    assert models[-1] == {**default, "id": "codex-5", "name": "codex-5"}


@pytest.mark.promise("models.own-names")
async def test_the_list_ends_in_the_users_own_names(named: Bridge, catalogue: dict[str, JsonObject]) -> None:
    listed = [model async for model in named.client.models.list()]
    assert [model.id for model in listed] == [*(name for name in catalogue if name not in HIDDEN), "codex-5", *ALIASES]
    efforts = {model.id: model.to_dict()["default_reasoning_effort"] for model in listed}
    assert (efforts["quick"], efforts["gpt-4o"]) == ("low", "medium")


@pytest.mark.promise("models.retrieve")
@pytest.mark.parametrize("prefix", ["/v1", ""])
@pytest.mark.parametrize(
    ("name", "model", "effort"),
    [
        ("gpt-5.5", "gpt-5.5", None),
        ("GPT-5.5", "gpt-5.5", None),
        ("gpt-5.5-xh", "gpt-5.5", "xhigh"),
        ("codex-auto-review", "codex-auto-review", None),
        ("gpt-4o", "gpt-5.5", None),
        ("reviewer", "codex-auto-review", None),
        ("codev-5", DEFAULT, None),
    ],
)
async def test_a_model_is_described_under_the_name_that_was_asked_for(
    named: Bridge, catalogue: dict[str, JsonObject], prefix: str, name: str, model: str, effort: str | None
) -> None:
    described = await named.http.get(f"{prefix}/models/{name}")
    shown = {**catalogue[model], "id": name, "name": catalogue[model]["name"] if name == model else name}
    if effort is not None:
        shown["default_reasoning_effort"] = effort
    assert (described.status_code, described.json()) == (200, shown)


@pytest.mark.promise(
    "models.effort-suffix", "models.earlier-names", "models.own-names", "models.default", "models.told"
)
@pytest.mark.parametrize(
    ("name", "model", "effort"),
    [
        ("gpt-5.5", "gpt-5.5", "medium"),
        ("gpt-5.5-low", "gpt-5.5", "low"),
        ("gpt-5.5-high", "gpt-5.5", "high"),
        ("gpt-5.5-l", "gpt-5.5", "low"),
        ("gpt-5.5-m", "gpt-5.5", "medium"),
        ("gpt-5.5-h", "gpt-5.5", "high"),
        ("GPT-5.5-XH", "gpt-5.5", "xhigh"),
        ("gpt-6-sol-max", "gpt-6-sol", "max"),
        ("codex-auto-review", "codex-auto-review", "medium"),
        ("GPT-4o", "gpt-5.5", "medium"),
        ("quick", "gpt-5.5", "low"),
        ("codex-5", DEFAULT, "low"),
        ("codex-5-medium", DEFAULT, "medium"),
        ("codev-5-high", DEFAULT, "high"),
        ("codev-5.1-m", DEFAULT, "medium"),
        ("codev-5.2-xh", DEFAULT, "xhigh"),
        ("gpt-5.2-codev-l", DEFAULT, "low"),
        ("gpt-5.2-codex-h", DEFAULT, "high"),
        ("gpt-5.2-m", DEFAULT, "medium"),
        ("gpt-5.2-local", DEFAULT, "low"),
    ],
)
async def test_a_name_stands_for_a_model_and_an_effort(named: Bridge, name: str, model: str, effort: str) -> None:
    named.says("ok")
    answered = await named.http.post("/v1/responses", json={"model": name, "input": "hi"})
    assert (answered.json()["model"], answered.json()["reasoning"]["effort"]) == (name, effort)
    assert answered.headers["x-turnbridge-model"] == model
    assert (named.seen()["model"], named.seen()["reasoning"]) == (model, {"effort": effort})


@pytest.mark.promise("models.effort-suffix")
async def test_an_effort_in_the_request_wins_over_one_in_the_name(bridge: Bridge) -> None:
    bridge.says("ok")
    await bridge.client.responses.create(model="gpt-5.5-high", input="hi", reasoning={"effort": "low"})
    assert bridge.seen()["reasoning"] == {"effort": "low"}


@pytest.mark.promise("models.unknown")
@pytest.mark.parametrize(("name", "near"), [("gpt-55", "gpt-5.5"), ("gpt-5.5-ultra", "gpt-5.5"), ("gpt4o", "gpt-4o")])
async def test_an_unknown_name_is_a_404_that_offers_near_ones(named: Bridge, name: str, near: str) -> None:
    named.says("ok")
    answers = [
        await named.http.get(f"/v1/models/{name}"),
        await named.http.post("/v1/responses", json={"model": name, "input": "hi"}),
        await named.http.post(
            "/v1/chat/completions", json={"model": name, "messages": [{"role": "user", "content": "hi"}]}
        ),
    ]
    error = {
        "message": IsStr(regex=rf"The model `{name}` does not exist .* Did you mean .*`{near}`.*\?"),
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert [(answer.status_code, answer.json()) for answer in answers] == [(404, {"error": error})] * 3
    assert named.model.requests == []


@pytest.mark.promise("models.unknown")
async def test_a_name_that_is_like_no_other_is_a_404_with_all_names(named: Bridge) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await named.client.models.retrieve("zzz")
    assert caught.value.code == "model_not_found"
    assert "Available: gpt-6.1-sol, " in caught.value.message
    assert caught.value.message.count("reviewer") == 1


@pytest.mark.promise("models.own-names")
async def test_an_alias_of_a_model_that_is_gone_spoils_nothing_else(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_MODEL_ALIASES="gone=gpt-4.1,kept=gpt-5.5") as bridge:
        listed = await bridge.http.get("/v1/models")
        assert listed.status_code == 200, listed.text
        names = [model["id"] for model in listed.json()["data"]]
        assert ("kept" in names, "gone" in names) == (True, False)


@pytest.mark.promise("models.own-names", "models.unknown")
async def test_an_alias_of_a_model_that_is_gone_is_not_offered_instead_of_itself(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_MODEL_ALIASES="gone=gpt-4.1") as bridge:
        refused = await bridge.http.get("/v1/models/gone")
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        assert "Did you mean `gone`" not in refused.json()["error"]["message"]
