"""`turnbridge serve`, with a pool that looks after its app-servers more often: minutes then hold what takes hours."""

from turnbridge.cli.main import app
from turnbridge.codex.process.pool import Pool

WATCH_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 3.0
"""Longer than a healthy app-server takes on a machine that has too much to do."""
CRASH_WINDOW_S = 5.0
"""Faults come every few seconds here; the pause after many of them is not what is being looked at."""

if __name__ == "__main__":
    Pool.probe_interval_s = WATCH_INTERVAL_S
    Pool.probe_timeout_s = PROBE_TIMEOUT_S
    Pool.crash_window_s = CRASH_WINDOW_S
    app()
