"""`TurnEvent`s → the events of a streamed message, and their fold, the message.

Indexes are dense, one block is open at a time, and each is closed unless an error ends the stream. The last events wait
for `closing`, since a failure may come instead of them.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from turnbridge.api.anthropic.decode import DecodedMessages
from turnbridge.api.anthropic.errors import error_body, too_long
from turnbridge.api.anthropic.history import SEARCH_ID, UNPARSED
from turnbridge.api.anthropic.thinking import Kind, sealed
from turnbridge.api.shared import sse
from turnbridge.turn import events as ev
from turnbridge.turn.errors import ContextTooLong
from turnbridge.turn.items import BETWEEN_MESSAGES, Json, JsonObject, Reasoning

Event: TypeAlias = JsonObject

PING: Event = {"type": "ping"}
REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class _Block:
    """The block that is being written."""

    def __init__(self, item_id: str, block: JsonObject) -> None:
        self.item_id = item_id
        self.block = block
        self.pieces: list[str] = []
        self.thoughts: list[tuple[Kind, int, list[str]]] = []
        """The parts of a thought as they came: of what kind, with which number, and their pieces."""
        self.template: sse.TextTemplate | None = None

    def add_thought(self, kind: Kind, index: int, text: str) -> str:
        """Add a piece of a thought, and return it as the block shows it: parts are set off from one another."""
        shown = text
        if not self.thoughts or self.thoughts[-1][:2] != (kind, index):
            shown = BETWEEN_MESSAGES + text if self.thoughts else text
            self.thoughts.append((kind, index, []))
        self.thoughts[-1][2].append(text)
        self.pieces.append(shown)
        return shown

    def is_of(self, item_id: str, kind: str) -> bool:
        """Tell whether this is the block of an item."""
        return self.item_id == item_id and self.block["type"] == kind


class MessageEncoder:
    """Turns one turn's events into the message that a client reads, streamed or whole."""

    content_type = sse.CONTENT_TYPE
    note = staticmethod(sse.note)

    def __init__(
        self,
        request: DecodedMessages,
        *,
        message_id: str,
        request_id: str,
        window: int | None,
        tokens: Callable[[], int],
    ) -> None:
        """`window` is that of the model, and `tokens` estimates those of the request, for one that is too long."""
        self._thinking = request.thinking
        self._request_id = request_id
        self._window = window
        self._tokens = tokens
        self._head: JsonObject = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": request.turn.spec.model,
        }
        self._content: list[Json] = []
        self._open: _Block | None = None
        self._opened = False
        self._searches = 0
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None
        self.usage = ev.Usage()
        self.failure: ev.TurnFailed | None = None

    def whole(self) -> JsonObject:
        """Return the message; whole once the turn has ended."""
        return {**self._head, "content": list(self._content), **self._ending(), "usage": self._usage()}

    def admitted(self) -> bytes:
        """Return nothing: this API has no event for it."""
        return b""

    def opening(self) -> bytes:
        """Return the start of the message, and a sign that it may take a while."""
        return self._start() + sse.named_frames([PING])

    def frames(self, index: int, events: Sequence[ev.TurnEvent]) -> bytes:
        """Return the frames of events, after the start of the message if that has not gone."""
        del index  # There is one choice.
        frames = b""
        for event in sse.in_runs(events):
            encoded = self._texts(event) if isinstance(event, sse.TextRun) else sse.named_frames(self._events(event))
            frames += self._start() + encoded if encoded and not self._opened else encoded
        return frames

    def closing(self) -> bytes:
        """Return the end of the message, or the error that ended it."""
        if self.failure is not None:
            return sse.named_frames([error_body(self.failure.error, self._request_id)])
        start = b"" if self._opened else self._start()
        delta: Event = {"type": "message_delta", "delta": self._ending(), "usage": self._usage()}
        return start + sse.named_frames([delta, {"type": "message_stop"}])

    def keepalive(self) -> bytes:
        """Return an event without meaning."""
        return sse.named_frames([PING])

    def _start(self) -> bytes:
        self._opened = True
        empty: JsonObject = {**self._head, "content": [], **_ending(None, None), "usage": _usage(ev.Usage())}
        return sse.named_frames([{"type": "message_start", "message": empty}])

    def _events(self, event: ev.TurnEvent) -> list[Event]:
        match event:
            case ev.TextDelta():
                raise AssertionError("Text deltas come in runs.")
            case ev.TurnServed() | ev.MessageStarted():
                return []
            case ev.MessageDone():
                return self._end_text(event)
            case ev.ReasoningStarted() | ev.SummaryDelta() | ev.ReasoningDelta() | ev.ReasoningDone():
                return [] if self._thinking == "no" else self._thought(event)
            case ev.FunctionCallDone():
                return self._call(event)
            case ev.WebSearchDone():
                return self._search(event)
            case ev.TurnCompleted():
                self._stop_sequence = event.stop
                return self._finish("end_turn" if event.stop is None else "stop_sequence", event.usage)
            case ev.CallsAwaited():
                return self._finish("tool_use", event.usage)
            case ev.TurnIncomplete():
                return self._finish(REASONS[event.reason], event.usage)
            case ev.TurnFailed():
                return self._fail(event)
            case _:
                raise ev.unexpected(event)

    def _texts(self, run: sse.TextRun) -> bytes:
        frames = b""
        block = self._open
        if block is None or not block.is_of(run.item_id, "text"):
            started, block = self._begin(run.item_id, {"type": "text", "text": ""})
            frames = sse.named_frames(started)
        if block.template is None:
            delta = self._delta({"type": "text_delta", "text": sse.TEXT_HOLE})
            block.template = sse.TextTemplate(sse.named_frames([delta]))
        block.pieces += run.texts
        return frames + block.template.filled(run.texts)

    def _end_text(self, message: ev.MessageDone) -> list[Event]:
        """Close a text with its citations."""
        block = self._open
        if block is None or not block.is_of(message.item_id, "text"):
            return []
        cited = [_citation(note, message.text) for note in message.annotations if note.get("type") == "url_citation"]
        if cited:
            block.block["citations"] = [*cited]
        return [*(self._delta({"type": "citations_delta", "citation": each}) for each in cited), *self._close()]

    def _thought(
        self, event: ev.ReasoningStarted | ev.SummaryDelta | ev.ReasoningDelta | ev.ReasoningDone
    ) -> list[Event]:
        events: list[Event] = []
        block = self._open
        if block is None or not block.is_of(event.item_id, "thinking"):
            events, block = self._begin(event.item_id, {"type": "thinking", "thinking": "", "signature": ""})
        if isinstance(event, ev.ReasoningDone):
            return [*events, *self._sign(event, block)]
        if isinstance(event, ev.ReasoningStarted) or self._thinking == "signature":
            return events
        text = block.add_thought("s" if isinstance(event, ev.SummaryDelta) else "c", event.index, event.text)
        return [*events, self._delta({"type": "thinking_delta", "thinking": text})]

    def _sign(self, thought: ev.ReasoningDone, block: _Block) -> list[Event]:
        content = thought.content or None
        item = Reasoning(id=thought.item_id, summary=thought.summary, content=content, encrypted=thought.encrypted)
        signature = sealed(item, [(kind, "".join(pieces)) for kind, _, pieces in block.thoughts])
        block.block["signature"] = signature
        return [self._delta({"type": "signature_delta", "signature": signature}), *self._close()]

    def _call(self, call: ev.FunctionCallDone) -> list[Event]:
        given, text = _input(call.arguments)
        head: JsonObject = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        events, block = self._begin(call.item_id, head)
        block.block["input"] = given
        return [*events, self._delta({"type": "input_json_delta", "partial_json": text}), *self._close()]

    def _search(self, search: ev.WebSearchDone) -> list[Event]:
        """Tell of a search that the provider ran, without its results: only what the model says of them is known."""
        self._searches += 1
        search_id, query = f"{SEARCH_ID}{search.item_id}", msgspec.json.encode(search.action).decode()
        head: JsonObject = {"type": "server_tool_use", "id": search_id, "name": "web_search", "input": {}}
        events, block = self._begin(search.item_id, head)
        block.block["input"] = search.action
        events += [self._delta({"type": "input_json_delta", "partial_json": query}), *self._close()]
        found: JsonObject = {"type": "web_search_tool_result", "tool_use_id": search_id, "content": []}
        return [*events, *self._begin(search.item_id, found)[0], *self._close()]

    def _begin(self, item_id: str, block: JsonObject) -> tuple[list[Event], _Block]:
        """Open a block, after the one that is open is closed."""
        closed = self._close()
        self._open = _Block(item_id, dict(block))
        start: Event = {"type": "content_block_start", "index": len(self._content), "content_block": block}
        return [*closed, start], self._open

    def _delta(self, delta: JsonObject) -> Event:
        return {"type": "content_block_delta", "index": len(self._content), "delta": delta}

    def _close(self) -> list[Event]:
        """Close the block that is open, if one is."""
        opened, self._open = self._open, None
        if opened is None:
            return []
        kind = str(opened.block["type"])
        if kind in ("text", "thinking"):
            opened.block[kind] = "".join(opened.pieces)
        stop: Event = {"type": "content_block_stop", "index": len(self._content)}
        self._content.append(opened.block)
        return [stop]

    def _finish(self, reason: str, usage: ev.Usage) -> list[Event]:
        self._stop_reason, self.usage = reason, usage
        return self._close()

    def _fail(self, failed: ev.TurnFailed) -> list[Event]:
        error = failed.error
        if isinstance(error, ContextTooLong) and self._window is not None:
            failed = ev.TurnFailed(too_long(error, tokens=self._tokens(), window=self._window), failed.usage)
        self.failure, self.usage = failed, failed.usage
        # The block stays open, as Anthropic leaves it: Claude Code goes on from blocks that are whole, and asks again.
        self._close()
        return []

    def _ending(self) -> JsonObject:
        return _ending(self._stop_reason, self._stop_sequence)

    def _usage(self) -> JsonObject:
        usage = _usage(self.usage)
        return (
            {**usage, "server_tool_use": {"web_search_requests": self._searches, "web_fetch_requests": 0}}
            if self._searches
            else usage
        )


def _usage(usage: ev.Usage) -> JsonObject:
    """Return the tokens; those that were cached are not counted as input again."""
    return {
        "input_tokens": max(usage.input - usage.cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _ending(reason: str | None, sequence: str | None) -> JsonObject:
    return {"stop_reason": reason, "stop_sequence": sequence, "stop_details": None}


def _input(arguments: str) -> tuple[JsonObject, str]:
    """Return the arguments of a call as an object, and that object as JSON."""
    try:
        given: Json = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        given = None
    if isinstance(given, dict):
        return given, arguments or "{}"
    unparsed: JsonObject = {UNPARSED: arguments}
    return unparsed, msgspec.json.encode(unparsed).decode()


def _citation(note: JsonObject, text: str) -> JsonObject:
    start, end = note.get("start_index"), note.get("end_index")
    cited = text[start:end] if isinstance(start, int) and isinstance(end, int) else ""
    url, title = note.get("url"), note.get("title")
    return {
        "type": "web_search_result_location",
        "url": url if isinstance(url, str) else "",
        "title": title if isinstance(title, str) else None,
        "cited_text": cited,
        "encrypted_index": "",
    }
