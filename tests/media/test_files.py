"""Files become text when they are text, or PDF with text in it; everything else is refused by name."""

import io
import sys
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pypdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.media.no_helpers import NO_HELPERS
from turnbridge.media.loader import HttpMediaLoader, decode_text
from turnbridge.media.pdf import read_job
from turnbridge.offload.helpers import HelperPool
from turnbridge.parts import PDF_JOB, PDF_LIMITS
from turnbridge.turn.errors import BackendUnavailable, InvalidRequest
from turnbridge.turn.items import FilePart

BINARY = b"\x00\x01\x02\xff"
PNG = b"\x89PNG\r\n\x1a\n\x00"


def part(data: bytes, *, filename: str | None = None, mime_type: str | None = None) -> FilePart:
    return FilePart(filename=filename, mime_type=mime_type, data=data, param="input[0].content[1]")


def pdf(*contents: bytes, form: bytes = b"") -> bytes:
    """Return a PDF with one page for each content; `/F Do` in one draws the form."""
    kids = b" ".join(b"%d 0 R" % (5 + 2 * number) for number in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%b] >>" % (len(contents), kids),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Subtype /Form /BBox [0 0 9 9] /Resources << /Font << /T 3 0 R >> >> /Length %d >>\n"
        b"stream\n%b\nendstream" % (len(form), form),
    ]
    for number, content in enumerate(contents):
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents %d 0 R"
            b" /Resources << /Font << /T 3 0 R >> /XObject << /F 4 0 R >> >> >>" % (6 + 2 * number),
            b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
        ]
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%b\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % offset for offset in offsets))
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1))
    out.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return out.getvalue()


def page(text: str) -> bytes:
    return b"BT /T 9 Tf 9 9 Td (%b) Tj ET" % text.encode()


def encrypted() -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf(page("secret"))))
    writer.encrypt("password", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.fixture
async def loader() -> AsyncIterator[HttpMediaLoader]:
    helpers = HelperPool(PDF_JOB, PDF_LIMITS)
    loader = HttpMediaLoader(helpers, pdf_pages=2)
    yield loader
    await loader.aclose()
    await helpers.aclose()


async def refusal(loader: HttpMediaLoader, file: FilePart) -> str:
    with pytest.raises(InvalidRequest) as caught:
        await loader.file_text(file)
    assert (caught.value.error_code, caught.value.param) == ("unsupported_file", file.param)
    return caught.value.message


@pytest.mark.promise("media.file.text")
@pytest.mark.parametrize(
    ("data", "filename", "mime_type", "text"),
    [
        (b"", None, None, ""),
        (b"plain \xc3\xbc\n", None, None, "plain ü\n"),
        (b"a\tb\r\nc\fd", None, None, "a\tb\r\nc\fd"),
        (b"\xef\xbb\xbfmarked", None, None, "marked"),
        ("wide ü".encode("utf-16"), None, None, "wide ü"),
        (b"\xfe\xff\x00w\x00i", None, None, "wi"),
        (b'{"a": 1}', None, "application/octet-stream", '{"a": 1}'),
        (b"\x1b[1mlog", "build.log", None, "\x1b[1mlog"),
        (b"\x1b[1mlog", None, "text/plain", "\x1b[1mlog"),
        (b"gr\xfc\xdfe", "A.TXT", None, "grüße"),
        (b"gr\xfc\xdfe", None, "text/csv; charset=latin-1", "grüße"),
        (b"gr\xfc\xdfe", None, "application/x-yaml", "grüße"),
        (b"gr\xfc\xdfe", None, "image/svg+xml", "grüße"),
        (b"<\x81>", None, "text/html", "<\N{REPLACEMENT CHARACTER}>"),
        (b"x\x1by", None, None, None),
        (b"x\x7fy", None, None, None),
        (b"gr\xfc\xdfe", None, None, None),
        (b"gr\xfc\xdfe", "photo.heic", "image/heic", None),
        (b"a\x00b", "a.txt", "text/plain", None),
        (BINARY, None, "application/zip", None),
        (b"\xff\xfe\x00", None, None, None),
    ],
)
def test_text_is_told_from_other_files(
    data: bytes, filename: str | None, mime_type: str | None, text: str | None
) -> None:
    assert decode_text(data, filename=filename, mime_type=mime_type) == text


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_any_printable_text_survives(text: str) -> None:
    expected = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    assert decode_text(text.encode(), filename=None, mime_type=None) == expected


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("filename", "text"),
    [
        (None, "milk"),
        (" ", "milk"),
        ("list.txt", "File: list.txt\n\nmilk"),
        ("a\nb.txt", "File: a b.txt\n\nmilk"),
    ],
)
async def test_the_name_of_a_file_stands_in_the_first_line(
    loader: HttpMediaLoader, filename: str | None, text: str
) -> None:
    assert await loader.file_text(part(b"milk", filename=filename)) == text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("file", "found"),
    [
        (part(BINARY), "an unknown type"),
        (part(BINARY, mime_type="application/zip"), "application/zip"),
        (part(BINARY, filename="a.docx", mime_type="application/octet-stream"), ".docx"),
        (part(BINARY, filename="a.txt", mime_type="audio/wav; rate=8000"), "audio/wav"),
        (part(PNG, filename="a.bin"), "image/png"),
    ],
)
async def test_other_files_are_refused_with_their_type(loader: HttpMediaLoader, file: FilePart, found: str) -> None:
    assert await refusal(loader, file) == (
        f"The file is not text: its type is {found}. Send text, a PDF, or an image as an image part."
    )


