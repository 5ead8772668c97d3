"""The history of a request: content parts in the vocabularies of both APIs, and calls paired with their outputs.

Clients mix the two (`text` and `input_text`, `image_url` and `input_image`), so both are accepted everywhere.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from turnbridge.api.shared.body_budget import MAX_PARTS
from turnbridge.api.shared.validation import check_length, invalid, invalid_type
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import (
    IMAGE_SIZE_LIMIT,
    MAX_TOTAL_PIXELS,
    SUPPORTED_IMAGES,
    excess_of_pixels,
    image_pixels,
    image_type,
)
from turnbridge.turn.items import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Message,
    Part,
    RawItem,
    TextPart,
)

TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})

# Codex replaces an image with any other detail by a text.
CARRIED_DETAILS = frozenset({"auto", "high", "original"})

# More than any host accepts. Anything longer is slow to parse, and holds its content itself or has no meaning.
MAX_URL_CHARS = 8192
# More than any file system accepts.
MAX_NAME_CHARS = 1024

# Encoders that wrap lines are common.
WHITE_SPACE = b" \t\r\n\f\v"

FUNCTION = "function call"
CUSTOM = "custom tool call"
TOOL_SEARCH = "tool search call"


class ImageUrl(Struct):
    """The `image_url` object of Chat Completions."""

    url: str | None = None
    detail: str | None = None


class FileSource(Struct):
    """A file, inline or by URL."""

    filename: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None


class ContentPart(FileSource):
    """A content part of any type."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: str | ImageUrl | None = None
    detail: str | None = None
    file: FileSource | None = None


Content: TypeAlias = str | list[ContentPart | str]


class PartsDecoder:
    """Decodes the parts of one request, counts them, and lists what of them is ignored."""

    def __init__(self) -> None:
        self.ignored: list[str] = []
        self._parts = 0
        self._pixels = 0.0

    def decode(self, content: str | Sequence[ContentPart | str], *, param: str) -> tuple[Part, ...]:
        """Return the parts of a message's `content`."""
        if isinstance(content, str):
            return (TextPart(text=content),)
        self.count(len(content), param=param)
        return tuple(
            TextPart(text=part) if isinstance(part, str) else self._part(part, f"{param}[{index}]")
            for index, part in enumerate(content)
        )

    def count(self, parts: int, *, param: str) -> None:
        """Count these parts; refuse them if the request has too many."""
        self._parts += parts
        if self._parts > MAX_PARTS:
            what = f"the request has more than {MAX_PARTS} content parts. Join some of them."
            raise invalid(param, what, code="array_above_max_length")

    def _part(self, part: ContentPart, param: str) -> Part:
        if part.type in TEXT_TYPES:
            return _text(part.text, f"{param}.text")
        if part.type == "refusal":
            return _text(part.refusal, f"{param}.refusal")
        if part.type in ("image_url", "input_image"):
            return self._image(part, param)
        if part.type in ("file", "input_file"):
            return _file(part.file or part, param)
        raise InvalidRequest(
            f"Content parts of type '{part.type}' cannot be carried to Codex. "
            "Text, images (PNG, JPEG, GIF, WebP), text files and PDF files can.",
            code="unsupported_content_part",
            param=f"{param}.type",
        )

    def _image(self, part: ContentPart, param: str) -> ImagePart:
        image, detail = part.image_url, part.detail
        source = image.url if isinstance(image, ImageUrl) else image
        if isinstance(image, ImageUrl) and image.detail is not None:
            detail = image.detail
        if detail is not None and detail not in CARRIED_DETAILS:
            self.ignored.append(f"{param}.detail")
            detail = None
        if source is None and part.file_id:
            check_length(part.file_id, MAX_NAME_CHARS, param=f"{param}.file_id")
            return ImagePart(file_id=part.file_id, detail=detail, param=param)
        if source is None:
            raise InvalidRequest(
                "An image must be given by `image_url`, or by the `file_id` of an uploaded file.",
                code="unsupported_image_source",
                param=param,
            )
        if source[:5].lower() != "data:":
            check_length(source, MAX_URL_CHARS, param=param)
            return ImagePart(url=source, detail=detail, param=param)
        return ImagePart(url=self._checked(source, param), detail=detail, param=param)

    def counted(self, output: FunctionCallOutput, param: str) -> FunctionCallOutput:
        """Return an output whose images are read already, and count them."""
        for part in () if isinstance(output.output, str) else output.output:
            if isinstance(part, ImagePart):
                self._checked(part.url, param)
        return output

    def _checked(self, source: str, param: str) -> str:
        url, pixels = check_image_data_url(source, param)
        self._pixels += pixels
        if self._pixels > MAX_TOTAL_PIXELS:
            most = f"more than {MAX_TOTAL_PIXELS // 1_000_000} million pixels together"
            message = f"The images of the request have {most}. Send fewer, or smaller ones."
            raise InvalidRequest(message, code="image_too_large", param=param)
        return url


def _text(text: str | None, param: str) -> TextPart:
    if text is None:
        raise invalid_type(param, "a string")
    return TextPart(text=text)


