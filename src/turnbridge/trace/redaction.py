"""Removes secrets from the messages of a trace, and shortens them.

Pure. A secret is known by the name of its field, by its looks, or because it is one of the gateway's own keys.

It runs beside the event loop, and one call of native code holds the interpreter's lock to its end. So long texts are
searched in windows, with the result of a single `pattern.sub` for patterns that keep to the bounds below. No step takes
longer than some ten milliseconds, or 100 where a string has many megabytes.
"""

import codecs
import contextlib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import msgspec

from turnbridge.logs.redaction import KEY_LOOKS, REDACTED, SECRET_NAME, SECRET_WORDS, OwnKeys
from turnbridge.turn.items import Json

# What a JSON Schema says of a field without telling a value of it, as `default` and `examples` do.
SCHEMA_WORDS = frozenset(
    (
        *("type", "title", "description", "format", "enum", "pattern", "nullable", "readOnly", "writeOnly"),
        *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "items"),
        *("properties", "required", "additionalProperties", "anyOf", "oneOf", "allOf", "$ref"),
    )
)
SECRET_LOOKS = (
    *KEY_LOOKS,
    # A field of JSON in the middle of a text, and its string or number. Where its quotes are escaped, the string ends
    # with a quote that is escaped as often, or with the text. JSON in JSON, eight times, has 255 backslashes.
    (
        rf'(?P<field>"[\w-]{{0,40}}(?:{SECRET_WORDS})[\w-]{{0,20}}(?P<escape>\\{{0,255}})"'
        r'\s{0,1000}:\s{0,1000}(?P<string>(?P=escape)")?)'
        r'(?(string)(?!(?P=escape)")(?s:.+?)(?=(?<!\\)(?P=escape)"|\Z)|-?\d[\w.+-]*)'
    ),
    rf"(?P<query>(?:^|[?&])[^=&?\s]{{0,40}}(?:{SECRET_WORDS})[^=&?\s]{{0,20}}=)[^&\s]+",
)
# By itself, since a text with a URL is no reason to look for the others.
URL_PASSWORD = re.compile(r"""(://[^\s/?#:@"'\\]{0,100}:)[^\s/?#"'\\]{1,4000}(?=@)""")
URL_SIGNS = ("://",)
# A text that has none of these names no secret. To look for them is ten times as quick.
NAME_SIGNS = (
    *("authorization", "api_key", "api-key", "apikey", "secret", "passw", "cookie", "credential", "private", "token"),
)
# The fields of an MCP server that a client declares; a path may be as secret as a header.
SERVER_SECRETS = ("headers", "server_url")
# Of a message where the operator wants all of it: a quarter of a file.
MOST_PAYLOAD_BYTES = 16 * 1024 * 1024
# JSON that is parsed whatever it holds: within ten milliseconds.
SMALL_BYTES = 128 * 1024
# The largest request as Codex gets it. To parse one string of this size takes up to 100 ms, in a single step.
MOST_PARSED_BYTES = 32 * 1024 * 1024
# A field's name that is longer is not searched, but taken for that of a secret.
LONGEST_NAME = 4096
# The errors of a body that is no JSON, or not JSON for us.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# Characters that are searched in one call: at most some 15 ms, whatever they are.
WINDOW = 64 * 1024
# From its first character on, a pattern knows within this many whether it matches; only then may it go on further.
LOOKAHEAD = 16 * 1024
# How far a pattern looks back from there: to the `bearer` before a token.
LOOKBEHIND = 16
# A match that does not end within this many characters goes on to the end of the text: no secret is so long.
LONGEST_MATCH = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A message as it may be written down: JSON."""

    raw: msgspec.Raw
    cut: bool = False


class Redaction:
    """Makes payloads: without secrets, and no longer than wanted."""

    def __init__(
        self, *, keys: Iterable[str] = (), limit: int = 0, within_budget: Callable[[bytes], bool] = lambda _: False
    ) -> None:
        """Take our own keys, the most bytes of a body (0 for all that fits), and which large JSON may be parsed."""
        self._keys = OwnKeys(keys, looks=SECRET_LOOKS)
        self._signs = (*NAME_SIGNS, *self._keys.signs)
        self._limit = limit or MOST_PAYLOAD_BYTES
        self._within_budget = within_budget

    def body(self, data: bytes) -> Payload:
        """Return a body: as JSON if it is JSON and not too much of it, else as a text."""
        if self._is_parsed(data):
            with contextlib.suppress(*UNREADABLE):
                return self.value(msgspec.json.decode(data))
        # Beyond the limit it is only searched for the end of a secret that begins before.
        seen = self._limit + LOOKAHEAD
        text = self.text(decoded(data[:seen]))
        if len(data) <= seen:
            return self._payload(_encoded(text))
        # What is left of the last characters may be the beginning of a secret that is not known yet.
        return self._payload(_encoded(text[:-LOOKAHEAD]), cut=True)

    def value(self, value: Json) -> Payload:
        """Return a value that was a message."""
        return self._payload(msgspec.json.encode(self.clean(value)))

    def text(self, text: str) -> str:
        """Return a text without what looks like a secret. JSON that holds one is written anew, without its spaces."""
        text = replaced(URL_PASSWORD, lambda found: found[1] + REDACTED, text, URL_SIGNS)
        if not has_any(text, self._signs):
            return text
        if text.lstrip().startswith(("{", "[")) and self._is_parsed(text.encode()):
            with contextlib.suppress(*UNREADABLE):
                value: Json = msgspec.json.decode(text)
                cleaned = self.clean(value)
                if cleaned != value:
                    return msgspec.json.encode(cleaned).decode()
        return replaced(self._keys.pattern, _redacted, text, self._signs)

    def clean(self, value: Json, *, secret: bool = False, of_schema: bool = False) -> Json:
        """Return a value without secrets: its name may be one's (`secret`), or its fields described (`of_schema`)."""
        if secret and value and isinstance(value, str | int | float) and not isinstance(value, bool):
            return REDACTED
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.clean(inner, secret=secret) for inner in value]
        if isinstance(value, dict):
            return {
                self.text(name): self.clean(
                    inner,
                    # A JSON Schema describes a password; it does not tell it.
                    secret=secret
                    or (_names_secret(name) and not (of_schema and _describes(inner)))
                    or (name in SERVER_SECRETS and value.get("type") == "mcp"),
                    of_schema=name == "properties",
                )
                for name, inner in value.items()
            }
        return value

    def _is_parsed(self, data: bytes) -> bool:
        return len(data) <= SMALL_BYTES or (len(data) <= MOST_PARSED_BYTES and self._within_budget(data))

    def _payload(self, whole: bytes, *, cut: bool = False) -> Payload:
        """Return JSON, or its beginning as a text if it is too long; it may have been `cut` before."""
        if len(whole) <= self._limit:
            return Payload(raw=msgspec.Raw(whole), cut=cut)
        return Payload(raw=msgspec.Raw(_encoded(whole[: self._limit].decode(errors="ignore"))), cut=True)


def _names_secret(name: str) -> bool:
    return len(name) > LONGEST_NAME or SECRET_NAME.search(name) is not None


def _describes(value: Json) -> bool:
    return isinstance(value, dict) and all(name in SCHEMA_WORDS or not inner for name, inner in value.items())


def _redacted(found: re.Match[str]) -> str:
    """Return a secret's replacement; what comes before it stays, so that one sees what it was."""
    return (found["field"] or found["query"] or "") + REDACTED


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
    pieces = (data[start : start + WINDOW] for start in range(0, len(data), WINDOW))
    return "".join(codecs.iterdecode(pieces, "utf-8", errors="replace"))


def _encoded(text: str) -> bytes:
    """Return a text as JSON."""
    pieces = (text[start : start + WINDOW] for start in range(0, len(text), WINDOW))
    return b"".join((b'"', *(msgspec.json.encode(piece)[1:-1] for piece in pieces), b'"'))


def _has_any(text: str, signs: Collection[str]) -> bool:
    lowered = text.lower()
    return any(sign in lowered for sign in signs)


def _end_of_match(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return where a match ends that has reached the end of its window."""
    found = pattern.match(text, start, start + LONGEST_MATCH)
    return found.end() if found is not None and found.end() < start + LONGEST_MATCH else len(text)
