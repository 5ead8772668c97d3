"""Reasoning items inside `signature`: clients return thinking blocks unchanged, and read nothing of a signature.

An envelope is `tb1.` and base64url of JSON: the item's id, its encrypted content, and how its summary and its own text
follow one another in the block's text, so that the item comes back as it was.
"""

import base64
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from turnbridge.turn.items import BETWEEN_MESSAGES, Reasoning

VERSION = "tb1."

Kind = Literal["s", "c"]


class Segment(NamedTuple):
    """A part of a thinking block's text: of the summary (`s`), or of the reasoning's own text (`c`)."""

    kind: Kind
    length: int


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What a signature holds."""

    id: str
    encrypted: str | None = None
    segments: list[Segment] = []


def sealed(item: Reasoning, pieces: Sequence[tuple[Kind, str]]) -> str:
    """Return the signature of a block whose text is `pieces`, joined by blank lines."""
    segments = [Segment(kind, len(text)) for kind, text in pieces]
    if (_texts(pieces, "s"), _texts(pieces, "c")) != (item.summary, item.content or ()):
        # The parts came in another order than the item has them.
        segments = []
    envelope = Envelope(id=item.id or "", encrypted=item.encrypted, segments=segments)
    return VERSION + base64.urlsafe_b64encode(msgspec.json.encode(envelope)).decode().rstrip("=")


def opened(signature: str, text: str) -> Reasoning | None:
    """Return the item of a thinking block; None if the signature is not one of ours."""
    if not signature.startswith(VERSION):
        return None
    encoded = signature[len(VERSION) :]
    try:
        padded = encoded.encode("ascii") + b"=" * (-len(encoded) % 4)
        envelope = msgspec.json.decode(base64.b64decode(padded, b"-_", validate=True), type=Envelope)
    except (ValueError, RecursionError):
        return None
    pieces = _split(text, envelope.segments)
    return Reasoning(
        id=envelope.id or None,
        summary=_texts(pieces, "s"),
        content=_texts(pieces, "c") or None,
        encrypted=envelope.encrypted,
    )


def _texts(pieces: Sequence[tuple[Kind, str]], kind: Kind) -> tuple[str, ...]:
    return tuple(text for each, text in pieces if each == kind)


def _split(text: str, segments: Sequence[Segment]) -> list[tuple[Kind, str]]:
    """Return the pieces of a text; none if it is not as long as they were, since the client shortened it."""
    gap = len(BETWEEN_MESSAGES)
    lengths = [segment.length for segment in segments]
    if min(lengths, default=0) < 0 or sum(lengths) + gap * max(len(lengths) - 1, 0) != len(text):
        return []
    pieces: list[tuple[Kind, str]] = []
    start = 0
    for kind, length in segments:
        pieces.append((kind, text[start : start + length]))
        start += length + gap
    return pieces
