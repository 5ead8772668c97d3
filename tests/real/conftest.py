"""One real Codex for all tests of a process: each test scripts the model anew."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import Bridge, running_bridge

PATIENCE_S = 25
"""Far longer than Codex takes to let go of a turn."""


@pytest.fixture(scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway with the settings of tests."""
    del anyio_backend  # Named so that its scope is this one's.
    async with running_bridge(tmp_path_factory.mktemp("bridge")) as running:
        yield running


@pytest.fixture
async def bridge(shared: Bridge) -> AsyncIterator[Bridge]:
    """Return the same gateway; the next test finds it at rest, since a stream that ends late would be counted there."""
    yield shared
    async with asyncio.timeout(PATIENCE_S):
        await shared.model.until(lambda model: model.active == 0)
