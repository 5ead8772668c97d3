"""Tells text from other files and decodes it; where the bytes come from is not known here."""

import codecs
import re
from pathlib import PurePosixPath

_TEXT_TYPES = re.compile(
    r"text/.+|.+\+(json|xml|yaml)"
    r"|application/(x-)?(json|jsonl|ndjson|json5|xml|yaml|toml|javascript|ecmascript|typescript"
    r"|sql|graphql|sh|csv|tex)",
    re.IGNORECASE,
)

_TEXT_NAMES = re.compile(
    r".*\.(bat|c|cc|cfg|conf|cpp|cs|css|csv|diff|env|go|graphql|h|hpp|html?|ini|java|jsx?|json5?|jsonl|kt|lock|log"
    r"|lua|md|mjs|ndjson|patch|php|pl|proto|ps1|py|r|rb|rs|rst|scala|sh|sql|srt|svg|swift|tex|tf|toml|tsx?|tsv"
    r"|txt|vtt|xml|ya?ml|zig)",
    re.IGNORECASE | re.DOTALL,
)

# Everything below the space except tab, line feed, form feed and carriage return, which texts use.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")

_UNTOLD_TYPE = "application/octet-stream"


def decode_text(data: bytes, *, filename: str | None, mime_type: str | None) -> str | None:
    """Return the text of a file, or None when it is not text.

    A file that calls itself text may hold control characters and need not be UTF-8: then it is read as
    Windows-1252, as browsers do. Any other file has to look like text.
    """
    declared = _declares_text(filename, mime_type)
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        if not declared:
            return None
        text = data.decode("cp1252", "replace")
    if "\0" in text or (not declared and _CONTROL.search(text)):
        return None
    return text


def with_name(text: str, filename: str | None) -> str:
    """Return the text below a line with the file's name, so that the model can refer to it."""
    # A line break in a name would let it pose as the content.
    name = " ".join((filename or "").split())
    return f"File: {name}\n\n{text}" if name else text


def type_name(filename: str | None, mime_type: str | None) -> str:
    """Return what to call the type of a file in an error."""
    mime_type = _bare_type(mime_type)
    if mime_type not in ("", _UNTOLD_TYPE):
        return mime_type
    return PurePosixPath(filename or "").suffix or "an unknown type"


def _declares_text(filename: str | None, mime_type: str | None) -> bool:
    return bool(_TEXT_TYPES.fullmatch(_bare_type(mime_type)) or _TEXT_NAMES.fullmatch(filename or ""))


def _bare_type(mime_type: str | None) -> str:
    return (mime_type or "").partition(";")[0].strip()
