"""A worker without Codex: its process does nothing until its input ends, its connection goes wherever one likes."""

import asyncio
from pathlib import Path

from tests.support.codex_schema import pinned_schema
from turnbridge.appserver.connection import Connection
from turnbridge.appserver.process import AppServerProcess
from turnbridge.appserver.worker import Worker
from turnbridge.wire.codex.capabilities import read_capabilities


async def idle_worker(
    directory: Path, *, connection: Connection | None = None, login: tuple[int, int] | None = (1, 1)
) -> Worker:
    """Start a worker; it is to be stopped by `worker.process.stop()`."""
    process = await AppServerProcess.start(["sh", "-c", "exec cat > /dev/null"], home=directory, cwd=directory)
    return Worker(
        process=process,
        connection=connection or Connection(process.write),
        capabilities=read_capabilities(pinned_schema()),
        dialect="v2",
        workdir=directory,
        binary="idle",
        models=(),
        default_model=None,
        login_missing=login is None,
        login=login,
        started_at=asyncio.get_running_loop().time(),
    )