def _file(source: FileSource, param: str) -> FilePart:
    filename, url, file_id = source.filename, source.file_url, source.file_id
    check_length(filename or "", MAX_NAME_CHARS, param=f"{param}.filename")
    if url is not None:
        check_length(url, MAX_URL_CHARS, param=param)
        return FilePart(filename=filename, mime_type=None, url=url, param=param)
    if source.file_data is None and file_id:
        check_length(file_id, MAX_NAME_CHARS, param=f"{param}.file_id")
        return FilePart(filename=filename, file_id=file_id, param=param)
    if source.file_data is None:
        raise InvalidRequest(
            "A file must be given by `file_data`, `file_url`, or the `file_id` of an uploaded file.",
            code="unsupported_file_source",
            param=param,
        )
    data, mime_type = source.file_data, None
    if data[:5].lower() == "data:":
        head, _, data = data.partition(",")
        mime_type = head[5 : 5 + MAX_NAME_CHARS].partition(";")[0] or None
    try:
        content = base64.b64decode(_without_white_space(data), validate=True)
    except ValueError as error:
        message, place = "`file_data` is not valid base64.", f"{param}.file_data"
        raise InvalidRequest(message, code="invalid_file_data", param=place) from error
    return FilePart(filename=filename, mime_type=mime_type, data=content, param=param)


def check_image_data_url(url: str, param: str) -> tuple[str, float]:
    """Return an image's data URL with the MIME type of its bytes and no white space, and its number of pixels."""
    header, comma, payload = url.partition(",")
    header = header.strip().lower()
    if not comma or not header.startswith("data:") or not header.endswith(";base64"):
        raise _invalid_image_url("does not have the form data:image/png;base64,...", param)
    try:
        encoded = _without_white_space(payload)
        # Four characters stand for three bytes: checked before the bytes are allocated.
        if len(encoded) * 3 // 4 - encoded[-2:].count(b"=") > IMAGE_SIZE_LIMIT:
            message = f"The image is larger than {IMAGE_SIZE_LIMIT // 2**20} MB. Send a smaller one."
            raise InvalidRequest(message, code="image_too_large", param=param)
        data = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise _invalid_image_url("is not valid base64", param) from error
    mime_type = image_type(data)
    if mime_type is None:
        message = f"The data is not an image that the model can read. Send {SUPPORTED_IMAGES}."
        raise InvalidRequest(message, code="invalid_image_format", param=param)
    pixels = image_pixels(data)
    if (problem := excess_of_pixels(pixels)) is not None:
        raise InvalidRequest(problem, code="image_too_large", param=param)
    return f"data:{mime_type};base64,{encoded.decode('ascii')}", pixels


def _without_white_space(encoded: str) -> bytes:
    return encoded.encode("ascii").translate(None, WHITE_SPACE)


def _invalid_image_url(what: str, param: str) -> InvalidRequest:
    message = f"The image's data URL {what}. Send data:<type>;base64,<data> or an https URL."
    return InvalidRequest(message, code="invalid_image_url", param=param)


class Wording(NamedTuple):
    """The errors of one API, which clients recognise."""

    param: str
    no_output: str
    no_call: str


IN_INPUT = Wording(
    "input",
    "No tool output found for {kind} {call_id}.",
    "No tool call found for {kind} output with call_id {call_id}.",
)
IN_MESSAGES = Wording(
    "messages",
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: {call_ids}",
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'. "
    "There is no call with the tool_call_id {call_id}.",
)


def check_pairs(items: Sequence[Item], wording: Wording) -> None:
    """Refuse an output without its call, and a call without its output: Codex would drop them."""
    waiting: dict[tuple[str, str], None] = {}
    for item in items:
        # Most items are messages. This takes 0.02 µs for one; to find that no case matches takes 0.9.
        if isinstance(item, Message):
            continue
        match item:
            case FunctionCall(call_id=call_id):
                waiting[CUSTOM if item.custom else FUNCTION, call_id] = None
            case RawItem(item={"type": "local_shell_call", "call_id": str(call_id)}):
                waiting[FUNCTION, call_id] = None
            case RawItem(item={"type": "tool_search_call", "call_id": str(call_id)}):
                waiting[TOOL_SEARCH, call_id] = None
            case RawItem(item={"type": "tool_search_output", "call_id": str(call_id)}):
                _take(waiting, TOOL_SEARCH, call_id, wording)
            case FunctionCallOutput(call_id=call_id):
                _take(waiting, CUSTOM if item.custom else FUNCTION, call_id, wording)
            case _:
                pass
    if waiting:
        kind, call_id = next(iter(waiting))
        call_ids = ", ".join(waits for _, waits in waiting)
        message = wording.no_output.format(kind=kind, call_id=call_id, call_ids=call_ids)
        raise InvalidRequest(message, param=wording.param)


def _take(waiting: dict[tuple[str, str], None], kind: str, call_id: str, wording: Wording) -> None:
    """Let an output end the wait of its call."""
    if (kind, call_id) not in waiting:
        raise InvalidRequest(wording.no_call.format(kind=kind, call_id=call_id), param=wording.param)
    del waiting[kind, call_id]
