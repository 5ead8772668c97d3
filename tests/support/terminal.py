"""`turnbridge` at a terminal of its own, as a person uses it."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import PATIENCE_S, codex_pids, environment

# Makes the terminal that a process has as its standard input the one that controls it, as a login shell's.
SHIM = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
COLOURS = re.compile(r"\x1b\[\d*m")


@dataclass(slots=True)
class Terminal:
    """A program at a terminal of 80 columns, and what is on the screen."""

    process: "subprocess.Popen[bytes]"
    descriptor: int
    shown: str = ""

    def read_until(self, mark: str) -> str:
        """Read until a text is shown, and return all that was shown so far."""
        ends_at = time.monotonic() + PATIENCE_S
        while mark not in self.shown:
            assert time.monotonic() < ends_at, f"{mark!r} was not shown, but:\n{self.shown}"
            if not self._read():
                break
        assert mark in self.shown, f"It ended without {mark!r}:\n{self.shown}"
        return self.shown

    def read_to_end(self) -> int:
        """Read until the program has ended, and return its status."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def interrupt(self) -> int:
        """Press Ctrl-C until the program has ended, and return its status.

        Python does not see a signal that comes just before it starts to wait for a line; a person presses again.
        """
        ends_at = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < ends_at:
            with contextlib.suppress(OSError):
                self.type("\x03")
            while self._read(within_s=1.0):
                pass
        return self.process.wait(1)

    def _read(self, *, within_s: float = PATIENCE_S) -> bool:
        if not select.select((self.descriptor,), (), (), within_s)[0]:
            return False
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # Linux says so when nobody has the other side any more.
            return False
        self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@contextlib.contextmanager
def at_terminal(directory: Path, *words: str, **variables: str) -> Iterator[Terminal]:
    """Run `turnbridge` at a terminal; afterwards it has ended, if need be by force."""
    descriptor, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHIM, sys.executable, "-m", "turnbridge", *words],
        env=environment(directory, **{"TERM": "xterm", "COLUMNS": "80", **variables}),
        cwd=directory,
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
    )
    os.close(other)
    try:
        yield Terminal(process, descriptor)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(descriptor)
        for pid in codex_pids(directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
