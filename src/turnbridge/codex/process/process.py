"""One `codex app-server` child process: its pipes, the end of its stderr, and its termination within bounds.

A child never outlives the gateway, nor do its own children outlive it: a guard in its process group kills the group
when a pipe from the gateway closes, whoever closes it (docs/decisions/0011-no-orphans.md).
"""

import asyncio
import contextlib
import errno
import os
import re
import resource
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from turnbridge.codex.process.home import codex_environment

# How long the pipes of a child that has exited are still read; its own children may hold them open.
DRAIN_S = 0.5
# How long a killed group may take to exit; nobody waits for it.
REAP_S = 1.0
# Enough of stderr to say why a process died.
KEPT_STDERR_CHUNKS = 20
KEPT_STDERR_CHARS = 500

Reason: TypeAlias = Literal[
    "crashed", "hung", "unanswered", "memory", "age", "login", "reload", "home_removed", "idle", "room"
]
"""Why an app-server is stopped or replaced; the first two ended without us."""

TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
COMPLAINT = re.compile(r"^Error: (.{1,300})", re.MULTILINE)

SHELL = "/bin/sh"
# The guard is started first, so that there is no moment without it. `$0` is the pipe, `$@` the command, which replaces
# this shell. The guard is a shell of its own so that its command line does not look like Codex.
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
        # The callbacks keep the process and its readers in memory.
        self.take, self._ended = (lambda _: None), (lambda: None)
        ended()


class AppServerProcess:
    """A running app-server. `exited` resolves when the process has exited and its pipes are drained."""

    # A healthy app-server exits 20 ms after its stdin closes.
    exit_grace_s = 2.0
    terminate_grace_s = 1.0

    def __init__(self, popen: "subprocess.Popen[bytes]", lifeline: int) -> None:
        self._popen = popen
        self._lifeline: int | None = lifeline
        self._loop = asyncio.get_running_loop()
        self._transports: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.WriteTransport
        self._early: list[bytes] = []
        self._stdout = _Output(self._early.append, self._output_ended)
        self._stderr_end: deque[bytes] = deque(maxlen=KEPT_STDERR_CHUNKS)
        self._stderr = _Output(self._stderr_end.append, self._output_ended)
        self._open_outputs = 2
        self.exited: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def start(
        cls, command: Sequence[str], *, home: Path, cwd: Path, variables: Mapping[str, str] | None = None
    ) -> "AppServerProcess":
        """Start the child in its own home and working directory, with these variables besides the usual ones."""
        # The shell would report it too late.
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such program")
        popen, lifeline = _started(command, {**codex_environment(home), **(variables or {})}, cwd)
        process = cls(popen, lifeline)
        # Shielded: a half connected one could neither be read nor waited for.
        connecting = asyncio.ensure_future(process._connect())
        try:
            await asyncio.shield(connecting)
        except BaseException:
            process._close_lifeline()
            await asyncio.wait((connecting, process.exited))
            raise
        return process

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._popen.pid

    @property
    def exit_status(self) -> int | None:
        """Return the exit status: negative for a signal, None while it runs."""
        return self._popen.returncode

    def receive_by(self, receive: Callable[[bytes], None]) -> None:
        """Set the callback for the child's stdout, which gets it from its first byte."""
        self._stdout.take = receive
        for data in self._early:
            receive(data)
        self._early.clear()

    def write(self, data: bytes) -> None:
        """Write to the child's stdin; data for a child that has exited is dropped."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    def last_words(self) -> str:
        """Return the exit status and the end of stderr, for the log and for an operator."""
        end = self._stderr_text().strip()[-KEPT_STDERR_CHARS:]
        return f"exit status {self.exit_status}" + (f": {end}" if end else "")

    def complaint(self) -> str:
        """Return Codex's own error message: the last line of this form on stderr, or nothing."""
        found = COMPLAINT.findall(self._stderr_text())
        return str(found[-1]) if found else ""

    def _stderr_text(self) -> str:
        return TERMINAL_CODES.sub("", b"".join(self._stderr_end).decode(errors="replace"))

    def kill(self) -> None:
        """Kill a child that does not respond; does nothing if it has exited."""
        self._popen.kill()

    async def stop(self) -> None:
        """Stop the child: close its stdin, then SIGTERM, then SIGKILL, each after a grace period."""
        self._stdin.close()
        for grace_s, escalate in (
            (self.exit_grace_s, self._popen.terminate),
            (self.terminate_grace_s, self._popen.kill),
        ):
            exited, _ = await asyncio.wait([self.exited], timeout=grace_s)
            if exited:
                return
            # A no-op if it has exited, and only a child of its own holds its pipes open.
            escalate()
        await asyncio.shield(self.exited)

    async def _connect(self) -> None:
        try:
            threading.Thread(target=self._wait, name=f"codex-{self.pid}", daemon=True).start()
        except RuntimeError as error:
            # The system has no thread left. The child's exit would go unnoticed, so the guard kills it.
            with self._popen:
                self._end()
            raise OSError(str(error)) from error
        self._stdin, _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, self._popen.stdin)
        self._transports.append(self._stdin)
        stdout, _ = await self._loop.connect_read_pipe(lambda: self._stdout, self._popen.stdout)
        self._transports.append(stdout)
        stderr, _ = await self._loop.connect_read_pipe(lambda: self._stderr, self._popen.stderr)
        self._transports.append(stderr)

    def _close_lifeline(self) -> None:
        """Let the guard kill what is left of the child's process group, and itself."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _wait(self) -> None:
        """Wait for the child in a thread, which works on every system."""
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # The loop is closed already.
            self._loop.call_soon_threadsafe(self._process_exited)

    def _process_exited(self) -> None:
        # The child's own children would hold its pipes open.
        self._close_lifeline()
        if self._open_outputs:
            self._loop.call_later(DRAIN_S, self._end)
        else:
            self._end()

    def _output_ended(self) -> None:
        self._open_outputs -= 1
        if not self._open_outputs and self.exit_status is not None:
            self._end()

    def _end(self) -> None:
        self._close_lifeline()
        while self._transports:
            self._transports.pop().close()
        if not self.exited.done():
            self.exited.set_result(None)
            # Orphans are adopted by process 1, which in a container may be the gateway.
            if os.getpid() == 1:
                self._loop.call_later(REAP_S, _reap_group, self.pid)


def _started(command: Sequence[str], environment: dict[str, str], cwd: Path) -> tuple["subprocess.Popen[bytes]", int]:
    """Start a child with its guard; return it, and our end of the guard's pipe.

    `subprocess` uses vfork, which takes half a millisecond. The event loop's own way is fork: that copies the page
    tables, which blocks every stream for 5 to 30 ms, and every page that is written afterwards faults once.
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
            # Ctrl-C in the terminal is for the gateway, which then stops Codex itself.
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


def resident_bytes(pid: int) -> int:
    """Return the memory of a process, or 0 where the system has no `/proc`."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * resource.getpagesize()
