"""Reads the text of PDF files with pypdf, within limits; pypdf is the optional extra `turnbridge[pdf]`."""

import asyncio
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO

from turnbridge.turn.errors import InvalidRequest

PDF_THREADS = 2
"""So that one long document does not block all others; more would only fight for the interpreter's lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfLimits:
    """How much work one PDF may cause."""

    pages: int = 500
    """About what fills the largest context window with dense text."""
    seconds: float = 20.0
    """For the client's wait. A page takes some ten milliseconds, so this is far from what honest documents need."""


class PdfReader:
    """Reads PDF files in threads of its own."""

    def __init__(self, limits: PdfLimits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(PDF_THREADS, thread_name_prefix="pdf")

    def close(self) -> None:
        """Drop what waits; what is being read ends soon after its time limit, and the process waits for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def text(self, data: bytes, *, param: str) -> str:
        """Return the text of all pages."""
        deadline = time.monotonic() + self._limits.seconds

        def check_time() -> None:
            if time.monotonic() > deadline:
                raise TimeoutError

        try:
            # No thread can be stopped from here: it looks at the clock itself, and the wait ends without it. It does
            # not look while pypdf parses a page or a form, which pypdf's own limits end after some ten seconds.
            async with asyncio.timeout(self._limits.seconds):
                text = await asyncio.get_running_loop().run_in_executor(
                    self._threads, _extract, data, self._limits.pages, check_time, param
                )
        except TimeoutError as error:
            limit = f"{self._limits.seconds:g} seconds"
            raise _refused(f"takes longer than {limit} to read. Send fewer pages, or text.", param) from error
        if not text.strip():
            raise _refused("has no text, it may be a scan. Send its pages as images.", param)
        return text


def _extract(data: bytes, max_pages: int, check_time: Callable[[], None], param: str) -> str:
    try:
        import pypdf  # noqa: PLC0415 - an optional extra
        import pypdf.errors  # noqa: PLC0415 - the same
    except ImportError as error:
        raise _refused(
            "cannot be read: this gateway lacks pypdf. Its operator can add it: `.venv/bin/pip install pypdf`.", param
        ) from error
    try:
        reader = pypdf.PdfReader(BytesIO(data))
        if reader.is_encrypted:
            raise _refused("is encrypted. Remove its protection.", param)
        if len(reader.pages) > max_pages:
            raise _refused(f"has more than {max_pages} pages. Send fewer.", param)
        pages: list[str] = []
        for page in reader.pages:
            check_time()
            # Called for every drawing operation, once the page is parsed: forms that are drawn over and over also end.
            pages.append(page.extract_text(visitor_operand_before=lambda *_: check_time()))
    except TimeoutError:
        raise
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
        raise _refused("is broken. Save it again, or send text.", param) from error
    # Broken fonts yield halves of surrogate pairs, which no JSON can carry.
    return "\n\n".join(pages).encode("utf-8", "replace").decode("utf-8")


def _refused(why: str, param: str) -> InvalidRequest:
    return InvalidRequest(f"The PDF {why}", code="unsupported_file", param=param)
