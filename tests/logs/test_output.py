"""What is written on a pipe that nobody reads, or that is read again."""

import io
import os
import select
from collections.abc import Iterator
from typing import TextIO

import pytest

from turnbridge.logs.output import LogOutput

FILLING = "." * (select.PIPE_BUF - 1) + "\n"
LONG = "x" * (3 * select.PIPE_BUF) + "\n"


class Pipe:
    """Both ends of a pipe."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.file: TextIO = io.TextIOWrapper(io.FileIO(writing, "w"), write_through=True)

    def read(self) -> str:
        """Return all that waits to be read."""
        return os.read(self.reading, 1 << 20).decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.file.close()
    os.close(pipe.reading)


def test_what_a_full_pipe_cannot_take_is_dropped_and_counted(pipe: Pipe) -> None:
    output = LogOutput(pipe.file)
    written = 0
    while output.write("a line\n"):
        written += 1
    assert not output.write("another\n")
    assert output.lost == 2
    assert pipe.read() == "a line\n" * written


def test_a_long_line_is_whole_where_there_is_room(pipe: Pipe) -> None:
    output = LogOutput(pipe.file)
    assert output.write(LONG)
    assert pipe.read() == LONG


def test_a_line_that_was_torn_does_not_spoil_the_next_one(pipe: Pipe) -> None:
    output = LogOutput(pipe.file)
    while output.write(FILLING):
        pass
    os.read(pipe.reading, 2 * len(FILLING))
    assert not output.write(LONG)
    assert pipe.read().endswith("\n" + "x" * 2 * len(FILLING))
    assert output.write("whole\n")
    assert pipe.read() == "\nwhole\n"
    assert output.write("next\n")
    assert pipe.read() == "next\n"


def test_a_pipe_whose_reader_has_gone_takes_nothing_and_breaks_nothing(pipe: Pipe) -> None:
    output = LogOutput(pipe.file)
    elsewhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(elsewhere, pipe.reading)
    os.close(elsewhere)
    assert not output.write("to nobody\n")
    assert output.lost == 1
