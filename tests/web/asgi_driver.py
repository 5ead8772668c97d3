"""Drives an ASGI application in-process, as a server would, with the test as its client."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from starlette.types import ASGIApp, Message

from turnbridge.turn.items import Json

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole response."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the header's only value, if it is there."""
        return only(self.headers, name)

    def json(self) -> Json:
        """Return the body, decoded."""
        decoded: Json = json.loads(self.body)
        return decoded


def only(headers: Headers, name: str) -> str | None:
    """Return the value of a header that may be there once."""
    values = [value for key, value in headers if key == name]
    assert len(values) <= 1, f"{name} is there {len(values)} times"
    return values[0] if values else None


class Exchange:
    """One request in flight: take its response piece by piece, or leave."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Sequence[bytes] = (b"",),
        whole_body: bool = True,
        client: tuple[str, int] | None = ("127.0.0.1", 50000),
        query: bytes = b"",
        raw_path: bytes | None = None,
        http_version: str = "1.1",
    ) -> None:
        self._app = app
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": http_version,
            "scheme": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode() if raw_path is None else raw_path,
            "root_path": "",
            "query_string": query,
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "client": client,
            "server": ("127.0.0.1", 8080),
        }
        last = len(body) - 1 if whole_body else len(body)
        self._uploads = [
            {"type": "http.request", "body": part, "more_body": index != last} for index, part in enumerate(body)
        ]
        self._over = asyncio.Event()
        self._sent: asyncio.Queue[Message | None] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._task.cancel()
        # A failure of the application is the test's; a cancellation is what the test itself asked for.
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    @property
    def over(self) -> bool:
        """Tell whether the answer was sent to its end, or the client has left."""
        return self._over.is_set()

    async def begin(self) -> tuple[int, Headers]:
        """Return the status and the headers, once the response begins."""
        message = await self._sent.get()
        assert message is not None, "the application ended without a response"
        assert message["type"] == "http.response.start"
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        return message["status"], headers

    async def chunk(self) -> bytes | None:
        """Return the next piece of the body as soon as it is sent, or nothing once the application ended."""
        message = await self._sent.get()
        if message is None:
            return None
        assert message["type"] == "http.response.body"
        body: bytes = message.get("body", b"")
        return body

    def leave(self) -> None:
        """Close the connection from the client's side."""
        self._over.set()

    def cancel(self) -> None:
        """Stop the application from the server's side."""
        self._task.cancel()

    async def _serve(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        finally:
            self._sent.put_nowait(None)

    async def _receive(self) -> Message:
        if self._uploads:
            return self._uploads.pop(0)
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._sent.put_nowait(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._over.set()


async def call(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: Sequence[bytes] = (b"",),
    client: tuple[str, int] | None = ("127.0.0.1", 50000),
    query: bytes = b"",
    raw_path: bytes | None = None,
    http_version: str = "1.1",
) -> Answer:
    """Make one request and return its whole response."""
    async with Exchange(
        app,
        method,
        path,
        headers=headers,
        body=body,
        client=client,
        query=query,
        raw_path=raw_path,
        http_version=http_version,
    ) as exchange:
        status, answer_headers = await exchange.begin()
        chunks: list[bytes] = []
        while (chunk := await exchange.chunk()) is not None:
            chunks.append(chunk)
    return Answer(status=status, headers=answer_headers, body=b"".join(chunks))
