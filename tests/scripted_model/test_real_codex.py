"""The real codex binary takes the scripted model for its provider."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from codex_cli_bin import bundled_codex_path

from turnbridge.scripted_model import persona
from turnbridge.scripted_model.replies import (
    Json,
    JsonObject,
    Wait,
    answer,
    function_call,
    message,
    reasoning,
)
from turnbridge.scripted_model.server import ScriptedModel, in_order

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PATIENCE = 30
"""Seconds after which a conversation with Codex has failed; it takes less than two."""

LINE_LIMIT = 1 << 24
"""Bytes in one line of app-server's output: far more than these tests cause."""


class Codex:
    """As much of app-server's protocol as one turn needs; `lines` is all that was read."""

    def __init__(self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self.lines: list[JsonObject] = []

    def send(self, line: JsonObject) -> None:
        self._stdin.write(json.dumps(line).encode() + b"\n")

    async def read(self, key: str, value: str) -> JsonObject:
        """Return the first line with this field among those that were read or are still to come."""
        for line in self.lines:
            if line.get(key) == value:
                return line
        while text := await self._stdout.readline():
            self.lines.append(json.loads(text))
            if self.lines[-1].get(key) == value:
                return self.lines[-1]
        pytest.fail(f"Codex ended without a line with {key}={value}: {self.lines}")

    async def call(self, method: str, params: JsonObject) -> Json:
        self.send({"id": method, "method": method, "params": params})
        return (await self.read("id", method))["result"]

    async def start_turn(self, text: str, tools: list[Json]) -> tuple[Json, Json]:
        """Start a turn on a thread that may run nothing on this machine, and return both ids."""
        safe: JsonObject = {"environments": [], "approvalPolicy": "never", "sandbox": "read-only"}
        plain: JsonObject = {"ephemeral": True, "config": {"include_environment_context": False}}
        opened = await self.call("thread/start", {**safe, **plain, "dynamicTools": tools})
        thread = opened["thread"]["id"]  # type: ignore[index, call-overload]
        sent: list[Json] = [{"type": "text", "text": text}]
        started = await self.call("turn/start", {"threadId": thread, "input": sent, "summary": "auto"})
        return thread, started["turn"]["id"]  # type: ignore[index, call-overload]

    def streamed(self, method: str) -> str:
        """Return the joined deltas of all notifications of this method."""
        deltas = []
        for line in self.lines:
            match line:
                case {"method": str(name), "params": {"delta": str(delta)}} if name == method:
                    deltas.append(delta)
        return "".join(deltas)


@asynccontextmanager
async def codex_on(model: ScriptedModel, home: Path) -> AsyncIterator[Codex]:
    provider = f'name = "local"\nbase_url = "{model.base_url}"\nwire_api = "responses"\nstream_max_retries = 0'
    config = f'model = "gpt-5.5"\nmodel_provider = "local"\n[model_providers.local]\n{provider}\n'
    (home / "config.toml").write_text(config)
    process = await asyncio.create_subprocess_exec(
        *(str(bundled_codex_path()), "app-server"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"CODEX_HOME": str(home), "HOME": str(home)},
        cwd=home,
        limit=LINE_LIMIT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    client: JsonObject = {"name": "turnbridge", "title": "Turnbridge's tests", "version": "0"}
    try:
        async with asyncio.timeout(PATIENCE):
            codex = Codex(process.stdin, process.stdout)
            capabilities: JsonObject = {"experimentalApi": True}
            await codex.call("initialize", {"clientInfo": client, "capabilities": capabilities})
            codex.send({"method": "initialized"})
            yield codex
    finally:
        process.kill()
        await process.communicate()


async def test_the_demo_model_talks_through_codex(tmp_path: Path) -> None:
    async with ScriptedModel(persona.respond) as model, codex_on(model, tmp_path) as codex:
        await codex.start_turn("Good morning", [])
        await codex.read("method", "turn/completed")
    said = codex.streamed("item/agentMessage/delta")
    assert said.startswith(f"{persona.GREETING} You said: “Good morning”")
    assert codex.streamed("item/reasoning/summaryTextDelta") == persona.SUMMARY
    assert (model.received, model.active, model.dropped) == (1, 0, 0)


async def test_codex_sends_back_what_the_model_said_and_what_its_function_returned(tmp_path: Path) -> None:
    tool: JsonObject = {
        "type": "function",
        "name": "add",
        "description": "Adds.",
        "inputSchema": {"type": "object"},
    }
    items = [reasoning(["Hm."], encrypted="secret"), message("I add."), function_call("add", {"a": 1})]
    script = in_order(answer(*items), answer(message("It is 42.")))
    async with ScriptedModel(script, record=True) as model, codex_on(model, tmp_path) as codex:
        await codex.start_turn("Add it", [tool])
        asked = await codex.read("method", "item/tool/call")
        returned: list[Json] = [{"type": "inputText", "text": "42"}]
        codex.send({"id": asked["id"], "result": {"contentItems": returned, "success": True}})
        await codex.read("method", "turn/completed")
    sent = model.requests[1].body["input"]
    assert isinstance(sent, list)
    assert [strip_server_ids(item) for item in sent[-5:]] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Add it"}]},
        {
            "type": "reasoning",
            "id": "rs_1_0",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "content": None,
            "encrypted_content": "secret",
        },
        {**items[1].item, "id": "msg_1_1"},
        {**items[2].item, "id": "fc_1_2", "call_id": "call_1_2"},
        {"type": "function_call_output", "call_id": "call_1_2", "output": "42"},
    ]
    assert codex.streamed("item/agentMessage/delta") == "I add.It is 42."


async def test_an_interrupted_turn_drops_its_stream(tmp_path: Path) -> None:
    held = answer(message("ab", pieces=["a", Wait(gate=asyncio.Event()), "b"]))
    async with ScriptedModel(lambda _: held) as model, codex_on(model, tmp_path) as codex:
        thread, turn = await codex.start_turn("Wait", [])
        await codex.read("method", "item/agentMessage/delta")
        assert (model.active, model.dropped) == (1, 0)
        await codex.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await model.until(lambda model: model.active == 0)
        assert model.dropped == 1


def strip_server_ids(item: Json) -> Json:
    """Return the item without the id, if Codex made it."""
    assert isinstance(item, dict)
    made_by_codex = item["type"] == "function_call_output" or item.get("role") == "user"
    return {name: value for name, value in item.items() if not (made_by_codex and name == "id")}
