"""Gateways to be harmed: waiting times and the longest line are smaller here, and nothing else is different."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from soak.processes import descendants, is_stopped
from soak.stand_in import stand_in
from tests.faults import bad_codex
from tests.support.gateway import Bridge, running_bridge
from turnbridge.codex.process import connection, pool
from turnbridge.codex.protocol import jsonrpc


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """Let the pool notice in two seconds what it otherwise notices in twenty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "FIRST_BACKOFF_S", 0.02)
        patch.setattr(pool, "LONGEST_BACKOFF_S", 0.1)
        patch.setattr(pool, "WATCH_INTERVAL_S", 0.2)
        patch.setattr(pool, "PROBE_TIMEOUT_S", 2.0)
        # More than the lines that must be borne with.
        patch.setattr(jsonrpc, "LONGEST_LINE_BYTES", bad_codex.HUGE + bad_codex.ENDLESS_PIECE)
        patch.setattr(connection, "CALL_TIMEOUT_S", 4.0)
        yield


@pytest.fixture(autouse=True)
def nothing_stays_stopped() -> Iterator[None]:
    """Kill what a failed test has stopped and nobody has noticed: it would outlive the tests."""
    yield
    for pid in descendants(os.getpid()):
        if is_stopped(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def bad_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Codex that does whatever it is told to do wrong."""
    return stand_in(tmp_path_factory.mktemp("bin"), bad_codex.__file__)


@pytest.fixture
async def bad(tmp_path: Path, bad_binary: Path) -> AsyncIterator[Bridge]:
    """Return a gateway with two bad app-servers and one in reserve: one for each test, since they start quickly."""
    async with running_bridge(tmp_path / "gateway", CODEX_BIN=bad_binary, WORKER_COUNT=2) as running:
        yield running


@pytest.fixture(scope="module")
async def real(
    tmp_path_factory: pytest.TempPathFactory, anyio_backend: object, impatient: None
) -> AsyncIterator[Bridge]:
    """Return a gateway with two real app-servers and one in reserve."""
    del anyio_backend, impatient  # Named so that they come first.
    async with running_bridge(tmp_path_factory.mktemp("real"), WORKER_COUNT=2) as running:
        yield running
