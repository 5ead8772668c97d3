"""Work that waits for a thread of its own: done in order, bounded in bytes, and never waited for by whoever adds it."""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import structlog

log = structlog.get_logger(__name__)

MOST_WAITING_BYTES = 128 * 1024 * 1024
"""Of messages that are not done yet. The largest request is one of 16 MB on each wire, and Codex repeats it."""

BYTES_PER_JOB = 1024
"""What a job takes besides its message; small ones are bounded by it."""

WORKING_S = 0.002
"""How long the thread works before it pauses as long again: it shares the interpreter's lock with the event loop."""

LONGEST_PAUSE_S = 0.05

CLOSING_S = 5.0
"""How long a shutdown waits for what is left."""


class Backlog:
    """Runs jobs one after the other, in a thread that the first of them starts."""

    def __init__(self, name: str) -> None:
        # A daemon, so that a process can end without it when its time to close is over.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[tuple[Callable[[], None], int] | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._open = True
        self.dropped = 0
        """Jobs that there was no room for, or that failed."""

    def add(self, job: Callable[[], None], size: int) -> None:
        """Let a job on a message of this size be done, or drop it if too much waits already."""
        weight = size + BYTES_PER_JOB
        with self._lock:
            # The largest message alone may exceed the bound; it is there in any case.
            if not self._open or (self._waiting_bytes and self._waiting_bytes + weight > MOST_WAITING_BYTES):
                self.dropped += 1
                return
            self._waiting_bytes += weight
            self._jobs.put((job, weight))
            if self._thread.ident is None:
                self._thread.start()

    def close(self) -> None:
        """Take no more jobs, and return when those that wait are done, or their time is over."""
        with self._lock:
            self._open = False
            self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(CLOSING_S)

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
            # The last resort: a message that cannot be written must not keep all others from being.
            except Exception:
                failed = True
                log.exception("trace_line_failed")
            # What it holds is not kept until the next one comes.
            del waiting, job
            with self._lock:
                self._waiting_bytes -= weight
                self.dropped += failed
            worked_s += time.monotonic() - began
