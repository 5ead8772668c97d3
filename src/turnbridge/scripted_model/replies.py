"""What a scripted model does, as values: the reply to one request, and builders for the stream's events.

Pure: a silence is only named here, the server lives through it. The fields are those of the Responses API.
"""

# ruff: noqa: A002 - `id` and `input` are the fields' names in the API.

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The model sends nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The model sends nothing until the gate is opened."""

    gate: asyncio.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Hangup:
    """The connection breaks; nothing after this is sent."""


Silence: TypeAlias = Pause | Wait | Hangup
Beat: TypeAlias = JsonObject | Silence
"""One step of a stream: an event, or a pause."""

ID_PREFIXES: dict[Json, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputItem:
    """One item of an answer: how it ends, the fields that differ when it opens, and the beats between.

    An `id` or `call_id` that is None gets a value when the reply is rendered.
    """

    item: JsonObject
    opening: JsonObject
    beats: tuple[Beat, ...] = ()

    def at(self, index: int, key: str) -> Iterator[Beat]:
        """Yield the item's events as they look at this place of the answer."""
        prefixes = {"id": ID_PREFIXES.get(self.item["type"], "item"), "call_id": "call"}
        missing = [name for name in prefixes if self.item.get(name, "") is None]
        item = {**self.item, **{name: f"{prefixes[name]}_{key}_{index}" for name in missing}}
        opened = {**item, **self.opening}
        yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        for beat in self.beats:
            yield {**beat, "item_id": item["id"], "output_index": index} if isinstance(beat, dict) else beat
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """A plain JSON answer instead of a stream, such as an error."""

    status: int
    body: JsonObject
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReply:
    """A stream that ends where its steps end, also without a terminal event.

    Missing ids are made of `key`, or else of the request's ordinal. `burst` joins the events between two
    silences into one write.
    """

    steps: tuple[Beat | OutputItem, ...]
    key: str | None = None
    burst: bool = False
    headers: dict[str, str] = field(default_factory=dict)

    def render(self, ordinal: int) -> Iterator[Beat]:
        """Yield the reply's beats with every index, sequence number and missing id filled in."""
        numbers = count()
        for beat in self._beats(self.key or str(ordinal)):
            yield {**beat, "sequence_number": next(numbers)} if isinstance(beat, dict) else beat

    def _beats(self, key: str) -> Iterator[Beat]:
        indexes = count()
        for step in self.steps:
            if isinstance(step, OutputItem):
                yield from step.at(next(indexes), key)
            elif isinstance(step, dict) and isinstance(response := step.get("response"), dict):
                yield {**step, "response": {**response, "id": response.get("id") or f"resp_{key}"}}
            else:
                yield step


