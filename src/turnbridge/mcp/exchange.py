"""One JSON-RPC exchange with an MCP server over streamable HTTP: within a size, never by way of a redirect."""

import asyncio
import http
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from urllib.parse import urlsplit

import httpcore2
import msgspec

from turnbridge.outbound.guard import CONNECT_SECONDS, HostNotAllowed, HostSilent
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.mcp_hosts import Origin

JSON_TYPE, EVENT_TYPE = "application/json", "text/event-stream"
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of one answer. A tool that gives more would fill the model's context several times."""
PHRASES = {int(status): status.phrase for status in http.HTTPStatus}
PARSED_ASIDE_BYTES = 128 * 1024
"""Answers that are larger are parsed in a thread: that takes milliseconds."""


class ServerFailed(Exception):
    """The server did not answer as it should. The message names no address, path or header."""

    def __init__(self, message: str, *, status: int | None = None, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        """The HTTP status, if that was the failure."""
        self.code = code
        """The code of a JSON-RPC error, if that was the failure."""


class Answer(msgspec.Struct, frozen=True):
    """What a server answered: the result of a call, and the id that it gave to the session."""

    result: JsonObject
    session_id: str | None


class _RpcError(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class _Message(msgspec.Struct, frozen=True):
    id: Json = None
    result: JsonObject | None = None
    error: _RpcError | None = None
    method: str | None = None


_message = msgspec.json.Decoder(_Message)


class Endpoint:
    """The address of one server: sends messages to it, one HTTP request each."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool, origin: Origin, url: str) -> None:
        self._pool = pool
        parts = urlsplit(url)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        self._url = httpcore2.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=target)
        default_port = {"https": 443, "http": 80}[origin.scheme]
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        self._host = host if origin.port == default_port else f"{host}:{origin.port}"

    async def ask(self, body: JsonObject, headers: Sequence[tuple[str, str]]) -> Answer:
        """Send a call, and return its result."""
        async with aclosing(self._replies("POST", body, headers)) as replies:
            async for found, message in replies:
                if message.id != body["id"] or message.method is not None:
                    continue
                if message.error is not None:
                    raise ServerFailed(message.error.message or "unknown error", code=message.error.code)
                return Answer(message.result or {}, found.get("mcp-session-id"))
        raise ServerFailed("It ended its answer without a result.")

    async def tell(self, method: str, body: JsonObject | None, headers: Sequence[tuple[str, str]]) -> None:
        """Send a notification, or end the session; whatever the server says to that is not read."""
        async with aclosing(self._replies(method, body, headers)) as replies:
            async for _ in replies:
                return

    async def _replies(
        self, method: str, body: JsonObject | None, headers: Sequence[tuple[str, str]]
    ) -> AsyncGenerator[tuple[Mapping[str, str], _Message], None]:
        content = b"" if body is None else msgspec.json.encode(body)
        sent = [("host", self._host), ("content-type", JSON_TYPE), ("accept", f"{JSON_TYPE}, {EVENT_TYPE}")]
        sent += [("accept-encoding", "identity"), ("user-agent", "turnbridge"), ("content-length", str(len(content)))]
        raw = [(name.encode("ascii"), value.encode("latin-1")) for name, value in (*sent, *headers)]
        try:
            async with self._pool.stream(
                method, self._url, headers=raw, content=content, extensions={"timeout": {"connect": CONNECT_SECONDS}}
            ) as response:
                found = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in response.headers}
                _check(response.status, found)
                async for data in _payloads(response, found.get("content-type", "")):
                    yield found, await _parsed(data)
        except HostNotAllowed:
            raise ServerFailed("Its host is not on the public internet.") from None
        except (HostSilent, httpcore2.TimeoutException):
            raise ServerFailed("Its host does not answer.") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            raise ServerFailed("The connection failed.") from None


def _check(status: int, headers: Mapping[str, str]) -> None:
    if 300 <= status < 400:
        # It could lead to any host.
        raise ServerFailed("It redirects; give the final URL.", status=status)
    if status >= 400:
        phrase = PHRASES.get(status, "unknown")
        raise ServerFailed(f"Http status code: {status} ({phrase})", status=status)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ServerFailed("It insists on compressing its answers.")


async def _payloads(response: httpcore2.Response, content_type: str) -> AsyncIterator[bytes]:
    """Yield the messages of an answer: one if it is JSON, the data of each event if it is a stream."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (JSON_TYPE, EVENT_TYPE):
        return
    received = 0
    body = bytearray()
    async for chunk in response.aiter_stream():
        received += len(chunk)
        if received > MOST_BYTES:
            raise ServerFailed(f"Its answer is larger than {MOST_BYTES // 2**20} MB.")
        body += chunk.replace(b"\r", b"") if kind == EVENT_TYPE else chunk
        while kind == EVENT_TYPE and (end := body.find(b"\n\n")) >= 0:
            event = bytes(body[:end])
            del body[: end + 2]
            if data := _data(event):
                yield data
    if kind == JSON_TYPE and body:
        yield bytes(body)


def _data(event: bytes) -> bytes:
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)


async def _parsed(data: bytes) -> _Message:
    try:
        return await asyncio.to_thread(_message.decode, data) if len(data) > PARSED_ASIDE_BYTES else _decoded(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ServerFailed("Its answer is not a JSON-RPC message.") from None


def _decoded(data: bytes) -> _Message:
    return _message.decode(data)
