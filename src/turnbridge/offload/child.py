"""What a helper process runs: one job after the other, read from stdin and answered on stdout.

It ends when stdin closes, and an alarm ends it in the middle of a job that takes too long, whatever code is running. So
it does not outlive a gateway that was killed by more than the time of one job.
"""

import contextlib
import importlib
import resource
import signal
import sys
from collections.abc import Callable

READY = b"\n"
LENGTH_BYTES = 8

# The gateway ends a job at its deadline, and knows why. This is for when there is no gateway any more.
ALARM_DELAY_S = 1.0


def main(job: str, seconds: float, megabytes: int) -> None:
    """Do a job, named as `module:function` from bytes to bytes, until stdin closes."""
    module, _, name = job.partition(":")
    run: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    # After the imports: what they need is known, and the limit is for what comes with the jobs.
    with contextlib.suppress(ValueError, OSError):  # Not every system bounds the address space; the deadline holds.
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
