"""Readers of one stream that do not read: they share it, and hold no copies of their own."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from tests.hostile.site import HOSTILE_KEY, Site
from tests.support.processes import resident_mb

pytestmark = [pytest.mark.anyio, pytest.mark.real]

READERS = 40
TEXT_BYTES = 3_000_000
"""Of an answer whose stream tells it several times, in frames of this size and larger."""
MOST_HELD_MB = 60.0
"""What all readers together may hold; one copy for each would be some 700 MB."""
BOUND_S = 50.0


async def made(site: Site) -> str:
    """Return a response with a long stream, made in the background."""
    body = {"model": "gpt-5.5", "input": "x" * TEXT_BYTES, "background": True}
    response: str = (await site.hostile.post("/v1/responses", json=body)).json()["id"]
    async with asyncio.timeout(BOUND_S):
        while (found := (await site.hostile.get(f"/v1/responses/{response}")).json())["status"] != "completed":
            assert found["status"] in ("queued", "in_progress"), found
            await asyncio.sleep(0.1)
    return response


@contextlib.asynccontextmanager
async def unread(site: Site, request: bytes) -> AsyncIterator[socket.socket]:
    """Send a request, read the status of its answer, and nothing of the rest."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, site.address)
        await loop.sock_sendall(connection, request)
        assert await loop.sock_recv(connection, 12) == b"HTTP/1.1 200"
        yield connection


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {HOSTILE_KEY}\r\n\r\n".encode()


@pytest.mark.promise("limits.slow-readers")
async def test_readers_that_do_not_read_hold_no_copies_of_a_kept_stream(site: Site) -> None:
    path = f"/v1/responses/{await made(site)}?stream=true"
    whole = len((await site.hostile.get(path)).content)
    before = resident_mb(site.gateway.pid)
    held = 0.0

    async def attack() -> None:
        nonlocal held
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(BOUND_S):
                for _ in range(READERS):
                    await stack.enter_async_context(unread(site, get(path)))
            await site.assert_neighbour_is_served()
            held = resident_mb(site.gateway.pid) - before

    await site.assert_undisturbed(attack)
    assert whole > 4 * TEXT_BYTES
    assert held < MOST_HELD_MB
    # Whoever reads still gets it whole.
    assert len((await site.hostile.get(path)).content) == whole


@pytest.mark.promise("limits.slow-readers", "limits.idempotency")
async def test_repeats_of_a_request_that_are_not_read_hold_no_copies_of_its_answer(site: Site) -> None:
    body = b'{"model": "gpt-5.5", "input": "' + b"y" * 6_000_000 + b'"}'
    head = (
        "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {HOSTILE_KEY}\r\nidempotency-key: again\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    headers = {"content-type": "application/json", "idempotency-key": "again"}
    first = await site.hostile.post("/v1/responses", content=body, headers=headers)
    assert first.status_code == 200
    before = resident_mb(site.gateway.pid)
    async with contextlib.AsyncExitStack() as stack:
        async with asyncio.timeout(BOUND_S):
            for _ in range(READERS // 2):
                await stack.enter_async_context(unread(site, head.encode() + body))
        held = resident_mb(site.gateway.pid) - before
        await site.assert_neighbour_is_served()
    assert held < MOST_HELD_MB
