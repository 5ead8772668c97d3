"""Images inside the request are checked by their bytes, not by what they are called."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.shared.history import ContentPart, PartsDecoder, check_image_data_url
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import (
    IMAGE_SIZE_LIMIT,
    UNKNOWN_PIXELS,
    image_pixels,
    image_type,
)

PNG = b"\x89PNG\r\n\x1a\n"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xdb", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_the_url_gets_the_type_of_its_bytes(data: bytes, mime_type: str) -> None:
    url, _ = check_image_data_url(f"data:application/octet-stream;base64,{encoded(data)}", "p")
    assert url == f"data:{mime_type};base64,{encoded(data)}"


@pytest.mark.parametrize(
    "url",
    [
        f"DATA:image/png;BASE64,{encoded(PNG)}",
        f"data:;base64,{encoded(PNG)}",
        f"data:image/png;name=a.png;base64,{encoded(PNG)}",
        f"data:image/png;base64,\n{encoded(PNG)[:4]}\r\n {encoded(PNG)[4:]}\n",
    ],
)
def test_other_spellings_become_the_plainest_one(url: str) -> None:
    assert check_image_data_url(url, "p")[0] == f"data:image/png;base64,{encoded(PNG)}"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "invalid_image_url"),
        ("data:image/png;base64", "invalid_image_url"),
        ("data:image/png,abc", "invalid_image_url"),
        (f"image/png;base64,{encoded(PNG)}", "invalid_image_url"),
        ("data:image/png;base64,iVBO!w0KGgo=", "invalid_image_url"),
        ("data:image/png;base64,iVBORw0KGgo", "invalid_image_url"),
        (f"data:image/png;base64,{encoded(PNG)}AAAA", "invalid_image_url"),
        ("data:image/png;base64,é", "invalid_image_url"),
        ("data:image/png;base64,", "invalid_image_format"),
        (f"data:image/png;base64,{encoded(b'<svg/>')}", "invalid_image_format"),
        (f"data:image/bmp;base64,{encoded(b'BM')}", "invalid_image_format"),
    ],
)
def test_what_is_no_image_is_refused_and_named(url: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_image_data_url(url, "messages[0].content[1]")
    assert (caught.value.error_code, caught.value.param) == (code, "messages[0].content[1]")


def test_an_image_of_the_largest_size_is_taken_and_one_byte_more_is_not() -> None:
    largest = PNG + bytes(IMAGE_SIZE_LIMIT - len(PNG))
    url = f"data:image/png;base64,{encoded(largest)}"
    assert check_image_data_url(url, "p") == (url, 0)
    with pytest.raises(InvalidRequest) as caught:
        check_image_data_url(f"data:image/png;base64,{encoded(largest + b'.')}", "p")
    assert caught.value.error_code == "image_too_large"


@given(st.binary(max_size=64))
def test_a_checked_url_stays_as_it_is(tail: bytes) -> None:
    once, pixels = check_image_data_url(f"data:x;base64,{encoded(PNG + bytes(16) + tail)}", "p")
    assert check_image_data_url(once, "p") == (once, pixels)


@given(st.text())
def test_one_character_outside_base64_refuses_the_whole(payload: str) -> None:
    with pytest.raises(InvalidRequest):
        check_image_data_url(f"data:image/png;base64,!{payload}", "p")


@pytest.mark.parametrize("data", [b"", b"\x89PNG", b"\xff\xd8", b"GIF88a", b"RIFF\x00\x00\x00\x00WEB", b"WEBP"])
def test_the_beginning_of_a_signature_is_no_image(data: bytes) -> None:
    assert image_type(data) is None


def png(width: int, height: int) -> bytes:
    return (
        PNG + b"\x00\x00\x00\x0dIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\x00\x00\x00"
    )


def jpeg(width: int, height: int, *, before: bytes = b"") -> bytes:
    frame = b"\xff\xc2\x00\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\x03"
    return b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(10) + before + frame


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little")


def webp(form: bytes, sizes: bytes) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBP" + form + b"\x00\x00\x00\x00" + sizes


@pytest.mark.parametrize(
    ("data", "pixels"),
    [
        (png(300, 200), 60_000),
        (png(20_000, 20_000), 400_000_000),
        (jpeg(300, 200), 60_000),
        (jpeg(300, 200, before=b"\xff\xff\xe1\x00\x04ab"), 60_000),
        (gif(300, 200), 60_000),
        (webp(b"VP8X", bytes(4) + (299).to_bytes(3, "little") + (199).to_bytes(3, "little")), 60_000),
        (webp(b"VP8L", b"\x2f" + (299 | 199 << 14).to_bytes(4, "little")), 60_000),
        (webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + b"\x2c\x01\xc8\x00"), 60_000),
        (PNG, 0),
        (b"\xff\xd8\xff", 0),
        (b"\xff\xd8\xff" + bytes(20), UNKNOWN_PIXELS),
        (jpeg(9, 9, before=b"\xff\xfe\x00\x02" * 2000), UNKNOWN_PIXELS),
        (jpeg(9, 9, before=b"\xff" * 2000), UNKNOWN_PIXELS),
    ],
)
def test_the_pixels_of_an_image_are_read_from_its_head(data: bytes, pixels: float) -> None:
    assert image_pixels(data) == pixels


@pytest.mark.promise("media.image.pixels")
@pytest.mark.parametrize("data", [png(50_001, 1000), png(2**31, 2**31), jpeg(60_000, 60_000), gif(65_535, 65_535)])
def test_an_image_with_too_many_pixels_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_image_data_url(f"data:image/png;base64,{encoded(data)}", "messages[0].content[1]")
    assert (caught.value.error_code, caught.value.param) == ("image_too_large", "messages[0].content[1]")
    assert check_image_data_url(f"data:image/png;base64,{encoded(png(50_000, 1000))}", "p")[1] == 50_000_000


def test_all_images_of_a_request_have_a_limit_of_pixels_together() -> None:
    decoder = PartsDecoder()
    url = f"data:image/png;base64,{encoded(png(5000, 10_000))}"
    decoder.decode([ContentPart(type="input_image", image_url=url)] * 20, param="a")
    with pytest.raises(InvalidRequest) as caught:
        decoder.decode([ContentPart(type="input_image", image_url=url)], param="b")
    assert (caught.value.error_code, caught.value.param) == ("image_too_large", "b[0]")