@pytest.mark.anyio
async def test_a_pdf_with_as_many_pages_as_allowed_becomes_their_text(loader: HttpMediaLoader) -> None:
    file = part(pdf(page("first"), page("second")), filename="two.pdf", mime_type="application/octet-stream")
    assert await loader.file_text(file) == "File: two.pdf\n\nfirst\n\nsecond"


@pytest.mark.anyio
async def test_half_a_surrogate_pair_from_a_pdf_does_not_reach_the_model(loader: HttpMediaLoader) -> None:
    to_unicode = (
        b"begincmap\n1 begincodespacerange\n<00> <FF>\nendcodespacerange\n"
        b"1 beginbfchar\n<61> <D800>\nendbfchar\nendcmap"
    )
    data = pdf(page("abc"), form=to_unicode).replace(b"/Helvetica", b"/Helvetica /ToUnicode 4 0 R")
    assert await loader.file_text(part(data)) == "?bc"


@pytest.mark.promise("media.file.pdf")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pdf(b"0 0 9 9 re f"), "has no text, it may be a scan. Send its pages as images."),
        (pdf(), "has no text, it may be a scan. Send its pages as images."),
        (encrypted(), "is encrypted. Remove its protection."),
        (b"%PDF-1.7 and nothing else", "is broken. Save it again, or send text."),
        (
            pdf(page("a")).replace(b"/Length", b"/Filter /Fl /Length"),
            "is broken. Save it again, or send text.",
        ),
        (pdf(page("a"), page("b"), page("c")), "has more than 2 pages. Send fewer."),
    ],
)
async def test_a_pdf_that_cannot_be_read_is_refused(loader: HttpMediaLoader, data: bytes, why: str) -> None:
    assert await refusal(loader, part(data)) == f"The PDF {why}"


@pytest.mark.promise("media.file.pdf")
def test_without_pypdf_the_client_learns_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert read_job(b"\0\0\0\x09" + pdf(page("text"))) == (
        b"-cannot be read: this gateway lacks pypdf. Its operator can add it: `turnbridge doctor` says how."
    )


@pytest.mark.promise("media.file.pdf-limits")
@pytest.mark.anyio
async def test_an_endless_pdf_is_left_at_the_time_limit_and_its_process_ends() -> None:
    endless = pdf(b"/F Do\n" * 4000, form=page("text") * 1000)
    helpers = HelperPool(PDF_JOB, replace(PDF_LIMITS, seconds=0.3))
    assert await refusal(HttpMediaLoader(helpers), part(endless)) == (
        "The PDF takes too long or too much memory to read. Send fewer pages, or text."
    )
    assert helpers.pids == []
    await helpers.aclose()


@pytest.mark.promise("media.file.pdf-limits")
@pytest.mark.anyio
async def test_a_pdf_that_fills_the_memory_is_refused() -> None:
    """Its page is 512 MB of blanks, which take half a megabyte in the file."""
    packed = zlib.compress(b" " * 2**29, 1)
    data = pdf(packed).replace(
        b"<< /Length %d >>" % len(packed), b"<< /Length %d /Filter /FlateDecode >>" % len(packed)
    )
    helpers = HelperPool(PDF_JOB, replace(PDF_LIMITS, megabytes=256))
    assert (await refusal(HttpMediaLoader(helpers), part(data))).startswith("The PDF ")
    await helpers.aclose()


@pytest.mark.anyio
async def test_a_pdf_waits_no_longer_than_others_let_it() -> None:
    with pytest.raises(BackendUnavailable, match="busy"):
        await HttpMediaLoader(NO_HELPERS).file_text(part(pdf(page("text"))))


@settings(deadline=None)
@given(st.data())
def test_a_damaged_pdf_is_read_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(pdf(page("first"), b"/F Do", form=page("second")))
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(5, len(damaged)))
        damaged[start : start + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=8))
    assert read_job(b"\0\0\0\x09" + damaged)[:1] in (b"+", b"-")
