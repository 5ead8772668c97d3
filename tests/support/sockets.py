"""Clients of the WebSocket at `/v1/responses`, below the SDKs: what leaves and what comes, as JSON."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.gateway import API_KEY
from turnbridge.turn.items import Json, JsonObject

MODEL = "gpt-5.5"
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
# Longer than anything takes on a busy machine.
PATIENCE_S = 25


class Socket:
    """One connection. Events are read in the order in which they come, or those of one lane."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen: list[JsonObject] = []
        """All events so far."""

    async def send(self, event: JsonObject | str | bytes) -> None:
        """Send a message."""
        await self.connection.send(json.dumps(event) if isinstance(event, dict) else event)

    async def create(self, text: Json = "hi", **fields: Json) -> None:
        """Ask for a response; it is not stored unless the fields say so."""
        await self.send({"type": "response.create", "model": MODEL, "input": text, "store": False, **fields})

    async def event(self) -> JsonObject:
        """Return the next event."""
        async with asyncio.timeout(PATIENCE_S):
            event: JsonObject = json.loads(await self.connection.recv())
        self.seen.append(event)
        return event

    async def until(self, wanted: Callable[[JsonObject], bool]) -> list[JsonObject]:
        """Return the next events up to one that is wanted."""
        events = [await self.event()]
        while not wanted(events[-1]):
            events.append(await self.event())
        return events

    async def response(self) -> list[JsonObject]:
        """Return the next events up to the end of a response, or an error that is not part of one."""
        return await self.until(ends)

    async def ask(self, text: Json = "hi", **fields: Json) -> list[JsonObject]:
        """Ask for a response, and return its events."""
        await self.create(text, **fields)
        return await self.response()

    async def responses(self, count: int) -> dict[Json, list[JsonObject]]:
        """Return the events of so many lanes, by lane, up to the end of each."""
        lanes: dict[Json, list[JsonObject]] = {}
        ended = 0
        while ended < count:
            event = await self.event()
            lanes.setdefault(event.get("stream_id"), []).append(event)
            ended += ends(event)
        return lanes

    async def closed(self) -> int:
        """Return the code that the gateway closes the connection with; nothing may come before."""
        async with asyncio.timeout(PATIENCE_S):
            await self.connection.wait_closed()
        code = self.connection.close_code
        assert code is not None
        return code


def ends(event: JsonObject) -> bool:
    """Tell whether an event is the last of a response: an error inside a stream has a number."""
    return event["type"] in TERMINAL or (event["type"] == "error" and "sequence_number" not in event)


def response_of(events: list[JsonObject]) -> dict[str, Any]:
    """Return the response in the last event."""
    response = events[-1]["response"]
    assert isinstance(response, dict)
    return response


def response_id(events: list[JsonObject]) -> str:
    """Return the id of the response in the last event."""
    return str(response_of(events)["id"])


def text_of(events: list[JsonObject]) -> str:
    """Return the text of the response in the last event."""
    return "".join(part["text"] for item in response_of(events)["output"] for part in item.get("content", []))


def error_of(events: list[JsonObject]) -> tuple[Json, Json, Json]:
    """Return the status, code and parameter of an error that came instead of a response."""
    (event,) = events
    error = event["error"]
    assert isinstance(error, dict)
    return event["status"], error["code"], error["param"]


@contextlib.asynccontextmanager
async def connected(
    url: str, *, key: str = API_KEY, path: str = "/v1/responses", headers: dict[str, str] | None = None
) -> AsyncIterator[Socket]:
    """Open a WebSocket to the gateway."""
    sent = {"authorization": f"Bearer {key}", **(headers or {})}
    # A test that does not read on leaves without the close frame of the gateway, which is behind all the rest.
    async with connect(
        f"ws{url.removeprefix('http')}{path}", additional_headers=sent, max_size=None, close_timeout=1
    ) as connection:
        yield Socket(connection)
