"""The memory for bodies that are being received: bounded in all, and nobody's halves cost another client its own."""

import asyncio
import json

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tests.support.passing_time import PassingTime, on_a_loop_of_its_own
from tests.web.asgi_driver import Exchange
from turnbridge.turn.errors import GatewayOverloaded
from turnbridge.web import bodies as uploads
from turnbridge.web.bodies import SLOW_S, Bodies, Upload, Uploads
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import Metrics

pytestmark = pytest.mark.anyio

MOST = 1000


async def begun(counted: Uploads, client: str, size: int) -> tuple[Upload, "asyncio.Task[bool]"]:
    """Begin a body, and return it with a task that waits for its rest and tells whether it was rejected."""
    started: asyncio.Future[Upload] = asyncio.get_running_loop().create_future()

    async def receive() -> bool:
        async with asyncio.timeout(None) as patience:
            upload = counted.begin(client, patience)
            try:
                counted.add(upload, size)
            finally:
                started.set_result(upload)
            await asyncio.Event().wait()
        raise AssertionError("The rest never comes.")

    async def outcome() -> bool:
        try:
            return await receive()
        except TimeoutError:
            return True

    task = asyncio.create_task(outcome())
    return await started, task


@pytest.mark.promise("bounds.uploads")
async def test_the_client_that_holds_most_loses_its_oldest_body_to_another_client() -> None:
    counted = Uploads(MOST)
    oldest, waiting = await begun(counted, "greedy", 400)
    younger, still_waiting = await begun(counted, "greedy", 400)
    modest, also_waiting = await begun(counted, "modest", 300)
    assert await asyncio.wait_for(waiting, 5)
    assert (oldest.rejected, younger.rejected, modest.rejected) == (True, False, False)
    for task in (still_waiting, also_waiting):
        task.cancel()


async def test_a_client_that_holds_most_already_gets_no_more() -> None:
    counted = Uploads(MOST)
    first, waiting = await begun(counted, "greedy", 900)
    second, refused = await begun(counted, "greedy", 200)
    with pytest.raises(GatewayOverloaded):
        await refused
    counted.end(second)
    assert not first.rejected
    waiting.cancel()


@on_a_loop_of_its_own
async def test_a_body_that_takes_long_makes_room_for_the_same_client_too() -> None:
    counted, time = Uploads(MOST), PassingTime()
    slow, waiting = await begun(counted, "one", 900)
    await time.go_on(int(SLOW_S))
    fresh, still_waiting = await begun(counted, "one", 200)
    assert await asyncio.wait_for(waiting, 5)
    assert (slow.rejected, fresh.rejected) == (True, False)
    still_waiting.cancel()


async def test_a_body_larger_than_all_memory_may_come_alone() -> None:
    counted = Uploads(MOST)
    _, waiting = await begun(counted, "one", 10 * MOST)
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_bodies_that_ended_leave_nothing_behind() -> None:
    counted = Uploads(MOST)
    for number in range(10):
        upload, waiting = await begun(counted, str(number), MOST)
        counted.end(upload)
        counted.end(upload)
        waiting.cancel()
    assert (counted._size, counted._of_client) == (0, {})


def gateway() -> ASGIApp:
    bodies = Bodies(10 * MOST, most_bytes=MOST)

    async def echo(request: Request) -> Response:
        return Response(await bodies.read(request.scope, request.receive))

    return wrap(Router([Route("/echo", echo, methods=["POST"])]), keyring=Keyring("greedy,modest"), metrics=Metrics())


@pytest.mark.promise("bounds.uploads")
async def test_a_rejected_body_is_a_503_and_its_connection_is_closed() -> None:
    app = gateway()
    greedy, modest = ({"authorization": f"Bearer {key}"} for key in ("greedy", "modest"))
    async with (
        Exchange(app, "POST", "/echo", headers=greedy, body=[b"x" * 900], whole_body=False) as held,
        Exchange(app, "POST", "/echo", headers=modest, body=[b"y" * 200, b"z"]) as served,
    ):
        assert (await served.begin())[0] == 200
        assert await served.chunk() == b"y" * 200 + b"z"
        status, headers = await held.begin()
        assert (status, dict(headers)["connection"], dict(headers)["retry-after"]) == (503, "close", "1")
        assert json.loads(await held.chunk() or b"") == {
            "error": {
                "message": "Too many request bodies are being received. Try again in a moment.",
                "type": "server_error",
                "param": None,
                "code": "gateway_overloaded",
            }
        }


def test_the_largest_bodies_fit_several_times() -> None:
    assert uploads.MOST_BYTES >= 8 * 16 * 1024 * 1024
