"""One real Codex for the agent frameworks, and a wall around them: whatever they would report, it stays here."""

import socket
from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import Bridge, running_bridge

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@pytest.fixture(scope="session")
async def bridge(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway with default settings."""
    del anyio_backend  # Named so that its scope is this one's.
    async with running_bridge(tmp_path_factory.mktemp("bridge")) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection to another host, and switch off what the frameworks would send home."""
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def connect_here(self: socket.socket, address: tuple[object, ...] | str | bytes) -> None:
        if isinstance(address, tuple) and address[0] not in LOOPBACK:
            raise AssertionError(f"Something would connect to {address}.")
        connect(self, address)

    def look_up_here(host: str, *rest: object, **options: object) -> object:
        if host not in LOOPBACK:
            raise AssertionError(f"Something would look {host} up.")
        return look_up(host, *rest, **options)  # type: ignore[arg-type]  # As it came.

    monkeypatch.setattr(socket.socket, "connect", connect_here)
    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
