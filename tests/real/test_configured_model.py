"""A model that the configuration names and Codex's catalogue lacks is served by its name, and no other in its place."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from dirty_equals import IsInstance, IsStr, IsUUID

from tests.real.fidelity_cases import (
    IMAGE,
    call,
    result,
    said,
)
from tests.support.gateway import (
    API_KEY,
    Bridge,
    listening,
    plain_client,
    running_bridge,
    settings_for_tests,
)
from turnbridge.bootstrap import running_gateway
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

# The names of Ollama and OpenRouter have signs that Codex's own have not.
OLLAMA, OPENROUTER = "Llama3.1:8b", "deepseek/deepseek-r1"
PATIENCE_S = 60
"""After this a test has failed."""

ITEMS = [
    said("developer", "Be brief."),
    said("user", "What is this?", IMAGE),
    said("assistant", "I look.", phase="commentary"),
    call("c1"),
    result("c1", "A dot. " * 20_000),
]
LOOK: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def described(name: str, **known: object) -> dict[str, object]:
    """Return how `/v1/models` shows a model of which nobody knows anything."""
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "codex",
        "name": name,
        "display_name": name,
        "description": "Named by the configuration; Codex's catalogue does not describe it.",
        "context_window": None,
        "context_length": None,
        "max_context_window": None,
        "max_output_tokens": None,
        "reasoning_efforts": [],
        "default_reasoning_effort": None,
        "input_modalities": ["text", "image"],
        "output_modalities": ["text"],
        "service_tiers": [],
        **known,
    }


def seen_of(name: str, *items: JsonObject, **asked: object) -> dict[str, object]:
    """Return all that the model is shown of a request."""
    return {
        "model": name,
        "input": [{"id": IsStr(), **item} for item in items],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": IsUUID(),
        "client_metadata": IsInstance(dict),
        **asked,
    }


@asynccontextmanager
async def own_provider(
    directory: Path, config: str, **chosen: object
) -> AsyncIterator[tuple[httpx2.AsyncClient, ScriptedModel]]:
    """Run a gateway for a user who has a provider of their own; `config` precedes it in their configuration."""
    user = directory / "user-codex"
    user.mkdir()
    async with asyncio.timeout(PATIENCE_S), ScriptedModel(lambda _: answer(message("Hi.")), record=True) as model:
        provider = {"name": "mine", "base_url": model.base_url, "wire_api": "responses"}
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in provider.items())
        (user / "config.toml").write_text(f'{config}\nmodel_provider = "mine"\n[model_providers.mine]\n{lines}\n')
        async with (
            running_gateway(settings_for_tests(directory, **chosen), api_key=API_KEY) as gateway,
            listening(gateway) as url,
            plain_client(url) as http,
        ):
            yield http, model


@pytest.fixture(scope="module")
async def ollama(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway whose operator has chosen a model that no catalogue has."""
    del anyio_backend  # Named so that its scope is this one's.
    async with running_bridge(tmp_path_factory.mktemp("ollama"), CODEX_MODEL=OLLAMA) as bridge:
        yield bridge


@pytest.mark.promise("models.configured")
@pytest.mark.parametrize("asked", [OLLAMA, OLLAMA.lower(), "codex-5"])
async def test_the_model_sees_its_own_name_and_only_the_clients_items(ollama: Bridge, asked: str) -> None:
    ollama.says("ok")
    sent: JsonObject = {"model": asked, "instructions": "Be kind.", "input": [*ITEMS]}
    answered = await ollama.http.post("/v1/responses", json=sent)
    assert (answered.status_code, answered.headers["x-turnbridge-model"]) == (200, OLLAMA)
    assert answered.headers["x-turnbridge-fidelity"] == "exact"
    assert ollama.seen() == seen_of(OLLAMA, said("developer", "Be kind."), *ITEMS)


@pytest.mark.promise("models.configured")
async def test_what_is_asked_of_it_reaches_it_though_nobody_knows_whether_it_can(ollama: Bridge) -> None:
    ollama.says("ok")
    wishes: JsonObject = {"reasoning": {"effort": "high", "summary": "auto"}, "text": {"verbosity": "low"}}
    sent: JsonObject = {"model": OLLAMA, "input": "hi", "tools": [LOOK], **wishes}
    assert (await ollama.http.post("/v1/responses", json=sent)).status_code == 200
    tools = [{**LOOK, "description": IsStr(), "strict": False, "parameters": IsInstance(dict)}]
    assert ollama.seen() == seen_of(OLLAMA, said("user", "hi"), **wishes, tools=tools)


@pytest.mark.promise("models.configured")
async def test_it_is_listed_with_what_nobody_knows_left_open(ollama: Bridge) -> None:
    listed = (await ollama.http.get("/v1/models")).json()["data"]
    assert [model for model in listed if model["id"] == OLLAMA] == [described(OLLAMA)]
    assert len(listed) > 1, "the models of the catalogue are still there"


@pytest.mark.promise("models.configured")
@pytest.mark.parametrize("tool_mode", ["auto", "native"])
async def test_the_model_of_the_users_codex_configuration_is_served(tmp_path: Path, tool_mode: str) -> None:
    config = f'model = "{OPENROUTER}"\nmodel_reasoning_effort = "low"'
    async with own_provider(tmp_path, config, PROXY_TOOL_MODE=tool_mode) as (http, model):
        shown = await http.get(f"/v1/models/{OPENROUTER}")
        answers = [
            await http.post("/v1/responses", json={"model": name, "input": "hi"}) for name in (OPENROUTER, "codex-5")
        ]
    assert shown.json() == described(OPENROUTER, default_reasoning_effort="low")
    assert [answered.status_code for answered in answers] == [200, 200]
    expected = seen_of(OPENROUTER, said("user", "hi"), reasoning={"effort": "low"})
    assert [request.body for request in model.requests] == [expected, expected]


@pytest.mark.promise("models.default")
async def test_the_operators_choice_wins_over_the_configuration(tmp_path: Path) -> None:
    async with own_provider(tmp_path, f'model = "{OPENROUTER}"', CODEX_MODEL=OLLAMA) as (http, model):
        chat: JsonObject = {"model": "codex-5", "messages": [{"role": "user", "content": "hi"}]}
        assert (await http.post("/v1/chat/completions", json=chat)).status_code == 200
    assert [request.body["model"] for request in model.requests] == [OLLAMA]
