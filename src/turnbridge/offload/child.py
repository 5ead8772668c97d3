"""The main module of a helper process, apart from the pool so that it imports little.

It reads jobs from stdin and writes results to stdout. It exits when stdin closes, and SIGALRM kills it in a job that
takes too long. So it outlives a gateway that was killed by the time of one job at most.
"""

import contextlib
import importlib
import resource
import signal
import sys
from collections.abc import Callable

READY = b"\n"
LENGTH_BYTES = 8

# The gateway kills a helper at the deadline of its job; the alarm is for when the gateway is gone.
ALARM_DELAY_S = 1.0


def main(job: str, seconds: float, megabytes: int) -> None:
    """Run jobs with a function from bytes to bytes, named as `module:function`, until stdin closes."""
    module, _, name = job.partition(":")
    run: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    # After the imports, which are trusted.
    with contextlib.suppress(ValueError, OSError):  # Not every system can limit the address space; the deadline holds.
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20, megabytes * 2**20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    stdout.write(READY)
    stdout.flush()
    while length := stdin.read(LENGTH_BYTES):
        given = stdin.read(int.from_bytes(length, "big"))
        signal.setitimer(signal.ITIMER_REAL, seconds + ALARM_DELAY_S)
        answer = run(given)
        signal.setitimer(signal.ITIMER_REAL, 0)
        stdout.write(len(answer).to_bytes(LENGTH_BYTES, "big"))
        stdout.write(answer)
        stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
