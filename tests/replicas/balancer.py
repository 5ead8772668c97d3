"""HAProxy with the very file of `deploy/`, on loopback, and its runtime commands."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deploy.proxies import DEPLOY, until_it_listens
from tests.support.ports import free_port
from tests.support.waiting import until

FILE = DEPLOY / "haproxy" / "haproxy.cfg"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
BACKEND = "turnbridge"
"""The name of HAProxy's group of servers."""


class Balancer:
    """A running HAProxy."""

    def __init__(self, port: int, admin: Path) -> None:
        self.pid = 0
        self.url = f"http://127.0.0.1:{port}"
        self.admin = admin
        """The socket for its operator."""

    async def command(self, line: str) -> str:
        """Return what HAProxy says to a runtime command."""
        reader, writer = await asyncio.open_unix_connection(str(self.admin))
        writer.write(f"{line}\n".encode())
        said = await reader.read()
        writer.close()
        return said.decode().strip()

    async def set_state(self, server: str, state: str) -> None:
        """Set a replica to `ready`, `drain` or `maint`."""
        assert await self.command(f"set server {BACKEND}/{server} state {state}") == ""

    async def states(self) -> dict[str, str]:
        """Return the state of each replica as HAProxy sees it, such as `UP` or `DRAIN`."""
        lines = (await self.command("show stat")).splitlines()
        names = lines[0].lstrip("# ").split(",")
        rows = (dict(zip(names, line.split(","), strict=False)) for line in lines[1:])
        own = ("FRONTEND", "BACKEND")
        return {row["svname"]: row["status"] for row in rows if row["pxname"] == BACKEND and row["svname"] not in own}


@contextlib.asynccontextmanager
async def running_balancer(directory: Path, replicas: list[int]) -> AsyncIterator[Balancer]:
    """Run HAProxy in front of replicas on these ports; where it is not installed, the test is skipped."""
    program = shutil.which("haproxy", path=PATH)
    if program is None:
        pytest.skip("haproxy is not installed")
    port, log = free_port(), directory / "haproxy.log"
    balancer = Balancer(port, directory / "admin.sock")
    variables = {
        "TURNBRIDGE_BIND": f"127.0.0.1:{port}",
        "TURNBRIDGE_ADMIN": str(balancer.admin),
        **{f"TURNBRIDGE_REPLICA_{place}": f"127.0.0.1:{each}" for place, each in enumerate(replicas, 1)},
    }
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(program, "-db", "-f", str(FILE)), env={**os.environ, **variables}, stdout=output, stderr=output
        )
    balancer.pid = process.pid
    try:
        await until_it_listens(port, process, log)
        # A moment after its ports.
        await until(balancer.admin.exists)
        yield balancer
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
