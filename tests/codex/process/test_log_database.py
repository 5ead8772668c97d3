"""Codex's own log database."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
import structlog.testing

from turnbridge.codex.process.log_database import ignore_rows


@pytest.mark.promise("start.small-home")
def test_it_takes_no_rows(tmp_path: Path) -> None:
    for name in ("logs_2.sqlite", "state_5.sqlite"):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute("CREATE TABLE logs (words TEXT)")
    ignore_rows(tmp_path)
    ignore_rows(tmp_path)
    rows = {}
    for name in ("logs_2.sqlite", "state_5.sqlite"):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute("INSERT INTO logs VALUES ('a turn')")
            rows[name] = database.execute("SELECT count(*) FROM logs").fetchone()
    assert rows == {"logs_2.sqlite": (0,), "state_5.sqlite": (1,)}


@pytest.mark.parametrize("contents", [b"no database", b""])
def test_one_of_another_kind_is_left_to_codex(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "logs_3.sqlite").write_bytes(contents)
    with structlog.testing.capture_logs() as logs:
        ignore_rows(tmp_path)
    assert [(line["event"], line["database"]) for line in logs] == [("codex_log_database_kept", "logs_3.sqlite")]
    assert (tmp_path / "logs_3.sqlite").read_bytes() == contents
