"""The wire trace of a gateway with the real Codex: all that was sent, by whom, and nothing secret."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.trace.reading import lines
from turnbridge.codex.process.spare_threads import SpareThreads
from turnbridge.diagnostics import timeline
from turnbridge.scripted_model.replies import (
    Reply,
    answer,
    function_call,
    message,
    reasoning,
)
from turnbridge.trace.web import TraceHttp
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CHAT = "/v1/chat/completions"
METRICS_TOKEN = "a token for the metrics"
PHASES = ["http_ingress", "backend_submission", "backend_io", "client_egress"]
WEATHER: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A gateway that writes everything down, and where."""

    bridge: Bridge
    file: Path

    @property
    def path(self) -> Path:
        """Return the file once all that was sent so far is in it."""
        settle(self.bridge)
        return self.file

    def of(self, request_id: str) -> list[dict[str, Any]]:
        """Return the lines of a request."""
        return [line for line in lines(self.path) if line.get("request_id") == request_id]


@pytest.fixture(scope="module")
async def traced_gateway(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Traced]:
    """Return a gateway that writes everything down, and keeps threads."""
    del anyio_backend
    data = tmp_path_factory.mktemp("traced")
    async with running_bridge(
        data, PROXY_LOG_PROTO=True, PROXY_WARM_THREADS_MAX=8, PROXY_METRICS_TOKEN=METRICS_TOKEN
    ) as bridge:
        yield Traced(bridge=bridge, file=data / "trace" / "wire.ndjson")


def settle(bridge: Bridge) -> None:
    """Wait until the trace's thread has done what waits for it now."""
    assert isinstance(bridge.gateway.app, TraceHttp)
    done = threading.Event()
    bridge.gateway.app._trace.later(done.set)
    assert done.wait(10)


@pytest.fixture
async def traced(traced_gateway: Traced) -> Traced:
    """Return the gateway without threads that were started ahead, so that each request starts its own."""
    for worker in traced_gateway.bridge.gateway.pool.workers:
        worker.spares = SpareThreads(worker.connection, worker.release)
    return traced_gateway


def named(request_id: str) -> dict[str, str]:
    return {"x-request-id": request_id}


def kinds(told: list[dict[str, Any]], phase: str) -> list[str]:
    return [f"{line['kind']} {line.get('method', '')}".strip() for line in told if line["phase"] == phase]


@pytest.mark.promise("trace.both-wires")
async def test_a_streamed_turn_is_told_on_both_wires_in_order_and_as_it_was(traced: Traced) -> None:
    traced.bridge.script(answer(reasoning(["Hm."]), message("Hello world", pieces=["Hello", " world"])))
    asked: JsonObject = {"model": "gpt-5.5", "stream": True, "messages": [{"role": "user", "content": "Grüß dich!"}]}
    answered = await traced.bridge.http.post(CHAT, json=asked, headers=named("streamed"))
    told = traced.of("streamed")
    assert list(dict.fromkeys(line["phase"] for line in told)) == PHASES
    assert [line["ms"] for line in told] == sorted(line["ms"] for line in told)
    request, *_ = told
    assert (request["payload"]["body"], request["method"]) == (asked, f"POST {CHAT}")
    assert request["size"] == len(json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode())
    assert kinds(told, "backend_submission") == [
        "rpc_request thread/start",
        "rpc_request thread/inject_items",
        "rpc_request turn/start",
    ]
    (injected,) = (line["payload"]["params"] for line in _submitted(told, "thread/inject_items"))
    part = {"type": "input_text", "text": "Grüß dich!"}
    assert injected["items"] == [{"type": "message", "role": "user", "content": [part]}]
    said = [line["payload"]["params"]["delta"] for line in told if line.get("method") == "item/agentMessage/delta"]
    assert said == ["Hello", " world"]
    frames = [frame.removeprefix("data: ") for frame in answered.text.split("\n\n") if frame]
    egress = [line["payload"] for line in told if line["kind"] == "sse"]
    assert egress == [*map(json.loads, frames[:-1]), "[DONE]"]


