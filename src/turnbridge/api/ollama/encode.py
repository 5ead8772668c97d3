"""`TurnEvent`s → the lines of a streamed answer, and their fold, the answer as one object.

Every line is an object, also one without news: some clients parse each. Reasoning and narration go to `thinking`; calls
are one line before the last, since Home Assistant does not look for them in that.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from turnbridge.api.ollama.decode import Decoded
from turnbridge.api.ollama.history import UNPARSED, CallPlace
from turnbridge.api.shared import sse
from turnbridge.api.shared.errors import MAX_MESSAGE_CHARS
from turnbridge.api.shared.validation import cut
from turnbridge.turn import events as ev
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import BETWEEN_MESSAGES, NARRATION, Json, JsonObject

CONTENT_TYPE = "application/x-ndjson"
REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}

Line: TypeAlias = JsonObject
RememberCall: TypeAlias = Callable[[CallPlace, str], None]

_encoder = msgspec.json.Encoder()


def line(value: JsonObject) -> bytes:
    """Return an object as a line."""
    return _encoder.encode(value) + b"\n"


def error_body(error: GatewayError) -> JsonObject:
    """Return the body of an error, which is also the line that ends a broken stream."""
    message = error.message
    # There is no field for the parameter.
    if error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    return {"error": cut(message, MAX_MESSAGE_CHARS)}


class OllamaEncoder:
    """Turns one turn's events into the answer that a client reads, streamed or whole."""

    content_type = CONTENT_TYPE

    def __init__(
        self, request: Decoded, *, created_at: str, clock: Callable[[], int], remember: RememberCall = lambda *_: None
    ) -> None:
        """`clock` tells nanoseconds, and `remember` is given the id of each call."""
        self._head: JsonObject = {"model": request.turn.spec.model, "created_at": created_at}
        self._in_chat = request.kind == "chat"
        self._shows_thinking = request.shows_thinking
        self._places = request.places
        self._remember = remember
        self._clock = clock
        self._began_at = clock()
        self._output_at: int | None = None
        self._ended_at: int | None = None
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[Json] = []
        self._phases: dict[str, str | None] = {}
        self._writing: dict[bool, tuple[object, ...]] = {}
        """What was written last, for thinking and for the text."""
        self._templates: dict[bool, sse.TextTemplate] = {}
        self._done_reason = "stop"
        self.usage = ev.Usage()
        self.failure: ev.TurnFailed | None = None

    def whole(self) -> JsonObject:
        """Return the answer; whole once the turn has ended."""
        said = self._said("".join(self._text), thinking="".join(self._thinking), calls=self._calls)
        return {**self._head, **said, **self._ending()}

    def loaded(self, reason: str) -> JsonObject:
        """Return the answer to a client that only loads or unloads a model."""
        return {**self._head, **self._said(""), "done": True, "done_reason": reason}

    def admitted(self) -> bytes:
        """Return nothing: this API has no line for it."""
        return b""

    def opening(self) -> bytes:
        """Return a line that says that the answer may take a while."""
        return self.keepalive()

    def frames(self, index: int, events: Sequence[ev.TurnEvent]) -> bytes:
        """Return the lines of events."""
        del index  # There is one choice.
        lines = [
            self._texts(event) if isinstance(event, sse.TextRun) else b"".join(map(line, self._lines(event)))
            for event in sse.in_runs(events)
        ]
        return b"".join(lines)

    def closing(self) -> bytes:
        """Return the last line, or the error that ended the answer."""
        if self.failure is not None:
            return line(error_body(self.failure.error))
        return line({**self._head, **self._said(""), **self._ending()})

    def keepalive(self) -> bytes:
        """Return a line without news: this format has no comments."""
        return line(self._piece(""))

    def note(self, name: str, value: str) -> bytes:
        """Return nothing: this format has no comments."""
        del name, value
        return b""

    def _lines(self, event: ev.TurnEvent) -> list[Line]:
        match event:
            case ev.TextDelta():
                raise AssertionError("Text deltas come in runs.")
            case ev.SummaryDelta() | ev.ReasoningDelta():
                part = (event.item_id, type(event), event.index)
                return [self._piece("", thinking=text) for text in self._written([event.text], part, thinking=True)]
            case ev.MessageStarted():
                self._phases[event.item_id] = event.phase
                return []
            case ev.FunctionCallDone():
                self._call(event)
                return []
            case ev.TurnServed() | ev.MessageDone() | ev.ReasoningStarted() | ev.ReasoningDone() | ev.WebSearchDone():
                return []
            case ev.TurnCompleted() | ev.CallsAwaited():
                return self._finish("stop", event.usage)
            case ev.TurnIncomplete():
                return self._finish(REASONS[event.reason], event.usage)
            case ev.TurnFailed():
                self.failure, self.usage = event, event.usage
                return []
            case _:
                raise ev.unexpected(event)

    def _texts(self, run: sse.TextRun) -> bytes:
        thinking = self._phases.get(run.item_id) == NARRATION
        texts = self._written(run.texts, (run.item_id,), thinking=thinking)
        if not texts:
            return b""
        template = self._templates.get(thinking)
        if template is None:
            piece = self._piece("", thinking=sse.TEXT_HOLE) if thinking else self._piece(sse.TEXT_HOLE)
            template = self._templates[thinking] = sse.TextTemplate(line(piece))
        return template.filled(texts)

    def _written(self, texts: list[str], part: tuple[object, ...], *, thinking: bool) -> list[str]:
        """Add pieces to one side of the answer, and return them; another part is set off from what stands there."""
        if self._output_at is None:
            self._output_at = self._clock()
        if thinking and not self._shows_thinking:
            return []
        if self._writing.setdefault(thinking, part) != part:
            self._writing[thinking] = part
            texts = [BETWEEN_MESSAGES + texts[0], *texts[1:]]
        (self._thinking if thinking else self._text).extend(texts)
        return texts

    def _call(self, call: ev.FunctionCallDone) -> None:
        self._remember(self._places.next(call.name, call.arguments or "{}"), call.call_id)
        function: JsonObject = {"index": len(self._calls), "name": call.name, "arguments": _object(call.arguments)}
        self._calls.append({"id": call.call_id, "function": function})

    def _finish(self, reason: str, usage: ev.Usage) -> list[Line]:
        self._done_reason, self.usage, self._ended_at = reason, usage, self._clock()
        return [self._piece("", calls=self._calls)] if self._calls else []

    def _piece(self, text: str, *, thinking: str = "", calls: Sequence[Json] = ()) -> Line:
        return {**self._head, **self._said(text, thinking=thinking, calls=calls), "done": False}

    def _said(self, text: str, *, thinking: str = "", calls: Sequence[Json] = ()) -> JsonObject:
        aloud: JsonObject = {"thinking": thinking} if thinking else {}
        if not self._in_chat:
            return {"response": text, **aloud}
        called: JsonObject = {"tool_calls": [*calls]} if calls else {}
        return {"message": {"role": "assistant", "content": text, **aloud, **called}}

    def _ending(self) -> JsonObject:
        """Return how the answer ended, and its nanoseconds; clients divide counts by these, so that none is 0."""
        ended = self._clock() if self._ended_at is None else self._ended_at
        output = ended if self._output_at is None else self._output_at
        return {
            "done": True,
            "done_reason": self._done_reason,
            "total_duration": max(ended - self._began_at, 1),
            "load_duration": 1,
            "prompt_eval_count": self.usage.input,
            "prompt_eval_duration": max(output - self._began_at, 1),
            "eval_count": self.usage.output,
            "eval_duration": max(ended - output, 1),
        }


def _object(arguments: str) -> JsonObject:
    """Return the arguments of a call as an object."""
    try:
        given: Json = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        given = None
    return given if isinstance(given, dict) else {UNPARSED: arguments}
