"""What every test shares."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return the event loop that the gateway runs on."""
    return "asyncio"