@pytest.mark.promise("trace.attribution")
async def test_every_line_of_the_backend_names_its_app_server_and_where_it_ran(traced: Traced) -> None:
    traced.bridge.says("Hi.")
    await traced.bridge.http.post(CHAT, json=_asking("hi"), headers=named("placed"))
    backend = [line for line in traced.of("placed") if line["phase"].startswith("backend")]
    (worker,) = traced.bridge.gateway.pool.workers
    assert {line["worker_pid"] for line in backend} == {worker.process.pid}
    assert [line["method"] for line in backend if "thread_id" not in line] == ["thread/start"]
    assert len({line["thread_id"] for line in backend if "thread_id" in line}) == 1
    (turn,) = {line["turn_id"] for line in backend if line["method"] == "turn/completed"}
    assert backend[-1]["turn_id"] == turn


@pytest.mark.promise("trace.attribution")
async def test_a_thread_that_was_started_ahead_is_nobodys_until_it_is_used(traced: Traced) -> None:
    for number in range(3):
        traced.bridge.says("Hi.")
        await traced.bridge.http.post(CHAT, json=_asking(f"ahead {number}"), headers=named(f"ahead {number}"))
    started = [len(_submitted(traced.of(f"ahead {number}"), "thread/start")) for number in range(3)]
    assert started == [1, 1, 0]
    threads = [{line["thread_id"] for line in traced.of(f"ahead {n}") if "thread_id" in line} for n in range(3)]
    assert [len(ids) for ids in threads] == [1, 1, 1]
    assert len(set.union(*threads)) == 3


@pytest.mark.promise("trace.attribution")
async def test_a_thread_that_serves_three_requests_is_divided_among_them(traced: Traced) -> None:
    traced.bridge.script(
        answer(function_call("weather", "{}", call_id="call_1")), answer(message("Sunny.")), answer(message("Bye."))
    )
    history: list[Any] = [{"role": "user", "content": "weather?"}]
    ways = []
    for name, then in (
        ("calls", {"role": "tool", "tool_call_id": "call_1", "content": "sun"}),
        ("resumes", {"role": "user", "content": "thanks"}),
        ("goes on", None),
    ):
        body = {"model": "gpt-5.5", "messages": history, "tools": WEATHER}
        answered = await traced.bridge.http.post(CHAT, json=body, headers=named(name))
        ways.append(answered.headers["x-turnbridge-thread"])
        history += [answered.json()["choices"][0]["message"], then]
    assert ways == ["fresh", "parked", "warm"]
    (thread,) = {line["thread_id"] for line in traced.of("calls") if "thread_id" in line}
    shared = [line for line in lines(traced.path) if line.get("thread_id") == thread]
    assert [name for name, _ in groupby(line["request_id"] for line in shared)] == ["calls", "resumes", "goes on"]
    assert kinds(traced.of("resumes"), "backend_submission") == ["rpc_response item/tool/call"]
    assert kinds(traced.of("goes on"), "backend_submission") == [
        "rpc_request thread/inject_items",
        "rpc_request turn/start",
    ]
    ended = {name: "turn/completed" in str(traced.of(name)) for name in ("calls", "resumes", "goes on")}
    assert ended == {"calls": False, "resumes": True, "goes on": True}


@pytest.mark.promise("trace.attribution")
async def test_requests_at_the_same_time_are_told_apart(traced: Traced) -> None:
    traced.bridge.script()
    traced.bridge.model.respond = _echo
    names = [f"at once {number}" for number in range(5)]
    await asyncio.gather(*(traced.bridge.http.post(CHAT, json=_asking(name), headers=named(name)) for name in names))
    for name in names:
        told = traced.of(name)
        said = [line["payload"]["params"]["delta"] for line in told if line.get("method") == "item/agentMessage/delta"]
        assert said == [f"You said: {name}"]
        assert not [other for other in names if other != name and other in str(told)]


@pytest.mark.promise("trace.attribution")
async def test_several_choices_are_several_threads_of_one_request(traced: Traced) -> None:
    traced.bridge.script(answer(message("One.")), answer(message("Two.")))
    await traced.bridge.http.post(CHAT, json={**_asking("hi"), "n": 2}, headers=named("choices"))
    told = traced.of("choices")
    assert len({line["thread_id"] for line in told if "thread_id" in line}) == 2
    assert kinds(told, "backend_io").count("rpc_notification turn/completed") == 2


