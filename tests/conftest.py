"""What every test shares."""

import asyncio
import functools
import gc
import inspect
import shutil
import signal
import threading
import typing
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.strategies import DataObject

from turnbridge.codex import self_check as selfcheck
from turnbridge.codex.process import binary as capabilities
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.worker import start_worker
from turnbridge.codex.setup import codex_with
from turnbridge.settings.fields import load_settings

# How long an example takes says more about the machine than about the code. The examples are always the same, so that a
# run tells of the tree and not of chance; `--hypothesis-profile=curious` looks for others.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("curious", settings.get_profile("steady"), derandomize=False)
settings.load_profile("steady")

START_PATIENCE_S = 25.0
"""How long a test waits for a Codex that starts: longer than clients do, since the machine may be busy with others."""

HANGS_S = 100.0
"""How long a coroutine may take: less than the timeout of pytest, which has no way to end one alone."""


def pytest_configure() -> None:
    """Give the programs that tests start the usual signals, even where pytest was told to ignore some.

    A shell does that to what runs in the background, and nohup too; programs inherit it, unlike a handler.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests of the real Codex out of the coverage, and refuse tests that would break those after them."""
    for item in items:
        # Tracing makes Python half as fast, and these tests take most of the time.
        if item.get_closest_marker("real") is not None:
            item.add_marker("no_cover")
        _refuse_drawing_coroutines(item)
        _bound_coroutine(item)


def _bound_coroutine(item: pytest.Item) -> None:
    """Cancel a coroutine that hangs, so that it fails alone.

    All coroutines and fixtures of a session share a task. If pytest's timeout raises while it waits there, each later
    test fails, or waits for ever.
    """
    if (
        isinstance(item, pytest.Function)
        and inspect.iscoroutinefunction(item.obj)
        and not hasattr(item.obj, "hypothesis")
        and item.get_closest_marker("timeout") is None
    ):
        item.obj = _bounded(item.obj)


def _bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(**fixtures: object) -> None:
        running = asyncio.ensure_future(test(**fixtures))
        # Of real time: some tests move the clock of the event loop on.
        loop, hangs = asyncio.get_running_loop(), threading.Event()

        def end() -> None:
            hangs.set()
            loop.call_soon_threadsafe(running.cancel)

        timer = threading.Timer(HANGS_S, end)
        timer.daemon = True
        timer.start()
        try:
            await running
        except asyncio.CancelledError:
            if hangs.is_set():
                raise TimeoutError(f"The test had not ended after {HANGS_S:g} seconds.") from None
            raise
        finally:
            timer.cancel()

    return bounded


def _refuse_drawing_coroutines(item: pytest.Item) -> None:
    """Refuse a coroutine that draws values while it runs.

    Hypothesis ends an example that has drawn too much by an exception that is no `Exception`: it ends the task, too, in
    which all tests and fixtures of this session run, and each later test fails. What `given` draws itself is safe.
    """
    test = getattr(getattr(item, "obj", None), "hypothesis", None)
    inner = getattr(test, "inner_test", None)
    if inspect.iscoroutinefunction(inner) and DataObject in typing.get_type_hints(inner).values():
        raise pytest.UsageError(f"{item.nodeid} draws values inside a coroutine. Let `given` draw them.")


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
        patch.setattr(Pool, "start_timeout_s", START_PATIENCE_S)
        yield


@pytest.fixture(scope="session")
async def learned(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> Path:
    """Return what a gateway keeps of what it learns about its Codex when it starts for the first time."""
    del anyio_backend  # Named so that its scope is this one's.
    data_dir = tmp_path_factory.mktemp("learned")
    spec, prepare = codex_with(load_settings(PROXY_DATA_DIR=data_dir), provider="http://127.0.0.1:9/v1")
    prepare()
    with pytest.MonkeyPatch.context() as patch:
        # What this process knows already would not be written.
        patch.setattr(capabilities, "_known", {})
        patch.setattr(selfcheck, "_known", {})
        worker = await start_worker(spec)
        try:
            await selfcheck.check(spec, worker)
        finally:
            await worker.process.stop()
    return spec.cache_dir


@pytest.fixture
def started_before(tmp_path: Path, learned: Path) -> Path:
    """Return a directory for a gateway that does not start for the first time, which takes two seconds more."""
    shutil.copytree(learned, tmp_path / "data" / "binaries")
    return tmp_path
