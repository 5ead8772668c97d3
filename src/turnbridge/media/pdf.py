"""Reads the text of PDF files with pypdf, which is the optional extra `turnbridge[pdf]`.

A small file can make pypdf run for ever or exhaust the memory, so it runs in a helper process with limits.
"""

import zlib
from io import BytesIO

from turnbridge.engine.ports import Helpers, JobFailed, NoHelper
from turnbridge.turn.errors import BackendUnavailable, InvalidRequest

# About what fills the largest context window with dense text.
MOST_PAGES = 500
_PAGES_BYTES = 4
_READ, _REFUSED = b"+", b"-"


async def pdf_text(helpers: Helpers, data: bytes, *, most_pages: int, param: str) -> str:
    """Return the text of all pages, read in a helper process whose job is `read_job`."""
    try:
        answer = await helpers.run(most_pages.to_bytes(_PAGES_BYTES, "big") + data)
    except JobFailed as error:
        raise _refused("takes too long or too much memory to read. Send fewer pages, or text.", param) from error
    except NoHelper as error:
        raise BackendUnavailable("The gateway is busy with other PDF files. Try again.", retry_after=5) from error
    # Without copying the bytes once more: they may be megabytes.
    text = str(memoryview(answer)[1:], "utf-8")
    if answer.startswith(_REFUSED):
        raise _refused(text, param)
    if not text.strip():
        raise _refused("has no text, it may be a scan. Send its pages as images.", param)
    return text


class _RefusedError(Exception):
    """The file cannot be read; the message says why, and what to do."""


def read_job(given: bytes) -> bytes:
    """Return the text of a PDF, or why it cannot be read; runs in the helper process."""
    pages = int.from_bytes(given[:_PAGES_BYTES], "big")
    try:
        # Broken fonts yield lone surrogates, which JSON cannot contain.
        return _READ + _extract(given[_PAGES_BYTES:], pages).encode("utf-8", "replace")
    except _RefusedError as error:
        return _REFUSED + str(error).encode()


def _extract(data: bytes, max_pages: int) -> str:
    try:
        import pypdf  # noqa: PLC0415 - an optional extra
        import pypdf.errors  # noqa: PLC0415 - the same
    except ImportError as error:
        advice = "cannot be read: this gateway lacks pypdf. Its operator can add it: `turnbridge doctor` says how."
        raise _RefusedError(advice) from error
    try:
        reader = pypdf.PdfReader(BytesIO(data))
        if reader.is_encrypted:
            raise _RefusedError("is encrypted. Remove its protection.")
        if len(reader.pages) > max_pages:
            raise _RefusedError(f"has more than {max_pages} pages. Send fewer.")
        return "\n\n".join(page.extract_text() for page in reader.pages)
    except (
        # pypdf documents that broken files may raise other errors than its own.
        pypdf.errors.PyPdfError,
        pypdf.errors.DependencyError,
        pypdf.errors.DeprecationError,
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        zlib.error,
    ) as error:
        raise _RefusedError("is broken. Save it again, or send text.") from error


def _refused(why: str, param: str) -> InvalidRequest:
    return InvalidRequest(f"The PDF {why}", code="unsupported_file", param=param)
