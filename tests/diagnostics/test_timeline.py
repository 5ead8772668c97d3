"""One request as a person reads it, from a trace of several."""

import json
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import category

import msgspec
import pytest
from click.testing import CliRunner, Result

from turnbridge.cli.main import app
from turnbridge.diagnostics import timeline
from turnbridge.trace.trace import Direction, HttpKind, Line, Phase, RpcKind, rotated

Kind: TypeAlias = HttpKind | RpcKind

PROMPT = "hello " * 40


def line(
    ms: float, phase: Phase, kind: HttpKind | RpcKind, payload: Any = None, *, request_id: str = "one", **known: Any
) -> Line:
    """Return a line; only what is sent to Codex or to the client goes out."""
    direction: Direction = "outbound" if phase in ("backend_submission", "client_egress") else "inbound"
    raw = msgspec.Raw(msgspec.json.encode(payload))
    time = "2026-01-02T03:04:05.678Z"
    return Line(
        time=time, ms=ms, phase=phase, direction=direction, kind=kind, request_id=request_id, payload=raw, **known
    )


def chunk(ms: float, delta: Any, finish: str | None = None) -> Line:
    payload = {"object": "chat.completion.chunk", "choices": [{"delta": delta, "finish_reason": finish}]}
    return line(ms, "client_egress", "sse", payload, size=100)


def codex_delta(ms: float, text: str) -> Line:
    params = {"threadId": "T", "turnId": "U", "delta": text}
    place: dict[str, Any] = {"worker_pid": 7, "thread_id": "T", "turn_id": "U", "size": 600}
    return line(*(ms, "backend_io", "rpc_notification", {"params": params}), method="item/agentMessage/delta", **place)


ONE = [
    line(1000, "http_ingress", "request", {"headers": {}, "body": {"input": PROMPT}}, method="POST /v1/x", size=250),
    line(1001.25, "backend_submission", "rpc_request", {"id": 1, "params": {"threadId": "T"}}, method="turn/start"),
    line(1002, "backend_io", "rpc_response", {"id": 1, "result": {"turn": {"id": "U"}}}, method="turn/start"),
    codex_delta(1003, "Hel"),
    line(1003.5, "client_egress", "response", {"status": 200, "headers": {"content-type": "text/event-stream"}}),
    chunk(1003.6, {"role": "assistant", "content": "Hel"}),
    codex_delta(1004, "lo\nyou"),
    chunk(1004.1, {"content": "lo\nyou"}),
    codex_delta(1005, "!"),
    chunk(1005.1, {"content": "!"}),
    line(1006, "backend_io", "rpc_error", {"error": {"code": 1, "message": "No."}}, method="turn/steer"),
    chunk(1007, {}, "stop"),
    line(1007.5, "client_egress", "sse", "[DONE]", size=12),
    line(1008, "http_ingress", "disconnect"),
]

TOLD = """\
one  2026-01-02T03:04:05.678Z
worker 7
thread T
turn U

       0.0 ms  client ──▶            http_ingress        POST /v1/x               {"input":"hello hello h…
       1.2 ms             ──▶ codex  backend_submission  turn/start
       2.0 ms             ◀── codex  backend_io          turn/start (result)      {"turn":{"id":"U"}}
       3.0 ms             ◀── codex  backend_io          item/agentMessage/delta  Hel
       3.5 ms  client ◀──            client_egress       200                      {"content-type":"text/e…
       3.6 ms  client ◀──            client_egress       delta.content            +3 deltas, 300 B, 2 ms:…
       4.0 ms             ◀── codex  backend_io          item/agentMessage/delta  +2 deltas, 1.2 kB, 1 ms…
       6.0 ms             ◀── codex  backend_io          turn/steer (error)       {"code":1,"message":"No…
       7.0 ms  client ◀──            client_egress       chat.completion.chunk    [{"delta":{},"finish_re…
       7.5 ms  client ◀──            client_egress       sse                      [DONE]
       8.0 ms  client ──▶            http_ingress        disconnect
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a trace with another request between the lines of this one, part of it in a file that is full."""
    path = tmp_path / "wire.ndjson"
    others = [line(0, "http_ingress", "request", {"body": "one"}, request_id="other", method="GET /")]
    write(rotated(path, 2), [*ONE[:3], *others])
    write(rotated(path, 1), ONE[3:6])
    write(path, [*others, *ONE[6:]])
    with path.open("a") as file:
        file.write('{"request_id":"one","time":"half a li')
    return path


