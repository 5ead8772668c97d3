"""Reads the text of PDF files with pypdf, which is the optional extra `turnbridge[pdf]`.

A small file can keep pypdf busy for ever, or make it fill the memory. So it runs in a helper process, one for each
document, that is killed at its limits.
"""

import zlib
from io import BytesIO

from turnbridge.engine.ports import Helpers, JobFailed, NoHelper
from turnbridge.turn.errors import BackendUnavailable, InvalidRequest

MOST_PAGES = 500
"""About what fills the largest context window with dense text."""

_PAGES_BYTES = 4
_READ, _REFUSED = b"+", b"-"


class PdfReader:
    """Reads PDF files in helper processes whose job is `read_job`."""

    def __init__(self, helpers: Helpers, *, pages: int = MOST_PAGES) -> None:
        self._helpers = helpers
        self._pages = pages

    async def text(self, data: bytes, *, param: str) -> str:
        """Return the text of all pages."""
        try:
            answer = await self._helpers.run(self._pages.to_bytes(_PAGES_BYTES, "big") + data)
        except JobFailed as error:
            raise _refused("takes too long or too much memory to read. Send fewer pages, or text.", param) from error
        except NoHelper as error:
            raise BackendUnavailable("The gateway is busy with other PDF files. Try again.", retry_after=5) from error
        # As many bytes as the text has, which may be megabytes; one copy is enough.
        text = str(memoryview(answer)[1:], "utf-8")
        if answer.startswith(_REFUSED):
            raise _refused(text, param)
        if not text.strip():
            raise _refused("has no text, it may be a scan. Send its pages as images.", param)
        return text


class _RefusedError(Exception):
    """The file cannot be read; the text says why, and what to do."""


def read_job(given: bytes) -> bytes:
    """Return the text of a PDF, or why it cannot be read: what the helper process does."""
    pages = int.from_bytes(given[:_PAGES_BYTES], "big")
    try:
        # Broken fonts yield halves of surrogate pairs, which no JSON can carry.
        return _READ + _extract(given[_PAGES_BYTES:], pages).encode("utf-8", "replace")
    except _RefusedError as error:
        return _REFUSED + str(error).encode()


def _extract(data: bytes, max_pages: int) -> str:
    try:
        import pypdf  # noqa: PLC0415 - an optional extra
        import pypdf.errors  # noqa: PLC0415 - the same
    except ImportError as error:
        advice = "cannot be read: this gateway lacks pypdf. Its operator can add it: `.venv/bin/pip install pypdf`."
        raise _RefusedError(advice) from error
    try:
        reader = pypdf.PdfReader(BytesIO(data))
        if reader.is_encrypted:
            raise _RefusedError("is encrypted. Remove its protection.")
        if len(reader.pages) > max_pages:
            raise _RefusedError(f"has more than {max_pages} pages. Send fewer.")
        return "\n\n".join(page.extract_text() for page in reader.pages)
    except (
        # pypdf says that broken files may raise other errors than its own; these are what wrong data causes.
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
