"""Records what the real app-server says about a turn: `python -m tests.recordings.record`.

Each file is one turn: every notification of it, one a line, without what differs between two runs (ids that Codex
makes up, times, ports, paths). The expected events are in tests/codex/protocol/test_recordings.py.
"""

import asyncio
import json
import re
import tempfile
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import msgspec
from codex_cli_bin import bundled_codex_path

from tests.support.turn_requests import turn_request
from turnbridge.codex.process.worker import CodexSpec, Worker, start_worker
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.encode import inject_items_params, thread_start_params, turn_start_params
from turnbridge.codex.protocol.jsonrpc import LineSplitter
from turnbridge.codex.protocol.plan import UPDATED
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.scripted_model.replies import (
    USAGE,
    Hangup,
    HttpReply,
    JsonObject,
    OutputItem,
    Reply,
    StreamReply,
    Usage,
    Wait,
    answer,
    created,
    failed,
    function_call,
    incomplete,
    message,
    reasoning,
)
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.turn.items import ImagePart, Message, TextPart

HERE = Path(__file__).parent

PATIENCE_S = 30
"""Longer than any of these turns takes, retries included."""

IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
BROKEN_IMAGE = "data:image/png;base64,iVBORw0KGgo="

ASKED = turn_request(
    model="gpt-5.5",
    items=(
        Message(role="developer", parts=(TextPart(text="Be kind."),)),
        Message(
            role="user",
            parts=(
                TextPart(text="Hello"),
                ImagePart(url=IMAGE, param="input[1].content[1]"),
                ImagePart(url=BROKEN_IMAGE, param="input[1].content[2]"),
            ),
        ),
    ),
    summary="auto",
)

NO_TOOLS = ToolNames(())

WHIMS = (
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:1"),
    (re.compile(r'("(?:startedAt|completedAt|durationMs|startedAtMs|emittedAtMs|create_time)":)[\d.]+'), r"\g<1>0"),
)
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What the model does, and how often Codex may try a broken stream again."""

    replies: tuple[Reply, ...]
    retries: int = 0
    interrupted: bool = False


def says(*items: OutputItem, usage: Usage = USAGE) -> Scenario:
    """Return a scenario of one good answer."""
    return Scenario(replies=(answer(*items, usage=usage),))


def breaks(*steps: OutputItem | JsonObject | Hangup) -> StreamReply:
    """Return an answer that does not end well."""
    return StreamReply(steps=(created(), *steps))


def refuses(status: int, error: JsonObject) -> Scenario:
    """Return a scenario of one HTTP error."""
    return Scenario(replies=(HttpReply(status=status, body={"error": error}),))


def up_to_delta(item: OutputItem) -> OutputItem:
    """Return the item cut off after its first delta."""
    beats = list(item.beats)
    first = next(i for i, beat in enumerate(beats) if isinstance(beat, dict) and "delta" in beat)
    return replace(item, beats=(*beats[: first + 1], Hangup()))


def without_deltas(item: OutputItem) -> OutputItem:
    """Return the item as a provider sends it that does not stream."""
    return replace(item, beats=())


def two_parts() -> OutputItem:
    """Return a message of two texts, the second of which cites a page."""
    first, second = message("One. "), message("Two.")
    citation: JsonObject = {
        "type": "url_citation",
        "start_index": 0,
        "end_index": 3,
        "url": "https://example.com/",
        "title": "Example",
    }
    parts: list[JsonObject] = [
        {"type": "output_text", "text": "One. ", "annotations": []},
        {"type": "output_text", "text": "Two.", "annotations": [citation]},
    ]
    beats = [*first.beats, *({**b, "content_index": 1} for b in second.beats if isinstance(b, dict))]
    return replace(first, item={**first.item, "content": [*parts]}, beats=tuple(beats))


def refusal(text: str) -> OutputItem:
    """Return a message that refuses."""
    part: JsonObject = {"type": "refusal", "refusal": text}
    empty = message("")
    beats: tuple[JsonObject, ...] = (
        {"type": "response.content_part.added", "content_index": 0, "part": {**part, "refusal": ""}},
        {"type": "response.refusal.delta", "content_index": 0, "delta": text},
        {"type": "response.refusal.done", "content_index": 0, "refusal": text},
        {"type": "response.content_part.done", "content_index": 0, "part": part},
    )
    return replace(empty, item={**empty.item, "content": [part]}, beats=beats)


def tool_search(arguments: JsonObject) -> OutputItem:
    """Return a call of Codex's own search for tools, whose arguments are no text."""
    item: JsonObject = {"type": "tool_search_call", "id": None, "call_id": None, "execution": "client"}
    return OutputItem(item={**item, "arguments": arguments, "status": "completed"}, opening={"status": "in_progress"})


MARKUP = "<oai-mem-citation>MEMORY.md:1-2</oai-mem-citation>"

