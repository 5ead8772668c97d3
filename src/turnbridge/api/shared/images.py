"""Checks images that a request carries inside itself as data URLs; it fetches nothing."""

import binascii

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import (
    IMAGE_SIZE_LIMIT,
    SUPPORTED_IMAGES,
    excess_of_pixels,
    image_pixels,
    image_type,
)

_WHITESPACE = b" \t\r\n"


def check_image_data_url(url: str, param: str) -> tuple[str, float]:
    """Return the data URL in its plainest form, with the MIME type that its bytes show, and the image's pixels."""
    header, comma, payload = url.partition(",")
    header = header.strip().lower()
    if not comma or not header.startswith("data:") or not header.endswith(";base64"):
        raise _invalid_url("does not have the form data:image/png;base64,...", param)
    # Encoders that wrap lines are common, and a line break carries no meaning.
    try:
        encoded = payload.encode("ascii").translate(None, _WHITESPACE)
    except UnicodeEncodeError as error:
        raise _invalid_url("is not valid base64", param) from error
    # Four characters stand for three bytes: told before the bytes are allocated.
    if len(encoded) * 3 // 4 - encoded[-2:].count(b"=") > IMAGE_SIZE_LIMIT:
        raise InvalidRequest(
            f"The image is larger than {IMAGE_SIZE_LIMIT // 2**20} MB. Send a smaller one.",
            code="image_too_large",
            param=param,
        )
    try:
        data = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise _invalid_url("is not valid base64", param) from error
    mime_type = image_type(data)
    if mime_type is None:
        raise InvalidRequest(
            f"The data is not an image that the model can read. Send {SUPPORTED_IMAGES}.",
            code="invalid_image_format",
            param=param,
        )
    pixels = image_pixels(data)
    if (problem := excess_of_pixels(pixels)) is not None:
        raise InvalidRequest(problem, code="image_too_large", param=param)
    return f"data:{mime_type};base64,{encoded.decode('ascii')}", pixels


def _invalid_url(what: str, param: str) -> InvalidRequest:
    return InvalidRequest(
        f"The image's data URL {what}. Send data:<type>;base64,<data> or an https URL.",
        code="invalid_image_url",
        param=param,
    )
