"""What an uploaded form asks for, and what is refused in it."""

import pytest

from turnbridge.api.files.decode import FileUpload, decode_upload
from turnbridge.api.files.multipart import MOST_HEAD_BYTES, MOST_PARTS, form_boundary
from turnbridge.turn.errors import InvalidRequest

BOUNDARY = b"b-1"
PURPOSE = b'name="purpose"\r\n\r\nuser_data'
FILE = b'name="file"; filename="a.txt"\r\ncontent-type: text/plain\r\n\r\nhi'


def form(*parts: bytes, end: bytes = b"--b-1--\r\n") -> bytes:
    """Return a form with these parts, each from its disposition's parameters on."""
    return b"".join(b"--b-1\r\ncontent-disposition: form-data; %b\r\n" % part for part in parts) + end


def field(name: str, value: str) -> bytes:
    return f'name="{name}"\r\n\r\n{value}'.encode()


def named(filename: str) -> bytes:
    return f'name="file"; filename="{filename}"\r\n\r\nhi'.encode()


def refusal(body: bytes) -> tuple[str | None, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        decode_upload(body, BOUNDARY)
    return caught.value.error_code, caught.value.param


def test_a_form_becomes_a_file() -> None:
    uploaded = decode_upload(form(PURPOSE, FILE), BOUNDARY)
    assert uploaded == FileUpload("a.txt", "text/plain", b"hi", "user_data", None)


@pytest.mark.parametrize("content", [b"", b"\r\n", b"\r\n--b-", b"\n--b-1\r\n", bytes(range(256)), b"--b-1"])
def test_the_content_is_taken_byte_for_byte(content: bytes) -> None:
    part = b'name="file"; filename="a"\r\n\r\n' + content
    assert decode_upload(form(PURPOSE, part), BOUNDARY).content == content


@pytest.mark.parametrize(
    ("written", "filename"),
    [
        ('filename="größe.txt"', "größe.txt"),
        ("filename=bare.txt", "bare.txt"),
        ('filename="a \\"b\\".txt"', 'a "b".txt'),
        ('filename="a %22b%22.txt"', 'a "b".txt'),
        ("filename=\"x\"; filename*=UTF-8''gr%C3%B6%C3%9Fe.txt", "größe.txt"),
        ('FileName="A.TXT"', "A.TXT"),
    ],
)
def test_names_are_read_as_clients_write_them(written: str, filename: str) -> None:
    part = f'name="file"; {written}\r\n\r\nhi'.encode()
    assert decode_upload(form(PURPOSE, part), BOUNDARY).filename == filename


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "..\\\\boot.ini",
        "a%0Ab",
        "a%0D%0Ax-header: 1",
        "a\x00b",
        "a\x1b[31m",
        "a\u202eb",
        "n" * 256,
    ],
)
def test_names_that_are_paths_or_steer_a_terminal_are_refused(name: str) -> None:
    assert refusal(form(PURPOSE, named(name))) == ("invalid_value", "file")


@pytest.mark.parametrize("seconds", [3600, 2_592_000])
def test_a_lifetime_counts_from_the_creation(seconds: int) -> None:
    fields = [field("expires_after[anchor]", "created_at"), field("expires_after[seconds]", str(seconds))]
    assert decode_upload(form(PURPOSE, *fields, FILE), BOUNDARY).lifetime_s == seconds


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        (["anchor=created_at"], "missing_required_parameter", "expires_after.seconds"),
        (["seconds=3600"], "invalid_value", "expires_after.anchor"),
        (["anchor=last_used", "seconds=3600"], "invalid_value", "expires_after.anchor"),
        (["anchor=created_at", "seconds=3599"], "integer_below_min_value", "expires_after.seconds"),
        (["anchor=created_at", "seconds=2592001"], "integer_above_max_value", "expires_after.seconds"),
        (["anchor=created_at", "seconds=-1"], "invalid_value", "expires_after.seconds"),
        (["anchor=created_at", "seconds=" + "9" * 200], "invalid_value", "expires_after.seconds"),
        (["anchor=created_at", "seconds=1e4"], "invalid_value", "expires_after.seconds"),
    ],
)
def test_a_lifetime_out_of_bounds_is_refused(fields: list[str], code: str, param: str) -> None:
    parts = [field(f"expires_after[{name}]", value) for name, _, value in (each.partition("=") for each in fields)]
    assert refusal(form(PURPOSE, *parts, FILE)) == (code, param)


@pytest.mark.parametrize(
    ("parts", "code", "param"),
    [
        ([FILE], "missing_required_parameter", "purpose"),
        ([PURPOSE], "missing_required_parameter", "file"),
        ([PURPOSE, field("file", "just text")], "missing_required_parameter", "file"),
        ([PURPOSE, FILE, FILE], "invalid_value", "file"),
        ([field("purpose", "batch"), FILE], "unsupported_purpose", "purpose"),
        ([field("purpose", "fine-tune"), FILE], "unsupported_purpose", "purpose"),
        ([field("purpose", "evals"), FILE], "unsupported_purpose", "purpose"),
        ([field("purpose", "anything"), FILE], "invalid_value", "purpose"),
        ([field("purpose", "p" * 300), FILE], "invalid_value", "purpose"),
        ([field("purpose", "größe"), FILE], "invalid_value", "purpose"),
    ],
)
def test_what_is_missing_or_wrong_is_named(parts: list[bytes], code: str, param: str) -> None:
    assert refusal(form(*parts)) == (code, param)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hi",
        b"--b-1",
        b"--b-1\r\n",
        b"--b-2\r\n\r\n",
        form(PURPOSE, FILE, end=b""),
        form(PURPOSE, FILE, end=b"--b-1"),
        form(b"filename=a\r\n\r\nhi"),
        form(b'name="\xff"\r\n\r\nhi'),
        form(b'name="' + b"n" * MOST_HEAD_BYTES + b'"\r\n\r\nhi'),
        form(*(field(f"f{number}", "x") for number in range(MOST_PARTS + 1))),
        form(*(field(f"f{number}", "x") for number in range(1000))),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(body: bytes) -> None:
    assert refusal(body) == ("invalid_form", None)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=utf-8; boundary="a b"', b"a b"),
    ],
)
def test_the_boundary_is_that_of_the_content_type(content_type: str, boundary: bytes) -> None:
    assert form_boundary(content_type) == boundary


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json",
        "multipart/form-data",
        "multipart/mixed; boundary=a",
        "multipart/form-data; boundary=" + "b" * 71,
    ],
)
def test_anything_but_a_form_is_refused(content_type: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        form_boundary(content_type)
    assert caught.value.error_code == "invalid_content_type"
