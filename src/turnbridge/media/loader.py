"""Brings in what a request points at: images become data URLs, files become text."""

import asyncio
import base64
import ssl
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import unquote, urlsplit

from turnbridge.engine.ports import Helpers
from turnbridge.media.addresses import AddressCheck, Resolver, is_public, resolve
from turnbridge.media.fetch import Fetched, FetchFailed, FetchLimits, FetchTooLarge, GuardedFetcher
from turnbridge.media.files import decode_text, type_name, with_name
from turnbridge.media.pdf import MOST_PAGES, PdfReader
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import SUPPORTED_IMAGES, excess_of_pixels, image_pixels, image_type
from turnbridge.turn.items import FilePart


class HttpMediaLoader:
    """The engine's `MediaLoader`; with its defaults it only reaches public hosts."""

    def __init__(
        self,
        pdf_helpers: Helpers,
        *,
        fetch_limits: FetchLimits | None = None,
        pdf_pages: int = MOST_PAGES,
        resolver: Resolver = resolve,
        allowed: AddressCheck = is_public,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._pdf = PdfReader(pdf_helpers, pages=pdf_pages)
        self._fetcher = GuardedFetcher(
            limits=fetch_limits or FetchLimits(),
            resolver=resolver,
            allowed=allowed,
            ssl_context=ssl_context,
        )

    async def aclose(self) -> None:
        """Close connections."""
        await self._fetcher.aclose()

    async def image(self, url: str, *, param: str) -> str:
        """Return the image behind an https URL as a data URL."""
        fetched = await self._fetch(url, kind="image", param=param)
        mime_type = image_type(fetched.data)
        if mime_type is None:
            raise InvalidRequest(
                f"The image URL does not lead to an image that the model can read. Use {SUPPORTED_IMAGES}.",
                code="invalid_image_format",
                param=param,
            )
        if (problem := excess_of_pixels(image_pixels(fetched.data))) is not None:
            raise InvalidRequest(problem, code="image_too_large", param=param)
        encoded = await asyncio.to_thread(base64.b64encode, fetched.data)
        return f"data:{mime_type};base64,{encoded.decode('ascii')}"

    async def file_text(self, part: FilePart) -> str:
        """Return the text of a file part, below a line with its name if it has one."""
        data, filename, mime_type = part.data, part.filename, part.mime_type
        if data is None:
            fetched = await self._fetch(part.url or "", kind="file", param=part.param)
            data = fetched.data
            mime_type = mime_type or fetched.content_type
            filename = filename or PurePosixPath(unquote(urlsplit(part.url or "").path)).name
        if data.startswith(b"%PDF-"):
            return with_name(await self._pdf.text(data, param=part.param), filename)
        # In a thread: it goes through megabytes several times.
        text = await asyncio.to_thread(decode_text, data, filename=filename, mime_type=mime_type)
        if text is None:
            found = image_type(data) or type_name(filename, mime_type)
            raise InvalidRequest(
                f"The file is not text: its type is {found}. Send text, a PDF, or an image as an image part.",
                code="unsupported_file",
                param=part.param,
            )
        return with_name(text, filename)

    async def _fetch(self, url: str, *, kind: Literal["image", "file"], param: str) -> Fetched:
        try:
            return await self._fetcher.get(url)
        except FetchFailed as error:
            code = f"{kind}_too_large" if isinstance(error, FetchTooLarge) else f"invalid_{kind}_url"
            raise InvalidRequest(f"The {kind} URL cannot be used. {error}", code=code, param=param) from error
