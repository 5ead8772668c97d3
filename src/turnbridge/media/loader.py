"""Loads the media of a request: image URLs become data URLs, files become text."""

import asyncio
import base64
import codecs
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from turnbridge.engine.ports import Helpers, LoadedImage, UploadedFiles
from turnbridge.media.pdf import MOST_PAGES, pdf_text
from turnbridge.turn.errors import InvalidRequest, unknown_file
from turnbridge.turn.images import SUPPORTED_IMAGES, excess_of_pixels, image_pixels, image_type
from turnbridge.turn.items import FilePart, replace

if TYPE_CHECKING:
    from turnbridge.media.fetch import Fetched, GuardedFetcher


class HttpMediaLoader:
    """The engine's `MediaLoader`."""

    def __init__(
        self,
        pdf_helpers: Helpers,
        fetcher: "GuardedFetcher | None" = None,
        *,
        files: UploadedFiles | None = None,
        pdf_pages: int = MOST_PAGES,
    ) -> None:
        """`files` has what clients have uploaded, if anything is stored."""
        self._pdf_helpers = pdf_helpers
        self._files = files
        self._pdf_pages = pdf_pages
        self._fetcher = fetcher

    async def aclose(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.aclose()

    async def image(self, url: str, *, param: str) -> LoadedImage:
        """Return the image behind an https URL."""
        fetched = await self._fetch(url, kind="image", param=param)
        return await _checked_image(fetched.data, "The image URL does not lead to", param=param)

    async def uploaded_image(self, client: str, file_id: str, *, param: str) -> LoadedImage:
        """Return an image that this client has uploaded."""
        part = await self.uploaded_file(client, FilePart(filename=None, file_id=file_id, param=param))
        return await _checked_image(part.data or b"", f"The file '{file_id}' is not", param=param)

    async def uploaded_file(self, client: str, part: FilePart) -> FilePart:
        """Return a file part with the content that this client has uploaded."""
        file_id = part.file_id or ""
        found = None if self._files is None else await self._files.file_content(client, file_id)
        if found is None:
            raise unknown_file(file_id, part.param)
        file, data = found
        name = part.filename or file.filename
        return replace(part, filename=name, mime_type=file.mime_type, data=data, file_id=None)

    async def file_text(self, part: FilePart) -> str:
        """Return the text of a file, below a line with its name if it has one."""
        data, filename, mime_type = part.data, part.filename, part.mime_type
        if data is None:
            fetched = await self._fetch(part.url or "", kind="file", param=part.param)
            data = fetched.data
            mime_type = mime_type or fetched.content_type
            filename = filename or PurePosixPath(unquote(urlsplit(part.url or "").path)).name
        if data.startswith(b"%PDF-"):
            pages = await pdf_text(self._pdf_helpers, data, most_pages=self._pdf_pages, param=part.param)
            return _with_name(pages, filename)
        # In a thread, since it scans megabytes several times.
        text = await asyncio.to_thread(decode_text, data, filename=filename, mime_type=mime_type)
        if text is None:
            found = image_type(data) or _type_name(filename, mime_type)
            raise InvalidRequest(
                f"The file is not text: its type is {found}. Send text, a PDF, or an image as an image part.",
                code="unsupported_file",
                param=part.param,
            )
        return _with_name(text, filename)

    async def _fetch(self, url: str, *, kind: Literal["image", "file"], param: str) -> "Fetched":
        # Its HTTP client would delay every start, and most gateways never fetch anything.
        from turnbridge.media.fetch import FetchFailed, FetchTooLarge, GuardedFetcher  # noqa: PLC0415

        self._fetcher = self._fetcher or GuardedFetcher()
        try:
            return await self._fetcher.get(url)
        except FetchFailed as error:
            code = f"{kind}_too_large" if isinstance(error, FetchTooLarge) else f"invalid_{kind}_url"
            raise InvalidRequest(f"The {kind} URL cannot be used. {error}", code=code, param=param) from error


async def _checked_image(data: bytes, what_leads_to: str, *, param: str) -> LoadedImage:
    """Return an image that the model can read."""
    mime_type, pixels = image_type(data), image_pixels(data)
    if mime_type is None:
        raise InvalidRequest(
            f"{what_leads_to} an image that the model can read. Use {SUPPORTED_IMAGES}.",
            code="invalid_image_format",
            param=param,
        )
    if (problem := excess_of_pixels(pixels)) is not None:
        raise InvalidRequest(problem, code="image_too_large", param=param)
    encoded = await asyncio.to_thread(base64.b64encode, data)
    return LoadedImage(f"data:{mime_type};base64,{encoded.decode('ascii')}", pixels)


_TEXT_TYPES = re.compile(
    r"text/.+|.+\+(json|xml|yaml)"
    r"|application/(x-)?(json|jsonl|ndjson|json5|xml|yaml|toml|javascript|ecmascript|typescript"
    r"|sql|graphql|sh|csv|tex)",
    re.IGNORECASE,
)

_TEXT_NAMES = re.compile(
    r".*\.(bat|c|cc|cfg|conf|cpp|cs|css|csv|diff|env|go|graphql|h|hpp|html?|ini|java|jsx?|json5?|jsonl|kt|lock|log"
    r"|lua|md|mjs|ndjson|patch|php|pl|proto|ps1|py|r|rb|rs|rst|scala|sh|sql|srt|svg|swift|tex|tf|toml|tsx?|tsv"
    r"|txt|vtt|xml|ya?ml|zig)",
    re.IGNORECASE | re.DOTALL,
)

# Control characters except for tab, line feed, form feed and carriage return, which occur in text.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")

_UNKNOWN_TYPE = "application/octet-stream"


def decode_text(data: bytes, *, filename: str | None, mime_type: str | None) -> str | None:
    """Return the text of a file, or None when it is not text.

    A file whose name or type says that it is text may contain control characters, and need not be UTF-8: it is then
    decoded as Windows-1252, as by browsers. Any other file has to look like text.
    """
    declared = _TEXT_TYPES.fullmatch(_bare_type(mime_type)) or _TEXT_NAMES.fullmatch(filename or "")
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        if not declared:
            return None
        text = data.decode("cp1252", "replace")
    if "\0" in text or (not declared and _CONTROL.search(text)):
        return None
    return text


def _with_name(text: str, filename: str | None) -> str:
    """Return the text below a line with the file's name, so that the model can refer to it."""
    # A line break in a name could pass for the content.
    name = " ".join((filename or "").split())
    return f"File: {name}\n\n{text}" if name else text


def _type_name(filename: str | None, mime_type: str | None) -> str:
    mime_type = _bare_type(mime_type)
    if mime_type not in ("", _UNKNOWN_TYPE):
        return mime_type
    return PurePosixPath(filename or "").suffix or "an unknown type"


def _bare_type(mime_type: str | None) -> str:
    return (mime_type or "").partition(";")[0].strip()