def write(path: Path, told: list[Line]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in told))


def trace(*words: str, columns: int = 106, color: bool = False) -> Result:
    return CliRunner().invoke(app, ["trace", *words], env={"COLUMNS": str(columns)}, color=color)


def test_a_folder_is_refused_in_the_place_of_the_file(tmp_path: Path) -> None:
    shown = trace("one", "--file", str(tmp_path))
    assert (shown.exit_code, shown.stderr.splitlines()[-1]) == (
        2,
        f"Error: Invalid value for '--file': File '{tmp_path}' is a directory.",
    )


def test_a_request_is_shown_across_both_wires_with_its_streams_folded(path: Path) -> None:
    shown = trace("one", "--file", str(path))
    assert (shown.exit_code, shown.stdout) == (0, TOLD)


def test_a_folded_stream_tells_its_text_in_one_line(path: Path) -> None:
    shown = trace("one", "--file", str(path), columns=200).stdout
    assert "delta.content            +3 deltas, 300 B, 2 ms: Hello you!\n" in shown


def test_in_full_nothing_is_folded_and_payloads_are_whole(path: Path) -> None:
    shown = trace("one", "--file", str(path), "--full").stdout
    assert "deltas" not in shown
    assert len([text for text in shown.splitlines() if " ms  " in text]) == len(ONE)
    assert f'      "input": "{PROMPT}"\n' in shown


def test_colours_are_for_terminals(path: Path) -> None:
    assert "\x1b[" in trace("one", "--file", str(path), color=True).stdout
    assert "\x1b[" not in trace("one", "--file", str(path)).stdout


@pytest.mark.parametrize("request_id", ["on", "unknown", '"', "item/agentMessage/delta"])
def test_a_request_that_is_not_there_is_an_error_with_advice(path: Path, request_id: str) -> None:
    missing = trace(request_id, "--file", str(path))
    words = f"There is no request {request_id} in {path}. Take the `x-request-id` of its answer; "
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == f"{words}old lines are dropped as the trace grows.\n"


def test_a_trace_that_is_not_there_is_an_error_that_says_how_to_get_one(tmp_path: Path) -> None:
    missing = trace("one", "--file", str(tmp_path / "nothing"))
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr.endswith("run the gateway with PROXY_LOG_PROTO=true, or name another with --file.\n")


def test_an_id_that_a_client_uses_again_begins_again() -> None:
    begin = line(5000, "http_ingress", "request", {"body": "again"}, method="POST /v1/x")
    told = [text for _, text in timeline.told(timeline.rows([*ONE[:2], begin]), width=200)]
    assert [text.split(" ms")[0].strip() for text in told] == ["0.0", "1.2", "0.0"]


