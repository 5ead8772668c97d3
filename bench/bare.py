"""A server that does nothing but stream: what uvicorn and Starlette cost by themselves.

`python -m bench.bare FILE`, where the file holds the frames of a stream. The path of a request says whether they are
sent as they are (`given`), encoded one by one (`encoded`), or sent by Starlette's own response (`starlette`); its query
how they leave: `frames` in each write, `pace_ms` between two writes, and `most` deltas in all.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
import uvloop
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.client import CHAT
from bench.serving import serve
from turnbridge.turn.items import JsonObject

T = TypeVar("T")
Endpoint: TypeAlias = Callable[[Request], object]

PREFIX = b"data: "
FRAME_END = b"\n\n"
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache, no-transform")]


class Plain:
    """A response that hands its pieces to the server, and nothing else."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def build_app(frames: list[bytes]) -> ASGIApp:
    """Return the ways to stream."""
    sizes = (1, 4)
    given = {size: [b"".join(group) for group in _groups(frames, size)] for size in sizes}
    events = {size: _groups([json.loads(frame[len(PREFIX) :]) for frame in frames[:-1]], size) for size in sizes}

    async def as_given(request: Request) -> Plain:
        await request.body()
        return Plain(_paced(request, given, bytes))

    async def as_encoded(request: Request) -> Plain:
        await request.body()
        return Plain(_paced(request, events, _encoded))

    async def by_starlette(request: Request) -> StreamingResponse:
        await request.body()
        return StreamingResponse(_paced(request, given, bytes), headers={"content-type": "text/event-stream"})

    routes: dict[str, Endpoint] = {"/given": as_given, "/encoded": as_encoded, "/starlette": by_starlette}
    return Router([Route(prefix + CHAT, endpoint, methods=["POST"]) for prefix, endpoint in routes.items()])


async def _paced(
    request: Request, groups: Mapping[int, Sequence[T]], encode: Callable[[T], bytes]
) -> AsyncIterator[bytes]:
    """Yield what each write has, as the query wants it."""
    pace_s = int(request.query_params.get("pace_ms", "0")) / 1000
    size = int(request.query_params.get("frames", "1"))
    # The first frame only opens the answer.
    most = int(request.query_params.get("most", len(groups[size]))) + 1
    loop = asyncio.get_running_loop()
    due = loop.time()
    for group in groups[size][:most]:
        yield encode(group)
        if pace_s:
            due += pace_s
            await asyncio.sleep(due - loop.time())


def _encoded(events: list[JsonObject]) -> bytes:
    return b"".join([PREFIX + msgspec.json.encode(event) + FRAME_END for event in events])


def frames_of(stream: bytes) -> list[bytes]:
    """Return the frames of a stream."""
    return [frame + FRAME_END for frame in stream.split(FRAME_END) if frame]


def _groups(frames: list[T], size: int) -> list[list[T]]:
    return [frames[start : start + size] for start in range(0, len(frames), size)]


if __name__ == "__main__":
    uvloop.run(serve(build_app(frames_of(Path(sys.argv[1]).read_bytes()))))
