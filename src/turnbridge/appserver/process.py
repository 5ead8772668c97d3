"""One `codex app-server` child process: its pipes, its last words on stderr, and its end within bounds.

A child never outlives the gateway, nor do its own children outlive it: beside it, in its process group, runs a guard
that kills the group when a pipe from the gateway closes, whoever closes it (docs/decisions/0011-no-orphans.md).
"""

import asyncio
import contextlib
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

# A healthy app-server leaves 20 ms after its stdin closes.
EXIT_GRACE_S = 2.0
# What remains after SIGTERM is not going to tidy up any more.
TERMINATE_GRACE_S = 1.0
# How long the pipes of a child that is gone may still bring something, and be held open by what it has started.
DRAIN_S = 0.5
# How long a killed group may take to be gone; nobody waits for it.
REAP_S = 1.0
# Enough of stderr to say why a process died.
KEPT_STDERR_CHUNKS = 20
KEPT_STDERR_CHARS = 500

TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

# The gateway's own secrets are none of Codex's business.
WITHHELD_VARIABLES = ("PROXY_API_KEY", "PROXY_DATABASE_URL", "PROXY_METRICS_TOKEN", "PROXY_RATE_LIMIT_STORAGE")

SHELL = "/bin/sh"
# The guard comes first, so that there is no moment without it. `$0` is the pipe, `$@` the command, which takes the
# place of this shell. The guard is a shell of its own so that its command line does not look like Codex.
GUARDED = f"""
{SHELL} -c 'read -r _; kill -KILL 0' turnbridge-guard <"/dev/fd/$0" >/dev/null 2>&1 &
exec "$@"
"""


class _Pipes(asyncio.SubprocessProtocol):
    def __init__(self, lifeline: int) -> None:
        self._lifeline: int | None = lifeline
        self.early: list[bytes] = []
        self.receive: Callable[[bytes], None] = self.early.append
        self.stderr: deque[bytes] = deque(maxlen=KEPT_STDERR_CHUNKS)
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.receive(data)
        else:
            self.stderr.append(data)

    def process_exited(self) -> None:
        # Whatever the child has started holds its pipes open, so that their end would never be seen.
        self.let_go()
        asyncio.get_running_loop().call_later(DRAIN_S, self.end)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.end()

    def let_go(self) -> None:
        """Close the lifeline: the guard then kills what is left of the child's group, and itself."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def end(self) -> None:
        """Take note that nothing more will come."""
        self.let_go()
        if not self.exited.done():
            self.exited.set_result(None)


class AppServerProcess:
    """A running app-server. `exited` resolves when the process is gone and its pipes are drained."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes) -> None:
        self._transport = transport
        self._pipes = pipes
        # A pipe to a child is always writable; the base class just does not say so.
        self._stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        pipes.exited.add_done_callback(lambda _: self._release())
        self.exit_grace_s: float | None = None
        """How long it may take to leave of itself, if somebody has a say in that."""

    @classmethod
    async def start(cls, command: Sequence[str], *, home: Path, cwd: Path) -> "AppServerProcess":
        """Start the child in its own home and working directory."""
        # The shell would report it too late, and in its own words.
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(f"there is no program {command[0]}")
        environment = {key: value for key, value in os.environ.items() if key not in WITHHELD_VARIABLES}
        watched, lifeline = os.pipe()
        pipes = _Pipes(lifeline)
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: pipes,
                *(SHELL, "-c", GUARDED, str(watched), *command),
                env={**environment, "CODEX_HOME": str(home)},
                cwd=cwd,
                pass_fds=(watched,),
                # A Ctrl-C in the terminal is for the gateway, which then ends Codex in its own time.
                start_new_session=True,
            )
        except BaseException:
            pipes.let_go()
            raise
        finally:
            os.close(watched)
        return cls(transport, pipes)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._transport.get_pid()

    @property
    def exited(self) -> asyncio.Future[None]:
        """Return a future that resolves when the process is gone."""
        return self._pipes.exited

    def receive_by(self, receive: Callable[[bytes], None]) -> None:
        """Pass the child's stdout on, from its first byte."""
        self._pipes.receive = receive
        for data in self._pipes.early:
            receive(data)

    def write(self, data: bytes) -> None:
        """Write to the child's stdin; data for a child that is gone is dropped, its readers know already."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    @property
    def exit_status(self) -> int | None:
        """Return how the child ended: negative for a signal, None while it runs."""
        return self._transport.get_returncode()

    def last_words(self) -> str:
        """Return the exit status and the end of stderr, for the log and for an operator."""
        words = b"".join(self._pipes.stderr).decode(errors="replace")
        plain = TERMINAL_CODES.sub("", words).strip()[-KEPT_STDERR_CHARS:]
        return f"exit status {self.exit_status}" + (f": {plain}" if plain else "")

    def kill(self) -> None:
        """End a child that no longer listens; one that is gone already is left in peace."""
        with contextlib.suppress(ProcessLookupError):
            self._transport.kill()

    async def stop(self) -> None:
        """End the child: close its stdin, then SIGTERM, then SIGKILL, each within its bound."""
        self._stdin.close()
        grace_s = self.exit_grace_s or EXIT_GRACE_S
        for grace, harder in ((grace_s, self._transport.terminate), (TERMINATE_GRACE_S, self._transport.kill)):
            if await self._gone_within(grace):
                return
            try:
                harder()
            except ProcessLookupError:
                # It is gone already; only its pipes are held open, by a child of its own.
                self._pipes.end()
        await asyncio.shield(self._pipes.exited)

    async def _gone_within(self, seconds: float) -> bool:
        done, _ = await asyncio.wait([self._pipes.exited], timeout=seconds)
        return bool(done)

    def _release(self) -> None:
        self._transport.close()
        # What has lost its parent goes to process 1. In a container that may be the gateway.
        if os.getpid() == 1:
            asyncio.get_running_loop().call_later(REAP_S, _reap_group, self.pid)


def _reap_group(group: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass
