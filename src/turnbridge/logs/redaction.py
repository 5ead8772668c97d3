"""Redaction and escaping of untrusted text for logs and traces.

A secret is recognised by the name of its field, by its looks, or as one of the gateway's own keys.
"""

import json
import re
from collections.abc import Iterable

REDACTED = "[redacted]"

# Parts of the names of secrets. `token` only at the end: `input_tokens` is a count.
SECRET_WORDS = r"authorization|api[-_]?key|secret|passw(?:or)?d|cookie|credential|private[-_]?key|bearer|token\b"
SECRET_NAME = re.compile(SECRET_WORDS, re.IGNORECASE)

KEY_LOOKS = (
    # Keys of OpenAI and of others with its prefix; a shorter match is rather a word, such as `sk-learn`.
    r"\bsk-[\w-]{12,}",
    # A JSON Web Token, such as Codex's login, whole or truncated. It starts at a word boundary, so that no text is
    # searched twice. The first part names an algorithm, and at most some certificates.
    r"(?<![\w-])eyJ[\w-]{8,8000}\.eyJ[\w-]{8,}(?:\.[\w-]*)?",
    r"(?<=\bbearer )[\w.~+/=-]{16,}",
)
"""Patterns of keys."""

# A text without any of these contains no such key; searching for them is ten times as fast.
KEY_SIGNS = ("sk-", ".eyj", "bearer")
# The only ASCII control character that JSON does not escape.
DELETE = "\x7f"
PIECE_CHARACTERS = 64 * 1024

# A shorter key of the gateway could be an ordinary word, and is only redacted in fields for keys.
SHORTEST_KEY = 8
# A long key is recognised by its first characters, since it may have been truncated.
LONGEST_SIGN = 64
# The rest of a long key.
CUT_REST = r"""[^\s"',]*"""


class OwnKeys:
    """Finds the gateway's own keys, and other secrets by the patterns `looks`."""

    def __init__(self, keys: Iterable[str] = (), *, looks: Iterable[str] = KEY_LOOKS) -> None:
        known = {key[:LONGEST_SIGN] for key in map(str.strip, keys) if len(key) >= SHORTEST_KEY}
        forms = sorted({form for key in known for form in _forms(key)}, key=len, reverse=True)
        own = [re.escape(form) + (CUT_REST if len(form) >= LONGEST_SIGN else "") for form in forms]
        self.pattern = re.compile("|".join((*own, *looks)), re.IGNORECASE)
        lowered = (form.lower() for form in forms)
        self.signs = (*KEY_SIGNS, *(form for form in lowered if not any(sign in form for sign in KEY_SIGNS)))

    def may_be_in(self, text: str) -> bool:
        """Tell quickly whether a text may contain a key."""
        lowered = text.lower()
        # A generator in its place takes three times as long, for every line of the log.
        for sign in self.signs:  # noqa: SIM110
            if sign in lowered:
                return True
        return False

    def are_in(self, text: str) -> bool:
        return self.may_be_in(text) and self.pattern.search(text) is not None

    def removed_from(self, text: str) -> str:
        """Return a text with its keys redacted."""
        return self.pattern.sub(REDACTED, text) if self.may_be_in(text) else text


def one_line(text: str) -> str:
    """Return JSON with all unprintable characters escaped, such as line separators and terminal control characters.

    JSON escapes ASCII control characters itself, so the others can only occur within strings.
    """
    # True of nearly every line; checking each character took a fifth of the time of a line.
    if text.isascii() and DELETE not in text:
        return text
    # In pieces: a list of all characters of a long text takes much memory, and joining them blocks the event loop.
    return "".join(
        "".join(each if each.isprintable() else _escaped(each) for each in text[start : start + PIECE_CHARACTERS])
        for start in range(0, len(text), PIECE_CHARACTERS)
    )


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters: its beginning, its length, and its end."""
    if len(text) <= most:
        return text
    mark = f" … {len(text)} characters … "
    room = most - len(mark)
    return f"{text[: room // 2]}{mark}{text[len(text) - room + room // 2 :]}"


def _forms(key: str) -> tuple[str, ...]:
    """Return a key as it occurs in plain text, in JSON, and in Python's `repr`."""
    return key, json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1], repr(key)[1:-1]


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
