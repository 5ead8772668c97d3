"""The file of the trace: lines are appended at once, and a file that is full makes room for the next.

Whatever is wrong with the disk is no trouble of the requests': the line is lost, counted, and said once. A path that is
a symbolic link is refused: who can make one could have prompts appended to a file of their choice.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

MOST_BYTES = 64 * 1024 * 1024
"""Some ten thousand short turns; an editor still opens it."""

KEPT_FILES = 5
"""Full files that are kept besides the one that is written."""


def rotated(path: Path, age: int) -> Path:
    """Return where a file is that was full `age` files ago."""
    return path if age == 0 else path.with_name(f"{path.name}.{age}")


class TraceFile:
    """Appends lines to a file that only we can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._size: int | None = None
        self._warned = False
        self.lost = 0
        """Lines that could not be written."""

    def write(self, line: bytes) -> bool:
        """Append a line, and tell whether it was; a failure is counted, and logged when it is the first in a row."""
        try:
            self._append(line + b"\n")
        except OSError as error:
            self.lost += 1
            if not self._warned:
                self._warned = True
                log.warning("trace_lost", path=str(self._path), error=str(error))
            self.close()
            return False
        if self._warned:
            self._warned = False
            log.warning("trace_resumed", path=str(self._path), lost=self.lost)
        return True

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        file, self._file = self._file, None
        if file is not None:
            # Network disks tell here that they were full. The file is closed all the same.
            with contextlib.suppress(OSError):
                os.close(file)

    def _append(self, data: bytes) -> None:
        file = self._open() if self._file is None else self._file
        if self._size and self._size + len(data) > MOST_BYTES:
            self.close()
            self._rotate()
            file = self._open()
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        if self._size is not None:
            self._size += len(data)

    def _open(self) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.is_symlink():
            raise OSError(errno.ELOOP, "The path is a symbolic link, which is not written through")
        # Should it become one just now, it is not followed either.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = file = os.open(self._path, flags, 0o600)
        state = os.fstat(file)
        # A pipe or a device is written to as it is: it has no size, and its mode is not ours to change.
        self._size = None
        if stat.S_ISREG(state.st_mode):
            os.fchmod(file, 0o600)
            size = state.st_size
            # The last line is half a line if the disk was full, or the machine lost its power.
            half = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            self._size = size + (os.write(file, b"\n") if half else 0)
        return file

    def _rotate(self) -> None:
        for age in range(KEPT_FILES, 0, -1):
            younger = rotated(self._path, age - 1)
            if younger.exists():
                younger.replace(rotated(self._path, age))
