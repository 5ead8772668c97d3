"""One gateway with the demo model and one Chromium for all tests of the page."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.support.page import Shown, chromium, page_shown


@pytest.fixture(scope="session")
async def shown(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Shown]:
    """Return a gateway with its page."""
    del anyio_backend  # Named so that its scope is this one's.
    async with page_shown(tmp_path_factory.mktemp("page"), PROXY_LOG_PROTO=True) as running:
        yield running


@pytest.fixture(scope="session")
async def browser(anyio_backend: object) -> AsyncIterator[Browser]:
    """Return a real Chromium."""
    del anyio_backend  # Named so that its scope is this one's.
    async with chromium() as running:
        yield running
