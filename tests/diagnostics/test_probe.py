"""`turnbridge probe`: what it shows of a real binary, and what it notices on the pipe."""

import os
import subprocess
import sys
from pathlib import Path

import codex_cli_bin
import msgspec
import pytest

from turnbridge.codex.protocol.capabilities import RpcCheck
from turnbridge.diagnostics.probe import ConnectionTap, Seen
from turnbridge.turn.items import JsonObject

TIMEOUT_S = 90

SCHEMA: JsonObject = {
    "definitions": {
        "ClientRequest": {
            "oneOf": [{"properties": {"method": {"enum": ["thread/start"]}, "params": {"$ref": "#/definitions/Start"}}}]
        },
        "ServerNotification": {
            "oneOf": [{"properties": {"method": {"enum": ["turn/started"]}, "params": {"$ref": "#/definitions/Told"}}}]
        },
        "ServerRequest": {"oneOf": [{"properties": {"method": {"enum": ["item/tool/call"]}}}]},
        "Start": {"type": "object", "properties": {"model": {"type": "string"}}},
        "Told": {"type": "object", "properties": {"threadId": {"type": "string"}}, "required": ["threadId"]},
    }
}


def probed(data_dir: Path, *words: str) -> tuple[int, list[JsonObject]]:
    """Return the exit status of a probe in a pipe, and its lines."""
    command = [sys.executable, "-m", "turnbridge", "probe", *words]
    done = subprocess.run(
        command,
        env={**os.environ, "PROXY_DATA_DIR": str(data_dir), "CODEX_HOME": str(data_dir / "user")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, [msgspec.json.decode(line) for line in done.stdout.splitlines()]


@pytest.mark.real
def test_a_probe_of_the_pinned_binary_shows_every_message_and_finds_it_well(tmp_path: Path) -> None:
    status, (*messages, verdict) = probed(tmp_path, "--demo", "--prompt", "Hello there")
    assert status == 0
    sent = [line["method"] for line in messages if (line["direction"], line["kind"]) == ("sent", "request")]
    assert sent[0] == "initialize"
    assert sent[-3:] == ["thread/start", "thread/inject_items", "turn/start"]
    assert {line["schema"] for line in messages} == {"ok"}
    assert (verdict["verdict"], verdict["dialect"], verdict["failure"]) == ("ok", "v2", None)
    assert verdict["messages"] == len(messages)
    assert "Hello there" in str(verdict["answer"])


@pytest.mark.real
def test_a_probe_without_a_login_fails_and_says_why(tmp_path: Path) -> None:
    status, lines = probed(tmp_path, "--codex-bin", str(codex_cli_bin.bundled_codex_path()))
    assert status == 1
    assert lines[-1]["verdict"] == "not ok"
    assert str(lines[-1]["failure"]).startswith("Codex is not logged in")


def test_a_probe_of_something_else_fails(tmp_path: Path) -> None:
    assert probed(tmp_path, "--demo", "--codex-bin", "/bin/true") == (1, [])


@pytest.mark.parametrize(
    ("direction", "line", "expected"),
    [
        ("sent", {"id": 1, "method": "thread/start", "params": {"model": "m"}}, ("request", "thread/start", "ok")),
        (
            "sent",
            {"id": 1, "method": "thread/start", "params": {"modle": "m"}},
            ("request", "thread/start", "there is no field `modle`"),
        ),
        ("sent", {"id": 1, "method": "thread/end"}, ("request", "thread/end", "there is no such method")),
        ("received", {"method": "turn/started", "params": {"threadId": "t"}}, ("notification", "turn/started", "ok")),
        ("received", {"method": "turn/x", "params": {}}, ("notification", "turn/x", "it is not in the schema")),
        ("received", {"id": 7, "result": {}}, ("answer", "", "nobody asked for it")),
        ("received", [1], ("unreadable", "", "it is not a JSON object")),
    ],
)
def test_every_message_is_judged(direction: str, line: object, expected: tuple[str, str, str]) -> None:
    seen: list[Seen] = []
    watch = ConnectionTap(RpcCheck(SCHEMA), seen.append)
    data = msgspec.json.encode(line) + b"\n"
    # A pipe brings messages in any pieces.
    for piece in (data[:5], data[5:]):
        (watch.sent if direction == "sent" else watch.received)(piece)
    assert [(one.kind, one.method, one.schema) for one in seen] == [expected]
    assert watch.problems == (expected[2] != "ok")


def test_what_older_versions_tell_besides_is_no_fault_of_theirs() -> None:
    seen: list[Seen] = []
    watch = ConnectionTap(RpcCheck(SCHEMA), seen.append)
    watch.received(b'{"method":"codex/event/task_started","params":{}}\n')
    assert [one.schema for one in seen] == ["it is not in the schema"]
    assert (watch.messages, watch.problems) == (1, 0)


def test_an_answer_is_named_after_its_question() -> None:
    seen: list[Seen] = []
    watch = ConnectionTap(RpcCheck(SCHEMA), seen.append)
    watch.sent(b'{"id":1,"method":"thread/start","params":{}}\n')
    watch.received(b'{"id":1,"error":{"code":-1,"message":"no"}}\n{broken\n')
    assert [(one.kind, one.method, one.schema) for one in seen] == [
        ("request", "thread/start", "ok"),
        ("answer", "thread/start", "ok"),
        ("unreadable", "", "it is not JSON"),
    ]
