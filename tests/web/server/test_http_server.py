"""The HTTP server: how it is stopped, and what it does while nobody asks for anything."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from email.utils import formatdate

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.web.server.http_server import PROBES, HttpServer

pytestmark = pytest.mark.anyio

TIMEOUT_S = 10


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@contextlib.asynccontextmanager
async def served(
    app: ASGIApp, *, date_interval_s: float = 1.0
) -> AsyncIterator[tuple[HttpServer, "asyncio.Task[None]", httpx2.AsyncClient]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = HttpServer(app, date_interval_s=date_interval_s)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
            yield server, task, client
        server.stop(at_once=True)
        await task


async def accepted(server: HttpServer, client: httpx2.AsyncClient) -> socket.socket:
    """Return the server's end of the client's connection."""
    await client.get("/")
    (connection,) = server.server_state.connections
    found: socket.socket = connection.transport.get_extra_info("socket")
    return found


def test_an_idle_connection_is_kept_longer_than_whoever_uses_it_would_keep_it() -> None:
    """A pool of httpx lets go after 5 s, one of aiohttp after 15; nginx and load balancers after 60."""
    assert HttpServer(hello).config.timeout_keep_alive > 60


async def test_a_stopped_server_does_not_wait_for_its_next_look_at_the_clock() -> None:
    async with served(hello, date_interval_s=3600.0) as (server, task, client):
        assert (await client.get("/")).text == "hi"
        server.stop()
        await asyncio.wait_for(task, TIMEOUT_S)


async def test_an_answer_that_has_begun_is_ended_before_the_server_is_gone() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await go_on.wait()
        await hello(scope, receive, send)

    async with served(slow) as (server, task, client):
        asking = asyncio.create_task(client.get("/"))
        await begun.wait()
        server.stop()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        assert (await asking).text == "hi"
        await asyncio.wait_for(task, TIMEOUT_S)


async def test_stopped_at_once_it_waits_for_nobody() -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def patient(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await over.wait()
        await hello(scope, receive, send)

    async with served(patient) as (server, task, client):
        asking = asyncio.create_task(client.get("/"))
        await begun.wait()
        server.stop(at_once=True)
        # The gateway's own end comes to the same server a second time, and asks for less.
        server.stop()
        await asyncio.wait_for(task, TIMEOUT_S)
        assert not asking.done()
        over.set()
        await asking


async def test_clients_that_vanish_without_a_word_are_looked_for_within_minutes() -> None:
    async with served(hello) as (server, _, client):
        ours = await accepted(server, client)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count = (ours.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in PROBES)
        assert idle + interval * count <= 180


async def test_no_frame_waits_until_the_client_has_confirmed_the_one_before() -> None:
    """With uvloop none does; asyncio's own loop sees to it only for sockets that say that they are TCP."""
    async with served(hello) as (server, _, client):
        assert (await accepted(server, client)).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_answers_tell_the_date_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000_000.0]
    monkeypatch.setattr("uvicorn.server.time.time", lambda: now[0])
    async with served(hello, date_interval_s=0.001) as (_, _, client):
        assert (await client.get("/")).headers["date"] == formatdate(now[0], usegmt=True)
        now[0] += 3600
        async with asyncio.timeout(TIMEOUT_S):
            while (await client.get("/")).headers["date"] != formatdate(now[0], usegmt=True):
                pass
