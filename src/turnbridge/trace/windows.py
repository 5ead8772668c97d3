"""Long texts in short steps: one call of native code holds the interpreter's lock, and so the event loop, to its end.

Pure. The result is that of a single `pattern.sub`, for patterns that keep to these bounds.
"""

import codecs
import re
from collections.abc import Callable, Collection, Iterator

WINDOW = 64 * 1024
"""Characters that are searched in one call: at most some 15 ms, whatever they are."""

LOOKAHEAD = 16 * 1024
"""From its first character on, a pattern knows within this many whether it matches; only then may it go on further."""

LOOKBEHIND = 16
"""How far a pattern looks back from there: to the `bearer` before a token."""

LONGEST_MATCH = 256 * 1024
"""A match that does not end within this many characters goes on to the end of the text: no secret is so long."""


def replaced(
    pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str, signs: Collection[str]
) -> str:
    """Return a text with its matches replaced; each has one of the signs in it, or just before it."""
    if len(text) <= WINDOW:
        return pattern.sub(replacement, text)
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = min(start + WINDOW, len(text))
        # A match that begins behind this may need to see more; the next window has it whole.
        decided = end if end == len(text) else end - LOOKAHEAD
        if _has_any(text[max(0, start - LOOKBEHIND) : end], signs):
            for found in pattern.finditer(text, start, end):
                if found.start() >= decided:
                    break
                parts += text[start : found.start()], replacement(found)
                start = found.end() if found.end() < end else _end_of_match(pattern, text, found.start())
        parts.append(text[start:decided])
        start = max(start, decided)
    return "".join(parts)


def has_any(text: str, signs: Collection[str]) -> bool:
    """Tell whether one of some short texts in small letters is in a text, in whatever letters."""
    step = WINDOW - LOOKAHEAD
    return any(_has_any(text[start : start + WINDOW], signs) for start in range(0, len(text), step))


def decoded(data: bytes) -> str:
    """Return bytes as a text, with a mark for each that is no UTF-8."""
    return "".join(codecs.iterdecode(_pieces(data), "utf-8", errors="replace"))


def pieces(text: str) -> Iterator[str]:
    """Return a text in pieces, for work that needs no more than one at a time."""
    return (text[start : start + WINDOW] for start in range(0, len(text), WINDOW))


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[start : start + WINDOW] for start in range(0, len(data), WINDOW))


def _has_any(text: str, signs: Collection[str]) -> bool:
    lowered = text.lower()
    return any(sign in lowered for sign in signs)


def _end_of_match(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return where a match ends that has reached the end of its window."""
    found = pattern.match(text, start, start + LONGEST_MATCH)
    return found.end() if found is not None and found.end() < start + LONGEST_MATCH else len(text)
