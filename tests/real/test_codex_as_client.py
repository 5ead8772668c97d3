"""Codex itself as a client of the gateway: over WebSocket, and over HTTP with the tools that it has by default."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import codex_cli_bin
import pytest
import structlog
from structlog.typing import EventDict

from tests.real.conftest import PATIENCE_S
from tests.support.gateway import API_KEY, Bridge
from tests.support.logs import logged_requests
from tests.support.tool_clients import inputs, shown_outputs, threads
from turnbridge.codex.protocol.catalog import bare_catalog
from turnbridge.codex.protocol.encode import SWITCHED_OFF
from turnbridge.scripted_model.replies import JsonObject, Reply, answer, function_call, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CODEX = str(codex_cli_bin.bundled_codex_path())
# As it comes, but that it asks no other host for anything.
DEFAULTS = """
model = "{model}"
model_provider = "gateway"
analytics.enabled = false
features = {{ apps = false, plugins = false }}

[model_providers.gateway]
name = "gateway"
base_url = "{url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
supports_websockets = {websockets}
"""
# Without tools.
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


async def printed(home: Path, *words: str, folder: Path | None = None) -> str:
    """Return what a command of Codex's prints."""
    command = await asyncio.create_subprocess_exec(
        CODEX,
        *words,
        cwd=folder or home,
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


async def ran(bridge: Bridge, home: Path, words: str, *, requests: int) -> tuple[list[JsonObject], list[EventDict]]:
    """Return what Codex reports of a turn whose provider is the gateway, and the log lines of so many requests."""
    catalog = home / "catalog.json"
    known = json.loads(await printed(home, "debug", "models", "--bundled"))
    catalog.write_text(json.dumps(bare_catalog(known, direct_tools=True)), encoding="utf-8")
    off = ", ".join(f"{name} = false" for name in SWITCHED_OFF)
    config = CONFIG.format(catalog=json.dumps(str(catalog)), features=f"{{{off}}}", url=bridge.url)
    (home / "config.toml").write_text(config, encoding="utf-8")
    with structlog.testing.capture_logs() as logs:
        told = await printed(home, "exec", "--skip-git-repo-check", "--json", words)
        lines = await logged_requests(logs, requests)
    items = [event["item"] for event in map(json.loads, told.splitlines()) if event["type"] == "item.completed"]
    return items, lines


@pytest.mark.promise("websocket.clients", "websocket.warm-up", "websocket.memory")
async def test_codex_warms_up_and_continues_over_one_websocket(bridge: Bridge, tmp_path: Path) -> None:
    # A tool of its own that it declares even so, and answers by itself when nobody is there.
    question = json.dumps({"questions": []})
    bridge.script(answer(function_call("request_user_input", question)), answer(message("Hello from the model.")))
    items, logs = await ran(bridge, tmp_path, "Say hello.", requests=4)
    # The connection, the warm-up, the turn up to the call, and the rest of it.
    asked = [(log["method"], log["status"], log["served_by"]) for log in logs]
    assert asked == [("GET", 101, None), ("POST", 200, None), ("POST", 200, "fresh"), ("POST", 200, "parked")]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["Hello from the model."]


PATCH = """*** Begin Patch
*** Add File: hello.txt
+Hello "there" \\ ü
*** End Patch
"""
PATCHED = 'Hello "there" \\ ü\n'
RUN_UNASKED = "--dangerously-bypass-approvals-and-sandbox"
SCRIPT = 'text(await tools.exec_command({cmd: "cat hello.txt"}))'


async def work_done(
    bridge: Bridge, tmp_path: Path, model: str, *replies: Reply, websockets: bool = False
) -> list[tuple[str, str]]:
    """Let Codex work in an empty folder; return what it did, and how far that came."""
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    (home / "config.toml").write_text(_config(model, bridge, websockets), encoding="utf-8")
    bridge.script(*replies)
    # The only commands are those of this file.
    done = await done_by(home, folder, "Say hello.")
    assert (folder / "hello.txt").read_text(encoding="utf-8") == PATCHED
    return done


def _config(model: str, bridge: Bridge, websockets: bool) -> str:
    return DEFAULTS.format(model=model, url=bridge.url, websockets=str(websockets).lower())


async def done_by(home: Path, folder: Path, *words: str) -> list[tuple[str, str]]:
    """Run `codex exec` with these words; return what it did."""
    told = await printed(home, "exec", *words, "--skip-git-repo-check", RUN_UNASKED, "--json", folder=folder)
    items = [event["item"] for event in map(json.loads, told.splitlines()) if event["type"] == "item.completed"]
    return [(item["type"], item.get("aggregated_output", item.get("text", ""))) for item in items]


def outputs_shown(bridge: Bridge) -> list[str]:
    """Return the outputs that the model was shown at last."""
    shown: Any = inputs(bridge)[-1]
    return [json.dumps(output, ensure_ascii=False) for output in shown_outputs(shown)]


@pytest.mark.promise("tools.codex-cli", "tools.custom", "tools.search")
@pytest.mark.parametrize("websockets", [False, True], ids=["http", "websocket"])
async def test_codex_patches_files_and_runs_commands_with_its_default_tools(
    bridge: Bridge, tmp_path: Path, websockets: bool
) -> None:
    parallel = [
        function_call("client_exec_command", {"cmd": command}, call_id=f"c2{command}")
        for command in ("cat hello.txt", "ls")
    ]
    replies = [
        answer(function_call("apply_patch", {"input": PATCH}, call_id="c1")),
        answer(*parallel),
        answer(function_call("tool_search", {"query": "spawn an agent"}, call_id="c3")),
        answer(message("Said.")),
    ]
    with structlog.testing.capture_logs() as logs:
        done = await work_done(bridge, tmp_path, "gpt-5.5", *replies, websockets=websockets)
        lines = await logged_requests(logs, len(replies))
    assert (101 in {line["status"] for line in lines}) == websockets
    assert (done[0], done[-1]) == (("file_change", ""), ("agent_message", "Said."))
    assert {*done[1:-1]} == {("command_execution", PATCHED), ("command_execution", "hello.txt\n")}
    patched, *commands, found = outputs_shown(bridge)
    assert "Success. Updated the following files:" in patched
    assert ["Hello" in commands[0], "hello.txt" in commands[1], "spawn_agent" in found] == [True] * 3
    tools: Any = [request.body["tools"] for request in bridge.model.requests]
    namespaces = [{tool["name"] for tool in declared if tool["type"] == "namespace"} for declared in tools]
    assert [len(names) for names in namespaces] == [0, 0, 0, 1]
    # Only with the tools that it found there is another thread.
    assert threads(bridge) == 2
    shown: Any = inputs(bridge)[-1]
    bridge.script(answer(message("As before.")))
    resumed = await done_by(tmp_path / "home", tmp_path / "folder", "resume", "--last", "And?")
    assert resumed == [("agent_message", "As before.")]
    again: Any = inputs(bridge)[-1]
    assert outputs_shown(bridge) == [json.dumps(output, ensure_ascii=False) for output in shown_outputs(shown)]
    assert [item.get("content") for item in again[-2:]] == [
        [{"type": "output_text", "text": "Said."}],
        [{"type": "input_text", "text": "And?"}],
    ]


@pytest.mark.promise("tools.codex-cli", "tools.added")
async def test_codex_runs_the_scripts_of_a_model_that_writes_some(bridge: Bridge, tmp_path: Path) -> None:
    patch = f"await tools.apply_patch({json.dumps(PATCH)})"
    done = await work_done(
        bridge,
        tmp_path,
        "gpt-6.1-sol",
        answer(function_call("exec", {"input": patch}, call_id="c1")),
        answer(function_call("exec", {"input": SCRIPT}, call_id="c2")),
        answer(message("Said.")),
    )
    assert done == [("file_change", ""), ("command_execution", PATCHED), ("agent_message", "Said.")]
    assert "Hello" in outputs_shown(bridge)[1]
    assert threads(bridge) == 1