@pytest.mark.promise("trace.attribution")
async def test_the_id_is_the_one_that_the_answer_carries(traced: Traced) -> None:
    for given in ({}, {"x-request-id": "a" * 500}):
        answered = await traced.bridge.http.get("/v1/models", headers=given)
        told = traced.of(answered.headers["x-request-id"])
        assert [line["kind"] for line in told] == ["request", "response", "body"]
        assert told[2]["payload"] == answered.json()


@pytest.mark.promise("trace.redaction")
async def test_no_key_of_the_gateway_and_no_secret_of_a_client_is_written_down(traced: Traced) -> None:
    traced.bridge.says("Hi.")
    secrets = ["sk-proj-0123456789abcdef", "hunter2hunter2"]
    body = {**_asking(f"{API_KEY} {secrets[0]}"), "metadata": {"access_token": secrets[1]}}
    await traced.bridge.http.post(
        f"{CHAT}?api_key={API_KEY}", json=body, headers={**named("secrets"), "cookie": f"a={secrets[1]}"}
    )
    await traced.bridge.http.get("/metrics", headers={"authorization": f"Bearer {METRICS_TOKEN}"})
    written = traced.path.read_text(encoding="utf-8")
    assert [secret for secret in (API_KEY, METRICS_TOKEN, *secrets) if secret in written] == []
    assert traced.path.stat().st_mode & 0o777 == 0o600
    request = traced.of("secrets")[0]["payload"]
    assert request["body"]["messages"][0]["content"] == "[redacted] [redacted]"
    assert (request["query"], request["headers"]["cookie"]) == ("api_key=[redacted]", "[redacted]")


@pytest.mark.promise("trace.both-wires")
async def test_the_timeline_of_a_turn_shows_both_wires(traced: Traced) -> None:
    traced.bridge.script(answer(message("a b c", pieces=["a", " b", " c"])))
    await traced.bridge.http.post(CHAT, json={**_asking("hi"), "stream": True}, headers=named("shown"))
    found = timeline.lines_of(traced.path, "shown")
    shown = timeline.rows(found)
    labels = [row.label for row in shown]
    assert (labels[:2], labels[-2:]) == ([f"POST {CHAT}", "thread/start"], ["chat.completion.chunk", "sse"])
    for stream in ("item/agentMessage/delta", "delta.content"):
        assert "".join(row.text for row in shown if row.label == stream) == "a b c"


@pytest.mark.promise("trace.disk")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
async def test_a_full_disk_breaks_no_request_and_is_counted(tmp_path: Path) -> None:
    full = Path("/dev/full")
    async with running_bridge(tmp_path / "data", PROXY_LOG_PROTO=True, PROTO_LOG_PATH=full) as bridge:
        bridge.says("Hi.")
        answered = await bridge.http.post(CHAT, json=_asking("hi"))
        settle(bridge)
        metrics = (await bridge.http.get("/metrics")).text
    assert answered.json()["choices"][0]["message"]["content"] == "Hi."
    (lost,) = (line for line in metrics.splitlines() if line.startswith("turnbridge_trace_lines_lost_total "))
    assert float(lost.split()[1]) > 10


@pytest.mark.promise("trace.off")
async def test_without_the_trace_there_is_neither_a_file_nor_a_layer(tmp_path: Path) -> None:
    async with running_bridge(tmp_path) as bridge:
        bridge.says("Hi.")
        await bridge.http.post(CHAT, json=_asking("hi"))
        (worker,) = bridge.gateway.pool.workers
        assert worker.connection._write == worker.process.write
        assert worker.process._stdout.take == worker.connection.receive
        assert not isinstance(bridge.gateway.app, TraceHttp)
        assert "trace_lines" not in (await bridge.http.get("/metrics")).text
    assert not (tmp_path / "trace").exists()


def _submitted(told: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    return [line for line in told if line["phase"] == "backend_submission" and line["method"] == method]


def _asking(text: str) -> JsonObject:
    return {"model": "gpt-5.5", "messages": [{"role": "user", "content": text}]}


def _echo(request: JsonObject) -> Reply:
    items: Any = request["input"]
    return answer(message(f"You said: {items[-1]['content'][0]['text']}"))
