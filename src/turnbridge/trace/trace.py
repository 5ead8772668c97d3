"""The trace: its lines, the thread that writes them, and the file that they are written to.

Whatever is wrong with the disk does not disturb requests: the line is lost, counted, and reported once.
"""

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import structlog

from turnbridge.logs.redaction import one_line, shortened
from turnbridge.trace.redaction import Redaction

log = structlog.get_logger(__name__)

Phase: TypeAlias = Literal["http_ingress", "backend_submission", "backend_io", "client_egress"]
Direction: TypeAlias = Literal["inbound", "outbound"]
HttpKind: TypeAlias = Literal["request", "disconnect", "response", "sse", "body", "aborted"]
RpcKind: TypeAlias = Literal["rpc_request", "rpc_response", "rpc_error", "rpc_notification", "unreadable"]

# A path is as long as its client likes, up to the bound on request heads.
MOST_METHOD_CHARACTERS = 512

# How long the thread works before it pauses as long again: it shares the interpreter's lock with the event loop.
WORKING_S = 0.002
LONGEST_PAUSE_S = 0.05

# Full files that are kept besides the one that is written.
KEPT_FILES = 5

serving: ContextVar[Callable[[], str] | None] = ContextVar("serving", default=None)
"""Returns the id of the request that is being served. Called late: the id is only known once the request is let in."""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message on one of the wires; fields without a value are left out."""

    time: str
    """When, in UTC, to the millisecond."""
    ms: float
    """The same on a monotonic clock; only differences between lines of one run mean something."""
    phase: Phase
    direction: Direction
    """As the gateway sees it."""
    kind: HttpKind | RpcKind
    request_id: str | None = None
    worker_pid: int | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    method: str | None = None
    size: int | None = None
    """The bytes of the message, or of its body, as it was on the wire."""
    cut: bool = False
    """Whether the payload is only the beginning, as a text."""
    lost: int = 0
    """How many lines were lost since the line before."""
    payload: msgspec.Raw = msgspec.Raw(b"null")


class Moment(NamedTuple):
    """A time on both clocks."""

    time: str
    ms: float


def moment() -> Moment:
    """Return the time now."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return Moment(f"{now}Z", round(time.monotonic() * 1000, 3))


class Trace:
    """Writes lines in a thread of its own: reading a large message and redacting its secrets takes seconds."""

    def __init__(self, file: "TraceFile", redaction: Redaction, *, clock: Callable[[], Moment] = moment) -> None:
        self._backlog = Backlog("trace")
        self._file = file
        self._reported_lost = 0
        self.redaction = redaction
        self.clock = clock
        self.later = self._backlog.add

    @property
    def lost(self) -> int:
        """Return how many lines could not be written, or were dropped because too many waited."""
        return self._file.lost + self._backlog.dropped

    def close(self) -> None:
        """Write what waits, if that does not take too long, and close the file."""
        self.later(self._file.close)
        self._backlog.close()

    def note(self, line: Line) -> None:
        """Write a line at once; called in the thread, by work that was given to `later`."""
        lost = self.lost
        data = msgspec.json.encode(
            msgspec.structs.replace(
                line,
                request_id=line.request_id and self.redaction.text(line.request_id),
                method=line.method and shortened(self.redaction.text(line.method), MOST_METHOD_CHARACTERS),
                lost=lost - self._reported_lost,
            )
        )
        if not data.isascii() or b"\x7f" in data:
            # A terminal that shows the file must not be controlled by it, and a line has to stay one.
            data = one_line(data.decode()).encode()
        if self._file.write(data):
            self._reported_lost = lost


class Backlog:
    """Runs jobs in order, in a thread that the first of them starts; bounded in bytes, and never waited for."""

    # Of messages that are not written yet. The largest request is one of 16 MB on each wire, and Codex repeats it.
    most_waiting_bytes = 128 * 1024 * 1024
    # What a job takes besides its message; small ones are bounded by it.
    bytes_per_job = 1024
    # How long a shutdown waits for what is left.
    closing_s = 5.0

    def __init__(self, name: str) -> None:
        # A daemon, so that the process can exit without it after `closing_s`.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[tuple[Callable[[], None], int] | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._open = True
        self.dropped = 0
        """Jobs that there was no room for, or that failed."""

    def add(self, job: Callable[[], None], size: int = 0) -> None:
        """Queue a job on a message of this size, or drop it if too much waits already."""
        weight = size + self.bytes_per_job
        with self._lock:
            # The largest message alone may exceed the bound; it is there in any case.
            if not self._open or (self._waiting_bytes and self._waiting_bytes + weight > self.most_waiting_bytes):
                self.dropped += 1
                return
            self._waiting_bytes += weight
            self._jobs.put((job, weight))
            if self._thread.ident is None:
                self._thread.start()

    def close(self) -> None:
        """Accept no more jobs, and return when the queued ones are done, or after `closing_s`."""
        with self._lock:
            self._open = False
            self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(self.closing_s)

    def _run(self) -> None:
        worked_s = 0.0
        while (waiting := self._jobs.get()) is not None:
            if worked_s > WORKING_S and self._open:
                time.sleep(min(worked_s, LONGEST_PAUSE_S))
                worked_s = 0.0
            began = time.monotonic()
            job, weight = waiting
            failed = False
            try:
                job()
            # The last resort: a message that cannot be written must not keep all others from being written.
            except Exception:
                failed = True
                log.exception("trace_line_failed")
            # What it refers to must not stay in memory until the next one comes.
            del waiting, job
            with self._lock:
                self._waiting_bytes -= weight
                self.dropped += failed
            worked_s += time.monotonic() - began


def rotated(path: Path, age: int) -> Path:
    """Return the path of the file that was full `age` files ago."""
    return path if age == 0 else path.with_name(f"{path.name}.{age}")


class TraceFile:
    """Appends lines to a file that only its user can read, and rotates it.

    A path that is a symbolic link is refused: who can make one could have prompts appended to a file of their choice.
    """

    # The size of a file: some ten thousand short turns; an editor still opens it.
    most_bytes = 64 * 1024 * 1024
    kept_files = KEPT_FILES

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._size: int | None = None
        self._warned = False
        self.lost = 0
        """Lines that could not be written."""

    def write(self, line: bytes) -> bool:
        """Append a line; False if that failed, which is counted, and logged when it is the first in a row."""
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
        if self._size and self._size + len(data) > self.most_bytes:
            self.close()
            for age in range(self.kept_files, 0, -1):
                younger = rotated(self._path, age - 1)
                if younger.exists():
                    younger.replace(rotated(self._path, age))
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
