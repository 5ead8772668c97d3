"""Images inside the request are checked by their bytes, not by what they are called."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import IMAGE_SIZE_LIMIT, image_type
from turnbridge.wire.images import check_image_data_url

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
    url = check_image_data_url(f"data:application/octet-stream;base64,{encoded(data)}", "p")
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
    assert check_image_data_url(url, "p") == f"data:image/png;base64,{encoded(PNG)}"


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
    assert check_image_data_url(url, "p") == url
    with pytest.raises(InvalidRequest) as caught:
        check_image_data_url(f"data:image/png;base64,{encoded(largest + b'.')}", "p")
    assert caught.value.error_code == "image_too_large"


@given(st.binary(max_size=64))
def test_a_checked_url_stays_as_it_is(tail: bytes) -> None:
    once = check_image_data_url(f"data:x;base64,{encoded(PNG + tail)}", "p")
    assert check_image_data_url(once, "p") == once


@given(st.text())
def test_one_character_outside_base64_refuses_the_whole(payload: str) -> None:
    with pytest.raises(InvalidRequest):
        check_image_data_url(f"data:image/png;base64,!{payload}", "p")


@pytest.mark.parametrize("data", [b"", b"\x89PNG", b"\xff\xd8", b"GIF88a", b"RIFF\x00\x00\x00\x00WEB", b"WEBP"])
def test_the_beginning_of_a_signature_is_no_image(data: bytes) -> None:
    assert image_type(data) is None
