"""Sockets that a service manager passes on: which are taken, and which are refused."""

import os
import socket
from collections.abc import Iterator

import pytest
from click.exceptions import Exit

from turnbridge.cli import listener
from turnbridge.cli.listener import VARIABLES, address_of, passed_listener


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Return a listening socket that is passed to this process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        passing(server, monkeypatch)
        yield server


def passing(one: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "FIRST_PASSED", os.dup(one.fileno()))
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_FDNAMES", "turnbridge.socket")


def test_a_passed_socket_is_taken_and_hidden_from_processes_below(given: socket.socket) -> None:
    taken = passed_listener()
    assert taken is not None
    with taken.socket:
        assert (taken.passed, address_of(taken).port) == (True, given.getsockname()[1])
        assert address_of(taken).is_loopback
        assert not taken.socket.get_inheritable()
    assert [name for name in VARIABLES if name in os.environ] == []


def test_a_socket_for_another_process_is_left_alone(given: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() + 1))
    assert passed_listener() is None
    os.close(listener.FIRST_PASSED)
    assert given.fileno() > 0


def test_two_sockets_are_refused(
    given: socket.socket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LISTEN_FDS", "2")
    with pytest.raises(Exit) as refused:
        passed_listener()
    assert (refused.value.exit_code, "LISTEN_FDS is 2" in capsys.readouterr().err) == (78, True)
    os.close(listener.FIRST_PASSED)
    assert given.fileno() > 0


def test_a_socket_that_does_not_listen_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as idle:
        passing(idle, monkeypatch)
        with pytest.raises(Exit):
            passed_listener()
    assert "must be a TCP socket that listens" in capsys.readouterr().err


def test_a_descriptor_that_is_no_socket_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    with socket.socket() as idle:
        passing(idle, monkeypatch)
    os.close(listener.FIRST_PASSED)
    monkeypatch.setattr(listener, "FIRST_PASSED", reading)
    with pytest.raises(Exit):
        passed_listener()
    assert "cannot be used" in capsys.readouterr().err
    os.close(reading)
    os.close(writing)
