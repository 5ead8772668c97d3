"""Non-blocking writes to stdout and stderr, and whether they show colours.

If a parent process does not read the pipe that it gave the gateway as stderr, a blocking write would stop the gateway
once the pipe is full, after some hundred requests.
"""

import contextlib
import os
import select
import stat
from pathlib import Path
from typing import TextIO


class LogOutput:
    """Writes lines to a file, and drops and counts those that cannot be written."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._pipe = _pipe_of(file)
        self._torn = False
        self.lost = 0
        """Lines that were dropped."""

    def write(self, line: str) -> bool:
        """Write a line; False if it was dropped."""
        written = False
        with contextlib.suppress(OSError):
            written = self._write_to_file(line) if self._pipe is None else self._write_to_pipe(self._pipe, line)
        self.lost += not written
        return written

    def flush(self) -> None:
        """Do nothing: `write` does not buffer."""

    def _write_to_file(self, line: str) -> bool:
        self._file.write(line)
        self._file.flush()
        return True

    def _write_to_pipe(self, pipe: int, line: str) -> bool:
        rest = memoryview((("\n" if self._torn else "") + line).encode(errors="backslashreplace"))
        while rest:
            # A writable pipe has room for this much.
            part, rest = rest[: select.PIPE_BUF], rest[select.PIPE_BUF :]
            if not select.select((), (pipe,), (), 0)[1]:
                return False
            os.write(pipe, part)
            self._torn = bool(rest)
        return True


def print_to(file: TextIO, text: str) -> bool:
    """Print a text; False if that failed, after which nothing more is printed there."""
    if LogOutput(file).write(text.encode(file.encoding, errors="backslashreplace").decode(file.encoding)):
        return True
    # What is left in the buffer would fail again at exit, and change the exit status.
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), file.fileno())
    return False


def _pipe_of(file: TextIO) -> int | None:
    """Return the descriptor if the file is a pipe: only a pipe blocks because nobody reads it."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = file.fileno()
        if hasattr(select, "PIPE_BUF") and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return descriptor
    return None


def may_colour(file: TextIO) -> bool:
    """Tell whether a terminal shows colours, and its user wants them (https://no-color.org)."""
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
