"""Stands between a gateway and the real Codex: passes everything on, and adds garbage when it gets SIGUSR1.

Run as `noisy_codex.py CODEX ARGUMENT...` with the standard library only. What it starts dies with it.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys

GARBAGE = (
    b'plain words\n{\n[1]\n{"id": 1.5}\n{"id": 999999999, "result": {}}\n{"method": "thread/invented", "params": {}}\n'
)
CHUNK = 65536
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the system for SIGKILL when the parent ends, whatever ends it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def pass_on(child: "subprocess.Popen[bytes]") -> None:
    """Copy the child's output to ours until it ends; garbage goes in between two lines."""
    assert child.stdout is not None
    source = child.stdout.fileno()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    at_line_end, due = True, False
    while True:
        readable, _, _ = select.select([source, woken], [], [])
        if woken in readable:
            os.read(woken, CHUNK)
            due = True
        if source in readable:
            data = os.read(source, CHUNK)
            if not data:
                return
            write_all(data)
            at_line_end = data.endswith(b"\n")
        if due and at_line_end:
            write_all(GARBAGE)
            due = False


def write_all(data: bytes) -> None:
    """Write to our own output."""
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    """Run Codex, and end as it ends."""
    command = sys.argv[1:]
    if command[1] != "app-server":
        os.execv(command[0], command)
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        bufsize=0,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - There are no threads here.
    )
    pass_on(child)
    status = child.wait()
    if status == -signal.SIGKILL:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(abs(status))


if __name__ == "__main__":
    main()
