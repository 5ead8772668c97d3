"""Content parts, in the words of both APIs."""

from base64 import b64encode

import pytest

from turnbridge.api.shared.history import ContentPart, PartsDecoder
from turnbridge.api.shared.validation import convert
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import MAX_TOTAL_PIXELS
from turnbridge.turn.items import (
    FilePart,
    ImagePart,
    Json,
    JsonObject,
    Part,
    TextPart,
)

PNG = "data:image/png;base64,iVBORw0KGgo="
FILE = "data:application/pdf;base64,JVBERi0="


def decoded(part: JsonObject | str) -> Part:
    content = convert([part], list[ContentPart | str], param="content")
    (only,) = PartsDecoder().decode(content, param="content")
    return only


@pytest.mark.promise("items.shapes.responses")
@pytest.mark.parametrize(
    "part",
    [
        "Hi",
        {"type": "text", "text": "Hi"},
        {"type": "input_text", "text": "Hi"},
        {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []},
        {"type": "summary_text", "text": "Hi"},
        {"type": "reasoning_text", "text": "Hi"},
        {"type": "refusal", "refusal": "Hi"},
        {"text": "Hi"},
    ],
)
def test_every_kind_of_text_is_text(part: JsonObject | str) -> None:
    assert decoded(part) == TextPart(text="Hi")


@pytest.mark.parametrize(
    ("part", "url", "detail"),
    [
        ({"type": "image_url", "image_url": {"url": PNG}}, PNG, None),
        ({"type": "image_url", "image_url": {"url": PNG, "detail": "high"}}, PNG, "high"),
        ({"type": "input_image", "image_url": PNG, "detail": "auto"}, PNG, "auto"),
        ({"type": "input_image", "image_url": PNG, "detail": "original"}, PNG, "original"),
        ({"type": "input_image", "image_url": PNG, "file_id": None, "detail": None}, PNG, None),
        ({"type": "input_image", "image_url": {"url": PNG}, "detail": "high"}, PNG, "high"),
        ({"type": "image_url", "image_url": PNG}, PNG, None),
        ({"type": "input_image", "image_url": "https://example.com/a.png"}, "https://example.com/a.png", None),
        # The type that the bytes show counts, whatever the client wrote.
        ({"type": "input_image", "image_url": PNG.replace("png", "jpeg")}, PNG, None),
    ],
)
def test_an_image_keeps_its_source_and_detail(part: JsonObject, url: str, detail: str | None) -> None:
    image = decoded(part)
    assert isinstance(image, ImagePart)
    assert (image.url, image.detail, image.param) == (url, detail, "content[0]")


def test_a_detail_that_codex_would_replace_the_image_for_is_ignored_and_named() -> None:
    decoder = PartsDecoder()
    parts = decoder.decode(
        ["See", ContentPart(type="input_image", image_url=PNG, detail="low")], param="input[2].content"
    )
    assert parts == (TextPart(text="See"), ImagePart(url=PNG, param="input[2].content[1]"))
    assert decoder.ignored == ["input[2].content[1].detail"]


@pytest.mark.parametrize(
    ("part", "filename", "mime_type", "data", "url"),
    [
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": FILE}},
            "a.pdf",
            "application/pdf",
            b"%PDF-",
            None,
        ),
        ({"type": "input_file", "filename": "a.txt", "file_data": "aGk="}, "a.txt", None, b"hi", None),
        ({"type": "input_file", "file_data": "data:;base64,aGk="}, None, None, b"hi", None),
        (
            {"type": "input_file", "file_url": "https://example.com/a.txt"},
            None,
            None,
            None,
            "https://example.com/a.txt",
        ),
    ],
)
def test_a_file_keeps_its_name_type_and_source(
    part: JsonObject, filename: str | None, mime_type: str | None, data: bytes | None, url: str | None
) -> None:
    file = decoded(part)
    assert isinstance(file, FilePart)
    assert (file.filename, file.mime_type, file.data, file.url, file.param) == (
        filename,
        mime_type,
        data,
        url,
        "content[0]",
    )


@pytest.mark.parametrize(
    ("part", "code", "param"),
    [
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "unsupported_content_part", ".type"),
        ({"type": "video_url"}, "unsupported_content_part", ".type"),
        ({"type": "text"}, "invalid_type", ".text"),
        ({"type": "text", "text": 7}, "invalid_type", ".text"),
        ({"type": "refusal", "text": "No."}, "invalid_type", ".refusal"),
        ({"type": "input_image", "file_id": ""}, "unsupported_image_source", ""),
        ({"type": "input_image", "file_id": "f" * 2000}, "string_above_max_length", ".file_id"),
        ({"type": "image_url", "image_url": {}}, "unsupported_image_source", ""),
        ({"type": "input_image", "image_url": "data:image/png;base64,!"}, "invalid_image_url", ""),
        ({"type": "input_image", "image_url": "data:image/png;base64,aGk="}, "invalid_image_format", ""),
        ({"type": "file", "file": {"file_id": ""}}, "unsupported_file_source", ""),
        ({"type": "input_file", "file_id": "f" * 2000}, "string_above_max_length", ".file_id"),
        ({"type": "file", "file": "a"}, "invalid_type", ".file"),
        ({"type": "input_file"}, "unsupported_file_source", ""),
        ({"type": "input_file", "file_data": "not base64"}, "invalid_file_data", ".file_data"),
        ({"type": "input_file", "file_data": "é"}, "invalid_file_data", ".file_data"),
    ],
)
def test_a_part_that_cannot_be_carried_is_named(part: JsonObject, code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoded(part)
    assert (caught.value.error_code, caught.value.param) == (code, f"content[0]{param}")


# Anything may stand in a JSON body; none of it may become a failure of the gateway's own.
@pytest.mark.parametrize("odd", [None, 7, ["text"], {"a": 1}])
@pytest.mark.parametrize("field", ["type", "text", "detail", "image_url", "file", "file_data", "filename"])
@pytest.mark.parametrize("kind", ["text", "input_image", "input_file"])
def test_a_field_of_the_wrong_type_is_the_clients_mistake(kind: str, field: str, odd: Json) -> None:
    sound: JsonObject = {"type": kind, "text": "Hi", "image_url": PNG, "file_data": "aGk="}
    assert place_of({**sound, field: odd}).startswith("content[0]")


def place_of(part: JsonObject) -> str:
    """Return where a part stands, which the refusal of a bad one names as well."""
    try:
        decoded(part)
    except InvalidRequest as error:
        return error.param or ""
    return "content[0]"


def test_the_images_of_a_request_have_a_bounded_number_of_pixels_together() -> None:
    """Their sizes stand in their headers; nothing else of them is there."""
    side = (7000).to_bytes(4, "big")
    header = b"\x89PNG\r\n\x1a\n" + bytes(8) + side + side
    image: JsonObject = {"type": "input_image", "image_url": f"data:image/png;base64,{b64encode(header).decode()}"}
    parts, most = PartsDecoder(), MAX_TOTAL_PIXELS // 7000**2
    for number in range(most):
        parts.decode([convert(image, ContentPart)], param=f"input[{number}]")
    with pytest.raises(InvalidRequest) as refused:
        parts.decode([convert(image, ContentPart)], param="input[9]")
    assert (refused.value.error_code, refused.value.param) == ("image_too_large", "input[9][0]")
