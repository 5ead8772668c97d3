"""One gateway for the attacks of a module: what an attack leaves behind, the next test would find."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hostile.site import Site, running_site


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory, learned: Path, anyio_backend: object) -> AsyncIterator[Site]:
    """Return a gateway with the settings that users have."""
    del anyio_backend  # Named so that its scope is this one's.
    directory = tmp_path_factory.mktemp("site")
    shutil.copytree(learned, directory / "data" / "binaries")
    async with running_site(directory) as running:
        yield running
