"""The trace's file: private, bounded, and never anybody's trouble."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from turnbridge.trace.trace import TraceFile, rotated

FULL = Path("/dev/full")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file be full after a few letters, and keep two that are."""
    monkeypatch.setattr(TraceFile, "most_bytes", 8)
    monkeypatch.setattr(TraceFile, "kept_files", 2)


def contents(path: Path) -> list[str | None]:
    """Return the files, youngest first."""
    files = [rotated(path, age) for age in range(5)]
    return [file.read_text() if file.exists() else None for file in files]


def test_lines_are_there_as_soon_as_they_are_written_and_only_we_can_read_them(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "wire.ndjson"
    file = TraceFile(path)
    file.write(b"one")
    assert path.read_text() == "one\n"
    file.write(b"two")
    assert path.read_text() == "one\ntwo\n"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.close()


def test_a_file_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    path.write_text("before\n")
    path.chmod(0o644)
    file = TraceFile(path)
    file.write(b"after")
    file.close()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("before\nafter\n", 0o600)


@pytest.mark.usefixtures("small")
def test_a_file_that_is_full_makes_room_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    file = TraceFile(path)
    for number in range(9):
        file.write(f"l{number}".encode())
    file.close()
    assert contents(path) == ["l8\n", "l6\nl7\n", "l4\nl5\n", None, None]
    assert [rotated(path, age).stat().st_mode & 0o777 for age in range(3)] == [0o600] * 3


@pytest.mark.usefixtures("small")
def test_a_line_longer_than_a_file_gets_one_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    file = TraceFile(path)
    for line in (b"a", b"0123456789", b"b"):
        file.write(line)
    file.close()
    assert contents(path)[:3] == ["b\n", "0123456789\n", "a\n"]


@pytest.mark.usefixtures("small")
def test_what_is_there_at_a_start_counts_and_half_a_line_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    path.write_text("half")
    file = TraceFile(path)
    file.write(b"a")
    file.write(b"b")
    file.close()
    assert contents(path)[:2] == ["b\n", "half\na\n"]


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
def test_a_full_disk_costs_lines_that_are_counted_and_one_warning_each_time(tmp_path: Path) -> None:
    directory = tmp_path / "trace"
    directory.symlink_to(FULL.parent)
    mode = FULL.stat().st_mode
    file = TraceFile(directory / FULL.name)
    with capture_logs() as logs:
        for _ in range(3):
            file.write(b"lost")
        directory.unlink()
        file.write(b"kept")
        shutil.rmtree(directory)
        directory.symlink_to(FULL.parent)
        file.close()
        file.write(b"lost")
    assert [(log["event"], log["log_level"], log.get("lost")) for log in logs] == [
        ("trace_lost", "warning", None),
        ("trace_resumed", "warning", 3),
        ("trace_lost", "warning", None),
    ]
    assert logs[0]["error"] == "[Errno 28] No space left on device"
    assert (file.lost, FULL.stat().st_mode) == (4, mode)


@pytest.mark.parametrize("target", ["elsewhere", "/dev/null"])
def test_a_path_that_is_a_link_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    path = tmp_path / "wire.ndjson"
    path.symlink_to(target)
    file = TraceFile(path)
    with capture_logs() as logs:
        file.write(b"lost")
    assert ([(log["event"], log["error"]) for log in logs], file.lost) == (
        [("trace_lost", "[Errno 40] The path is a symbolic link, which is not written through")],
        1,
    )
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_a_path_that_becomes_a_link_just_now_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wire.ndjson"
    path.symlink_to("elsewhere")
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)
    file = TraceFile(path)
    file.write(b"lost")
    assert (file.lost, (tmp_path / "elsewhere").exists()) == (1, False)


def test_a_path_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = TraceFile(tmp_path / "file" / "wire.ndjson")
    with capture_logs() as logs:
        file.write(b"lost")
        file.write(b"lost")
    assert ([log["event"] for log in logs], file.lost) == (["trace_lost"], 2)


def test_a_disk_that_fails_only_when_the_file_is_closed_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_close = os.close

    def close(descriptor: int) -> None:
        really_close(descriptor)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    path = tmp_path / "wire.ndjson"
    file = TraceFile(path)
    file.write(b"one")
    monkeypatch.setattr(os, "close", close)
    file.close()
    monkeypatch.undo()
    file.write(b"two")
    file.close()
    assert (path.read_text(), file.lost) == ("one\ntwo\n", 0)


@pytest.mark.usefixtures("small")
def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = TraceFile(path)
    for _ in range(3):
        file.write(b"line")
    file.close()
    assert os.read(reader, 100) == b"line\n" * 3
    os.close(reader)
