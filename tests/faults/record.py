"""Writes down what the real Codex says, for the bad one to repeat: `.venv/bin/python -m tests.faults.record`.

`recorded.json` holds the catalogue with one model, the answer to each method, and the notifications of one turn.
"""

import asyncio
import json
import tempfile
from pathlib import Path

import codex_cli_bin

from tests.support.turn_requests import turn_request
from turnbridge.codex.protocol.encode import (
    initialize_params,
    inject_items_params,
    thread_start_params,
    turn_start_params,
)
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.turn.items import (
    Json,
    JsonObject,
    Message,
    TextPart,
)

RECORDED = Path(__file__).with_name("recorded.json")
MODEL = "gpt-5.5"
REQUEST = turn_request(model=MODEL, items=(Message(role="user", parts=(TextPart(text="Hello"),)),))
# Codex's own limit on a line is far beyond any of these.
LONGEST_LINE = 16 * 1024 * 1024


class Codex:
    """An app-server that is asked one thing at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._asked = 0
        self.told: list[JsonObject] = []

    async def ask(self, method: str, params: Json) -> JsonObject:
        """Return Codex's answer; what it tells meanwhile is kept."""
        self._asked += 1
        self._write({"id": self._asked, "method": method, "params": params})
        while True:
            line = await self._read()
            if line.get("id") == self._asked:
                result = line["result"]
                assert isinstance(result, dict)
                return result
            self.told.append(line)

    def tell(self, method: str) -> None:
        """Notify Codex."""
        self._write({"method": method})

    async def until(self, method: str) -> None:
        """Listen until Codex has told this."""
        while not any(line.get("method") == method for line in self.told):
            self.told.append(await self._read())

    def _write(self, line: JsonObject) -> None:
        self._stdin.write(json.dumps(line).encode() + b"\n")

    async def _read(self) -> JsonObject:
        line: JsonObject = json.loads(await self._stdout.readline())
        return line


async def record(scratch: Path) -> JsonObject:
    """Return what one Codex says from its handshake to the end of a turn."""
    binary = codex_cli_bin.bundled_codex_path()
    environment = {"PATH": "/usr/bin:/bin", "CODEX_HOME": str(scratch)}
    async with ScriptedModel(in_order(answer(message("Hello!", pieces=["Hel", "lo!"])))) as model:
        tables = {"name": '"demo"', "base_url": f'"{model.base_url}"', "wire_api": '"responses"'}
        overrides = ['model_provider="demo"', *(f"model_providers.demo.{key}={value}" for key, value in tables.items())]
        flags = [word for override in overrides for word in ("-c", override)]
        models = await asyncio.create_subprocess_exec(
            binary, "debug", "models", "--bundled", env=environment, stdout=asyncio.subprocess.PIPE
        )
        catalog = json.loads((await models.communicate())[0])
        process = await asyncio.create_subprocess_exec(
            binary,
            "app-server",
            *flags,
            env=environment,
            cwd=scratch,
            limit=LONGEST_LINE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        answers, turn = await _conversation(Codex(process))
        process.terminate()
        await process.wait()
    catalog["models"] = [{"slug": entry["slug"]} for entry in catalog["models"] if entry["slug"] == MODEL]
    return {"catalog": catalog, "answers": answers, "turn": turn}


async def _conversation(codex: Codex) -> tuple[JsonObject, list[Json]]:
    answers: JsonObject = {"initialize": await codex.ask("initialize", initialize_params("0"))}
    codex.tell("initialized")
    listing: JsonObject = {"includeHidden": True, "limit": 1000}
    asked: dict[str, JsonObject] = {
        "account/read": {},
        "model/list": listing,
        "config/read": {},
        "thread/loaded/list": {},
    }
    for method, params in asked.items():
        answers[method] = await codex.ask(method, params)
    models, config = answers["model/list"], answers["config/read"]
    assert isinstance(models, dict)
    assert isinstance(config, dict)
    entries = models["data"]
    assert isinstance(entries, list)
    answers["model/list"] = {**models, "data": [m for m in entries if isinstance(m, dict) and m["id"] == MODEL]}
    answers["config/read"] = {"config": {"model": None}}
    started = await codex.ask("thread/start", thread_start_params(REQUEST, ToolNames(())))
    answers["thread/start"] = started
    thread = started["thread"]
    assert isinstance(thread, dict)
    thread_id = str(thread["id"])
    codex.told.clear()
    injected = inject_items_params(thread_id, REQUEST.items, ToolNames(()))
    answers["thread/inject_items"] = await codex.ask("thread/inject_items", injected)
    answers["turn/start"] = await codex.ask("turn/start", turn_start_params(thread_id, REQUEST))
    await codex.until("turn/completed")
    return answers, list(codex.told)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        recorded = asyncio.run(record(Path(directory)))
    RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
