"""Server-sent events as bytes: whole frames only; and text deltas, of which most streams consist, in a hurry."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from turnbridge.turn.events import TextDelta, TurnEvent
from turnbridge.turn.items import JsonObject

CONTENT_TYPE = "text/event-stream; charset=utf-8"
# What stands in a template where a delta's own values go; ids are made of letters and digits.
TEXT_HOLE = "the text goes here"
NUMBER_HOLE = -1

_encoder = msgspec.json.Encoder()

END_OF_FRAME = b"\n\n"
DONE = b"data: [DONE]\n\n"


def data_frame(value: object) -> bytes:
    """Return a frame without a name, as Chat Completions sends."""
    return b"data: " + _encoder.encode(value) + b"\n\n"


def named_frames(events: Iterable[JsonObject]) -> bytes:
    """Return typed events as frames, each named by its type, as Responses sends."""
    return b"".join(
        [b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), _encoder.encode(event)) for event in events]
    )


class TextRun(NamedTuple):
    """Deltas of one message that came together."""

    item_id: str
    texts: list[str]


def in_runs(events: Sequence[TurnEvent]) -> list[TurnEvent | TextRun]:
    """Return events, with the text deltas in runs: encoded one by one, each would cost four times as much."""
    runs: list[TurnEvent | TextRun] = []
    run: TextRun | None = None
    for event in events:
        if not isinstance(event, TextDelta):
            run = None
            runs.append(event)
        elif run is not None and run.item_id == event.item_id:
            run.texts.append(event.text)
        else:
            run = TextRun(event.item_id, [event.text])
            runs.append(run)
    return runs


class TextTemplate:
    """A frame of which only a text changes: encoded once, it is filled in a twentieth of the time.

    Text deltas are most of what a gateway sends. To encode each of them anew took 2 of the 7 µs that one cost.
    """

    __slots__ = ("_after", "_before", "_between")

    def __init__(self, frame: bytes) -> None:
        """`frame` has `TEXT_HOLE` in the place of the text."""
        self._before, _, self._after = frame.partition(_encoder.encode(TEXT_HOLE))
        self._between = self._after + self._before

    def filled(self, texts: Iterable[str]) -> bytes:
        """Return a frame for each text."""
        return self._before + self._between.join(map(_encoder.encode, texts)) + self._after


class NumberedTextTemplate:
    """The same for a frame with a number that comes before the text."""

    __slots__ = ("_after", "_before", "_between")

    def __init__(self, frame: bytes) -> None:
        """`frame` has `NUMBER_HOLE` and `TEXT_HOLE` in the place of the number and the text."""
        self._before, _, rest = frame.partition(_encoder.encode(NUMBER_HOLE))
        self._between, _, self._after = rest.partition(_encoder.encode(TEXT_HOLE))

    def filled(self, first: int, texts: Iterable[str]) -> bytes:
        """Return a frame for each text; `first` is the number of the first."""
        return b"".join(
            [
                b"%b%d%b%b%b" % (self._before, number, self._between, _encoder.encode(text), self._after)
                for number, text in enumerate(texts, first)
            ]
        )


def comment(text: str) -> bytes:
    """Return a line that parsers skip and people can read."""
    return b": " + text.encode() + b"\n\n"


def note(name: str, value: str) -> bytes:
    """Return what a header would say whose time is over."""
    return comment(f"{name}: {value}")
