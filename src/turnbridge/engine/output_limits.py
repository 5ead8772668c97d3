"""Stop sequences and token limits, which Codex does not know: where an answer is cut. Pure."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from turnbridge.engine.ports import Tokenizer
from turnbridge.turn.events import MessageDone, MessageStarted, Terminal, TextDelta, TurnEvent
from turnbridge.turn.items import NARRATION

OPEN_CHARACTERS = 16_384
"""So much text is counted even if the limit is far away: a large limit must not end in one long count."""

Cut: TypeAlias = Literal["stop", "length"]


class Gated(NamedTuple):
    """The events that may pass, and why the answer ends after them, if it does."""

    events: Sequence[TurnEvent]
    cut: Cut | None = None


class OutputLimit:
    """Passes the events of an answer on until a stop sequence or the token limit."""

    def __init__(self, stop: tuple[str, ...], max_tokens: int | None, tokenizer: Tokenizer) -> None:
        self._stop = stop
        self._budget = _TokenBudget(max_tokens, tokenizer) if max_tokens is not None else None
        self._held = ""
        self._item_id = ""
        self._narrating = False

    def feed(self, events: Sequence[TurnEvent]) -> Gated:
        """Return which of `events` may pass."""
        passed: list[TurnEvent] = []
        for event in events:
            if (cut := self._pass(event, passed)) is not None:
                return Gated(passed, cut)
        return Gated(passed)

    def _pass(self, event: TurnEvent, passed: list[TurnEvent]) -> Cut | None:
        if isinstance(event, TextDelta):
            return self._pass_text(event, passed)
        if isinstance(event, MessageStarted):
            self._item_id = event.item_id
            self._narrating = event.phase == NARRATION
            if self._budget is not None:
                self._budget.next_message()
        elif isinstance(event, MessageDone | Terminal) and self._held:
            held, self._held = self._held, ""
            if (cut := self._spend(self._item_id, held, passed)) is not None:
                return cut
        passed.append(event)
        return None

    def _pass_text(self, delta: TextDelta, passed: list[TurnEvent]) -> Cut | None:
        if not self._stop or self._narrating:
            return self._spend(delta.item_id, delta.text, passed)
        text = self._held + delta.text
        # The sequence that ends first, as if the text had come character by character.
        found = [(place + len(stop), place) for stop in self._stop if (place := text.find(stop)) >= 0]
        if found:
            return self._spend(delta.item_id, text[: min(found)[1]], passed) or "stop"
        end = len(text) - max(_overlap(text, stop) for stop in self._stop)
        self._held = text[end:]
        return self._spend(delta.item_id, text[:end], passed)

    def _spend(self, item_id: str, text: str, passed: list[TurnEvent]) -> Cut | None:
        text, exhausted = (text, False) if self._budget is None else self._budget.spend(text)
        if text:
            passed.append(TextDelta(item_id, text))
        return "length" if exhausted else None


class _TokenBudget:
    """Cuts the text of a turn at a number of tokens.

    A token is at least one byte, so the tokenizer is called only when the bytes since its last call could exceed the
    rest: a few times for each answer, not for each delta. Text whose tokens can no longer change is not counted again,
    so that the work is linear.
    """

    def __init__(self, limit: int, tokenizer: Tokenizer) -> None:
        self._left = limit
        self._tokenizer = tokenizer
        self._open = ""
        """The end of the message so far, whose tokens depend on what follows."""
        self._counted = 0
        self._unchecked_bytes = 0

    def next_message(self) -> None:
        """Begin a message: no token spans two messages."""
        self._left -= self._tokenizer.count(self._open) if self._open else 0
        self._open, self._counted, self._unchecked_bytes = "", 0, 0

    def spend(self, text: str) -> tuple[str, bool]:
        """Return the part of `text` within the limit, and whether the limit is reached."""
        before = len(self._open)
        self._open += text
        self._unchecked_bytes += len(text.encode(errors="surrogatepass"))
        if self._counted + self._unchecked_bytes <= self._left and len(self._open) < OPEN_CHARACTERS:
            return text, False
        counted = self._tokenizer.count(self._open)
        if counted > self._left:
            kept = self._tokenizer.cut(self._open, max(self._left, 0))
            return kept[before:], True
        self._open = self._open[self._tokenizer.settled(self._open) :]
        self._counted, self._unchecked_bytes = self._tokenizer.count(self._open), 0
        self._left -= counted - self._counted
        return text, False


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that could be the beginning of `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
