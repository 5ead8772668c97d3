"""The scripted model as a process of its own: every answer is encoded beforehand, for both APIs.

The last text of a request says how long its answer is, as JSON: {"deltas": 20}. With the argument `websocket` it speaks
the Responses API over WebSocket, as OpenAI does with Codex.
"""

import asyncio
import contextlib
import functools
import gc
import json
import re
import sys

import msgspec
import uvloop
from starlette.types import Receive, Scope, Send
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as websocket_server
from websockets.exceptions import ConnectionClosed

from bench.client import CHAT, MODEL, RESPONSES, pieces
from bench.serving import serve
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.websocket import warm_up
from turnbridge.turn.items import JsonObject

ASKED = re.compile(rb'\\"deltas\\": *(\d+)')
WARM_UP = [msgspec.json.encode(event).decode() for event in warm_up(1)]
HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


@functools.cache
def responses_stream(deltas: int) -> bytes:
    """Return an answer of the Responses API."""
    events = _events(deltas)
    return b"".join(b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), msgspec.json.encode(e)) for e in events)


@functools.cache
def websocket_messages(deltas: int) -> list[str]:
    """Return an answer of the Responses API over WebSocket."""
    return [msgspec.json.encode(event).decode() for event in _events(deltas)]


def _events(deltas: int) -> list[JsonObject]:
    reply = answer(message("".join(pieces(deltas)), pieces=pieces(deltas)))
    return [event for event in reply.render(1) if isinstance(event, dict)]


@functools.cache
def chat_stream(deltas: int) -> bytes:
    """Return an answer of the Chat Completions API."""
    head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": MODEL}

    def chunk(delta: dict[str, str], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return f"data: {json.dumps({**head, 'choices': [choice]}, separators=(',', ':'))}\n\n"

    said = "".join(chunk({"content": piece}) for piece in pieces(deltas))
    return f"{chunk({'role': 'assistant', 'content': ''})}{said}{chunk({}, 'stop')}data: [DONE]\n\n".encode()


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request of either API."""
    body = bytearray()
    more = True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    streams = {CHAT: chat_stream, RESPONSES: responses_stream}
    stream = streams[scope["path"]](_deltas(bytes(body))) if scope["path"] in streams else b""
    await send({"type": "http.response.start", "status": 200 if stream else 404, "headers": HEADERS})
    await send({"type": "http.response.body", "body": stream})


def _deltas(request: bytes) -> int:
    """Return how many deltas the last text asks for: JSON inside JSON, wherever this API has its texts."""
    return int(ASKED.findall(request)[-1])


async def talk(connection: ServerConnection) -> None:
    """Answer the requests of one connection, one after another."""
    with contextlib.suppress(ConnectionClosed):
        async for text in connection:
            asked = text.encode() if isinstance(text, str) else text
            for event in WARM_UP if b'"generate":false' in asked else websocket_messages(_deltas(asked)):
                await connection.send(event)


async def serve_websocket() -> None:
    """Serve on a free loopback port; print where, and end when stdin does."""
    async with websocket_server(talk, "127.0.0.1", 0, compression=None) as server:
        print(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    # Codex keeps a connection for each thread. A collection among thousands of them took up to 0.2 s, which would count
    # as the time of whichever side was asked just then.
    gc.disable()
    uvloop.run(serve_websocket() if "websocket" in sys.argv else serve(app))