SCENARIOS: dict[str, Scenario] = {
    "phases": says(
        message("Let me see.", phase="commentary", pieces=["Let me ", "see."]),
        message("hello", phase="final_answer", pieces=["hel", "lo"]),
        usage=Usage(input_tokens=20, cached_tokens=8, output_tokens=7, reasoning_tokens=0),
    ),
    "reasoning": says(reasoning(["First.", "Second."], encrypted="c2VjcmV0"), message("Done.")),
    "open_reasoning": says(reasoning(text="All my thoughts."), message("Done.")),
    "silent_reasoning": says(reasoning(encrypted="c2VjcmV0"), message("Done.")),
    "no_deltas": says(without_deltas(reasoning(["Hm."])), without_deltas(message("Whole."))),
    "empty_message": says(message("", pieces=[])),
    "two_parts": says(two_parts()),
    "hidden_markup": says(
        message(f"It rains.{MARKUP}", pieces=["It ", f"rains.{MARKUP[:9]}", MARKUP[9:]]),
        message(f"It {MARKUP}rains.", pieces=["It ", f"{MARKUP}rains."]),
    ),
    "refusal": says(refusal("I will not.")),
    "undeclared_call": Scenario(replies=(answer(function_call("add", {"a": 1})), answer(message("Never mind.")))),
    "undeclared_search": Scenario(replies=(answer(tool_search({"query": "x"})), answer(message("Never mind.")))),
    "retry_of_silence": Scenario(replies=(breaks(Hangup()), answer(message("At last."))), retries=1),
    "retry_of_text": Scenario(
        replies=(breaks(up_to_delta(message("Hello.", pieces=["Hel", "lo."]))), answer(message("Hello."))), retries=1
    ),
    "retry_of_thought": Scenario(
        replies=(
            breaks(up_to_delta(reasoning(["Hm.", "So."], id="rs_cut"))),
            answer(reasoning(["Hm.", "So."], id="rs_whole"), message("Yes.")),
        ),
        retries=1,
    ),
    "retry_after_message": Scenario(
        replies=(breaks(message("I look.", phase="commentary"), Hangup()), answer(message("I see."))), retries=1
    ),
    "interrupted": Scenario(
        replies=(answer(message("ab", pieces=["a", Wait(gate=asyncio.Event()), "b"])),), interrupted=True
    ),
    "cut_stream": Scenario(replies=(breaks(up_to_delta(message("Hello.", pieces=["Hel", "lo."]))),)),
    "incomplete_length": Scenario(replies=(breaks(message("Half a"), incomplete("max_output_tokens")),)),
    "incomplete_filter": Scenario(replies=(breaks(incomplete("content_filter")),)),
    "failed_rate_limit": Scenario(
        replies=(breaks(failed("rate_limit_exceeded", "Rate limit reached. Please try again in 11.054s.")),)
    ),
    "failed_context": Scenario(replies=(breaks(failed("context_length_exceeded", "Too long.")),)),
    "failed_quota": Scenario(replies=(breaks(failed("insufficient_quota", "You exceeded your quota.")),)),
    "failed_server": Scenario(replies=(breaks(failed("server_error", "It broke.")),)),
    "http_400": refuses(400, {"message": "Bad effort.", "code": "unsupported_value", "param": "reasoning.effort"}),
    "http_400_context": refuses(400, {"message": "Too long.", "code": "context_length_exceeded", "param": "input"}),
    "http_401": refuses(401, {"message": "Bad key.", "code": "invalid_api_key"}),
    "http_429": refuses(429, {"message": "Slow down.", "code": "rate_limit_exceeded"}),
    "http_429_quota": refuses(429, {"message": "No more.", "code": "insufficient_quota", "type": "insufficient_quota"}),
    "http_500": refuses(500, {"message": "Oops."}),
    "http_503": refuses(503, {"message": "Busy.", "code": "server_is_overloaded"}),
}


async def record(scenario: Scenario, home: Path) -> list[str]:
    """Return the notifications of one turn, as lines."""
    splitter, lines = LineSplitter(), list[bytes]()
    async with ScriptedModel(in_order(*scenario.replies)) as model:
        worker = await start_worker(_spec(home, model.base_url, scenario.retries))

        def tee(data: bytes) -> None:
            lines.extend(splitter.feed(data))
            worker.connection.receive(data)

        worker.process.receive_by(tee)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await _run_turn(worker, interrupted=scenario.interrupted)
        finally:
            await worker.process.stop()
    notes = [line for line in map(json.loads, lines) if "method" in line and "id" not in line]
    # How the plan stands belongs to no turn.
    return _settled([note for note in notes if note["method"] != UPDATED])


async def _run_turn(worker: Worker, *, interrupted: bool) -> None:
    connection = worker.connection
    opened = await connection.call("thread/start", thread_start_params(ASKED, NO_TOOLS), schema.ThreadStartResult)
    thread_id = opened.thread.id
    inbox = connection.subscribe(thread_id)
    await connection.call(
        "thread/inject_items", inject_items_params(thread_id, ASKED.items, NO_TOOLS), dict[str, msgspec.Raw]
    )
    turn = (await connection.call("turn/start", turn_start_params(thread_id, ASKED), schema.TurnStartResult)).turn
    while True:
        for note in await inbox.batch():
            if isinstance(note, schema.TurnCompleted):
                return
            if interrupted and isinstance(note, schema.AgentMessageDelta):
                connection.cast("turn/interrupt", {"threadId": thread_id, "turnId": turn.id})


def _spec(home: Path, base_url: str, retries: int) -> CodexSpec:
    provider = {"name": "local", "base_url": base_url, "wire_api": "responses"}
    words = [f'model_providers.local.{key}="{value}"' for key, value in provider.items()]
    limits = [f"model_providers.local.{kind}_max_retries={retries}" for kind in ("request", "stream")]
    return CodexSpec(
        binary=bundled_codex_path(),
        home=home,
        workdir=home / "work",
        overrides=('model_provider="local"', *words, *limits),
        version="0",
    )


def _settled(notes: list[JsonObject]) -> list[str]:
    """Return the notifications as lines that are the same in every run."""
    text = "".join(json.dumps(note, ensure_ascii=False, separators=(",", ":")) + "\n" for note in notes)
    for whim, settled in WHIMS:
        text = whim.sub(settled, text)
    for number, made_up in zip(count(1), dict.fromkeys(UUID.findall(text)), strict=False):
        text = text.replace(made_up, f"id-{number}")
    return text.splitlines()


async def main() -> None:
    """Write every recording anew."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for name, scenario in SCENARIOS.items():
            lines = await record(scenario, home)
            (HERE / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
