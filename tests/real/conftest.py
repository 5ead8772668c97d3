"""One real Codex for all tests of a process: each test scripts the model anew."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import Bridge, running_bridge, running_bridge_over_websocket
from tests.support.ollama_client import OllamaBridge, running_ollama

PATIENCE_S = 25
"""Far longer than Codex takes to let go of a turn."""


@pytest.fixture(scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway with the settings of tests."""
    del anyio_backend  # Named so that its scope is this one's.
    async with running_bridge(tmp_path_factory.mktemp("bridge")) as running:
        yield running


@pytest.fixture(scope="session")
async def shared_over_websocket(
    tmp_path_factory: pytest.TempPathFactory, anyio_backend: object
) -> AsyncIterator[Bridge]:
    """Return a gateway with the settings of tests, and a provider that is reached over WebSocket."""
    del anyio_backend  # Named so that its scope is this one's.
    async with running_bridge_over_websocket(tmp_path_factory.mktemp("websocket")) as running:
        yield running


@pytest.fixture(scope="session")
async def ollama_bridge(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[OllamaBridge]:
    """Return a gateway with a listener for Ollama's clients, which keeps threads."""
    del anyio_backend  # Named so that its scope is this one's.
    async with running_ollama(tmp_path_factory.mktemp("ollama")) as running:
        yield running


@pytest.fixture
async def bridge(shared: Bridge) -> AsyncIterator[Bridge]:
    """Return the same gateway; the next test finds it at rest, since a stream that ends late would be counted there."""
    async with _at_rest_after(shared) as running:
        yield running


@pytest.fixture(params=["http", "websocket"])
async def either_bridge(
    request: pytest.FixtureRequest, shared: Bridge, shared_over_websocket: Bridge
) -> AsyncIterator[Bridge]:
    """Return a gateway for each transport to the provider, at rest likewise."""
    async with _at_rest_after(shared if request.param == "http" else shared_over_websocket) as running:
        yield running


@contextlib.asynccontextmanager
async def _at_rest_after(bridge: Bridge) -> AsyncIterator[Bridge]:
    yield bridge
    async with asyncio.timeout(PATIENCE_S):
        await bridge.model.until(lambda model: model.active == 0)
