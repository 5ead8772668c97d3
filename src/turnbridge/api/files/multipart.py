"""Forms as browsers and SDKs upload them: `multipart/form-data` (RFC 7578), within bounds on parts and their heads."""

import re
from typing import NamedTuple
from urllib.parse import unquote

from turnbridge.turn.errors import InvalidRequest

# An upload has a file and three fields; the rest is for clients that add some of their own.
MOST_PARTS = 16
# Name, file name and type.
MOST_HEAD_BYTES = 4096
# The allowance of RFC 2046.
LONGEST_BOUNDARY = 70

NEW_LINE = b"\r\n"
END_OF_HEAD = NEW_LINE * 2
_TYPE = re.compile(r"\s*multipart/form-data\s*(;|$)", re.IGNORECASE)
_PARAMETER = re.compile(r';\s*([\w*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))')
_ESCAPED = re.compile(r'\\(["\\])')
# How browsers write these in names.
_BROWSERS = {"%22": '"', "%0D": "\r", "%0A": "\n"}


class FormPart(NamedTuple):
    """One field or file of a form."""

    name: str
    filename: str | None
    content_type: str | None
    content: bytes


def form_boundary(content_type: str) -> bytes:
    """Return what separates the parts of a form, from the request's Content-Type."""
    boundary = _parameters(content_type).get("boundary", "") if _TYPE.match(content_type) else ""
    if not boundary or len(boundary) > LONGEST_BOUNDARY or not boundary.isascii():
        raise InvalidRequest(
            "A file is uploaded as a form: 'Content-Type: multipart/form-data; boundary=...', with the parts "
            "'file' and 'purpose'. The official SDKs and `curl -F` send it so.",
            code="invalid_content_type",
        )
    return boundary.encode()


def form_parts(body: bytes, boundary: bytes) -> list[FormPart]:
    """Return the parts of a form."""
    delimiter = b"--" + boundary
    if not body.startswith(delimiter):
        raise _invalid("it does not begin with the boundary that its Content-Type names")
    parts: list[FormPart] = []
    place = len(delimiter)
    while not body.startswith(b"--", place):
        if len(parts) == MOST_PARTS:
            raise _invalid(f"it has more than {MOST_PARTS} parts")
        head_end = body.find(END_OF_HEAD, place, place + MOST_HEAD_BYTES)
        if not body.startswith(NEW_LINE, place) or head_end < 0:
            raise _invalid(f"a part has no head, or one of more than {MOST_HEAD_BYTES} bytes")
        start = head_end + len(END_OF_HEAD)
        end = body.find(NEW_LINE + delimiter, start)
        if end < 0:
            raise _invalid("it ends before its last boundary")
        parts.append(_part(body[place:head_end], body[start:end]))
        place = end + len(NEW_LINE + delimiter)
    return parts


def _part(head: bytes, content: bytes) -> FormPart:
    try:
        lines = head.decode().split("\r\n")
    except UnicodeDecodeError:
        raise _invalid("the head of a part is not UTF-8") from None
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    given = _parameters(headers.get("content-disposition", ""))
    if "name" not in given:
        raise _invalid("a part has no name")
    filename = given.get("filename")
    # The form of RFC 5987: an encoding, a language, and an escaped text.
    if (extended := given.get("filename*")) is not None:
        filename = unquote(extended.rpartition("'")[2], errors="replace")
    return FormPart(given["name"], filename, headers.get("content-type") or None, content)


def _parameters(header: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, quoted, bare in _PARAMETER.findall(header):
        value = _ESCAPED.sub(r"\1", quoted) or bare
        for escape, character in _BROWSERS.items():
            value = value.replace(escape, character)
        found[name.lower()] = value
    return found


def _invalid(why: str) -> InvalidRequest:
    return InvalidRequest(f"The form of the request cannot be read: {why}.", code="invalid_form")
