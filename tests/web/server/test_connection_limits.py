"""How many connections there may be, and which of them goes when another one comes."""

import asyncio
import contextlib
import json
import resource
import socket
from collections.abc import AsyncIterator

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from tests.web.server.raw_connection import Connection, connected, until
from turnbridge.web.server.connection_limits import (
    LEAST_CONNECTIONS,
    MOST_CONNECTIONS,
    RESERVED_DESCRIPTORS,
    ConnectionLimits,
    connections_for,
    raise_descriptor_limit,
)

pytestmark = pytest.mark.anyio

FAR = "203.0.113.9"
NEAR = "127.0.0.1"


class Idle:
    """A connection that notes when it has to go."""

    def __init__(self) -> None:
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def admitted(limits: ConnectionLimits, count: int, address: str) -> list[Idle]:
    connections = [Idle() for _ in range(count)]
    assert all(limits.admit(each, address) for each in connections)
    return connections


def test_the_connection_that_was_idle_longest_is_closed_for_a_new_one() -> None:
    limits = ConnectionLimits(3)
    first, second, third = admitted(limits, 3, NEAR)
    limits.mark_busy(first)
    limits.mark_idle(first)
    limits.mark_busy(third)
    assert limits.admit(Idle(), NEAR)
    assert (first.evicted, second.evicted, third.evicted) == (False, True, False)
    assert len(limits) == 3


def test_no_connection_is_closed_while_its_request_is_served() -> None:
    limits = ConnectionLimits(2)
    for each in admitted(limits, 2, NEAR):
        limits.mark_busy(each)
    assert not limits.admit(Idle(), NEAR)
    assert (len(limits), limits.refused) == (2, 1)


@pytest.mark.promise("bounds.connections")
def test_one_peer_cannot_take_the_places_of_the_others() -> None:
    limits = ConnectionLimits(10)
    (neighbour,) = admitted(limits, 1, "198.51.100.7")
    first, *_ = admitted(limits, 5, FAR)
    assert limits.admit(Idle(), FAR)
    assert (first.evicted, neighbour.evicted, len(limits)) == (True, False, 6)


@pytest.mark.parametrize("address", [NEAR, "::1", ""])
def test_a_reverse_proxy_on_this_machine_may_have_all_places(address: str) -> None:
    limits = ConnectionLimits(10)
    assert not any(each.evicted for each in admitted(limits, 10, address))


def test_all_addresses_of_an_ipv6_network_are_one_peer() -> None:
    limits = ConnectionLimits(4)
    connections = [Idle() for _ in range(3)]
    assert all(limits.admit(each, f"2001:db8::{number}") for number, each in enumerate(connections))
    assert [each.evicted for each in connections] == [True, False, False]


def test_a_connection_that_ended_counts_no_more_and_peers_are_forgotten() -> None:
    limits = ConnectionLimits(4)
    for number in range(100):
        (connection,) = admitted(limits, 1, f"203.0.113.{number}")
        limits.release(connection)
        limits.release(connection)
        limits.mark_idle(connection)
    assert (len(limits), len(limits._idle), len(limits._peers)) == (0, 0, 0)


@pytest.mark.parametrize("descriptors", [64, 256, 1024, 4096, 65_536])
def test_descriptors_are_left_for_everything_else(descriptors: int) -> None:
    most = connections_for(descriptors, wanted=MOST_CONNECTIONS)
    assert LEAST_CONNECTIONS <= most <= MOST_CONNECTIONS
    if descriptors >= 2 * RESERVED_DESCRIPTORS:
        assert most + RESERVED_DESCRIPTORS <= descriptors


def test_the_process_takes_as_many_descriptors_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
    try:
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 65_536), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def serve(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer; at `/wait`, when the client has left."""
    while scope["path"] == "/wait" and (await receive())["type"] != "http.disconnect":
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@contextlib.asynccontextmanager
async def another(connection: Connection) -> AsyncIterator[Connection]:
    """Connect once more."""
    reader, writer = await asyncio.open_connection(*connection.writer.get_extra_info("peername"))
    try:
        yield Connection(server=connection.server, reader=reader, writer=writer)
    finally:
        writer.close()


@pytest.mark.promise("bounds.connections")
async def test_an_idle_connection_gives_way_and_a_served_one_does_not() -> None:
    async with connected(serve) as idle:
        idle.server.limits.most = 2
        await idle.send(b"GET / HTTP/1.1\r\n\r\n")
        assert (await idle.answer())[0] == 200
        async with another(idle) as waiting:
            await waiting.send(b"GET /wait HTTP/1.1\r\n\r\n")
            await until(lambda: len(idle.server.limits._idle) == 1)
            async with another(idle) as third:
                await third.send(b"GET / HTTP/1.1\r\n\r\n")
                assert (await third.answer())[0] == 200
                assert await idle.closed()
            assert not waiting.reader.at_eof()


async def test_without_a_place_a_connection_is_told_so_closed_and_counted_in_one_line() -> None:
    with capture_logs() as logs:
        async with connected(serve) as waiting:
            waiting.server.limits.most = 1
            await waiting.send(b"GET /wait HTTP/1.1\r\n\r\n")
            await until(lambda: len(waiting.server.limits) and not waiting.server.limits._idle)
            for _ in range(3):
                async with another(waiting) as refused:
                    await refused.send(b"GET / HTTP/1.1\r\n\r\n")
                    status, headers, body = await refused.answer()
                    assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
                    assert json.loads(body) == {
                        "error": {
                            "message": "Too many connections are open. Try again in a moment.",
                            "type": "server_error",
                            "param": None,
                            "code": "gateway_overloaded",
                        }
                    }
                    assert await refused.closed()
            await until(lambda: not waiting.server.limits.refused)
    told = [log for log in logs if log["event"] == "connections_refused"]
    assert sum(log["connections"] for log in told) == 3
    assert {log["log_level"] for log in told} == {"warning"}


async def test_a_flood_of_refused_connections_leaves_nothing_behind() -> None:
    async with connected(serve) as waiting:
        server = waiting.server
        server.limits.most = 1
        await waiting.send(b"GET /wait HTTP/1.1\r\n\r\n")
        await until(lambda: len(server.limits) and not server.limits._idle)
        address = waiting.writer.get_extra_info("peername")
        for _ in range(200):
            with socket.create_connection(address):
                await asyncio.sleep(0)
            assert len(server.limits.lingering) <= 64
        await until(lambda: len(server.server_state.connections) == 1)
        assert (len(server.limits), server.limits.lingering) == (1, set())
