"""One fleet for all tests of replicas; each test finds it whole, and scripts the model anew."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.replicas.cluster import Fleet, running_fleet
from tests.support.redis_server import RedisServer
from turnbridge.scripted_model.server import ScriptedModel, in_order

# A test may have to start all replicas again, and to wait until a lease has lapsed.
LONGEST_S = 180


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests on one worker, since each would need a fleet of its own, and first, since they take longest.

    Without a scheduler that knows groups, the first worker gets the first tests, as many as these and more.
    """
    ours = [item for item in items if "whole" in getattr(item, "fixturenames", ())]
    marks = (pytest.mark.anyio, pytest.mark.real, pytest.mark.xdist_group("replicas"), pytest.mark.timeout(LONGEST_S))
    for item in ours:
        for mark in marks:
            item.add_marker(mark)
    items.sort(key=lambda item: item not in ours)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """Return a Redis that runs."""
    made = RedisServer(tmp_path)
    async with made.running():
        yield made


@pytest.fixture(scope="session")
async def whole(tmp_path_factory: pytest.TempPathFactory, learned: Path, anyio_backend: object) -> AsyncIterator[Fleet]:
    """Return three replicas with all that they share."""
    del anyio_backend  # Named so that its scope is this one's.
    async with (
        ScriptedModel(in_order(), record=True) as model,
        running_fleet(tmp_path_factory.mktemp("fleet"), learned, model) as fleet,
    ):
        yield fleet


@pytest.fixture
async def fleet(whole: Fleet) -> AsyncIterator[Fleet]:
    """Return the same fleet, with every part running; the next test finds the model at rest."""
    await whole.mend()
    whole.script()
    yield whole
    await whole.rest()