Reply: TypeAlias = HttpReply | StreamReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens that one model call claims; reasoning is part of the output."""

    input_tokens: int = 10
    cached_tokens: int = 2
    output_tokens: int = 5
    reasoning_tokens: int = 1

    def json(self) -> JsonObject:
        """Return the usage as the API writes it."""
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "total_tokens": self.input_tokens + self.output_tokens,
        }


USAGE = Usage()


def created() -> JsonObject:
    """Return the event that opens every stream."""
    return _response("created", {"status": "in_progress"})


def completed(usage: Usage = USAGE) -> JsonObject:
    """Return the event that ends a good answer."""
    return _response("completed", {"status": "completed", "usage": usage.json()})


def failed(code: str, message: str) -> JsonObject:
    """Return the event that ends a stream in an error."""
    return _response("failed", {"status": "failed", "error": {"code": code, "message": message}})


def incomplete(reason: str) -> JsonObject:
    """Return the event that ends an answer that was cut short, such as by `max_output_tokens`."""
    details: JsonObject = {"reason": reason}
    return _response("incomplete", {"status": "incomplete", "incomplete_details": details, "usage": USAGE.json()})


def message(
    text: str,
    *,
    id: str | None = None,
    phase: str | None = None,
    pieces: Sequence[str | Silence] | None = None,
) -> OutputItem:
    """Return an assistant's message, streamed at once or in these pieces, with pauses between them."""
    part: JsonObject = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item: JsonObject = {"type": "message", "id": id, "role": "assistant", "content": [part]}
    ending: JsonObject = {"status": "completed"} if phase is None else {"status": "completed", "phase": phase}
    at: JsonObject = {"content_index": 0}
    return OutputItem(
        item={**item, **ending},
        opening={"content": [], "status": "in_progress"},
        beats=(
            {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
            *_deltas("output_text", [text] if pieces is None else pieces, {**at, "logprobs": []}),
            {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **at, "part": part},
        ),
    )


def reasoning(
    summaries: Sequence[str] = (),
    *,
    id: str | None = None,
    encrypted: str | None = None,
    text: str | None = None,
) -> OutputItem:
    """Return a reasoning item: its summary parts, one delta each, and its raw text if it shows it."""
    parts: list[Json] = [{"type": "summary_text", "text": summary} for summary in summaries]
    item: JsonObject = {"type": "reasoning", "id": id, "summary": parts, "encrypted_content": encrypted}
    opening: JsonObject = {"summary": []}
    beats: list[Beat] = []
    for index, summary in enumerate(summaries):
        at: JsonObject = {"summary_index": index}
        empty: JsonObject = {"type": "summary_text", "text": ""}
        beats += [
            {"type": "response.reasoning_summary_part.added", **at, "part": empty},
            {"type": "response.reasoning_summary_text.delta", **at, "delta": summary},
            {"type": "response.reasoning_summary_text.done", **at, "text": summary},
            {"type": "response.reasoning_summary_part.done", **at, "part": parts[index]},
        ]
    if text is not None:
        item["content"], opening["content"] = [{"type": "reasoning_text", "text": text}], []
        beats += [
            {"type": "response.reasoning_text.delta", "content_index": 0, "delta": text},
            {"type": "response.reasoning_text.done", "content_index": 0, "text": text},
        ]
    return OutputItem(item=item, opening=opening, beats=tuple(beats))


def function_call(
    name: str,
    arguments: str | JsonObject,
    *,
    call_id: str | None = None,
    id: str | None = None,
    pieces: Sequence[str | Silence] | None = None,
) -> OutputItem:
    """Return a call of a client's function; arguments given as text stay as they are, valid or not."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    item: JsonObject = {"type": "function_call", "id": id, "call_id": call_id, "name": name}
    return OutputItem(
        item={**item, "arguments": text, "status": "completed"},
        opening={"arguments": "", "status": "in_progress"},
        beats=(
            *_deltas("function_call_arguments", [text] if pieces is None else pieces, {}),
            {"type": "response.function_call_arguments.done", "name": name, "arguments": text},
        ),
    )


def custom_tool_call(name: str, input: str) -> OutputItem:
    """Return a call of a tool that takes free text."""
    return OutputItem(
        item={"type": "custom_tool_call", "id": None, "call_id": None, "name": name, "input": input},
        opening={"input": ""},
        beats=(
            *_deltas("custom_tool_call_input", [input], {}),
            {"type": "response.custom_tool_call_input.done", "input": input},
        ),
    )


def web_search_call(query: str, *, id: str | None = None) -> OutputItem:
    """Return a web search that the provider ran by itself."""
    action: JsonObject = {"type": "search", "query": query}
    states = ("in_progress", "searching", "completed")
    return OutputItem(
        item={"type": "web_search_call", "id": id, "status": "completed", "action": action},
        opening={"status": "in_progress"},
        beats=tuple({"type": f"response.web_search_call.{state}"} for state in states),
    )


def answer(
    *items: OutputItem | Silence, usage: Usage = USAGE, key: str | None = None, burst: bool = False
) -> StreamReply:
    """Return a completed answer of these items, with pauses between them."""
    return StreamReply(steps=(created(), *items, completed(usage)), key=key, burst=burst)


def error_reply(status: int, message: str, *, code: str | None = None, param: str | None = None) -> HttpReply:
    """Return an error as the API writes it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return HttpReply(status=status, body={"error": {"message": message, "type": kind, "param": param, "code": code}})


def _response(event: str, fields: JsonObject) -> JsonObject:
    response: JsonObject = {"id": None, "object": "response", "created_at": 0, "model": "scripted"}
    response |= {"output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {"type": f"response.{event}", "response": {**response, **fields}}


def _deltas(kind: str, pieces: Sequence[str | Silence], fields: JsonObject) -> list[Beat]:
    kind = f"response.{kind}.delta"
    return [{"type": kind, **fields, "delta": p} if isinstance(p, str) else p for p in pieces]
