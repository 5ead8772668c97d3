"""Each line of Codex's pipe is written down with the request that it belongs to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.trace.reading import TIME, lines, trace_to
from turnbridge.trace.pipe import TracePipe
from turnbridge.trace.trace import serving
from turnbridge.turn.items import JsonObject

PID = 4711


class Codex:
    """A pipe, seen from both of its ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trace = trace_to(path)
        self.pipe = TracePipe(self._trace, PID)

    def asks(self, **message: Any) -> None:
        """Let Codex tell something."""
        self.pipe.received(json.dumps(message).encode() + b"\n")

    def hears(self, **message: Any) -> None:
        """Tell Codex something."""
        self.pipe.sent(json.dumps(message).encode() + b"\n")

    def written(self) -> list[dict[str, Any]]:
        self._trace.close()
        return lines(self._path)

    def owners(self) -> list[str | None]:
        return [line.get("request_id") for line in self.written()]


@pytest.fixture
def codex(tmp_path: Path) -> Codex:
    """Return a pipe that is traced."""
    return Codex(tmp_path / "wire.ndjson")


@contextmanager
def request(name: str) -> Iterator[None]:
    """Serve a request."""
    mark = serving.set(lambda: name)
    try:
        yield
    finally:
        serving.reset(mark)


def start_thread(codex: Codex, request_id: str, thread: str, number: int) -> None:
    with request(request_id):
        codex.hears(id=number, method="thread/start", params={"model": "m"})
    codex.asks(id=number, result={"thread": {"id": thread}})


def start_turn(codex: Codex, request_id: str, thread: str, turn: str, number: int) -> None:
    with request(request_id):
        codex.hears(id=number, method="turn/start", params={"threadId": thread})
    codex.asks(id=number, result={"turn": {"id": turn}})


def delta(codex: Codex, thread: str, turn: str) -> None:
    codex.asks(method="item/agentMessage/delta", params={"threadId": thread, "turnId": turn, "delta": "x"})


def test_a_call_and_its_answer_are_told_whole(codex: Codex) -> None:
    asked: JsonObject = {"id": 1, "method": "turn/start", "params": {"threadId": "T", "input": []}}
    answered: JsonObject = {"id": 1, "result": {"turn": {"id": "U"}}}
    with request("A"):
        codex.hears(**asked)
    codex.asks(**answered)
    common: JsonObject = {"time": TIME, "request_id": "A", "worker_pid": PID, "thread_id": "T", "method": "turn/start"}
    assert codex.written() == [
        {
            **common,
            "ms": 0.0,
            "phase": "backend_submission",
            "direction": "outbound",
            "kind": "rpc_request",
            "size": len(json.dumps(asked)),
            "payload": asked,
        },
        {
            **common,
            "ms": 1.0,
            "phase": "backend_io",
            "direction": "inbound",
            "kind": "rpc_response",
            "turn_id": "U",
            "size": len(json.dumps(answered)),
            "payload": answered,
        },
    ]


def test_lines_may_come_in_any_pieces(codex: Codex) -> None:
    for byte in b'{"method":"warning"}\n{"method":"error"}\n':
        codex.pipe.received(bytes([byte]))
    assert [line["method"] for line in codex.written()] == ["warning", "error"]


def test_what_belongs_to_no_request_is_backend_io_in_both_directions(codex: Codex) -> None:
    codex.hears(id=1, method="initialize", params={})
    codex.asks(id=1, result={})
    codex.hears(method="initialized")
    codex.asks(method="configWarning", params={})
    written = [(line["phase"], line["direction"], line["kind"], line["method"]) for line in codex.written()]
    assert written == [
        ("backend_io", "outbound", "rpc_request", "initialize"),
        ("backend_io", "inbound", "rpc_response", "initialize"),
        ("backend_io", "outbound", "rpc_notification", "initialized"),
        ("backend_io", "inbound", "rpc_notification", "configWarning"),
    ]
    assert codex.owners() == [None] * 4


def test_two_requests_at_once_are_told_apart_by_their_threads(codex: Codex) -> None:
    for number, name in enumerate("AB"):
        start_thread(codex, name, f"T{name}", number)
        start_turn(codex, name, f"T{name}", f"U{name}", number + 10)
    for name in "ABBA":
        delta(codex, f"T{name}", f"U{name}")
    assert codex.owners() == list("AAAABBBBABBA")


