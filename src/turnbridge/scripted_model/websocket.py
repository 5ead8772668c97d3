"""The scripted model over a WebSocket, as the provider speaks it with Codex.

A client sends `response.create` with only its new items and the id of the response that they continue. This side puts
the whole request together again, so that a script and its judge see the same over both transports.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from turnbridge.scripted_model.replies import Beat, HttpReply, Json, JsonObject, completed, created, error_reply
from turnbridge.scripted_model.server import Respond, ScriptedModel, headers_of, survived

# Of a message, what belongs to the connection and not to the request.
FRAMING = ("type", "generate", "previous_response_id")
# Bytes in one message: more than any history has.
LARGEST_MESSAGE = 1 << 28
# A Codex thread continues its latest response only; the margin is for several threads that share a connection.
MOST_RESPONSES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """One `response.create`, with the whole request that it stands for."""

    request: JsonObject
    generate: bool
    continues: bool
    """Whether it named a response that it continues, and so left out what that one has."""


class Lane:
    """The responses of one connection that can be continued, each with its input and output items."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, list[Json]] = OrderedDict()

    def read(self, text: str) -> Create | HttpReply:
        """Return what a message asks for, or the error that answers it."""
        try:
            message: JsonObject = msgspec.json.decode(text, type=dict)
        except msgspec.MsgspecError as error:
            return error_reply(400, f"The message is not a JSON object: {error}.")
        if message.get("type") != "response.create":
            return error_reply(400, "The scripted model knows only `response.create`.")
        request = {name: value for name, value in message.items() if name not in FRAMING}
        previous, items = message.get("previous_response_id"), request.get("input")
        if previous is not None and isinstance(items, list):
            before = self._known.get(str(previous))
            if before is None:
                return _not_found(str(previous))
            request["input"] = [*before, *items]
        return Create(request=request, generate=message.get("generate") is not False, continues=previous is not None)

    def remember(self, create: Create, events: Sequence[JsonObject]) -> None:
        """Keep a response that ended well, under the id in its last event."""
        items = create.request.get("input")
        response = events[-1].get("response")
        if isinstance(items, list) and isinstance(response, dict):
            made = [event["item"] for event in events if event["type"] == "response.output_item.done"]
            self._known[str(response["id"])] = [*items, *made]
            while len(self._known) > MOST_RESPONSES:
                self._known.popitem(last=False)


class Inbound:
    """The messages of one connection, read ahead so that a disconnect is noticed while an answer is sent."""

    def __init__(self, receive: Receive) -> None:
        self._messages: asyncio.Queue[str | None] = asyncio.Queue()
        self.gone = asyncio.Event()
        self._reading = asyncio.create_task(self._read(receive))

    async def next(self) -> str | None:
        """Return the next message, or None once the peer has left."""
        return await self._messages.get()

    def close(self) -> None:
        """Stop reading."""
        self._reading.cancel()

    async def _read(self, receive: Receive) -> None:
        while (event := await receive())["type"] == "websocket.receive":
            self._messages.put_nowait(event.get("text") or "")
        self.gone.set()
        self._messages.put_nowait(None)


def warm_up(ordinal: int) -> Iterator[Beat]:
    """Yield the answer to `generate: false`: a response without output that may be continued."""
    for number, event in enumerate((created(), completed())):
        match event:
            case {"response": dict() as response}:
                shown: JsonObject = {**response, "id": f"resp_warm_{ordinal}", "usage": None}
                yield {**event, "sequence_number": number, "response": shown}


def error_event(reply: HttpReply) -> JsonObject:
    """Return an error as it stands in a message."""
    return {"type": "error", "status": reply.status, "error": reply.body["error"], "headers": dict(reply.headers)}


def _not_found(response_id: str) -> HttpReply:
    problem = f"Previous response with id '{response_id}' not found."
    return error_reply(400, problem, code="previous_response_not_found", param="previous_response_id")


class _QuietProtocol(WebSocketsSansIOProtocol):
    """Says nothing of its connections: in the log of a demo they would look like the gateway's."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Shows warnings only, as that of every library.
        self.logger = self.conn.logger = logging.getLogger(__name__)
        super().connection_made(transport)


class WebSocketModel(ScriptedModel):
    """A scripted model over both transports; the client chooses, and a script does not notice.

    `sockets`, `warmed_up` and `continued` count WebSocket connections, their requests that generate nothing, and others
    that continue a response.
    """

    def __init__(self, respond: Respond, *, record: bool = False) -> None:
        super().__init__(respond, record=record)
        self.sockets = 0
        self.warmed_up = 0
        self.continued = 0

    @property
    def websocket_url(self) -> str:
        """The URL of the same API over WebSocket."""
        return f"ws{self.base_url.removeprefix('http')}"

    def _config(self) -> uvicorn.Config:
        config = super()._config()
        config.ws, config.ws_max_size = _QuietProtocol, LARGEST_MESSAGE
        return config

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._converse(scope, receive, send)
        else:
            await super()._app(scope, receive, send)

    async def _converse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the messages of a WebSocket, one after another."""
        await receive()
        if scope["path"] != "/v1/responses":
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept"})
        self.sockets += 1
        headers, lane, inbound = headers_of(scope), Lane(), Inbound(receive)
        try:
            while (text := await inbound.next()) is not None:
                create = lane.read(text)
                beats = create if isinstance(create, HttpReply) else self._beats(headers, create)
                if isinstance(beats, HttpReply):
                    await _send_event(send, error_event(beats))
                elif not isinstance(create, HttpReply):
                    told: list[JsonObject] = []
                    await self._stream(_send_beats(beats, told, send, scope["state"]["abort"]), inbound.gone.wait())
                    lane.remember(create, told)
        finally:
            inbound.close()

    def _beats(self, headers: dict[str, str], create: Create) -> Iterator[Beat] | HttpReply:
        if not create.generate:
            self.warmed_up += 1
            return warm_up(self.warmed_up)
        self.continued += create.continues
        reply = self._record_and_respond(headers, create.request)
        return reply if isinstance(reply, HttpReply) else reply.render(self.received)


async def _send_beats(beats: Iterator[Beat], told: list[JsonObject], send: Send, abort: Callable[[], None]) -> None:
    """Send the events of a stream, a message each."""
    for beat in beats:
        if isinstance(beat, dict):
            told.append(beat)
            await _send_event(send, beat)
            await asyncio.sleep(0)
        elif not await survived(beat, abort):
            return


async def _send_event(send: Send, event: JsonObject) -> None:
    await send({"type": "websocket.send", "text": msgspec.json.encode(event).decode()})
