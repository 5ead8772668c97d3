"""Codex's own log database, which takes no rows (docs/decisions/0044-log-database.md)."""

import contextlib
import sqlite3
from pathlib import Path

import structlog

from turnbridge.codex.process.home import LOG_DATABASES

log = structlog.get_logger(__name__)

# Codex writes 15 KB a turn, for a tenth of the turn's processor time.
IGNORE_ROWS = "CREATE TRIGGER IF NOT EXISTS turnbridge_ignores BEFORE INSERT ON logs BEGIN SELECT RAISE(IGNORE); END"
# How long Codex may be writing to it.
PATIENCE_S = 1.0


def ignore_rows(home: Path) -> None:
    """Have the log database of a Codex that runs in this home take no rows from now on."""
    for database in home.glob(LOG_DATABASES):
        try:
            with contextlib.closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection:
                connection.execute(IGNORE_ROWS)
        except sqlite3.Error as error:
            # Codex is only slower.
            log.info("codex_log_database_kept", database=database.name, reason=str(error))
