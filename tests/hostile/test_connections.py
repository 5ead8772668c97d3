"""More connections than the gateway has descriptors for: the neighbour is served, and Codex can be started."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.hostile.site import HOSTILE_KEY, Site, running_site

pytestmark = [pytest.mark.anyio, pytest.mark.real]

DESCRIPTORS = 384
CONNECTIONS = 400
SPARE = 128
"""Descriptors that must be left over, since Codex may be started at any moment."""
TIMEOUT_S = 30.0
HEAD = b"POST /v1/responses HTTP/1.1\r\nhost: here\r\ncontent-length: 1000000\r\n"
HALVES = {
    "nothing": b"",
    "half a head": HEAD,
    "a refused body": HEAD + b"\r\n" + b"x" * 1000,
    "half a body": HEAD + f"authorization: Bearer {HOSTILE_KEY}\r\n\r\n".encode() + b"x" * 1000,
    "an idle connection": b"GET /healthz HTTP/1.1\r\n\r\n",
}


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory, learned: Path, anyio_backend: object) -> AsyncIterator[Site]:
    """Return a gateway that has few descriptors."""
    del anyio_backend  # Named so that its scope is this one's.
    directory = tmp_path_factory.mktemp("site")
    shutil.copytree(learned, directory / "data" / "binaries")
    async with running_site(directory, wrapper=("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")) as running:
        yield running


@contextlib.contextmanager
def held(site: Site, half: bytes) -> Iterator[None]:
    """Open more connections than there is room for, each with half a request."""
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(socket.create_connection(site.address, timeout=TIMEOUT_S))
            # It may have been refused already.
            with contextlib.suppress(ConnectionError):
                client.sendall(half)
        yield


def descriptors(site: Site) -> int:
    return len(list(Path(f"/proc/{site.gateway.pid}/fd").iterdir()))


@pytest.mark.promise("bounds.connections")
@pytest.mark.parametrize("kind", HALVES)
async def test_connections_that_wait_for_nothing_give_way_to_the_neighbour(site: Site, kind: str) -> None:
    async def attack() -> None:
        with contextlib.ExitStack() as stack:
            await asyncio.to_thread(stack.enter_context, held(site, HALVES[kind]))
            assert descriptors(site) < DESCRIPTORS - SPARE
            await site.assert_neighbour_is_served()

    await site.assert_undisturbed(attack)


@pytest.mark.promise("bounds.connections")
async def test_codex_is_started_again_although_connections_are_at_their_limit(site: Site) -> None:
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, held(site, HEAD))
        before = site.gateway.app_servers()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(TIMEOUT_S):
            while len(set(site.gateway.app_servers()) - set(before)) < len(before):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await site.assert_neighbour_is_served()
