"""One `codex app-server` child process: its pipes, its last words on stderr, and its end within bounds.

A child never outlives the gateway, nor do its own children outlive it: beside it, in its process group, runs a guard
that kills the group when a pipe from the gateway closes, whoever closes it (docs/decisions/0011-no-orphans.md).
"""

import asyncio
import contextlib
import errno
import os
import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from turnbridge.codex.process.home import codex_environment

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
COMPLAINT = re.compile(r"^Error: (.{1,300})", re.MULTILINE)

SHELL = "/bin/sh"
# The guard comes first, so that there is no moment without it. `$0` is the pipe, `$@` the command, which takes the
# place of this shell. The guard is a shell of its own so that its command line does not look like Codex.
GUARDED = f"""
{SHELL} -c 'read -r _; kill -KILL 0' turnbridge-guard <"/dev/fd/$0" >/dev/null 2>&1 &
exec "$@"
"""


class _Output(asyncio.Protocol):
    """One of the pipes that a child writes to."""

    def __init__(self, take: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self.take = take
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        ended = self._ended
        # A process that is gone must not be kept in memory by the pipes that it read, nor its readers by them.
        self.take, self._ended = _drop, _nobody
        ended()


def _drop(data: bytes) -> None:
    del data


def _nobody() -> None:
    pass


class AppServerProcess:
    """A running app-server. `exited` resolves when the process is gone and its pipes are drained."""

    def __init__(self, popen: "subprocess.Popen[bytes]", lifeline: int, *, exit_grace_s: float | None) -> None:
        self._popen = popen
        self._lifeline: int | None = lifeline
        self._exit_grace_s = exit_grace_s or EXIT_GRACE_S
        self._loop = asyncio.get_running_loop()
        self._transports: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.WriteTransport
        self._early: list[bytes] = []
        self._stdout = _Output(self._early.append, self._output_ended)
        self._complaints: deque[bytes] = deque(maxlen=KEPT_STDERR_CHUNKS)
        self._stderr = _Output(self._complaints.append, self._output_ended)
        self._open_outputs = 2
        self.exited: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def start(
        cls, command: Sequence[str], *, home: Path, cwd: Path, exit_grace_s: float | None = None
    ) -> "AppServerProcess":
        """Start the child in its own home and working directory."""
        # The shell would report it too late, and in its own words.
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such program")
        popen, lifeline = _started(command, codex_environment(home), cwd)
        process = cls(popen, lifeline, exit_grace_s=exit_grace_s)
        # Undisturbed: one that is half connected could neither be heard nor waited for.
        connecting = asyncio.ensure_future(process._connect())
        try:
            await asyncio.shield(connecting)
        except BaseException:
            process._let_go()
            await asyncio.wait((connecting, process.exited))
            raise
        return process

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._popen.pid

    @property
    def exit_status(self) -> int | None:
        """Return how the child ended: negative for a signal, None while it runs."""
        return self._popen.returncode

    def receive_by(self, receive: Callable[[bytes], None]) -> None:
        """Pass the child's stdout on, from its first byte."""
        self._stdout.take = receive
        for data in self._early:
            receive(data)
        self._early.clear()

    def write(self, data: bytes) -> None:
        """Write to the child's stdin; data for a child that is gone is dropped, its readers know already."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    def last_words(self) -> str:
        """Return the exit status and the end of stderr, for the log and for an operator."""
        words = b"".join(self._complaints).decode(errors="replace")
        plain = TERMINAL_CODES.sub("", words).strip()[-KEPT_STDERR_CHARS:]
        return f"exit status {self.exit_status}" + (f": {plain}" if plain else "")

    def complaint(self) -> str:
        """Return why Codex says that it ends, which is its last line of this form, or nothing."""
        words = TERMINAL_CODES.sub("", b"".join(self._complaints).decode(errors="replace"))
        found = COMPLAINT.findall(words)
        return str(found[-1]) if found else ""

    def kill(self) -> None:
        """End a child that no longer listens; one that is gone already is left in peace."""
        self._popen.kill()

    async def stop(self) -> None:
        """End the child: close its stdin, then SIGTERM, then SIGKILL, each within its bound."""
        self._stdin.close()
        for grace_s, harder in (
            (self._exit_grace_s, self._popen.terminate),
            (TERMINATE_GRACE_S, self._popen.kill),
        ):
            gone, _ = await asyncio.wait([self.exited], timeout=grace_s)
            if gone:
                return
            # Nothing happens if it is gone already, and only its pipes are held open, by a child of its own.
            harder()
        await asyncio.shield(self.exited)

    async def _connect(self) -> None:
        """Listen to the child, and open its stdin."""
        try:
            threading.Thread(target=self._wait, name=f"codex-{self.pid}", daemon=True).start()
        except RuntimeError as error:
            # The system has no thread left. Nobody would notice the child's end, so that comes now: the guard kills it.
            with self._popen:
                self._end()
            raise OSError(str(error)) from error
        self._stdin, _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, self._popen.stdin)
        self._transports.append(self._stdin)
        stdout, _ = await self._loop.connect_read_pipe(lambda: self._stdout, self._popen.stdout)
        self._transports.append(stdout)
        stderr, _ = await self._loop.connect_read_pipe(lambda: self._stderr, self._popen.stderr)
        self._transports.append(stderr)

    def _let_go(self) -> None:
        """Close the lifeline: the guard then kills what is left of the child's group, and itself."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _wait(self) -> None:
        """Wait for the child's end: in a thread, which is all that every system has for it."""
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # The loop is closed, and nobody cares any more.
            self._loop.call_soon_threadsafe(self._process_exited)

    def _process_exited(self) -> None:
        # Whatever the child has started holds its pipes open, so that their end would never be seen.
        self._let_go()
        if self._open_outputs:
            self._loop.call_later(DRAIN_S, self._end)
        else:
            self._end()

    def _output_ended(self) -> None:
        self._open_outputs -= 1
        if not self._open_outputs and self.exit_status is not None:
            self._end()

    def _end(self) -> None:
        """Take note that nothing more will come."""
        self._let_go()
        while self._transports:
            self._transports.pop().close()
        if not self.exited.done():
            self.exited.set_result(None)
            # What has lost its parent goes to process 1. In a container that may be the gateway.
            if os.getpid() == 1:
                self._loop.call_later(REAP_S, _reap_group, self.pid)


def _started(command: Sequence[str], environment: dict[str, str], cwd: Path) -> tuple["subprocess.Popen[bytes]", int]:
    """Start a child with its guard; return it, and the end of the guard's pipe that is ours.

    Python does it by vfork, in half a millisecond. The loop's own way is to fork: that copies the page tables, 5 to 30
    ms in which no stream moves, and every page that is written afterwards faults once.
    """
    watched, lifeline = os.pipe()
    try:
        popen = subprocess.Popen(
            (SHELL, "-c", GUARDED, str(watched), *command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            cwd=cwd,
            pass_fds=(watched,),
            # A Ctrl-C in the terminal is for the gateway, which then ends Codex in its own time.
            start_new_session=True,
        )
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(watched)
    return popen, lifeline


def _reap_group(group: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass
