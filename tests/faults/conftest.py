"""Gateways to be harmed: waiting times and the longest line are smaller here, and nothing else is different."""

import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults import bad_codex
from tests.faults.leftovers import grow
from tests.support.gateway import Bridge, running_bridge
from tests.support.processes import descendants, is_stopped
from tests.support.stand_in import stand_in
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.worker import CodexSpec
from turnbridge.codex.protocol.jsonrpc import LineSplitter


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """Let the pool notice in two seconds what it otherwise notices in twenty."""
    # `nothing_left` searches for garbage twice in each test; what other modules have left need not be gone through.
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "first_backoff_s", 0.02)
        patch.setattr(Pool, "longest_backoff_s", 0.1)
        patch.setattr(Pool, "probe_interval_s", 0.2)
        patch.setattr(Pool, "probe_timeout_s", 2.0)
        # So that turns are spread over all app-servers.
        patch.setattr(Pool, "turns_at_ease", 1)
        # More than the lines that must be borne with.
        patch.setattr(LineSplitter, "longest_bytes", bad_codex.HUGE + bad_codex.ENDLESS_PIECE)
        patch.setattr(CodexSpec, "call_timeout_s", 4.0)
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


@pytest.fixture(scope="module")
async def bad(
    tmp_path_factory: pytest.TempPathFactory, bad_binary: Path, anyio_backend: object, impatient: None
) -> AsyncIterator[Bridge]:
    """Return a gateway with two bad app-servers, which replaces those that a test has harmed."""
    del anyio_backend, impatient  # Named so that they come first.
    async with running_bridge(tmp_path_factory.mktemp("bad"), CODEX_BIN=bad_binary, WORKER_COUNT=2) as running:
        await grow(running.gateway.pool, 2)
        yield running


@pytest.fixture(scope="module")
async def real(
    tmp_path_factory: pytest.TempPathFactory, anyio_backend: object, impatient: None
) -> AsyncIterator[Bridge]:
    """Return a gateway with two real app-servers."""
    del anyio_backend, impatient  # Named so that they come first.
    async with running_bridge(tmp_path_factory.mktemp("real"), WORKER_COUNT=2) as running:
        await grow(running.gateway.pool, 2)
        yield running
