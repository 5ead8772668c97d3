"""One real Codex for all tests of a process: each test scripts the model anew."""

from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import Bridge, running_bridge


@pytest.fixture(scope="session")
async def bridge(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway with default settings."""
    del anyio_backend  # Named so that its scope is this one's.
    async with running_bridge(tmp_path_factory.mktemp("bridge")) as running:
        yield running
