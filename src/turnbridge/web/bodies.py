"""Request bodies: received within limits of size, time and shared memory, and parsed off the event loop if large."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from turnbridge.api.shared.body_budget import check_body
from turnbridge.api.shared.validation import parse_body
from turnbridge.turn.errors import GatewayOverloaded, InvalidRequest, RequestTimeout, RequestTooLarge
from turnbridge.turn.items import JsonObject
from turnbridge.web.middleware.observability import RequestContext, context_of

BYTES_PER_MB = 1024 * 1024

BODY_SILENCE_S = 60
"""How long a body may stop coming. A network that stalls has recovered by then, or its client has given up."""

MOST_BYTES = 256 * 1024 * 1024
"""Sixteen of the largest bodies that are allowed by default, or thousands of ordinary ones, within the same moment."""

SLOW_S = 60.0
"""A body that has taken this long is the first to be rejected when memory is short."""

LARGE_BODY_BYTES = 128 * 1024
"""What is smaller is read within ten milliseconds, whatever it holds; to use a thread takes a tenth of one."""

T = TypeVar("T")

# One for all: each step of another one would keep the interpreter's lock from the event loop for longer.
_thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")


class BodyLimit(NamedTuple):
    """The size of the largest body, and what a client is told that sends a larger one."""

    size: int
    message: str

    def exceeded(self) -> RequestTooLarge:
        """Return the refusal of a larger body."""
        return RequestTooLarge(self.message)


class Upload:
    """One body on its way."""

    def __init__(self, client: str, began_at: float, patience: asyncio.Timeout) -> None:
        self.client = client
        self.began_at = began_at
        self.size = 0
        self.rejected = False
        self._patience = patience

    def reject(self) -> None:
        """Stop waiting for the rest: its reader gets a `TimeoutError` at once."""
        self.rejected = True
        self._patience.reschedule(0)


class Uploads:
    """Counts the bytes of bodies. When they are too many, the client that holds most of them loses its oldest body."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._of_client: dict[str, OrderedDict[Upload, None]] = {}

    def begin(self, client: str, patience: asyncio.Timeout) -> Upload:
        """Count a body whose reader waits with `patience`."""
        upload = Upload(client, asyncio.get_running_loop().time(), patience)
        self._of_client.setdefault(client, OrderedDict())[upload] = None
        return upload

    def add(self, upload: Upload, size: int) -> None:
        """Count bytes that have come; raises `GatewayOverloaded` if there is no room for them.

        A body larger than all the memory for them is let in if it is the only one: its own limit is the operator's.
        """
        upload.size += size
        self._size += size
        while self._size > self._most and self._size > upload.size:
            largest = max(self._of_client.values(), key=_size_of)
            oldest = next(iter(largest))
            age_s = asyncio.get_running_loop().time() - oldest.began_at
            if oldest is upload or (oldest.client == upload.client and age_s < SLOW_S):
                raise _overloaded()
            oldest.reject()
            self.end(oldest)

    def end(self, upload: Upload) -> None:
        """Count a body no more; ending it twice is a no-op."""
        bodies = self._of_client.get(upload.client)
        if bodies is None or upload not in bodies:
            return
        del bodies[upload]
        self._size -= upload.size
        if not bodies:
            del self._of_client[upload.client]


def _overloaded() -> GatewayOverloaded:
    return GatewayOverloaded("Too many request bodies are being received. Try again in a moment.", retry_after=1)


def _size_of(bodies: OrderedDict[Upload, None]) -> int:
    return sum(body.size for body in bodies)


class Bodies:
    """Receives the bodies of all requests."""

    def __init__(self, limit_bytes: int, *, most_bytes: int = MOST_BYTES) -> None:
        """`limit_bytes` is the size of the largest body; `most_bytes` that of all together that are on their way."""
        self.limit_bytes = limit_bytes
        self._limit = BodyLimit(
            limit_bytes,
            f"The request body is larger than the {limit_bytes / BYTES_PER_MB:g} MB that this server takes. "
            "Send less, or raise PROXY_MAX_BODY_MB on the server.",
        )
        self._uploads = Uploads(most_bytes)

    async def read(self, scope: Scope, receive: Receive, limit: BodyLimit | None = None) -> bytes:
        """Return the request's body; raise Starlette's `ClientDisconnect` if the client leaves before its end.

        `limit` is that of a route which does not have the common one.
        """
        limit = limit or self._limit
        context = context_of(scope)
        given = context.headers.get(b"content-encoding")
        if given and (encoding := given.decode("latin-1").strip().lower()) != "identity":
            raise InvalidRequest(
                f"A body with 'Content-Encoding: {encoding}' cannot be read here. Send it uncompressed.",
                code="unsupported_content_encoding",
            )
        announced = context.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > limit.size:
            raise limit.exceeded()
        return b"".join(await self._chunks(context, receive, limit))

    async def _chunks(self, context: RequestContext, receive: Receive, limit: BodyLimit) -> list[bytes]:
        """Return the pieces of a body; refuse one that stops coming, however slowly it came before."""
        chunks: list[bytes] = []
        size = 0
        upload: Upload | None = None
        try:
            async with asyncio.timeout(BODY_SILENCE_S) as patience:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    chunk: bytes = message.get("body", b"")
                    size += len(chunk)
                    if size > limit.size:
                        raise limit.exceeded()
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return chunks
                    if upload is None:
                        upload = self._uploads.begin("" if context.client is None else context.client.name, patience)
                    self._uploads.add(upload, len(chunk))
                    patience.reschedule(asyncio.get_running_loop().time() + BODY_SILENCE_S)
        except TimeoutError:
            if upload is not None and upload.rejected:
                raise _overloaded() from None
            silence = f"{BODY_SILENCE_S:g} seconds have passed without a byte of it"
            raise RequestTimeout(f"The request's body stopped coming: {silence}. Try again.") from None
        finally:
            if upload is not None:
                self._uploads.end(upload)


async def beside(work: Callable[[], T], *, large: bool) -> T:
    """Return what the work gives; if it is on something large, beside the event loop."""
    if not large:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)


async def parsed(body: bytes) -> JsonObject:
    """Return the request's JSON object."""
    if not is_large(body):
        return parse_body(body)
    await beside(partial(check_body, body), large=True)
    return await beside(partial(parse_body, body), large=True)


def is_large(body: bytes) -> bool:
    """Tell whether what goes through a whole body takes long."""
    return len(body) > LARGE_BODY_BYTES
