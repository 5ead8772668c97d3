"""`turnbridge serve`, with a pool that looks after its app-servers more often: minutes then hold what takes hours."""

from turnbridge.cli.main import app
from turnbridge.codex.process import pool

WATCH_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 3.0
"""Longer than a healthy app-server takes on a machine that has too much to do."""
CRASH_WINDOW_S = 5.0
"""Faults come every few seconds here; the pause after many of them is not what is being looked at."""

if __name__ == "__main__":
    pool.WATCH_INTERVAL_S = WATCH_INTERVAL_S
    pool.PROBE_TIMEOUT_S = PROBE_TIMEOUT_S
    pool.CRASH_WINDOW_S = CRASH_WINDOW_S
    app()
