"""What every test shares."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from turnbridge.appserver import pool

# How long an example takes says more about the machine than about the code. The examples are always the same, so that a
# run tells of the tree and not of chance; `--hypothesis-profile=curious` looks for others.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("curious", settings.get_profile("steady"), derandomize=False)
settings.load_profile("steady")

START_PATIENCE_S = 25.0
"""How long a test waits for a Codex that starts: longer than clients do, since the machine may be busy with others."""


def pytest_collection_finish() -> None:
    """Let no later search for garbage go through the modules again, which stay: it takes a quarter of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return the event loop that the gateway runs on."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def patience_with_starts() -> Iterator[None]:
    """Let no request of a test be refused only because Codex takes its time to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "START_PATIENCE_S", START_PATIENCE_S)
        yield
