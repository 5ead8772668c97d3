"""Codex itself as a client of the gateway: what it does when its provider does not speak WebSocket."""

import asyncio
import json
import os
from pathlib import Path

import codex_cli_bin
import pytest
import structlog

from tests.real.conftest import PATIENCE_S
from tests.support.gateway import API_KEY, Bridge
from turnbridge.codex.protocol.encode import SWITCHED_OFF, bare_catalog

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CODEX = str(codex_cli_bin.bundled_codex_path())
# As it comes, Codex declares tools that cannot be carried, and asks other hosts for plugins.
CONFIG = """
model = "gpt-5.5"
model_provider = "gateway"
web_search = "disabled"
model_catalog_json = {catalog}
analytics.enabled = false
features = {features}

[model_providers.gateway]
name = "gateway"
base_url = "{url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
supports_websockets = true
"""


async def printed(home: Path, *words: str) -> str:
    """Return what a command of Codex's prints."""
    command = await asyncio.create_subprocess_exec(
        CODEX,
        *words,
        cwd=home,
        env={"CODEX_HOME": str(home), "HOME": str(home), "PATH": os.environ["PATH"], "GATEWAY_KEY": API_KEY},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            said, complaints = await command.communicate()
    finally:
        if command.returncode is None:
            command.kill()
            await command.wait()
    assert command.returncode == 0, (said + complaints).decode()
    return said.decode()


async def test_codex_falls_back_to_http_at_once_when_it_is_refused_a_websocket(bridge: Bridge, tmp_path: Path) -> None:
    bridge.says("Hello from the model.")
    catalog = tmp_path / "catalog.json"
    known = json.loads(await printed(tmp_path, "debug", "models", "--bundled"))
    catalog.write_text(json.dumps(bare_catalog(known, direct_tools=True)), encoding="utf-8")
    off = ", ".join(f"{name} = false" for name in SWITCHED_OFF)
    config = CONFIG.format(catalog=json.dumps(str(catalog)), features=f"{{{off}}}", url=bridge.url)
    (tmp_path / "config.toml").write_text(config, encoding="utf-8")
    with structlog.testing.capture_logs() as logs:
        told = await printed(tmp_path, "exec", "--skip-git-repo-check", "--json", "Say hello.")
    asked = [(log["method"], log["status"]) for log in logs if log["event"] == "request"]
    assert asked == [("GET", 426), ("POST", 200)]
    items = [event["item"] for event in map(json.loads, told.splitlines()) if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["Hello from the model."]
