"""The scripted model on loopback: the streaming part of the Responses API, as much of it as Codex uses.

It is served over HTTP and over WebSocket; the client chooses, and a script does not notice.

It runs uvicorn's HTTP protocol in the running event loop, without uvicorn's own server around it: that one
takes the process's signals, and would log as if it were the gateway.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, TypeAlias, assert_never

import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState

from turnbridge.scripted_model import websocket
from turnbridge.scripted_model.replies import (
    Beat,
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

LARGEST_MESSAGE = 1 << 28
"""Bytes in one WebSocket message: more than any history that a test sends."""


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
    the peer closed before their end. `sockets` and `warmed_up` count WebSocket connections and their requests that
    generate nothing. `requests` stays empty unless `record` is set: a demo must not grow.
    """

    def __init__(self, respond: Respond, *, record: bool = False) -> None:
        self.respond = respond
        self.requests: list[ModelRequest] = []
        self.received = 0
        self.active = 0
        self.dropped = 0
        self.sockets = 0
        self.warmed_up = 0
        self._record = record
        self._changed = asyncio.Event()
        self._state = ServerState()

    async def __aenter__(self) -> Self:
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            lifespan="off",
            ws="websockets-sansio",
            ws_max_size=LARGEST_MESSAGE,
            log_config=None,
            access_log=False,
        )
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
        """Where the API is, in the form of Codex's `base_url`."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def websocket_url(self) -> str:
        """Where the same API is over WebSocket."""
        return f"ws://127.0.0.1:{self._port}/v1"

    async def until(self, condition: Callable[[Self], bool]) -> None:
        """Return once the condition holds; it is looked at whenever a counter changes."""
        while not condition(self):
            await self._changed.wait()

    def _count(self, *, received: int = 0, active: int = 0, dropped: int = 0) -> None:
        self.received += received
        self.active += active
        self.dropped += dropped
        self._changed.set()
        self._changed = asyncio.Event()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._converse(scope, receive, send)
            return
        body = await _read_body(receive)
        if body is None:
            return
        reply = self._reply(scope, body)
        match reply:
            case HttpReply():
                await _send_json(reply, send)
            case StreamReply():
                await self._stream(reply, scope, receive, send)
            case _:
                assert_never(reply)

    def _reply(self, scope: Scope, body: bytes) -> Reply:
        if (scope["method"], scope["path"]) != ("POST", "/v1/responses"):
            return error_reply(404, f"The scripted model has no {scope['method']} {scope['path']}.")
        headers = _headers(scope)
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

    async def _converse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the messages of a WebSocket, one after another."""
        await receive()
        if scope["path"] != "/v1/responses":
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept"})
        self.sockets += 1
        headers, lane, inbound = _headers(scope), websocket.Lane(), websocket.Inbound(receive)
        try:
            while (text := await inbound.next()) is not None:
                create = lane.read(text)
                beats = create if isinstance(create, HttpReply) else self._beats(headers, create)
                if isinstance(beats, HttpReply):
                    await _send_event(send, websocket.error_event(beats))
                elif not isinstance(create, HttpReply):
                    told = await self._tell(beats, inbound, send, scope["state"]["abort"])
                    lane.remember(create, told)
        finally:
            inbound.close()

    def _beats(self, headers: dict[str, str], create: websocket.Create) -> Iterator[Beat] | HttpReply:
        if not create.generate:
            self.warmed_up += 1
            return websocket.warm_up(self.warmed_up)
        reply = self._record_and_respond(headers, create.request)
        return reply if isinstance(reply, HttpReply) else reply.render(self.received)

    async def _tell(
        self, beats: Iterator[Beat], inbound: websocket.Inbound, send: Send, abort: Callable[[], None]
    ) -> list[JsonObject]:
        """Send a stream as messages; return the events that were sent."""
        told: list[JsonObject] = []
        self._count(active=1)
        writer = asyncio.create_task(_send_beats(beats, told, send, abort))
        gone = asyncio.create_task(inbound.gone.wait())
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
        return told

    async def _stream(self, reply: StreamReply, scope: Scope, receive: Receive, send: Send) -> None:
        self._count(active=1)
        writer = asyncio.create_task(_write(reply, self.received, send, scope["state"]["abort"]))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((writer, gone), return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
            else:
                self._count(dropped=1)
            await gone
        finally:
            writer.cancel()
            gone.cancel()
            self._count(active=-1)


class _Connection(HttpToolsProtocol):
    """Gives the app a way to break the connection, for which ASGI has no word."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["abort"] = self.transport.abort

    def handle_websocket_upgrade(self) -> None:
        self.app_state = {**self.app_state, "abort": self.transport.abort}
        super().handle_websocket_upgrade()


def _headers(scope: Scope) -> dict[str, str]:
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
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
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
        elif not await _survived(beat, abort):
            return
    await send({"type": "http.response.body", "body": bytes(held), "more_body": False})


async def _survived(silence: Silence, abort: Callable[[], None]) -> bool:
    """Live through a silence; return whether anything can follow it."""
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


async def _send_beats(beats: Iterator[Beat], told: list[JsonObject], send: Send, abort: Callable[[], None]) -> None:
    """Send the events of a stream, a message each."""
    for beat in beats:
        if isinstance(beat, dict):
            told.append(beat)
            await _send_event(send, beat)
            await asyncio.sleep(0)
        elif not await _survived(beat, abort):
            return


async def _send_event(send: Send, event: JsonObject) -> None:
    await send({"type": "websocket.send", "text": msgspec.json.encode(event).decode()})


async def _send_json(reply: HttpReply, send: Send) -> None:
    body = msgspec.json.encode(reply.body)
    headers = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})
