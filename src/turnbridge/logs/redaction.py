"""Text from outside as it may stand in a log or a trace: without secrets, on one line, and of bounded length.

A secret is known by the name of its field, by its looks, or because it is one of the gateway's own keys.
"""

import json
import re
from collections.abc import Iterable

REDACTED = "[redacted]"

SECRET_WORDS = r"authorization|api[-_]?key|secret|passw(?:or)?d|cookie|credential|private[-_]?key|bearer|token\b"
"""What names of secrets have in them. `token` only at the end: `input_tokens` is a count."""

SECRET_NAME = re.compile(SECRET_WORDS, re.IGNORECASE)

KEY_LOOKS = (
    # Keys of OpenAI and of many who copy its form; a shorter one is rather a word, such as `sk-learn`.
    r"\bsk-[\w-]{12,}",
    # What Codex has from a login, whole or cut off. It begins where a word does, so that no text is searched twice. The
    # first part names an algorithm, and at most some certificates.
    r"(?<![\w-])eyJ[\w-]{8,8000}\.eyJ[\w-]{8,}(?:\.[\w-]*)?",
    r"(?<=\bbearer )[\w.~+/=-]{16,}",
)
"""What looks like a key wherever it stands."""

KEY_SIGNS = ("sk-", ".eyj", "bearer")
"""A text that has none of these holds no such key. To look for them is ten times as quick."""

DELETE = "\x7f"
"""The only control character that JSON leaves as it is, of those in ASCII."""

PIECE_CHARACTERS = 64 * 1024

SHORTEST_KEY = 8
"""A key of the gateway's own that is shorter could be an ordinary word, and is only removed where keys are sent."""

LONGEST_SIGN = 64
"""By how much of its beginning a long key is known: it may have been cut before it got here."""

CUT_REST = r"""[^\s"',]*"""
"""What may follow of a long key."""


class OwnKeys:
    """Finds the gateway's own keys in texts, and whatever else `looks` like a secret."""

    def __init__(self, keys: Iterable[str] = (), *, looks: Iterable[str] = KEY_LOOKS) -> None:
        known = {key[:LONGEST_SIGN] for key in map(str.strip, keys) if len(key) >= SHORTEST_KEY}
        forms = sorted({form for key in known for form in _forms(key)}, key=len, reverse=True)
        own = [re.escape(form) + (CUT_REST if len(form) >= LONGEST_SIGN else "") for form in forms]
        self.pattern = re.compile("|".join((*own, *looks)), re.IGNORECASE)
        lowered = (form.lower() for form in forms)
        self.signs = (*KEY_SIGNS, *(form for form in lowered if not any(sign in form for sign in KEY_SIGNS)))

    def may_be_in(self, text: str) -> bool:
        """Tell whether a text has to be searched."""
        lowered = text.lower()
        return any(sign in lowered for sign in self.signs)

    def are_in(self, text: str) -> bool:
        """Tell whether a text holds a key."""
        return self.may_be_in(text) and self.pattern.search(text) is not None

    def removed_from(self, text: str) -> str:
        """Return a text without keys."""
        return self.pattern.sub(REDACTED, text) if self.may_be_in(text) else text


def one_line(text: str) -> str:
    """Return JSON on one line, with all that steers a terminal or ends a line for some reader escaped.

    JSON itself escapes what is below a blank, so whatever else is not printable stands inside a string.
    """
    # Nearly every line is such; to look at each of its characters took a fifth of what it costs.
    if text.isascii() and DELETE not in text:
        return text
    # In pieces: a list of all characters of a long text takes much memory, and joining them holds everybody up.
    return "".join(
        "".join(each if each.isprintable() else _escaped(each) for each in text[start : start + PIECE_CHARACTERS])
        for start in range(0, len(text), PIECE_CHARACTERS)
    )


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters: its beginning, how much is left out, and its end."""
    if len(text) <= most:
        return text
    mark = f" … {len(text)} characters … "
    room = most - len(mark)
    return f"{text[: room // 2]}{mark}{text[len(text) - room + room // 2 :]}"


def _forms(key: str) -> tuple[str, ...]:
    """Return a key as it stands in a text, in JSON, and in what Python shows of a list."""
    return key, json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1], repr(key)[1:-1]


def _escaped(character: str) -> str:
    """Return a character as JSON escapes it."""
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