@pytest.mark.parametrize(
    ("told", "label", "text"),
    [
        (
            line(0, "client_egress", "sse", {"type": "response.output_text.delta", "delta": "x"}, method="e"),
            "response.output_text.delta",
            "x",
        ),
        (
            chunk(0, {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
            "delta.tool_calls",
            "f{}",
        ),
        (chunk(0, {"reasoning_content": "hm"}), "delta.reasoning_content", "hm"),
        (
            line(
                *(0, "backend_io", "rpc_notification", {"params": {"msg": {"delta": "x"}}}),
                method="codex/event/agent_message_delta",
            ),
            "codex/event/agent_message_delta",
            "x",
        ),
        (
            line(0, "client_egress", "body", {"error": {"message": "No."}}, size=9),
            "body",
            '{"message":"No."}',
        ),
        (line(0, "backend_io", "unreadable", "???", size=3), "unreadable", "???"),
        (
            line(0, "backend_submission", "rpc_request", '{"id":1,"par', method="m", cut=True, size=2500),
            "m",
            '(the beginning of 2.5 kB) {"id":1,"par',
        ),
        (line(0, "client_egress", "aborted"), "aborted", ""),
        (
            line(0, "client_egress", "sse", {"type": "response.created", "response": {"id": "r"}}, method="e"),
            "e",
            '{"id":"r"}',
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, Line) else None,
)
def test_each_message_is_named_in_its_own_protocols_words(told: Line, label: str, text: str) -> None:
    (row,) = timeline.rows([told])
    assert (row.label, row.text) == (label, text)


def test_what_could_steer_a_terminal_is_shown_and_not_obeyed() -> None:
    """Models, clients and paths may have escape codes, C1 controls, and marks that turn the direction of writing."""
    given = [
        line(0, "http_ingress", "request", {"body": "\x1b[2J"}, method="GET /\x1b]0;x\x07\n"),
        codex_delta(1, "\x1b[31mü\n日\u3000本"),
        line(2, "client_egress", "body", {"output": "\x7f\x9b2J\u202e\U000e0041"}),
    ]
    whole = timeline.told(timeline.rows(given, full=True), width=200, full=True)
    text = "".join(f"{text}\n" for _, text in whole)
    assert {character for character in text if category(character) in ("Cc", "Cf")} == {"\n"}
    for shown in (
        "GET /\\u001b]0;x\\u0007\\n  ",
        "  \\u001b[2J\n",
        "\\u001b[31mü 日 本\n",
        '"delta": "\\u001b[31mü\\n日\u3000本"',
        "  \\u007f\\u009b2J\\u202e\\udb40\\udc41\n",
        '"output": "\\u007f\\u009b2J\\u202e\\udb40\\udc41"',
    ):
        assert shown in text


@pytest.mark.promise("commands.trace")
def test_the_last_request_is_shown_without_its_id(path: Path) -> None:
    assert trace("--last", "--file", str(path)).stdout == TOLD, "the last that asked a model"


@pytest.mark.promise("commands.trace")
def test_the_latest_requests_are_listed(path: Path) -> None:
    shown = trace("--list", "--file", str(path)).stdout.splitlines()
    told = [json.loads(line) for line in trace("--list", "--json", "--file", str(path)).stdout.splitlines()]
    for line, one in zip(shown, told, strict=False):
        assert line.endswith(f" {one['request_id']:5} {one['method']}")
    assert [one["request_id"] for one in told] == ["one", "other", "other"]
    assert (told[0]["status"], told[0]["first_byte_ms"], told[1]["status"]) == ("200", 3.5, "")
    assert shown[-1].endswith("trace REQUEST_ID")


def test_probes_are_not_among_the_latest_requests(tmp_path: Path) -> None:
    file = tmp_path / "wire.ndjson"
    began = {"phase": "http_ingress", "direction": "inbound", "kind": "request", "ms": 1.0}
    lines = [
        {**began, "time": "2026-11-18T10:00:00.000Z", "request_id": "asked", "method": "POST /v1/responses"},
        {**began, "time": "2026-11-18T10:00:01.000Z", "request_id": "listed", "method": "GET /v1/models"},
        {**began, "time": "2026-11-18T10:00:02.000Z", "request_id": "probe", "method": "GET /readyz"},
        {**began, "time": "2026-11-18T10:00:03.000Z", "request_id": "\u001b[2J", "method": "GET /v1/\u001b[2J"},
    ]
    file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines) + '{"kind":"request"')
    listed = trace("--list", "--file", str(file)).stdout
    assert "/readyz" not in listed
    assert "\u001b" not in listed
    assert trace("--last", "--file", str(file)).stdout.startswith("asked  ")


@pytest.mark.parametrize("words", [(), ("one", "--last"), ("--last", "--list")])
def test_one_way_to_choose_a_request(path: Path, words: tuple[str, ...]) -> None:
    refused = trace(*words, "--file", str(path))
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_no_request_in_the_trace_is_told(tmp_path: Path) -> None:
    missing = trace("--last", "--file", str(tmp_path / "nothing"))
    assert missing.exit_code == 1
    assert "PROXY_LOG_PROTO=true" in missing.stderr


@pytest.mark.promise("commands.trace")
def test_a_timeline_and_a_list_fit_a_narrow_terminal(path: Path) -> None:
    shown = trace("--last", "--file", str(path), columns=80).stdout
    listed = trace("--list", "--file", str(path), columns=40).stdout.splitlines()[:3]
    assert max(map(len, shown.splitlines())) <= 80
    assert "     3.0    ◀ codex  item/agentMessage/delta  Hel\n" in shown
    assert max(map(len, listed)) <= 40
