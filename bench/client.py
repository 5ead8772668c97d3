"""A streaming HTTP client that costs next to nothing: one protocol, no parsing beyond what is measured."""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
MESSAGES, OLLAMA = "/v1/messages", "/api/chat"
API_KEY = "sk-bench"
MODEL = "gpt-5.5"
# A short answer, and how everything that is scripted is asked for it; the scripted Codex can also hold one open.
DELTAS = 20
ASK = json.dumps({"deltas": DELTAS})
HOLD = json.dumps({"hold": True})
# Anthropic's clients have to name a limit; this one is not enforced.
MOST_TOKENS = 100_000
# Every delta of every scripted model, in each API, begins with these bytes; nothing else in an answer does.
DELTA_MARKS = {CHAT: b'"content":"w', RESPONSES: b'"delta":"w', MESSAGES: b'"text":"w', OLLAMA: b'"content":"w'}
RESPONSE_ID = re.compile(rb'"id":"(resp_[^"]+)"')
# The chunk that ends an HTTP body.
BODY_END = b"0\r\n\r\n"
# Longer than any single request here takes, so that a hang ends the run instead of stopping it.
TIMEOUT_S = 60.0


def body_of(answer: bytes) -> bytes:
    """Return the body of an answer in chunks."""
    _, _, rest = answer.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


def response_id(timed: "Timed") -> str:
    """Return the id of an answer of the Responses API."""
    found = RESPONSE_ID.search(timed.answer)
    if found is None:
        raise RequestFailed(f"No id came: {timed.answer[:500]!r}")
    return found[1].decode()


def pieces(deltas: int) -> list[str]:
    """Return what every scripted model says: words that differ, since LiteLLM gives up on a model that repeats them."""
    return [f"w{number % 1000:03} " for number in range(deltas)]


class RequestFailed(Exception):
    """A server answered something else than a whole stream."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One request: seconds to its first delta and to its end, how many deltas it had, and all of its bytes."""

    first: float
    whole: float
    deltas: int
    answer: bytes


class _Stream(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._mark = b""
        self._pieces: list[bytes] = []
        self.first_at: float | None = None
        self._first: asyncio.Future[None]
        self._ended: asyncio.Future[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A TCP connection can be written to; uvloop's does not inherit the class that says so.
        self.transport = cast("asyncio.Transport", transport)

    def ask(self, request: bytes, mark: bytes) -> tuple["asyncio.Future[None]", "asyncio.Future[None]"]:
        """Send a request; return its first delta and its end, to come."""
        loop = asyncio.get_running_loop()
        self._mark, self._pieces, self.first_at = mark, [], None
        self._first, self._ended = loop.create_future(), loop.create_future()
        self.transport.write(request)
        return self._first, self._ended

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        if self.first_at is None and self._mark in data:
            self.first_at = time.perf_counter()
            self._first.set_result(None)
        # The last chunk may come in two pieces.
        if data.endswith(BODY_END) or b"".join(self._pieces[-2:]).endswith(BODY_END):
            self._ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for waited in (self._first, self._ended):
            if not waited.done():
                waited.set_exception(RequestFailed(f"The connection ended: {exc or self.answer()[:500]!r}"))
                waited.exception()

    def answer(self) -> bytes:
        """Return all that came."""
        return b"".join(self._pieces)


class Client:
    """Asks one server; connections are kept and reused."""

    def __init__(self, url: str, path: str = CHAT, *, query: str = "") -> None:
        address = urlsplit(url)
        self._host, self._port, self._path = address.hostname or "", address.port or 0, path
        self._target = f"{address.path}{path}{query}"
        self._free: list[_Stream] = []

    def request(self, body: Mapping[str, object]) -> bytes:
        """Return a streaming request, encoded once for many uses."""
        content = json.dumps({"model": MODEL, "stream": True, **body}).encode()
        fields = (
            f"host: {self._host}",
            f"authorization: Bearer {API_KEY}",
            "content-type: application/json",
            f"content-length: {len(content)}",
        )
        return "\r\n".join((f"POST {self._target} HTTP/1.1", *fields, "", "")).encode() + content

    def says(self, text: str) -> bytes:
        """Return a streaming request with one message."""
        if self._path == RESPONSES:
            return self.request({"input": text})
        limit = {"max_tokens": MOST_TOKENS} if self._path == MESSAGES else {}
        return self.request({"messages": [{"role": "user", "content": text}], **limit})

    async def ask(self, request: bytes, *, deltas: int) -> Timed:
        """Send a request and read its whole answer, which must have so many deltas."""
        stream = await self._connection()
        mark = DELTA_MARKS[self._path]
        began = time.perf_counter()
        _, ended = stream.ask(request, mark)
        async with asyncio.timeout(TIMEOUT_S):
            await ended
        whole = time.perf_counter() - began
        answer = stream.answer()
        came = answer.count(mark)
        if stream.first_at is None or came != deltas:
            raise RequestFailed(f"{came} deltas came instead of {deltas}: {answer[:500]!r} ... {answer[-500:]!r}")
        self._free.append(stream)
        return Timed(stream.first_at - began, whole, came, answer)

    async def open(self, request: bytes) -> asyncio.Transport:
        """Send a request whose answer does not end, and return its connection when the first delta is there."""
        stream = await self._connection()
        first, _ = stream.ask(request, DELTA_MARKS[self._path])
        async with asyncio.timeout(TIMEOUT_S):
            await first
        return stream.transport

    def close(self) -> None:
        """Close the connections that wait for their next use."""
        for stream in self._free:
            stream.transport.close()
        self._free.clear()

    async def _connection(self) -> _Stream:
        # The server closes connections that nobody has used for a while.
        self._free = [stream for stream in self._free if not stream.transport.is_closing()]
        if self._free:
            return self._free.pop()
        _, stream = await asyncio.get_running_loop().create_connection(_Stream, self._host, self._port)
        return stream
