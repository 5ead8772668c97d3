"""Whatever the model asks for, nothing happens on this machine; whatever lies on it, nothing reaches the model."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import codex_cli_bin
import httpx2
import pytest
from dirty_equals import IsStr

from tests.real.fidelity_cases import said
from tests.support import gateway
from tests.support.gateway import Bridge
from turnbridge.bootstrap import running_gateway
from turnbridge.scripted_model.replies import (
    OutputItem,
    Reply,
    answer,
    custom_tool_call,
    function_call,
    message,
)
from turnbridge.scripted_model.server import ModelRequest, ScriptedModel, in_order
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

# Stands for a path in the test's own directory.
TARGET = "@TARGET@"
TOUCH = f"touch {TARGET}"
SHELL: list[Json] = ["sh", "-c", TOUCH]
PATCH = f"*** Begin Patch\n*** Add File: {TARGET}\n+x\n*** End Patch\n"
SCRIPT = f"await tools.exec_command({{cmd: '{TOUCH}'}}); await tools.apply_patch(`{PATCH}`);"
IMPORT = f"const fs = await import('node:fs'); fs.writeFileSync('{TARGET}', 'x');"

FUNCTIONS: dict[str, JsonObject] = {
    "exec_command": {"cmd": TOUCH, "sandbox_permissions": "require_escalated", "justification": "must"},
    "write_stdin": {"session_id": 1, "chars": f"{TOUCH}\n"},
    "shell": {"command": SHELL},
    "shell_command": {"command": TOUCH},
    "local_shell": {"command": SHELL},
    "container.exec": {"command": SHELL},
    "apply_patch": {"input": PATCH},
    "exec": {"code": SCRIPT},
    "wait": {"cell_id": "1"},
    "view_image": {"path": "/etc/hostname"},
    "read_file": {"file_path": "/etc/hostname"},
    "list_dir": {"dir_path": "/"},
    "grep_files": {"pattern": ".", "path": "/etc/hostname"},
    "list_mcp_resources": {},
    "list_mcp_resource_templates": {},
    "read_mcp_resource": {"server": "codex", "uri": "file:///etc/hostname"},
    "mcp__codex__exec": {"command": TOUCH},
    "update_plan": {"plan": [{"step": TOUCH, "status": "in_progress"}]},
    "web_search": {"query": "q"},
    "image_generation": {"prompt": "p"},
    "spawn_agent": {"task_name": "t", "message": TOUCH},
    "send_message": {"target": "t", "message": TOUCH},
    "followup_task": {"target": "t", "message": TOUCH},
    "wait_agent": {"targets": []},
    "request_user_input": {"questions": []},
    "request_permissions": {"permissions": {"file_system": {"write": ["/"]}}},
    "request_plugin_install": {"plugin_id": "p"},
    "tool_search": {"query": "shell"},
    "create_goal": {"objective": TOUCH},
    "sleep": {"duration_ms": 60_000},
}
CUSTOM_TOOLS = [("apply_patch", PATCH), ("exec", SCRIPT), ("exec", IMPORT), ("js_repl", IMPORT)]
# Calls that are items of their own kind; Codex ran some of them itself in earlier versions.
ITEMS: list[JsonObject] = [
    {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": SHELL, "env": {}}},
    {"type": "shell_call", "call_id": "c1", "action": {"commands": [TOUCH], "timeout_ms": 1000}},
    {"type": "apply_patch_call", "call_id": "c1", "operation": {"type": "create_file", "path": TARGET}},
    {"type": "computer_call", "call_id": "c1", "action": {"type": "screenshot"}, "pending_safety_checks": []},
    {"type": "mcp_call", "server_label": "codex", "name": "exec", "arguments": "{}"},
    {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "shell"}},
    {"type": "unheard_of", "command": TOUCH},
]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """Return a path that must not exist when the test is over."""
    path = tmp_path / "touched"
    yield path
    assert not path.exists()


async def streamed(bridge: Bridge, call: OutputItem, target: Path, *, model: str = "gpt-5.5") -> list[JsonObject]:
    """Return the events that a client reads when the model first makes this call and then says that it is done."""
    aimed: JsonObject = json.loads(json.dumps(call.item).replace(TARGET, str(target)))
    bridge.script(answer(OutputItem(item=aimed, opening={})), answer(message("Done.")))
    sent: JsonObject = {"model": model, "input": "Go.", "stream": True}
    answered = await bridge.http.post("/v1/responses", json=sent)
    lines = answered.text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def ending(events: list[JsonObject]) -> tuple[list[object], list[object]]:
    """Return the names of the terminal events, and the items that the client got, as type and text."""
    ends: list[object] = [event["type"] for event in events if event["type"] in TERMINAL]
    got: list[object] = []
    for event in events:
        match event:
            case {"type": "response.output_item.done", "item": {"content": [{"type": kind, "text": text}]}}:
                got.append((kind, text))
            case {"type": "response.output_item.done", "item": item}:
                got.append(item)
    return ends, got


TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")
DONE: tuple[list[object], list[object]] = (["response.completed"], [("output_text", "Done.")])
NOTHING: tuple[list[object], list[object]] = (["response.completed"], [])


def told(model: ScriptedModel) -> Json:
    """Return what the model was told about its call."""
    match model.requests:
        case [_, ModelRequest(body={"input": [*_, {"output": output}]})]:
            return output
        case other:
            pytest.fail(f"The model was asked {other}")


@pytest.mark.promise("safety.built-ins")
@pytest.mark.parametrize("name", FUNCTIONS)
async def test_a_function_of_codex_is_not_there(bridge: Bridge, target: Path, name: str) -> None:
    events = await streamed(bridge, function_call(name, FUNCTIONS[name]), target)
    assert (ending(events), told(bridge.model)) == (DONE, f"unsupported call: {name}")


@pytest.mark.promise("safety.built-ins")
@pytest.mark.parametrize(("name", "written"), CUSTOM_TOOLS)
async def test_a_custom_tool_of_codex_is_not_there(bridge: Bridge, target: Path, name: str, written: str) -> None:
    events = await streamed(bridge, custom_tool_call(name, written), target)
    assert (ending(events), told(bridge.model)) == (DONE, f"unsupported custom tool call: {name}")


@pytest.mark.promise("safety.built-ins")
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["type"])
async def test_a_call_of_another_kind_does_nothing(bridge: Bridge, target: Path, item: JsonObject) -> None:
    call = OutputItem(item={"id": None, "status": "completed", **item}, opening={})
    events = await streamed(bridge, call, target)
    assert ending(events) in (DONE, NOTHING)


@pytest.mark.promise("safety.scripts")
async def test_a_script_of_a_model_that_calls_tools_from_scripts_finds_no_tool_and_no_module(
    tmp_path: Path, target: Path
) -> None:
    async with gateway.running_bridge(tmp_path, PROXY_TOOL_MODE="native") as bridge:
        for script, error in (
            (SCRIPT, "TypeError: tools.exec_command is not a function"),
            (IMPORT, "unsupported import in exec"),
        ):
            events = await streamed(bridge, custom_tool_call("exec", script), target, model="gpt-6-sol")
            assert ending(events) == DONE
            assert error in json.dumps(told(bridge.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traps:
    """A user's home and a working directory with all that makes Codex run or say something by itself."""

    home: Path
    data: Path
    marks: Path
    """Where whatever runs leaves a file."""

    def sprung(self) -> set[str]:
        """Return the marks that were left."""
        return {mark.name for mark in self.marks.iterdir()}


