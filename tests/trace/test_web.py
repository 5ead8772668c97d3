"""The client's wire: requests and answers as they are, at the moment they pass."""

from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.trace.reading import lines, trace_to
from tests.web.asgi_driver import Exchange, call
from turnbridge.trace.trace import Trace, serving
from turnbridge.trace.web import TraceHttp

pytestmark = pytest.mark.anyio

STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON = [(b"content-type", b"application/json"), (b"set-cookie", b"a=1"), (b"vary", b"x"), (b"vary", b"y")]


class Answering:
    """An application that reads the whole request and then sends these messages."""

    def __init__(self, *messages: Message, reads: bool = True) -> None:
        self._messages = messages
        self._reads = reads
        self.served: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["id"] = f"id of {scope['path']}"
        more = self._reads
        while more:
            more = (await receive()).get("more_body", False)
        ask = serving.get()
        assert ask is not None
        self.served.append(ask())
        for message in self._messages:
            await send(message)


def traced(app: ASGIApp, trace: Trace) -> TraceHttp:
    return TraceHttp(app, trace, request_id=lambda scope: str(scope["id"]))


def start(headers: list[tuple[bytes, bytes]], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def told(path: Path) -> list[tuple[str, str, str | None, Any]]:
    return [(line["phase"], line["kind"], line.get("method"), line.get("payload")) for line in lines(path)]


async def test_a_whole_answer_is_told_with_its_request(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)
    app = Answering(start(JSON), body(b" ", more=True), body(b'{"ok": true}'))
    headers = {"authorization": "Bearer abc", "accept": "*/*"}
    answer = await call(
        traced(app, trace), "POST", "/turn", headers=headers, body=[b'{"a":', b" 1}"], query=b"api_key=abc&b=c"
    )
    trace.close()
    assert (answer.status, answer.body, app.served) == (200, b' {"ok": true}', ["id of /turn"])
    common: dict[str, Any] = {"time": lines(path)[0]["time"], "request_id": "id of /turn"}
    out: dict[str, Any] = {**common, "phase": "client_egress", "direction": "outbound"}
    assert lines(path) == [
        {
            **common,
            "ms": 0.0,
            "phase": "http_ingress",
            "direction": "inbound",
            "kind": "request",
            "method": "POST /turn",
            "size": 8,
            "payload": {
                "headers": {"authorization": "[redacted]", "accept": "*/*"},
                "body": {"a": 1},
                "query": "api_key=[redacted]&b=c",
            },
        },
        {
            **out,
            "ms": 1.0,
            "kind": "response",
            "payload": {
                "status": 200,
                "headers": {"content-type": "application/json", "set-cookie": "[redacted]", "vary": "x, y"},
            },
        },
        {**out, "ms": 2.0, "kind": "body", "size": 13, "payload": {"ok": True}},
    ]


async def test_each_frame_of_a_stream_is_a_line_of_its_own_however_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)
    frames = b'event: a\ndata: {"n": 1}\n\n: keepalive\n\ndata: {"n": 2}\n\ndata: [DONE]\n\ndata: x\ndata: y'
    pieces = [body(frames[at : at + 9], more=at + 9 < len(frames)) for at in range(0, len(frames), 9)]
    await call(traced(Answering(start(STREAM), *pieces), trace), "GET", "/")
    trace.close()
    assert told(path)[2:] == [
        ("client_egress", "sse", "a", {"n": 1}),
        ("client_egress", "sse", None, ": keepalive"),
        ("client_egress", "sse", None, {"n": 2}),
        ("client_egress", "sse", None, "[DONE]"),
        ("client_egress", "sse", None, "x\ny"),
    ]
    assert lines(path)[2]["size"] == len(b'event: a\ndata: {"n": 1}')


async def test_a_request_that_nobody_reads_is_told_before_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)
    await call(traced(Answering(start([], 401), body(b"no"), reads=False), trace), "POST", "/", body=[b"secret"])
    trace.close()
    assert told(path) == [
        ("http_ingress", "request", "POST /", {"headers": {}, "body": None}),
        ("client_egress", "response", None, {"status": 401, "headers": {}}),
        ("client_egress", "body", None, "no"),
    ]


async def test_a_client_that_leaves_is_told_and_what_it_had_got(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)

    async def leaving(scope: Scope, receive: Receive, send: Send) -> None:
        scope["id"] = "left"
        await receive()
        await send(start([]))
        await send(body(b"half", more=True))
        await receive()

    async with Exchange(traced(leaving, trace), "GET", "/") as exchange:
        await exchange.begin()
        await exchange.chunk()
        exchange.leave()
    trace.close()
    assert told(path)[2:] == [
        ("http_ingress", "disconnect", None, None),
        ("client_egress", "body", None, "half"),
        ("client_egress", "aborted", None, None),
    ]


async def test_the_end_of_a_connection_after_the_answer_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)

    async def listening(scope: Scope, receive: Receive, send: Send) -> None:
        scope["id"] = "listened"
        await send(start([]))
        await send(body(b"all"))
        while (await receive())["type"] != "http.disconnect":
            pass

    await call(traced(listening, trace), "GET", "/")
    trace.close()
    assert [line["kind"] for line in lines(path)] == ["request", "response", "body"]


async def test_an_application_that_fails_is_not_held_up(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)

    async def failing(scope: Scope, _: Receive, __: Send) -> None:
        scope["id"] = "failed"
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await traced(failing, trace)(
            {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}, _never, _never
        )
    trace.close()
    assert [line["kind"] for line in lines(path)] == ["request", "aborted"]
    assert serving.get() is None


async def test_a_long_body_says_how_long_it_was(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path, limit=10)
    long = b'"' + b"x" * 100 + b'"'
    await call(traced(Answering(start([]), body(long)), trace), "POST", "/", body=[long])
    trace.close()
    cut = [(line["kind"], line["cut"], line["size"], line["payload"]) for line in lines(path) if "size" in line]
    beginning = '"' + "x" * 9
    assert cut == [("request", True, 102, {"headers": {}, "body": beginning}), ("body", True, 102, beginning)]


async def test_what_is_no_http_passes_untouched(tmp_path: Path) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, _: Receive, __: Send) -> None:
        seen.append(scope)

    scope: Scope = {"type": "lifespan"}
    await traced(app, trace_to(tmp_path / "wire.ndjson"))(scope, _never, _never)
    assert seen == [scope]
    assert not (tmp_path / "wire.ndjson").exists()


async def _never(*_: Any) -> Any:
    raise AssertionError("Nobody asks for this.")
