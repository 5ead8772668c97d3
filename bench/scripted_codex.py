"""A `codex` program that speaks recorded shapes, encoded beforehand: what is left is the gateway alone.

The last text that a thread was given says what its turn does, as JSON: {"deltas": 20, "lines": 4}. See `Wish`.
Stands alone, since it is run without any packages.
"""

import fcntl
import functools
import json
import os
import select
import stat
import struct
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "tests/faults/recorded.json").read_text(encoding="utf-8")
)
THREAD: str = RECORDED["answers"]["thread/start"]["thread"]["id"]
TURN: str = RECORDED["answers"]["turn/start"]["turn"]["id"]
# Of a turn: that its message has begun, and a delta.
LINES_TO_FIRST_DELTA = 2
# Large enough for any request in one go.
READ_BYTES = 1 << 20
# How long the gateway may leave a line unread before it gets the next one all the same.
LOCKSTEP_PATIENCE_S = 1.0
# How to ask what the reader has left: uvloop makes sockets of a child's pipes.
UNREAD = termios.TIOCOUTQ if stat.S_ISSOCK(os.fstat(1).st_mode) else termios.FIONREAD


@dataclass(frozen=True)
class Wish:
    """What a turn does."""

    deltas: int = 20
    lines: int = 0
    """Lines in each write; the next write comes when the gateway has read the last. 0 for all lines in one write."""
    pace_s: float = 0.0
    """Seconds between two writes of one line each, instead."""
    hold: bool = False
    """Whether the turn is silent after its first delta, until it is interrupted."""


class AppServer:
    """The conversation over stdin and stdout."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._wishes: dict[str, Wish] = {}
        self._paced: dict[str, tuple[float, float, Iterator[bytes]]] = {}
        """For each turn that takes its time: when its next line is due, how often one is, and the lines."""

    def serve(self) -> None:
        """Answer until stdin ends."""
        rest = b""
        while True:
            due = min((due for due, _, _ in self._paced.values()), default=None)
            patience = None if due is None else max(0.0, due - time.monotonic())
            if select.select([0], [], [], patience)[0]:
                data = os.read(0, READ_BYTES)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
            self._write_due()

    def _take(self, message: dict[str, Any]) -> None:
        number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if number is None or method is None:
            return
        if method == "thread/start":
            answer = _encoded({"result": RECORDED["answers"][method]})
            write(_about(answer, _thread(next(self._numbers)), number))
            return
        thread = params.get("threadId", "")
        if method == "thread/inject_items":
            self._wishes[thread] = _wish(params["items"])
        if method == "turn/start":
            self._run(number, thread, self._wishes.get(thread, Wish()))
            return
        if method == "turn/interrupt":
            self._paced.pop(thread, None)
        write(_encoded({"id": number, "result": RECORDED["answers"].get(method, {})}))

    def _run(self, number: int, thread: str, wish: Wish) -> None:
        write(_about(_encoded({"result": RECORDED["answers"]["turn/start"]}), thread, number))
        lines = [_about(line, thread) for line in turn_lines(wish.deltas)]
        if wish.hold:
            write(b"".join(lines[:LINES_TO_FIRST_DELTA]))
        elif wish.pace_s:
            self._paced[thread] = (time.monotonic(), wish.pace_s, iter(lines))
        elif wish.lines:
            for start in range(0, len(lines), wish.lines):
                write(b"".join(lines[start : start + wish.lines]))
                wait_until_read()
        else:
            write(_about(b"".join(turn_lines(wish.deltas)), thread))

    def _write_due(self) -> None:
        now = time.monotonic()
        for thread, (due, pace_s, lines) in list(self._paced.items()):
            if due > now:
                continue
            line = next(lines, None)
            if line is None:
                del self._paced[thread]
            else:
                write(line)
                self._paced[thread] = (due + pace_s, pace_s, lines)


@functools.cache
def turn_lines(deltas: int) -> tuple[bytes, ...]:
    """Return the notifications of a turn with so many deltas, as if it had been recorded so."""
    _echo, item, delta, _, raw, usage, completed = json.loads(json.dumps(RECORDED["turn"]))
    # The words of `bench.client.pieces`.
    words = [f"w{number % 1000:03} " for number in range(deltas)]
    raw["params"]["item"]["content"][0]["text"] = "".join(words)
    completed["params"]["turn"]["items"][0]["text"] = "".join(words)
    said = [{**delta, "params": {**delta["params"], "delta": word}} for word in words]
    return tuple(map(_encoded, (item, *said, raw, usage, completed)))


def write(data: bytes) -> None:
    """Write all of it, in one call as long as the pipe takes it."""
    while data:
        data = data[os.write(1, data) :]


def wait_until_read() -> None:
    """Return when everything that was written has been read."""
    end = time.monotonic() + LOCKSTEP_PATIENCE_S
    while struct.unpack("i", fcntl.ioctl(1, UNREAD, bytes(4)))[0] and time.monotonic() < end:
        os.sched_yield()


def _wish(items: list[dict[str, Any]]) -> Wish:
    """Return what the last text asks for, if it asks for anything."""
    try:
        return Wish(**json.loads(items[-1]["content"][-1]["text"]))
    except (ValueError, TypeError, LookupError):
        return Wish()


def _thread(number: int) -> str:
    """Return an id of the recorded form: as long, and hexadecimal."""
    return THREAD[:-12] + f"{number:012x}"


def _about(recorded: bytes, thread: str, number: int | None = None) -> bytes:
    """Return what was recorded as if it had been about this thread, and an answer to this request."""
    told = recorded.replace(THREAD.encode(), thread.encode()).replace(
        TURN.encode(), (TURN[:-12] + thread[-12:]).encode()
    )
    return told if number is None else b'{"id":%d,' % number + told[1:]


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


if __name__ == "__main__":
    if sys.argv[1] == "debug":
        print(json.dumps(RECORDED["catalog"]))
    else:
        AppServer().serve()
