"""The real Codex with a scripted model as its provider, and what it says, kept word by word.

`recording.jsonl` is what app-server said during the turns of `SCRIPT`. To record it again:
`.venv/bin/python -m tests.codex.process.real_codex`.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import codex_cli_bin
import msgspec

from tests.support.turn_requests import turn_request
from tests.support.waiting import until
from turnbridge.codex.process.backend import AccountBackend
from turnbridge.codex.process.home import prepare_bare_home
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.worker import CodexSpec, Worker, start_worker
from turnbridge.scripted_model.replies import (
    Reply,
    answer,
    error_reply,
    function_call,
    message,
    reasoning,
)
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.turn.events import CallsAwaited
from turnbridge.turn.items import (
    FunctionCallOutput,
    JsonObject,
    Message,
    TextPart,
)
from turnbridge.turn.request import Tool

RECORDING = Path(__file__).with_name("recording.jsonl")

LOOK = Tool(name="look", description="Looks.", parameters={"type": "object"})
ASKED = turn_request(
    model="gpt-5.5", items=(Message(role="user", parts=(TextPart(text="Hello"),)),), summary="auto", tools=(LOOK,)
)
SCRIPT: tuple[Reply, ...] = (
    answer(
        reasoning(["Think.", "Again."], encrypted="secret"),
        message("I look.", phase="commentary"),
        message("Grüß Gott", pieces=["Grüß", " Gott"], phase="final_answer"),
    ),
    answer(function_call("look", {"at": "it"})),
    answer(message("Seen.")),
    error_reply(429, "slow down"),
)


def spec_for(directory: Path, model: ScriptedModel) -> CodexSpec:
    """Return the real Codex with this model as its provider."""
    provider = {"name": "demo", "base_url": model.base_url, "wire_api": "responses"}
    tables = [f'model_providers.demo.{key}="{value}"' for key, value in provider.items()]
    retries = [f"model_providers.demo.{kind}_max_retries=0" for kind in ("request", "stream")]
    prepare_bare_home(directory / "home")
    return CodexSpec(
        binary=codex_cli_bin.bundled_codex_path(),
        home=directory / "home",
        workdir=directory / "work",
        overrides=('model_provider="demo"', *tables, *retries),
        version="0",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCodex:
    """An app-server, seen from both sides."""

    worker: Worker
    backend: AccountBackend
    model: ScriptedModel


@asynccontextmanager
async def running_codex(directory: Path, *replies: Reply) -> AsyncIterator[RunningCodex]:
    """Run Codex until the context ends; the model gives these replies."""
    async with ScriptedModel(in_order(*replies), record=True) as model:
        pool = Pool(partial(start_worker, spec_for(directory, model)), login_state=lambda: None, login_help="")
        running = asyncio.create_task(pool.run())
        try:
            yield RunningCodex(worker=await pool.worker(), backend=AccountBackend(pool), model=model)
        finally:
            running.cancel()
            await asyncio.wait([running])


async def record(directory: Path) -> list[JsonObject]:
    """Return every line about a plain turn, a turn with a tool call, and one that fails."""
    heard = bytearray()
    async with running_codex(directory, *SCRIPT) as codex:
        codex.worker.process.receive_by(_both(heard.extend, codex.worker.connection.receive))
        for _ in range(3):
            thread = await codex.backend.open(ASKED)
            last = [event async for batch in thread.run() for event in batch][-1]
            if isinstance(last, CallsAwaited):
                output = FunctionCallOutput(call_id="call_2_0", output="it")
                [batch async for batch in thread.resume([output])]
            thread.close()
        await until(lambda: heard.count(b'"result":{"status":') == 3)
    return [msgspec.json.decode(line, type=dict) for line in heard.splitlines()]


def _both(first: Callable[[bytes], None], second: Callable[[bytes], None]) -> Callable[[bytes], None]:
    def receive(data: bytes) -> None:
        first(data)
        second(data)

    return receive


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        lines = asyncio.run(record(Path(scratch)))
    RECORDING.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
