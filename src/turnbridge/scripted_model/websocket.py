"""The Responses API over a WebSocket, as the provider speaks it with Codex.

A client sends `response.create` with only its new items and the id of the response that they continue. This side puts
the whole request together again, so that a script and its judge see the same over both transports.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from starlette.types import Receive

from turnbridge.scripted_model.replies import (
    Beat,
    HttpReply,
    Json,
    JsonObject,
    completed,
    created,
    error_reply,
)

# Of a message, what belongs to the connection and not to the request.
FRAMING = ("type", "generate", "previous_response_id")
# A Codex thread continues its latest response only; the margin is for several threads that share a connection.
MOST_RESPONSES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """One `response.create`, with the whole request that it stands for."""

    request: JsonObject
    generate: bool


class Lane:
    """The responses of one connection that may be continued: each with the items that it was made from and made."""

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
        return Create(request=request, generate=message.get("generate") is not False)

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
    """The messages of one connection, read ahead so that a peer that leaves is noticed while an answer is sent."""

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
        response = event["response"]
        assert isinstance(response, dict)
        yield {
            **event,
            "sequence_number": number,
            "response": {**response, "id": f"resp_warm_{ordinal}", "usage": None},
        }


def error_event(reply: HttpReply) -> JsonObject:
    """Return an error as it stands in a message."""
    return {"type": "error", "status": reply.status, "error": reply.body["error"], "headers": dict(reply.headers)}


def _not_found(response_id: str) -> HttpReply:
    reply = error_reply(400, f"Previous response with id '{response_id}' not found.")
    error = reply.body["error"]
    assert isinstance(error, dict)
    found = {**error, "code": "previous_response_not_found", "param": "previous_response_id"}
    return HttpReply(status=400, body={"error": found})
