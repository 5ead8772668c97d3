"""One `codex app-server` child process: its pipes, its last words on stderr, and its end within bounds."""

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

# A healthy app-server leaves 20 ms after its stdin closes.
EXIT_GRACE_S = 2.0
# What remains after SIGTERM is not going to tidy up any more.
TERMINATE_GRACE_S = 1.0
# How long the pipes of a child that is gone may still bring something.
DRAIN_S = 0.5
# Enough of stderr to say why a process died.
KEPT_STDERR_CHUNKS = 20
KEPT_STDERR_CHARS = 500

TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

# The gateway's own secrets are none of Codex's business.
WITHHELD_VARIABLES = ("PROXY_API_KEY", "PROXY_METRICS_TOKEN", "PROXY_RATE_LIMIT_STORAGE")


class _Pipes(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
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
        # A grandchild may hold the pipes open for ever; what is still in them gets a moment.
        asyncio.get_running_loop().call_later(DRAIN_S, self.end)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.end()

    def end(self) -> None:
        """Take note that nothing more will come."""
        if not self.exited.done():
            self.exited.set_result(None)


class AppServerProcess:
    """A running app-server. `exited` resolves when the process is gone and its pipes are drained."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes) -> None:
        self._transport = transport
        self._pipes = pipes
        # A pipe to a child is always writable; the base class just does not say so.
        self._stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        pipes.exited.add_done_callback(lambda _: transport.close())

    @classmethod
    async def start(cls, command: Sequence[str], *, home: Path, cwd: Path) -> "AppServerProcess":
        """Start the child in its own home and working directory."""
        environment = {key: value for key, value in os.environ.items() if key not in WITHHELD_VARIABLES}
        transport, pipes = await asyncio.get_running_loop().subprocess_exec(
            _Pipes,
            *command,
            env={**environment, "CODEX_HOME": str(home)},
            cwd=cwd,
            # A Ctrl-C in the terminal is for the gateway, which then ends Codex in its own time.
            start_new_session=True,
        )
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
        """End a child that no longer listens."""
        self._transport.kill()

    async def stop(self) -> None:
        """End the child: close its stdin, then SIGTERM, then SIGKILL, each within its bound."""
        self._stdin.close()
        for grace, harder in ((EXIT_GRACE_S, self._transport.terminate), (TERMINATE_GRACE_S, self._transport.kill)):
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
