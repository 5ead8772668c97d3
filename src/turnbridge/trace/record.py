"""One line of the trace, and what must not stand in it.

Pure: time and place are passed in. A secret is known by the name of its field, by its looks, or because it is one of
the gateway's own keys.
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from turnbridge.logs.redaction import KEY_LOOKS, REDACTED, SECRET_NAME, SECRET_WORDS, OwnKeys
from turnbridge.trace.windows import LOOKAHEAD, decoded, has_any, pieces, replaced
from turnbridge.turn.items import Json

Phase: TypeAlias = Literal["http_ingress", "backend_submission", "backend_io", "client_egress"]
Direction: TypeAlias = Literal["inbound", "outbound"]
Kind: TypeAlias = Literal[
    "request",
    "disconnect",
    "response",
    "sse",
    "body",
    "aborted",
    "rpc_request",
    "rpc_response",
    "rpc_error",
    "rpc_notification",
    "unreadable",
]

SCHEMA_WORDS = frozenset(
    (
        *("type", "title", "description", "format", "enum", "pattern", "nullable", "readOnly", "writeOnly"),
        *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "items"),
        *("properties", "required", "additionalProperties", "anyOf", "oneOf", "allOf", "$ref"),
    )
)
"""What a JSON Schema says of a field without telling a value of it, as `default` and `examples` do."""

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

URL_PASSWORD = re.compile(r"""(://[^\s/?#:@"'\\]{0,100}:)[^\s/?#"'\\]{1,4000}(?=@)""")
"""By itself, since a text with a URL is no reason to look for the others."""

URL_SIGNS = ("://",)

NAME_SIGNS = (
    "authorization",
    "api_key",
    "api-key",
    "apikey",
    "secret",
    "passw",
    "cookie",
    "credential",
    "private",
    "token",
)
"""A text that has none of these names no secret. To look for them is ten times as quick."""

MOST_PAYLOAD_BYTES = 16 * 1024 * 1024
"""Of a message where the operator wants all of it: a quarter of a file."""

SMALL_BYTES = 128 * 1024
"""JSON that is parsed whatever it holds: within ten milliseconds."""

MOST_PARSED_BYTES = 32 * 1024 * 1024
"""The largest request as Codex gets it. To parse one string of this size takes up to 100 ms, in a single step."""

LONGEST_NAME = 4096
"""A field's name that is longer is not searched, but taken for that of a secret."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a body that is no JSON, or not JSON for us, is met with."""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message on one of the wires; a field that has nothing to tell is left out."""

    time: str
    """When, in UTC, to the millisecond."""
    ms: float
    """The same on a clock that does not jump; only differences between lines of one run mean something."""
    phase: Phase
    direction: Direction
    """As the gateway sees it."""
    kind: Kind
    request_id: str | None = None
    worker_pid: int | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    method: str | None = None
    size: int | None = None
    """The bytes of the message, or of its body, as it was on the wire."""
    cut: bool = False
    """Whether the payload is only the beginning, as a text."""
    lost: int = 0
    """How many lines were lost since the line before."""
    payload: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A message as it may be written down: JSON."""

    raw: msgspec.Raw
    cut: bool = False


class Redaction:
    """Makes payloads: without secrets, and no longer than wanted.

    No step of it holds the interpreter's lock for more than some ten milliseconds, or 100 where a string has many
    megabytes: it runs beside the event loop.
    """

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
        text = replaced(URL_PASSWORD, _without_password, text, URL_SIGNS)
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
                    secret=secret or (_names_a_secret(name) and not (of_schema and _describes(inner))),
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


def _names_a_secret(name: str) -> bool:
    return len(name) > LONGEST_NAME or SECRET_NAME.search(name) is not None


def _describes(value: Json) -> bool:
    return isinstance(value, dict) and all(name in SCHEMA_WORDS or not inner for name, inner in value.items())


def _redacted(found: re.Match[str]) -> str:
    """Return a secret's replacement; what comes before it stays, so that one sees what it was."""
    return (found["field"] or found["query"] or "") + REDACTED


def _without_password(found: re.Match[str]) -> str:
    return found[1] + REDACTED


def _encoded(text: str) -> bytes:
    """Return a text as JSON, made in pieces."""
    return b"".join((b'"', *(msgspec.json.encode(piece)[1:-1] for piece in pieces(text)), b'"'))
