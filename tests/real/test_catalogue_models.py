"""Every model that Codex offers, hidden ones too, sees the client's items and none of Codex's own tools or words."""

import json
import subprocess
from pathlib import Path
from typing import cast

import pytest
from codex_cli_bin import bundled_codex_path
from dirty_equals import IsInstance, IsStr, IsUUID

from tests.real.fidelity_cases import (
    IMAGE,
    call,
    result,
    said,
)
from tests.support.gateway import Bridge, running_bridge
from turnbridge.codex.protocol.catalog import CATALOG_OVERRIDES
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ITEMS = [
    said("developer", "Be brief."),
    said("user", "What is this?", IMAGE),
    said("assistant", "I look.", phase="commentary"),
    call("c1"),
    result("c1", "A dot."),
]


def catalogue(home: Path) -> dict[str, JsonObject]:
    """Return the models that the binary brings along, by name."""
    printed = subprocess.run(
        [bundled_codex_path(), "debug", "models", "--bundled"],
        env={"CODEX_HOME": str(home)},
        capture_output=True,
        check=True,
    )
    return {model["slug"]: model for model in json.loads(printed.stdout)["models"]}


@pytest.mark.promise("items.every-model")
async def test_every_model_sees_only_the_clients_items(bridge: Bridge, tmp_path: Path) -> None:
    models = catalogue(tmp_path)
    assert {model["visibility"] for model in models.values()} == {"list", "hide"}
    seen: dict[str, JsonObject] = {}
    for name in models:
        bridge.says("ok")
        sent: JsonObject = {"model": name, "instructions": "Be kind.", "input": [*ITEMS]}
        assert (await bridge.http.post("/v1/responses", json=sent)).status_code == 200
        seen[name] = bridge.seen()
    assert seen == {
        name: {
            "model": name,
            "input": [{"id": IsStr(), **item} for item in (said("developer", "Be kind."), *ITEMS)],
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"effort": model["default_reasoning_level"]},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": IsUUID(),
            "client_metadata": IsInstance(dict),
        }
        for name, model in models.items()
    }


LOOK: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


async def shown(directory: Path, mode: str) -> dict[str, JsonObject]:
    """Return what each model is shown, with and without instructions and functions, but for Codex's own ids."""
    seen: dict[str, JsonObject] = {}
    async with running_bridge(directory, PROXY_TOOL_MODE=mode) as bridge:
        for name in (model.id for model in bridge.gateway.pool.workers[0].models):
            for sent in ({}, {"instructions": "Be kind."}, {"instructions": "Be kind.", "tools": [LOOK]}):
                bridge.says("ok")
                answered = await bridge.http.post("/v1/responses", json={"model": name, "input": "hi", **sent})
                assert answered.status_code == 200
                body = bridge.seen()
                for key in ("prompt_cache_key", "client_metadata"):
                    del body[key]
                items = cast("list[JsonObject]", body["input"])
                seen[f"{name} {sorted(sent)}"] = {**body, "input": [{**item, "id": None} for item in items]}
    return seen


@pytest.mark.promise("items.every-model")
@pytest.mark.parametrize("mode", ["direct", "native"])
async def test_the_slim_catalogue_changes_nothing_that_a_model_sees(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slim = await shown(tmp_path / "slim", mode)
    for prose in ("base_instructions", "model_messages"):
        monkeypatch.delitem(CATALOG_OVERRIDES, prose)
    assert await shown(tmp_path / "whole", mode) == slim
    assert len(slim) > 30
