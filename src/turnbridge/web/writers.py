"""Each API's way of writing an answer: frames while it comes, an object when it is whole."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from turnbridge.api.chat.encode import ChatEncoder
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.shared import sse
from turnbridge.api.shared.errors import error_object
from turnbridge.turn.events import (
    Terminal,
    TextDelta,
    TurnEvent,
    TurnFailed,
    Usage,
)
from turnbridge.turn.items import JsonObject

# What stands in a template where a delta's own values go; ids are made of letters and digits.
TEXT_HOLE = "the text goes here"
NUMBER_HOLE = -1


class TextRun(NamedTuple):
    """Pieces of one message's text that have come together. Each is told in a frame of its own."""

    item_id: str
    texts: list[str]


def in_runs(events: Sequence[TurnEvent]) -> Iterator[TurnEvent | TextRun]:
    """Yield events, but pieces of text in runs: one by one, each would cost four times as much."""
    run: TextRun | None = None
    for event in events:
        if isinstance(event, TextDelta):
            if run is not None and run.item_id == event.item_id:
                run.texts.append(event.text)
                continue
            if run is not None:
                yield run
            run = TextRun(event.item_id, [event.text])
            continue
        if run is not None:
            yield run
            run = None
        yield event
    if run is not None:
        yield run


class ChatWriter:
    """Writes chat completions."""

    def __init__(self, encoder: ChatEncoder) -> None:
        self._encoder = encoder
        self._texts: dict[tuple[int, str], sse.TextTemplate] = {}

    @property
    def failure(self) -> TurnFailed | None:
        return self._encoder.failure

    @property
    def usage(self) -> Usage:
        return self._encoder.usage

    def opening(self, *, speaks: bool) -> bytes:
        return b"".join(map(sse.data_frame, self._encoder.opening(speaks=speaks)))

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        return b"".join([self._frames(index, told) for told in in_runs(events)])

    def _frames(self, index: int, told: TurnEvent | TextRun) -> bytes:
        if not isinstance(told, TextRun):
            return b"".join(map(sse.data_frame, self._encoder.feed(index, told)))
        side, texts = self._encoder.take_texts(index, told.item_id, told.texts)
        template = self._texts.get((index, side))
        if template is None:
            frame = sse.data_frame(self._encoder.text_chunk(index, side, TEXT_HOLE))
            template = self._texts[index, side] = sse.TextTemplate(frame, TEXT_HOLE)
        return template.filled(texts)

    def closing(self) -> bytes:
        if self._encoder.failure is not None:
            return sse.data_frame({"error": error_object(self._encoder.failure.error)})
        return b"".join(map(sse.data_frame, self._encoder.closing())) + sse.DONE

    def keepalive(self) -> bytes:
        return sse.comment("keepalive")

    def whole(self) -> JsonObject:
        return self._encoder.completion


class ResponsesWriter:
    """Writes responses; the last event waits for `closing`, since what it says may still change.

    So does the error before it: clients hang up there.
    """

    def __init__(self, encoder: ResponseEncoder, now: Callable[[], int]) -> None:
        self._encoder = encoder
        self._now = now
        self._ending: list[JsonObject] = []
        self._texts: dict[str, sse.NumberedTextTemplate] = {}

    @property
    def failure(self) -> TurnFailed | None:
        return self._encoder.failure

    @property
    def usage(self) -> Usage:
        return self._encoder.usage

    def opening(self, *, speaks: bool) -> bytes:
        del speaks  # Here it makes no difference.
        return named_frames(self._encoder.opening())

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        del index  # This API has one answer only.
        return b"".join(map(self._frames, in_runs(events)))

    def _frames(self, told: TurnEvent | TextRun) -> bytes:
        return self._text_frames(told) if isinstance(told, TextRun) else self._frames_of(told)

    def _text_frames(self, run: TextRun) -> bytes:
        item_id, texts = run
        opening = b""
        if not self._encoder.writes_text(item_id):
            # The first piece opens the part that the others continue.
            opening, texts = self._frames_of(TextDelta(item_id, texts[0])), texts[1:]
        template = self._texts.get(item_id)
        if template is None:
            event = self._encoder.text_event(item_id, NUMBER_HOLE, TEXT_HOLE)
            template = sse.NumberedTextTemplate(named_frames([event]), NUMBER_HOLE, TEXT_HOLE)
            self._texts[item_id] = template
        return opening + template.filled(self._encoder.continue_text(item_id, texts), texts)

    def _frames_of(self, event: TurnEvent) -> bytes:
        happened = self._encoder.feed(event, now=self._now())
        if isinstance(event, Terminal):
            ending = -2 if isinstance(event, TurnFailed) else -1
            happened, self._ending = happened[:ending], happened[ending:]
        return named_frames(happened)

    def closing(self) -> bytes:
        if not self._ending:
            return b""
        *before, last = self._ending
        return named_frames([*before, {**last, "response": self._encoder.response}])

    def keepalive(self) -> bytes:
        # The last event has its number already.
        return sse.comment("keepalive") if self._ending else named_frames([self._encoder.still_in_progress()])

    def whole(self) -> JsonObject:
        return self._encoder.response


def named_frames(events: Sequence[JsonObject]) -> bytes:
    """Return typed events as they stand in a stream."""
    return b"".join(sse.named_frame(str(event["type"]), event) for event in events)
