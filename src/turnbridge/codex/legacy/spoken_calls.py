"""Calls that the model writes into its text, as the events of calls that it makes: for v1, which knows no others.

What a message says besides its calls stays a message; the space around a call goes with it. The turn is over where the
model has written its calls, so it cannot go on: the client's next request begins another. Of a turn that ends before
the model is done nobody judges the calls, so what it wrote of them stays text, in messages of their own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from turnbridge.codex.legacy.call_parser import (
    Call,
    Piece,
    Text,
    ToolCallParser,
)
from turnbridge.turn import events as ev


@dataclass(slots=True)
class _Message:
    phase: str | None
    parser: ToolCallParser
    said: list[str] = field(default_factory=list)
    space: str = ""
    """Space that goes with a call if one follows."""
    calls: int = 0


class SpokenCalls:
    """Follows the events of one turn; `new_id` gives each call its id."""

    def __init__(self, names: Iterable[str], new_id: Callable[[], str]) -> None:
        self._names = frozenset(names)
        self._new_id = new_id
        self._messages: dict[str, _Message] = {}
        self._calls: list[ev.FunctionCallDone] = []
        self._sources: list[str] = []

    def read(self, happened: Sequence[ev.TurnEvent]) -> list[ev.TurnEvent]:
        """Return the events with the calls read out of the text."""
        return [event for each in happened for event in self._read(each)]

    def _read(self, event: ev.TurnEvent) -> list[ev.TurnEvent]:
        match event:
            case ev.MessageStarted():
                self._messages[event.item_id] = _Message(event.phase, ToolCallParser(self._names))
                return []
            case ev.TextDelta():
                message = self._messages[event.item_id]
                return self._told(event.item_id, message, message.parser.feed(event.text))
            case ev.MessageDone():
                return self._message_done(event)
            case ev.TurnCompleted() if self._calls:
                return [*self._calls, ev.CallsAwaited(event.usage)]
            case ev.TurnCompleted() | ev.CallsAwaited() | ev.TurnIncomplete() | ev.TurnFailed():
                return [*self._cut_off(), event]
            case _:
                return [event]

    def _told(self, item_id: str, message: _Message, pieces: Iterable[Piece]) -> list[ev.TurnEvent]:
        happened: list[ev.TurnEvent] = []
        for piece in pieces:
            match piece:
                case Text():
                    text = message.space + piece.text
                    if message.calls and not message.said:
                        text = text.lstrip()
                    spoken = text.rstrip()
                    message.space = text[len(spoken) :]
                    happened += self._spoken(item_id, message, spoken)
                case Call():
                    call_id = self._new_id()
                    self._calls.append(ev.FunctionCallDone(f"fc_{call_id}", call_id, piece.name, piece.arguments))
                    self._sources.append(piece.source)
                    message.space = ""
                    message.calls += 1
                case _:
                    assert_never(piece)
        return happened

    def _spoken(self, item_id: str, message: _Message, text: str) -> list[ev.TurnEvent]:
        if not text:
            return []
        started = [] if message.said else [ev.MessageStarted(item_id, message.phase)]
        message.said.append(text)
        return [*started, ev.TextDelta(item_id, text)]

    def _message_done(self, event: ev.MessageDone) -> list[ev.TurnEvent]:
        message = self._messages.pop(event.item_id)
        message.phase = event.phase
        happened = self._told(event.item_id, message, message.parser.close())
        if not message.calls:
            happened += self._spoken(event.item_id, message, message.space)
        if message.calls and not message.said:
            return happened
        started = [] if message.said else [ev.MessageStarted(event.item_id, message.phase)]
        done = ev.MessageDone(event.item_id, message.phase, "".join(message.said), event.annotations)
        return [*happened, *started, done]

    def _cut_off(self) -> list[ev.TurnEvent]:
        """Return what was held back: the rest of messages that will not be finished, and the text of every call."""
        happened: list[ev.TurnEvent] = []
        for item_id, message in self._messages.items():
            happened += self._told(item_id, message, message.parser.close())
        self._messages.clear()
        for call, source in zip(self._calls, self._sources, strict=True):
            # Several calls in one block have one text.
            if source:
                item_id = f"msg_{call.call_id}"
                happened += [ev.MessageStarted(item_id, None), ev.TextDelta(item_id, source)]
                happened.append(ev.MessageDone(item_id, None, source))
        return happened
