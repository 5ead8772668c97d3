"""The scripted model as a process of its own: every answer is encoded beforehand, for both APIs.

The last text of a request says how long its answer is, as JSON: {"deltas": 20}.
"""

import functools
import json
import re

import msgspec
import uvloop
from starlette.types import Receive, Scope, Send

from bench.client import CHAT, MODEL, RESPONSES, pieces
from bench.serving import serve
from turnbridge.scripted_model.replies import answer, message

ASKED = re.compile(rb'\\"deltas\\": *(\d+)')
HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


@functools.cache
def responses_stream(deltas: int) -> bytes:
    """Return an answer of the Responses API."""
    reply = answer(message("".join(pieces(deltas)), pieces=pieces(deltas)))
    events = [event for event in reply.render(1) if isinstance(event, dict)]
    return b"".join(b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), msgspec.json.encode(e)) for e in events)


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


if __name__ == "__main__":
    uvloop.run(serve(app))
