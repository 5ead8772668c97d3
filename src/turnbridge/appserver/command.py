"""Codex commands that run to their end: what they print, within a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnbridge.appserver.process import AppServerProcess
from turnbridge.turn.errors import BackendUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended: what it printed, its exit status, and what it said about it."""

    printed: bytes
    status: int | None
    last_words: str


async def spawn(
    command: Sequence[str], *, home: Path, cwd: Path, exit_grace_s: float | None = None
) -> AppServerProcess:
    """Start Codex; raises `BackendUnavailable` that names the program if it cannot be run."""
    try:
        return await AppServerProcess.start(command, home=home, cwd=cwd, exit_grace_s=exit_grace_s)
    except OSError as error:
        raise BackendUnavailable(f"{command[0]} cannot be run: {error.strerror or error}.") from error


async def run(command: Sequence[str], *, home: Path, cwd: Path, timeout_s: float) -> Outcome:
    """Run a command of Codex's to its end; raises `BackendUnavailable` if it takes too long."""
    printed = bytearray()
    process = await spawn(command, home=home, cwd=cwd)
    process.receive_by(printed.extend)
    try:
        done, _ = await asyncio.wait([process.exited], timeout=timeout_s)
        if not done:
            raise BackendUnavailable(f"`{' '.join(command[1:3])}` did not end within {timeout_s:g} seconds.")
    finally:
        await asyncio.shield(process.stop())
    return Outcome(printed=bytes(printed), status=process.exit_status, last_words=process.last_words())
