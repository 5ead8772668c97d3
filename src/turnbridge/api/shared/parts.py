"""Content parts of messages and tool outputs, in the words of both APIs.

Clients mix the two vocabularies (`text` and `input_text`, `image_url` and `input_image`), so both are read everywhere.
"""

import base64
from collections.abc import Sequence

from turnbridge.api.shared.body_budget import MOST_PARTS
from turnbridge.api.shared.images import check_image_data_url
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import MOST_PIXELS_IN_ALL
from turnbridge.turn.items import (
    FilePart,
    ImagePart,
    JsonObject,
    Part,
    TextPart,
)

TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})

# Codex puts a text in the place of an image with any other detail.
CARRIED_DETAILS = frozenset({"auto", "high", "original"})


# More than any host takes. What is longer is slow to be read, and has its content inside, or no meaning.
LONGEST_URL = 8192
# More than any file system takes.
LONGEST_NAME = 1024

WHITE_SPACE = b" \t\r\n\f\v"


class PartsDecoder:
    """Decodes the parts of one request, and remembers what of them cannot be honoured."""

    def __init__(self) -> None:
        self.ignored: list[str] = []
        self._parts = 0
        self._pixels = 0.0

    def decode(self, content: str | Sequence[JsonObject | str], *, param: str) -> tuple[Part, ...]:
        """Return the parts of a message's `content`: a string or a list of parts."""
        if isinstance(content, str):
            return (TextPart(text=content),)
        self.count(len(content), param=param)
        return tuple(self._part(part, f"{param}[{index}]") for index, part in enumerate(content))

    def count(self, parts: int, *, param: str) -> None:
        """Take note of so many more parts; refuse them if the request has too many."""
        self._parts += parts
        if self._parts > MOST_PARTS:
            raise InvalidRequest(
                f"Invalid '{param}': the request has more than {MOST_PARTS} content parts. Join some of them.",
                code="array_above_max_length",
                param=param,
            )

    def _part(self, part: JsonObject | str, param: str) -> Part:
        if isinstance(part, str):
            return TextPart(text=part)
        kind = str(part.get("type", "text"))
        if kind in TEXT_TYPES:
            return TextPart(text=_string(part, "text", param))
        if kind == "refusal":
            return TextPart(text=_string(part, "refusal", param))
        if kind in ("image_url", "input_image"):
            return self._image(part, param)
        if kind in ("file", "input_file"):
            return _file(part, param)
        raise InvalidRequest(
            f"Content parts of type '{kind}' cannot be carried to Codex. "
            "Text, images (PNG, JPEG, GIF, WebP), text files and PDF files can.",
            code="unsupported_content_part",
            param=f"{param}.type",
        )

    def _image(self, part: JsonObject, param: str) -> ImagePart:
        source, detail = part.get("image_url"), part.get("detail")
        if isinstance(source, dict):
            nested = source
            source, detail = nested.get("url"), nested.get("detail", detail)
        if not isinstance(source, str):
            raise InvalidRequest(
                "An image must be given by `image_url`: uploaded files (`file_id`) are not stored here.",
                code="unsupported_image_source",
                param=param,
            )
        carried = detail if isinstance(detail, str) and detail in CARRIED_DETAILS else None
        if detail is not None and carried is None:
            self.ignored.append(f"{param}.detail")
        url = self._data_url(source, param) if source[:5].lower() == "data:" else _short_url(source, param)
        return ImagePart(url=url, detail=carried, param=param)

    def _data_url(self, source: str, param: str) -> str:
        url, pixels = check_image_data_url(source, param)
        self._pixels += pixels
        if self._pixels > MOST_PIXELS_IN_ALL:
            raise InvalidRequest(
                f"The images of the request have more than {MOST_PIXELS_IN_ALL // 1_000_000} million pixels together. "
                "Send fewer, or smaller ones.",
                code="image_too_large",
                param=param,
            )
        return url


def _file(part: JsonObject, param: str) -> FilePart:
    source = part.get("file", part)
    if not isinstance(source, dict):
        raise _wrong(f"{param}.file", "an object")
    name = source.get("filename")
    filename = name if isinstance(name, str) else None
    if filename is not None and len(filename) > LONGEST_NAME:
        raise _too_long(f"{param}.filename", LONGEST_NAME, len(filename))
    url = source.get("file_url")
    if isinstance(url, str):
        return FilePart(filename=filename, mime_type=None, url=_short_url(url, param), param=param)
    data = source.get("file_data")
    if not isinstance(data, str):
        raise InvalidRequest(
            "A file must be given by `file_data` or `file_url`: uploaded files (`file_id`) are not stored here.",
            code="unsupported_file_source",
            param=param,
        )
    mime_type, content = _file_data(data, param)
    return FilePart(filename=filename, mime_type=mime_type, data=content, param=param)


def _file_data(data: str, param: str) -> tuple[str | None, bytes]:
    """Return type and content of base64 data, which may stand in a data URL."""
    mime_type = None
    if data[:5].lower() == "data:":
        head, _, data = data.partition(",")
        mime_type = head[5 : 5 + LONGEST_NAME].partition(";")[0] or None
    try:
        # Some clients wrap their lines.
        return mime_type, base64.b64decode(data.encode("ascii").translate(None, WHITE_SPACE), validate=True)
    except ValueError as error:
        raise InvalidRequest(
            "`file_data` is not valid base64.", code="invalid_file_data", param=f"{param}.file_data"
        ) from error


def _short_url(url: str, param: str) -> str:
    if len(url) > LONGEST_URL:
        raise _too_long(param, LONGEST_URL, len(url))
    return url


def _too_long(param: str, most: int, length: int) -> InvalidRequest:
    expected = f"Expected a string with maximum length {most}, but got a string with length {length} instead."
    message = f"Invalid '{param}': string too long. {expected}"
    return InvalidRequest(message, code="string_above_max_length", param=param)


def _string(part: JsonObject, name: str, param: str) -> str:
    value = part.get(name)
    if not isinstance(value, str):
        raise _wrong(f"{param}.{name}", "a string")
    return value


def _wrong(param: str, wanted: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid type for '{param}': expected {wanted}.", code="invalid_type", param=param)
