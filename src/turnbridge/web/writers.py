"""Each API's way of writing an answer: frames while it comes, an object when it is whole."""

from collections.abc import Callable, Sequence

from turnbridge.turn.events import Terminal, TextDelta, TurnEvent, TurnFailed, Usage
from turnbridge.turn.items import JsonObject
from turnbridge.wire import sse
from turnbridge.wire.chat.encode import ChatEncoder
from turnbridge.wire.openai_errors import error_object
from turnbridge.wire.responses.encode import ResponseEncoder

# What stands in a template where a delta's own values go; ids are made of letters and digits.
TEXT_HOLE = "the text goes here"
NUMBER_HOLE = -1


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

    def opening(self) -> bytes:
        return b"".join(map(sse.data_frame, self._encoder.opening()))

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        return b"".join([self._frame(index, event) for event in events])

    def _frame(self, index: int, event: TurnEvent) -> bytes:
        if not isinstance(event, TextDelta):
            return b"".join(map(sse.data_frame, self._encoder.feed(index, event)))
        side, text = self._encoder.take_text(index, event)
        template = self._texts.get((index, side))
        if template is None:
            frame = sse.data_frame(self._encoder.text_chunk(index, side, TEXT_HOLE))
            template = self._texts[index, side] = sse.TextTemplate(frame, TEXT_HOLE)
        return template.filled(text)

    def closing(self) -> bytes:
        if self._encoder.failure is not None:
            return sse.data_frame({"error": error_object(self._encoder.failure.error)})
        return b"".join(map(sse.data_frame, self._encoder.closing())) + sse.DONE

    def keepalive(self) -> bytes:
        return sse.comment("keepalive")

    def whole(self) -> JsonObject:
        return self._encoder.completion


class ResponsesWriter:
    """Writes responses; the last event waits for `closing`, since what it says may still change."""

    def __init__(self, encoder: ResponseEncoder, now: Callable[[], int]) -> None:
        self._encoder = encoder
        self._now = now
        self._last: JsonObject | None = None
        self._texts: dict[str, sse.NumberedTextTemplate] = {}

    @property
    def failure(self) -> TurnFailed | None:
        return self._encoder.failure

    @property
    def usage(self) -> Usage:
        return self._encoder.usage

    def opening(self) -> bytes:
        return named_frames(self._encoder.opening())

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        del index  # This API has one answer only.
        return b"".join(map(self._frame, events))

    def _frame(self, event: TurnEvent) -> bytes:
        if isinstance(event, TextDelta) and (number := self._encoder.continue_text(event)) is not None:
            template = self._texts.get(event.item_id)
            if template is None:
                told = self._encoder.text_event(event.item_id, NUMBER_HOLE, TEXT_HOLE)
                template = sse.NumberedTextTemplate(named_frames([told]), NUMBER_HOLE, TEXT_HOLE)
                self._texts[event.item_id] = template
            return template.filled(number, event.text)
        happened = self._encoder.feed(event, now=self._now())
        if isinstance(event, Terminal):
            self._last = happened.pop()
        return named_frames(happened)

    def closing(self) -> bytes:
        return b"" if self._last is None else named_frames([{**self._last, "response": self._encoder.response}])

    def keepalive(self) -> bytes:
        # The last event has its number already.
        return sse.comment("keepalive") if self._last is not None else named_frames([self._encoder.still_in_progress()])

    def whole(self) -> JsonObject:
        return self._encoder.response


def named_frames(events: Sequence[JsonObject]) -> bytes:
    """Return typed events as they stand in a stream."""
    return b"".join(sse.named_frame(str(event["type"]), event) for event in events)
