"""Request heads without end, from clients that need no key for them."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.site import Site

pytestmark = [pytest.mark.anyio, pytest.mark.real]

TIMEOUT_S = 30.0
MOST_GROWTH_MB = 40.0
"""What a handful of such clients may cost; one of them took 823 MB."""
PIECE = 1024 * 1024
ENDLESS = {
    "target": (b"GET /", b"x" * PIECE),
    "name": (b"GET / HTTP/1.1\r\n", b"x" * PIECE),
    "value": (b"GET / HTTP/1.1\r\nx: ", b"x" * PIECE),
    "headers": (b"GET / HTTP/1.1\r\n", b"x: y\r\n" * (PIECE // 6)),
    "extension": (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x" * PIECE),
    "trailers": (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * (PIECE // 6)),
}


def memory_mb(pid: int) -> float:
    """Return what a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


@contextlib.contextmanager
def connection(site: Site) -> Iterator[socket.socket]:
    with socket.create_connection(site.address, timeout=TIMEOUT_S) as made:
        yield made


def send_40_mb(site: Site, first: bytes, more: bytes) -> bytes:
    """Send as much as is taken, and return what was answered."""
    with connection(site) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(first)
            for _ in range(40):
                client.sendall(more)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(65_536):
                answer += piece
        return answer


@pytest.mark.promise("bounds.heads")
@pytest.mark.parametrize("kind", ENDLESS)
async def test_a_head_without_end_is_refused_and_not_kept(site: Site, kind: str) -> None:
    first, more = ENDLESS[kind]
    before = memory_mb(site.gateway.pid)

    async def attack() -> None:
        answers = await asyncio.gather(*(asyncio.to_thread(send_40_mb, site, first, more) for _ in range(4)))
        # One whose connection is reset before it reads gets nothing.
        assert any(answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 401 ")) for answer in answers)

    await site.assert_undisturbed(attack)
    assert memory_mb(site.gateway.pid) - before < MOST_GROWTH_MB


@pytest.mark.promise("bounds.heads")
async def test_requests_that_are_sent_without_waiting_for_answers_are_not_kept_either(site: Site) -> None:
    before = memory_mb(site.gateway.pid)
    requests = b"GET / HTTP/1.1\r\n\r\n" * (PIECE // 18)

    def attack_once() -> None:
        with connection(site) as client, contextlib.suppress(OSError):
            client.settimeout(2)
            for _ in range(40):
                client.sendall(requests)

    async def attack() -> None:
        await asyncio.gather(*(asyncio.to_thread(attack_once) for _ in range(4)))

    await site.assert_undisturbed(attack)
    assert memory_mb(site.gateway.pid) - before < MOST_GROWTH_MB