def test_a_thread_that_goes_on_belongs_to_the_next_request_but_its_last_turn_does_not(codex: Codex) -> None:
    start_thread(codex, "A", "T", 1)
    start_turn(codex, "A", "T", "U1", 2)
    start_turn(codex, "B", "T", "U2", 3)
    delta(codex, "T", "U2")
    delta(codex, "T", "U1")
    assert codex.owners() == [*"AAAABB", "B", "A"]


def test_a_turn_that_begins_before_its_answer_comes_is_known_all_the_same(codex: Codex) -> None:
    start_thread(codex, "A", "T", 1)
    with request("A"):
        codex.hears(id=2, method="turn/start", params={"threadId": "T"})
    codex.asks(method="turn/started", params={"threadId": "T", "turn": {"id": "U"}})
    codex.asks(id=2, result={"turn": {"id": "U"}})
    with request("B"):
        codex.hears(id=3, method="thread/inject_items", params={"threadId": "T", "items": []})
    delta(codex, "T", "U")
    codex.asks(method="rawResponseItem/completed", params={"threadId": "T", "turnId": "auto-compact-1"})
    assert codex.owners() == [*"AAAAAB", "A", "B"]


def test_a_turn_that_waits_belongs_to_the_request_that_brings_the_output(codex: Codex) -> None:
    start_thread(codex, "A", "T", 1)
    start_turn(codex, "A", "T", "U", 2)
    codex.asks(id=0, method="item/tool/call", params={"threadId": "T", "turnId": "U", "callId": "c"})
    delta(codex, "T", "U")
    with request("B"):
        codex.hears(id=0, result={"contentItems": []})
    delta(codex, "T", "U")
    assert codex.owners() == [*"AAAA", "A", "A", "B", "B"]
    answer = codex.written()[-2]
    told = [answer[name] for name in ("phase", "kind", "method", "thread_id", "turn_id")]
    assert told == ["backend_submission", "rpc_response", "item/tool/call", "T", "U"]


def test_who_interrupts_a_turn_does_not_take_it_over(codex: Codex) -> None:
    start_thread(codex, "A", "T", 1)
    start_turn(codex, "A", "T", "U", 2)
    with request("B"):
        codex.hears(id=3, method="turn/interrupt", params={"threadId": "T", "turnId": "U"})
    codex.asks(method="turn/completed", params={"threadId": "T", "turn": {"id": "U"}})
    codex.asks(method="thread/closed", params={"threadId": "T"})
    codex.asks(id=3, result={})
    assert codex.owners() == [*"AAAA", "B", "A", "A", "B"]


def test_a_question_of_codex_that_the_gateway_declines_is_its_requests(codex: Codex) -> None:
    start_thread(codex, "A", "T", 1)
    codex.asks(id="q", method="item/fileChange/requestApproval", params={"threadId": "T", "turnId": "U"})
    codex.hears(id="q", error={"code": -32601, "message": "Nobody is there."})
    declined = codex.written()[-1]
    assert (declined["request_id"], declined["phase"], declined["kind"]) == ("A", "backend_submission", "rpc_error")


def test_conversations_of_the_first_dialect_are_threads(codex: Codex) -> None:
    with request("A"):
        codex.hears(id=1, method="newConversation", params={})
    codex.asks(id=1, result={"conversationId": "T"})
    codex.asks(method="codex/event/agent_message_delta", params={"conversationId": "T", "msg": {"delta": "x"}})
    assert codex.owners() == ["A"] * 3


@pytest.mark.parametrize(
    "line", [b"no json", b"[1]", b'{"id": 1.5}', b"\xff"], ids=["text", "list", "strange id", "bytes"]
)
def test_a_line_that_nobody_can_read_is_told_too(codex: Codex, line: bytes) -> None:
    codex.pipe.received(line + b"\n")
    assert [(each["kind"], each["size"]) for each in codex.written()] == [("unreadable", len(line))]


def test_an_answer_to_nothing_takes_nobodys_question_away(codex: Codex) -> None:
    start_thread(codex, "A", "T", 1)
    codex.asks(id=0, method="item/tool/call", params={"threadId": "T", "turnId": "U"})
    codex.hears(result={})
    codex.hears(id=0, result={})
    assert codex.owners() == ["A", "A", "A", None, "A"]


@pytest.mark.parametrize("params", [[], "text", {"threadId": 5}, {"turn": "U"}, None])
def test_parameters_of_a_strange_shape_belong_nowhere(codex: Codex, params: Any) -> None:
    codex.asks(method="turn/started", params=params)
    assert [line.get("thread_id") for line in codex.written()] == [None]
