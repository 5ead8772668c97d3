"""What the system says about processes: who descends from whom, and what they hold. Linux only: it reads `/proc`."""

import resource
from pathlib import Path

from turnbridge.codex.process.pool import Pool

PROC = Path("/proc")
STARTED = 19
"""Where the time of its start stands in the status of a process, after its name."""


def descendants(pid: int) -> list[int]:
    """Return the processes that descend from `pid`, the oldest first; those that wait to be reaped too."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return sorted(found, key=_age)


def restarts(pool: Pool) -> int:
    """Return how many app-servers of a pool ended by themselves, or hung and were killed."""
    return pool.ended["crashed"] + pool.ended["hung"]


def app_servers(pid: int) -> list[int]:
    """Return the app-servers among the processes that descend from `pid`."""
    return [descendant for descendant in descendants(pid) if " app-server " in command(descendant)]


def command(pid: int) -> str:
    """Return the command line of a process; nothing once it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def with_variable(name: str, value: str) -> list[int]:
    """Return the processes that run with this in their environment, the oldest first: a mark that outlives parents."""
    wanted = f"{name}={value}".encode()
    found = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit() and wanted in _environment(entry))
    return sorted(found, key=_age)


def resident_mb(pid: int) -> float:
    """Return the memory of a process in MB; nothing once it has ended."""
    try:
        pages = int((PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * resource.getpagesize() / 1e6


def own_share_mb(pid: int) -> float:
    """Return the memory of a process in MB, with its share of pages that several hold (PSS); nothing once it has ended.

    Summed over processes, this is what they take together; resident memory counts shared pages once for each.
    """
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Pss:")), 0.0)


def is_stopped(pid: int) -> bool:
    """Tell whether a process was stopped by a signal."""
    return _status(PROC / str(pid))[:1] == ["T"]


def unreaped(group: int) -> list[int]:
    """Return the processes of a group that have ended and were not reaped."""
    found = ((int(entry.name), _status(entry)) for entry in PROC.iterdir() if entry.name.isdigit())
    return [pid for pid, fields in found if fields and (fields[0], fields[2]) == ("Z", str(group))]


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open; nothing once it has ended."""
    try:
        return sum(1 for _ in (PROC / str(pid) / "fd").iterdir())
    except OSError:
        return 0


def _environment(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent(entry: Path) -> int | None:
    fields = _status(entry)
    return int(fields[1]) if fields else None


def _age(pid: int) -> tuple[int, int]:
    """Return what is less for an older process: the numbers begin anew when the system has given the last one."""
    fields = _status(PROC / str(pid))
    return int(fields[STARTED]) if fields else 0, pid


def _status(entry: Path) -> list[str]:
    """Return what follows the name of a process in its status: its state, its parent, its group, and more."""
    try:
        # The name, in parentheses, may hold blanks; the fields after it cannot.
        return (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
