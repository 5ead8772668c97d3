"""What a block says: the calls in its JSON, also where the JSON has one of the faults that models make.

Mended is only what can have been meant in one way. A call that was cut off is not completed: half of its arguments
could do harm.
"""

import re
from typing import NamedTuple

import msgspec

# What stands before the JSON; the fence is a fault.
BEFORE_JSON = re.compile(r"\s*+(?:`{3,}+\w*+\s*+)?(?=[{\[])")
# What models leave behind the JSON: a brace or bracket too many, the end of a tag or of a fence.
LEFT_BEHIND = re.compile(r"[\s}\]>`]*")
# A call may leave out its arguments, but not give them under another name.
WITHOUT_ARGUMENTS = frozenset({"name", "call_id"})

TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],]|\s+|[^"{}\[\],\s]+|"', re.DOTALL)
CLOSERS = {"{": "}", "[": "]"}
IN_STRING = re.compile(r'(?P<escape>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|(?P<backslash>\\)|(?P<control>[\x00-\x1f])')
# The arguments as a JSON string whose quotes nobody escaped.
UNESCAPED = re.compile(
    r'\{\s*"name"\s*:\s*(?P<name>"[^"\\]*")\s*,\s*"arguments"\s*:\s*"(?P<arguments>\{.*\})"\s*\}[\s}\]>`]*', re.DOTALL
)

_decode_entries = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[dict[str, msgspec.Raw]]).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class WrittenCall(NamedTuple):
    """A call as a block has it; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


class Mended(NamedTuple):
    """JSON without its usual faults, if it is JSON then: a decoder must tell."""

    text: str
    completed: bool
    """Whether its last brace was missing."""


class _NotUnderstoodError(Exception):
    """The text cannot be read as what it should be."""


def read_calls(content: str) -> list[WrittenCall]:
    """Return the calls between two tags: usually one, none if the text cannot be understood."""
    start = BEFORE_JSON.match(content)
    if start is None:
        return []
    text = content[start.end() :]
    for read in (_calls, _mended_calls, _unescaped_call):
        try:
            return read(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError, _NotUnderstoodError):
            continue
    return []


def _calls(text: str) -> list[WrittenCall]:
    entries = _decode_entries(text)
    return [_call(entry) for entry in (entries if isinstance(entries, list) else [entries])]


def _mended_calls(text: str) -> list[WrittenCall]:
    repaired = mended(text)
    if repaired.completed and "arguments" not in _decode_object(repaired.text):
        raise _NotUnderstoodError  # they may have been cut off
    return _calls(repaired.text)


def _unescaped_call(text: str) -> list[WrittenCall]:
    found = UNESCAPED.fullmatch(text)
    if found is None:
        raise _NotUnderstoodError
    return [WrittenCall(_decode_text(found["name"]), _object_text(found["arguments"]))]


def _call(entry: dict[str, msgspec.Raw]) -> WrittenCall:
    if "name" not in entry:
        raise _NotUnderstoodError
    name = _decode_text(entry["name"])
    if "arguments" in entry:
        return WrittenCall(name, _arguments(bytes(entry["arguments"]).decode()))
    if entry.keys() <= WITHOUT_ARGUMENTS:
        return WrittenCall(name, "{}")
    raise _NotUnderstoodError


def _arguments(written: str) -> str:
    """Return the arguments as they were written: an object, or a string with an object in it."""
    if written == "null":
        return "{}"
    if not written.startswith('"'):
        return _object_text(written)
    text = _decode_text(written)
    return _object_text(text) if text.strip() else "{}"


def _object_text(text: str) -> str:
    try:
        _decode_object(text)
    except msgspec.DecodeError:
        text = mended(text).text
        _decode_object(text)
    return text


def mended(text: str) -> Mended:
    """Return JSON text without the faults that can be told from what was meant."""
    text = text.strip()
    kept: list[str] = []
    unclosed: list[str] = []
    for found in TOKEN.finditer(text):
        token = found.group()
        if token == '"':  # a string without an end
            return Mended(text, completed=False)
        if token in CLOSERS:
            unclosed.append(CLOSERS[token])
        elif unclosed and token == unclosed[-1]:
            unclosed.pop()
            _drop_comma(kept)
        kept.append(_mended_string(token) if token.startswith('"') else token)
        if not unclosed:
            rest = text[found.end() :]
            return Mended("".join(kept) + ("" if LEFT_BEHIND.fullmatch(rest) else rest), completed=False)
    # Where more is missing than one brace, this does not make it JSON.
    return Mended("".join([*kept, "}"]), completed=True)


def _drop_comma(kept: list[str]) -> None:
    """Take away a comma after which nothing follows."""
    last = len(kept) - 1
    while last >= 0 and kept[last].isspace():
        last -= 1
    if last >= 0 and kept[last] == ",":
        del kept[last]


def _mended_string(token: str) -> str:
    def escaped(found: re.Match[str]) -> str:
        if found["control"]:
            return f"\\u{ord(found['control']):04x}"
        return found["escape"] or "\\\\"

    return IN_STRING.sub(escaped, token)