def set_traps(place: Path, base_url: str) -> Traps:
    """Set traps for Codex, whose model is at this URL."""
    home, data, marks = place / "home", place / "data", place / "marks"
    marks.mkdir(parents=True)
    user, workdir = data / "user-codex", data / "empty-workdir"
    config = f'''
        model = "gpt-5.5"
        model_provider = "own"
        model_reasoning_effort = "high"
        check_for_update_on_startup = false
        developer_instructions = "KEEP OUT"
        notify = ["touch", "{marks}/notify"]
        [model_providers.own]
        name = "own"
        base_url = "{base_url}"
        wire_api = "responses"
        [analytics]
        enabled = false
        [projects."{workdir}"]
        trust_level = "trusted"
    '''
    for folder, settings in ((user, config), (workdir / ".codex", "")):
        folder.mkdir(parents=True)
        whose = folder.parent.name
        server = f'[mcp_servers.{whose}]\ncommand = "touch"\nargs = ["{marks}/{whose}-mcp"]\n'
        (folder / "config.toml").write_text(f"{settings}\n{server}")
        hook = {"type": "command", "command": f"touch {marks}/{whose}-hook"}
        hooks = {event: [{"hooks": [hook]}] for event in ("SessionStart", "UserPromptSubmit", "Stop")}
        (folder / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    for folder in (user / "skills/a", home / ".agents/skills/b", workdir / ".agents/skills/c"):
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: KEEP OUT\n---\nKEEP OUT\n")
    for folder in (user, workdir):
        (folder / "AGENTS.md").write_text("KEEP OUT")
    return Traps(home=home, data=data, marks=marks)


PROMPT = "Use $a, $b and $c."
# Two AGENTS.md, three skills, and the instructions of the configuration.
UNWANTED_WORDS = 6


def command(traps: Traps) -> tuple[Reply, Reply]:
    """Return a model's wish to run a command, and what it says then."""
    call = function_call("exec_command", {"cmd": f"touch {traps.marks}/command"})
    return answer(call), answer(message("Done."))


@pytest.mark.promise("safety.surroundings")
async def test_codex_alone_falls_into_every_trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedModel(in_order(), record=True) as model:
        traps = set_traps(tmp_path, model.base_url)
        model.respond = in_order(*command(traps))
        monkeypatch.setenv("HOME", str(traps.home))
        process = await asyncio.create_subprocess_exec(
            str(codex_cli_bin.bundled_codex_path()),
            *("exec", "--skip-git-repo-check", "--ephemeral"),
            *("--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", PROMPT),
            env={**os.environ, "CODEX_HOME": str(traps.data / "user-codex")},
            cwd=traps.data / "empty-workdir",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0
    assert traps.sprung() >= {"data-mcp", "data-hook", "empty-workdir-mcp", "empty-workdir-hook", "command"}
    assert json.dumps(model.requests[0].body).count("KEEP OUT") >= UNWANTED_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How the gateway served a client on the machine with the traps."""

    traps: Traps
    model: ScriptedModel
    response: JsonObject


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Served]:
    """Return one answer of a gateway that uses the trapped user's Codex."""
    del anyio_backend  # Named so that its scope is this one's.
    async with ScriptedModel(in_order(), record=True) as model:
        traps = set_traps(tmp_path_factory.mktemp("served"), model.base_url)
        model.respond = in_order(*command(traps))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(traps.home))
            async with (
                running_gateway(gateway.settings_for_tests(traps.data), api_key=gateway.API_KEY) as running,
                httpx2.AsyncClient(
                    transport=httpx2.ASGITransport(app=running.app),
                    base_url="http://gateway",
                    headers={"authorization": f"Bearer {gateway.API_KEY}"},
                ) as http,
            ):
                answered = await http.post("/v1/responses", json={"model": "gpt-5.5", "input": PROMPT})
        yield Served(traps=traps, model=model, response=answered.json())


@pytest.mark.promise("start.own-home", "safety.surroundings")
async def test_behind_the_gateway_it_falls_into_none(served: Served) -> None:
    assert served.response["status"] == "completed"
    first = served.model.requests[0].body
    assert (first["tools"], first["input"]) == ([], [{"id": IsStr(), **said("user", PROMPT)}])
    assert told(served.model) == "unsupported call: exec_command"
    assert served.traps.sprung() == set()


@pytest.mark.promise("start.own-home")
async def test_the_users_choice_of_an_effort_counts_and_the_answer_says_so(served: Served) -> None:
    assert served.model.requests[0].body["reasoning"] == {"effort": "high"}
    assert served.response["reasoning"] == {"effort": "high", "summary": None}


@pytest.mark.promise("safety.connections")
async def test_the_users_choice_against_analytics_counts(served: Served) -> None:
    match served.model.requests[0].body["client_metadata"]:
        case {"x-codex-turn-metadata": str(metadata)}:
            assert json.loads(metadata)["analytics_enabled"] is False
        case other:
            pytest.fail(f"No metadata in {other}")
