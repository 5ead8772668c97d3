"""The scripted model on loopback: the streaming part of the Responses API, as much of it as Codex uses.

It runs uvicorn's HTTP protocol in the running event loop, without uvicorn's own server around it: that one
takes the process's signals, and would log as if it were the gateway.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Self, TypeAlias, assert_never

import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState

from turnbridge.scripted_model.replies import (
    Hangup,
    HttpReply,
    JsonObject,
    Pause,
    Reply,
    Silence,
    StreamReply,
    Wait,
    error_reply,
)

Respond: TypeAlias = Callable[[JsonObject], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What the model was asked; header names are in lower case."""

    headers: dict[str, str]
    body: JsonObject


def in_order(*replies: Reply) -> Respond:
    """Return a script that gives each reply once, in this order, and then answers 500."""
    remaining = iter(replies)
    return lambda _request: next(remaining, error_reply(500, "The script has no reply left."))


class ScriptedModel:
    """A model whose every reply comes from `respond`, which may be replaced between requests.

    `received` counts the requests that reached `respond`, `active` the open streams, and `dropped` those that
    the peer closed before their end. `requests` stays empty unless `record` is set: a demo must not grow.
    """

    def __init__(self, respond: Respond, *, record: bool = False) -> None:
        self.respond = respond
        self.requests: list[ModelRequest] = []
        self.received = 0
        self.active = 0
        self.dropped = 0
        self._record = record
        self._changed = asyncio.Event()
        self._state = ServerState()

    async def __aenter__(self) -> Self:
        config = self._config()
        config.load()
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: _Connection(config, self._state, {}), "127.0.0.1", 0
        )
        self._port: int = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks)
        await self._listener.wait_closed()

    @property
    def base_url(self) -> str:
        """The URL of the API, as Codex's `base_url`."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def until(self, condition: Callable[[Self], bool]) -> None:
        """Wait for a condition, which is checked whenever a counter changes."""
        while not condition(self):
            await self._changed.wait()

    def _count(self, *, received: int = 0, active: int = 0, dropped: int = 0) -> None:
        self.received += received
        self.active += active
        self.dropped += dropped
        self._changed.set()
        self._changed = asyncio.Event()

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._app, interface="asgi3", lifespan="off", ws="none", log_config=None, access_log=False
        )

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_body(receive)
        if body is None:
            return
        reply = self._reply(scope, body)
        match reply:
            case HttpReply():
                await _send_json(reply, send)
            case StreamReply():
                writing = _write(reply, self.received, send, scope["state"]["abort"])
                await self._stream(writing, _disconnected(receive))
            case _:
                assert_never(reply)

    def _reply(self, scope: Scope, body: bytes) -> Reply:
        if (scope["method"], scope["path"]) != ("POST", "/v1/responses"):
            return error_reply(404, f"The scripted model has no {scope['method']} {scope['path']}.")
        headers = headers_of(scope)
        if headers.get("content-encoding", "identity") != "identity":
            return error_reply(415, "The scripted model reads plain JSON: send it without a content encoding.")
        try:
            request: JsonObject = msgspec.json.decode(body, type=dict)
        except msgspec.MsgspecError as error:
            return error_reply(400, f"The body is not a JSON object: {error}.")
        if request.get("stream") is not True:
            return error_reply(400, "The scripted model only streams: set `stream` to true.")
        return self._record_and_respond(headers, request)

    def _record_and_respond(self, headers: dict[str, str], request: JsonObject) -> Reply:
        if self._record:
            self.requests.append(ModelRequest(headers=headers, body=request))
        self._count(received=1)
        return self.respond(request)

    async def _stream(self, writing: Coroutine[None, None, None], leaving: Coroutine[None, None, object]) -> None:
        """Write a stream until its end, or until the peer leaves."""
        self._count(active=1)
        writer, gone = asyncio.create_task(writing), asyncio.create_task(leaving)
        try:
            await asyncio.wait((writer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not writer.done() or isinstance(writer.exception(), ClientDisconnected):
                self._count(dropped=1)
            else:
                writer.result()
        finally:
            writer.cancel()
            gone.cancel()
            self._count(active=-1)


class _Connection(HttpToolsProtocol):
    """Lets the app break the connection, which ASGI cannot."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # As in uvicorn.
        self.app_state = {"abort": transport.abort}
        super().connection_made(transport)


def headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _read_body(receive: Receive) -> bytes | None:
    """Return the request's body, or None if the peer left before its end."""
    body = bytearray()
    while (event := await receive())["type"] == "http.request":
        body += event["body"]
        if not event["more_body"]:
            return bytes(body)
    return None


async def _disconnected(receive: Receive) -> None:
    """Return when the peer has gone or the response has ended."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(reply: StreamReply, ordinal: int, send: Send, abort: Callable[[], None]) -> None:
    """Send the stream, one write per event or burst."""
    headers = {"content-type": "text/event-stream", "cache-control": "no-store", **reply.headers}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})
    # An event is held until what follows it is known. So the last one leaves together with the body's end,
    # and a peer that goes as soon as it has read the terminal event has not dropped the stream.
    held = bytearray()
    for beat in reply.render(ordinal):
        if held and not (reply.burst and isinstance(beat, dict)):
            await send({"type": "http.response.body", "body": bytes(held), "more_body": True})
            held.clear()
            # Other streams get their turn, and uvloop, which gathers writes, makes this a write of its own.
            await asyncio.sleep(0)
        if isinstance(beat, dict):
            held += b"event: %b\ndata: %b\n\n" % (str(beat["type"]).encode(), msgspec.json.encode(beat))
        elif not await survived(beat, abort):
            return
    await send({"type": "http.response.body", "body": bytes(held), "more_body": False})


async def survived(silence: Silence, abort: Callable[[], None]) -> bool:
    """Wait for the end of a pause; return whether anything can follow it."""
    match silence:
        case Pause(seconds=seconds):
            await asyncio.sleep(seconds)
        case Wait(gate=gate):
            await gate.wait()
        case Hangup():
            abort()
            return False
        case _:
            assert_never(silence)
    return True


async def _send_json(reply: HttpReply, send: Send) -> None:
    body = msgspec.json.encode(reply.body)
    headers = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})
