"""An uploaded form → a file, its purpose and its lifetime; and files as OpenAI shows them."""

from collections.abc import Mapping
from typing import NamedTuple

from turnbridge.api.files.multipart import FormPart, form_parts
from turnbridge.api.shared.validation import invalid, missing, one_of, unknown_value, within
from turnbridge.engine.records import FileRecord
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import JsonObject

PURPOSES = ("assistants", "user_data", "vision")
OTHER_PURPOSES = {
    "batch": "Codex has no queue for batches: send the requests one by one.",
    "fine-tune": "Codex's models cannot be trained.",
    "evals": "Nothing is evaluated here.",
}
# OpenAI's own bounds: an hour and thirty days.
LIFETIME_S = (3600, 2_592_000)
# As many as file systems allow.
MAX_FILENAME_CHARS = 255
MAX_TYPE_CHARS = 255
# A field is a word or a number.
MAX_FIELD_BYTES = 256
# More than the bounds have, and quick to parse.
MAX_DIGITS = 12


class FileUpload(NamedTuple):
    """A file as its client wants it to be stored."""

    filename: str
    mime_type: str | None
    content: bytes
    purpose: str
    lifetime_s: int | None
    """None for as long as anything is stored."""


def decode_upload(body: bytes, boundary: bytes) -> FileUpload:
    """Return what a body of `POST /v1/files` uploads."""
    parts: dict[str, FormPart] = {}
    for part in form_parts(body, boundary):
        if part.name in parts:
            raise invalid(part.name[:MAX_FIELD_BYTES], "it is sent twice. Upload one file in each request.")
        parts[part.name] = part
    file = parts.get("file")
    if file is None or file.filename is None:
        raise missing("file")
    return FileUpload(
        filename=_filename(file.filename),
        mime_type=_mime_type(file.content_type),
        content=file.content,
        purpose=_purpose(parts),
        lifetime_s=_lifetime(parts),
    )


def _filename(name: str) -> str:
    """Return a name that is safe to show, to store, and to offer for a download."""
    if not name.strip() or len(name) > MAX_FILENAME_CHARS:
        raise invalid("file", f"its name must have 1 to {MAX_FILENAME_CHARS} characters.")
    if not name.isprintable():
        raise invalid("file", "its name has control characters. Rename it.")
    if name in (".", "..") or "/" in name or "\\" in name:
        raise invalid("file", "its name is a path. Send the name without directories.")
    return name


def _mime_type(given: str | None) -> str | None:
    return given if given is not None and len(given) <= MAX_TYPE_CHARS and given.isprintable() else None


def _purpose(parts: Mapping[str, FormPart]) -> str:
    purpose = _field(parts, "purpose")
    if purpose is None:
        raise missing("purpose")
    if purpose in OTHER_PURPOSES:
        why = f"{OTHER_PURPOSES[purpose]} Files are kept for the purposes {', '.join(map(repr, PURPOSES))}."
        raise InvalidRequest(
            f"Files for '{purpose}' are not kept here. {why}", code="unsupported_purpose", param="purpose"
        )
    if purpose not in PURPOSES:
        raise unknown_value(purpose, PURPOSES, param="purpose")
    return purpose


def _lifetime(parts: Mapping[str, FormPart]) -> int | None:
    anchor, seconds = (_field(parts, f"expires_after[{name}]") for name in ("anchor", "seconds"))
    if anchor is None and seconds is None:
        return None
    one_of(anchor or "", ("created_at",), param="expires_after.anchor")
    if seconds is None:
        raise missing("expires_after.seconds")
    if not seconds.isdigit() or len(seconds) > MAX_DIGITS:
        raise invalid("expires_after.seconds", f"expected a whole number of seconds, but got '{seconds}'.")
    return within(int(seconds), *LIFETIME_S, param="expires_after.seconds")


def _field(parts: Mapping[str, FormPart], name: str) -> str | None:
    part = parts.get(name)
    if part is None:
        return None
    if len(part.content) > MAX_FIELD_BYTES or not part.content.isascii():
        raise invalid(name, "the field is too long, or not ASCII.")
    return part.content.decode()


def shown_file(record: FileRecord) -> JsonObject:
    """Return a file as OpenAI shows it."""
    return {
        "id": record.id,
        "object": "file",
        "bytes": record.size,
        "created_at": record.created_at,
        "expires_at": record.expires_at,
        "filename": record.filename,
        "purpose": record.purpose,
        "status": "processed",
        "status_details": None,
    }
