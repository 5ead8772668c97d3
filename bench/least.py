"""The least that could be called a gateway: chat messages to Codex, deltas back. What any gateway of this kind costs.

It looks at no key and checks nothing, logs and counts nothing, has no errors, tools or parameters, and does not notice
that a client has left. `python -m bench.least PROVIDER HOME`.
"""

import sys
from pathlib import Path

import msgspec
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.client import MODEL
from bench.direct import Threads, app_server, said
from bench.serving import serve
from turnbridge.api.shared import sse
from turnbridge.codex.protocol import messages as schema
from turnbridge.turn.items import Role

HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache, no-transform")]


class ChatMessage(msgspec.Struct):
    """A message of one text."""

    role: Role
    content: str


class ChatRequest(msgspec.Struct):
    """What is read of a request."""

    messages: list[ChatMessage]


def build_app(threads: Threads) -> ASGIApp:
    """Return the gateway."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        asked = msgspec.json.decode((await receive())["body"], type=ChatRequest)
        thread = await threads.start()
        started = False
        async for notes in threads.turn(thread, [said(message.role, message.content) for message in asked.messages]):
            deltas = [note.delta for note in notes if isinstance(note, schema.AgentMessageDelta)]
            if deltas and not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if deltas:
                frames = b"".join([_chunk({"content": delta}) for delta in deltas])
                await send({"type": "http.response.body", "body": frames, "more_body": True})
        await send({"type": "http.response.body", "body": _chunk({}, "stop") + sse.DONE})

    return app


def _chunk(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return sse.data_frame(
        {"id": "chatcmpl-least", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    )


async def main(provider: str, home: Path) -> None:
    """Serve until stdin ends."""
    # As the gateway's own Codex, so that they differ by what they do themselves.
    async with app_server(provider, home, sparing=True) as worker:
        await serve(build_app(Threads(worker)))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], Path(sys.argv[2])))
