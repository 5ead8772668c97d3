"""One pipe pair to app-server: what comes in reaches the one who waits for it, whatever else comes in."""

import asyncio
import itertools
import json
import re
from collections import Counter

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.codex.process.real_codex import RECORDING
from tests.support.codex_schema import pinned_schema
from tests.support.passing_time import PassingTime, on_a_loop_of_its_own
from turnbridge.codex.process.connection import CallRefused, Connection, Inbox
from turnbridge.codex.protocol import jsonrpc
from turnbridge.codex.protocol.capabilities import RpcCheck
from turnbridge.codex.protocol.encode import DECLINED, DECLINES
from turnbridge.codex.protocol.messages import NOTIFICATIONS, Notification, ToolCallAsked
from turnbridge.codex.protocol.plan import UPDATED
from turnbridge.turn.errors import BackendUnavailable, GatewayError, InternalFault
from turnbridge.turn.items import Json, JsonObject

pytestmark = pytest.mark.anyio

RECORDED = RECORDING.read_bytes()
LINES: list[JsonObject] = [json.loads(line) for line in RECORDED.splitlines()]
ANSWERS: dict[int, Json] = {int(str(line["id"])): line["result"] for line in LINES if "result" in line}
METHODS = sorted({str(line["method"]) for line in LINES if line.get("method") in NOTIFICATIONS})
PARAMS = [params for line in LINES if isinstance(params := line.get("params"), dict)]
THREADS = sorted({str(params["threadId"]) for params in PARAMS if "threadId" in params})


def recorded(method: str) -> JsonObject:
    """Return the first recorded line with this method."""
    return next(line for line in LINES if line.get("method") == method)


def about(thread_id: str, line: JsonObject) -> bytes:
    """Return a line as it would be about another thread."""
    params = line["params"]
    assert isinstance(params, dict)
    return json.dumps({**line, "params": {**params, "threadId": thread_id}}).encode() + b"\n"


class Peer:
    """A connection, and the lines that it wrote."""

    def __init__(self, check: RpcCheck | None = None) -> None:
        self.written: list[JsonObject] = []
        self.connection = Connection(lambda data: self.written.extend(map(json.loads, data.splitlines())), check=check)

    def says(self, *lines: JsonObject) -> None:
        self.connection.receive(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def waiting(inbox: Inbox) -> list[Notification | ToolCallAsked]:
    """Return what can be read of an inbox without waiting."""
    reading = inbox.batch()
    try:
        reading.send(None)
    except StopIteration as done:
        notes: list[Notification | ToolCallAsked] = done.value
        return notes
    finally:
        reading.close()
    return []


def read_all(chunks: list[bytes]) -> tuple[list[Json], list[list[Notification | ToolCallAsked]], Counter[str]]:
    """Return the answers, each thread's notifications, and what was skipped, of a pipe that brings these chunks."""
    peer = Peer()
    calls = [peer.connection.send("any", None) for _ in range(max(ANSWERS))]
    inboxes = [peer.connection.subscribe(thread_id) for thread_id in THREADS]
    for chunk in chunks:
        peer.connection.receive(chunk)
    answers = [msgspec.json.decode(call.result()) if call.done() else None for call in calls]
    return answers, [waiting(inbox) for inbox in inboxes], peer.connection.skipped


@pytest.mark.promise("streaming.any-chunking")
@settings(deadline=None)  # One example is many thousand pieces.
@given(st.lists(st.integers(0, len(RECORDED))))
@example(list(range(len(RECORDED))))
async def test_any_chunking_of_the_pipe_gives_the_same(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(RECORDED)]
    chunks = [RECORDED[start:end] for start, end in itertools.pairwise(places)]
    expected = read_all([line + b"\n" for line in RECORDED.splitlines()])
    assert read_all(chunks) == expected
    answers, notes, skipped = expected
    assert {n: answer for n, answer in enumerate(answers, 1) if answer is not None} == ANSWERS
    about_the_account = sum("threadId" not in params for params in PARAMS)
    assert sum(map(len, notes)) + len(ANSWERS) + about_the_account == len(LINES)
    assert skipped == Counter()


ODD_LINES = [
    b"",
    b"plain words",
    b"{",
    b"}",
    b'{"method": "thread/invented", "params": {"threadId": "mine"}}',
    b'{"id": 99, "result": {}}',
]


TOLD = [about(thread, recorded(method)).rstrip() for thread in ("mine", "yours", "nobody's") for method in METHODS]


@given(st.lists(st.sampled_from([*TOLD, *ODD_LINES]), max_size=12))
async def test_lines_that_come_together_are_read_as_if_each_had_come_alone(lines: list[bytes]) -> None:
    alone, together = Peer(), Peer()
    inboxes = [[peer.connection.subscribe(thread) for thread in ("mine", "yours")] for peer in (alone, together)]
    for line in lines:
        alone.connection.receive(line + b"\n")
    together.connection.receive(b"".join(line + b"\n" for line in lines))

    assert together.connection.skipped == alone.connection.skipped
    assert [waiting(inbox) for inbox in inboxes[1]] == [waiting(inbox) for inbox in inboxes[0]]


@given(st.permutations(range(1, 7)))
async def test_answers_reach_their_callers_in_any_order(order: list[int]) -> None:
    peer = Peer()
    calls = [asyncio.ensure_future(peer.connection.call("any", {"n": n}, dict[str, int])) for n in range(1, 7)]
    await asyncio.sleep(0)
    assert peer.written == [{"id": n, "method": "any", "params": {"n": n}} for n in range(1, 7)]
    for n in order:
        peer.says({"id": n, "result": {"n": n}})
    assert await asyncio.gather(*calls) == [{"n": n} for n in range(1, 7)]


@pytest.mark.promise("faults.garbage")
@pytest.mark.parametrize(
    "garbage",
    [
        b"plain words",
        b"{",
        b"[1]",
        b"null",
        b'{"id": 1.5}',
        b'{"method": 7}',
        b'{"error": "words"}',
        b"\xff\xfe",
        b'{"method": "\xff"}',
        b'{"result": ' + b"[" * 100_000,
    ],
)
async def test_a_line_that_cannot_be_read_is_counted_and_harms_nothing(garbage: bytes) -> None:
    peer = Peer()
    answer = peer.connection.send("any", None)
    peer.connection.receive(garbage + b"\n" + b'{"id": 1, "result": 5}\n')
    assert (bytes(answer.result()), peer.connection.skipped) == (b"5", Counter(unreadable=1))


async def test_blank_lines_are_nothing() -> None:
    peer = Peer()
    peer.connection.receive(b"\n\n")
    assert peer.connection.skipped == Counter()


async def test_unknown_notifications_and_those_of_other_threads_are_counted() -> None:
    peer = Peer()
    inbox = peer.connection.subscribe("mine")
    unknown: JsonObject = {"method": "thread/invented", "params": {"threadId": "mine"}}
    peer.says(unknown, unknown, recorded("turn/completed"), {"id": 9, "result": {}})
    assert waiting(inbox) == []
    assert peer.connection.skipped == Counter({"thread/invented": 2, "late": 1, "answer": 1})


async def test_a_known_notification_of_another_shape_fails_every_turn_that_waits_and_nothing_else() -> None:
    peer = Peer()
    inboxes = [peer.connection.subscribe("mine"), peer.connection.subscribe("yours")]
    call = peer.connection.send("any", None)
    peer.connection.receive(about("mine", recorded("turn/completed")))
    peer.says({"method": "item/agentMessage/delta", "params": {"threadId": "mine", "delta": 5}})
    assert len(await inboxes[0].batch()) == 1, "what was told before stands"
    for inbox in inboxes:
        with pytest.raises(InternalFault, match="`item/agentMessage/delta`"):
            await inbox.batch()
    assert not call.done()
    later = peer.connection.subscribe("later")
    peer.connection.receive(about("later", recorded("turn/completed")))
    assert len(waiting(later)) == 1


THE_START_IS_ANSWERED = None
ECHO = recorded("rawResponseItem/completed")
OPENING = next(line for line in LINES if '"item/started"' in json.dumps(line) and '"agentMessage"' in json.dumps(line))
WORDS = recorded("item/agentMessage/delta")
THOUGHT = next(line for line in LINES if '"item/started"' in json.dumps(line) and '"reasoning"' in json.dumps(line))


@pytest.mark.parametrize(
    ("asleep", "awake"),
    [
        pytest.param([ECHO, THE_START_IS_ANSWERED, OPENING], WORDS, id="words"),
        pytest.param([ECHO, THE_START_IS_ANSWERED], THOUGHT, id="a thought that begins"),
        pytest.param([ECHO, OPENING, WORDS], THE_START_IS_ANSWERED, id="words that came before the answer"),
        pytest.param([THE_START_IS_ANSWERED], ECHO, id="an echo that comes late"),
    ],
)
async def test_a_reader_sleeps_until_a_turn_says_something_and_then_gets_all(
    asleep: list[JsonObject | None], awake: JsonObject | None
) -> None:
    peer = Peer()
    inbox = peer.connection.subscribe("mine")
    inbox.hold()
    reading = asyncio.ensure_future(inbox.batch())
    for line in [*asleep, awake]:
        await asyncio.sleep(0)
        assert not reading.done()
        if line is THE_START_IS_ANSWERED:
            inbox.release()
        else:
            peer.connection.receive(about("mine", line))

    told = [line["method"] for line in [*asleep, awake] if line is not None]
    assert [type(note) for note in await reading] == [NOTIFICATIONS[str(method)] for method in told]


async def test_items_that_were_injected_may_come_back_however_large_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "max_unread_bytes", 10_000)
    peer = Peer()
    inbox = peer.connection.subscribe("mine")
    large: JsonObject = {**ECHO, "params": {"turnId": "", "item": {"type": "message", "text": "x" * 20_000}}}
    peer.connection.receive(about("mine", large))
    peer.connection.receive(about("mine", WORDS))
    assert not inbox.failed
    for _ in range(1000):
        peer.connection.receive(about("mine", WORDS))
    assert inbox.failed


async def test_a_failure_wakes_a_reader_that_waits_for_a_turn() -> None:
    peer = Peer()
    inbox = peer.connection.subscribe("mine")
    inbox.hold()
    reading = asyncio.ensure_future(inbox.batch())
    await asyncio.sleep(0)

    peer.connection.end(BackendUnavailable("Codex ended."))

    with pytest.raises(BackendUnavailable, match="Codex ended"):
        await reading


def test_every_line_that_is_read_in_one_go_says_the_same_as_in_two() -> None:
    notifications = jsonrpc.Notifications(NOTIFICATIONS)
    methods = set()
    for line in RECORDED.splitlines():
        message = jsonrpc.decode_line(line)
        shape = NOTIFICATIONS.get(message.method or "")
        told = notifications.read(line)
        assert told == (None if shape is None else [msgspec.json.decode(message.params, type=shape)])
        methods.add(message.method)

    assert len(methods & NOTIFICATIONS.keys()) > 5


@pytest.mark.promise("safety.declined")
@pytest.mark.parametrize("method", [*sorted(set(DECLINES) - {"item/tool/call"}), "invented/request"])
async def test_a_request_of_codexs_is_declined_at_once(method: str) -> None:
    peer = Peer()
    peer.says({"id": "q", "method": method, "params": {"threadId": "mine"}})
    refusal: JsonObject = {"error": {"code": -32601, "message": DECLINED}}
    answer: JsonObject = {"result": DECLINES[method]} if method in DECLINES else refusal
    assert peer.written == [{"id": "q", **answer}]


async def test_a_tool_call_of_a_thread_that_nobody_runs_is_declined_at_once() -> None:
    peer = Peer()
    peer.says(recorded("item/tool/call"))
    assert peer.written == [{"id": 0, "result": DECLINES["item/tool/call"]}]


async def test_a_tool_call_of_another_shape_is_refused_and_harms_nothing() -> None:
    peer = Peer()
    answer = peer.connection.send("any", None)
    peer.says({"id": "q", "method": "item/tool/call", "params": {"threadId": 5}}, {"id": 1, "result": 5})
    assert bytes(answer.result()) == b"5"
    assert peer.written[1]["id"] == "q"


async def test_a_refusal_has_codexs_own_words() -> None:
    peer = Peer()
    call = asyncio.ensure_future(peer.connection.call("any", None, dict[str, int]))
    await asyncio.sleep(0)
    peer.says({"id": 1, "error": {"code": -32600, "message": "thread not found"}})
    with pytest.raises(CallRefused, match=r"^thread not found$"):
        await call


async def test_an_answer_of_another_shape_is_a_failure_that_can_be_told() -> None:
    peer = Peer()
    call = asyncio.ensure_future(peer.connection.call("thread/start", None, dict[str, int]))
    await asyncio.sleep(0)
    peer.says({"id": 1, "result": "words"})
    with pytest.raises(GatewayError, match="thread/start"):
        await call


async def test_a_call_without_an_answer_ends_in_time_and_its_late_answer_is_counted() -> None:
    peer, late = Peer(), list[str]()
    peer.connection.on_timeout = lambda: late.append("recycle it")
    # One that may depend on others than Codex says nothing about it.
    for timeout_s, told in ((0.01, []), (None, ["recycle it"])):
        peer.connection.call_timeout_s = 0.01
        with pytest.raises(BackendUnavailable, match=re.escape("`any` within 0.01 seconds")):
            await peer.connection.call("any", None, dict[str, int], timeout_s=timeout_s)
        assert late == told
    assert peer.connection._calls == {}
    peer.says({"id": 1, "result": {}})
    assert peer.connection.skipped == Counter(answer=1)


async def test_a_line_that_does_not_end_is_told_once_to_whoever_owns_the_pipe_and_nothing_is_read_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jsonrpc.LineSplitter, "longest_bytes", 100)
    peer, told = Peer(), list[str]()
    peer.connection.on_broken = lambda: told.append("broke")
    asked = peer.connection.send("any", None)
    for _ in range(300):
        peer.connection.receive(b"x")
    peer.says({"id": 1, "result": {}})
    assert (told, asked.done()) == (["broke"], False)


async def test_the_end_of_the_pipe_fails_everybody_with_the_same_error() -> None:
    peer = Peer()
    ended = BackendUnavailable("Codex ended")
    call = asyncio.ensure_future(peer.connection.call("any", None, dict[str, int]))
    sent, inbox = peer.connection.send("any", None), peer.connection.subscribe("mine")
    await asyncio.sleep(0)
    peer.connection.receive(about("mine", recorded("turn/completed")))
    peer.connection.end(ended)
    assert len(await inbox.batch()) == 1, "what was told before stands"
    later = peer.connection.subscribe("later")
    raised = [sent.exception()]
    for waiter in (call, inbox.batch(), later.batch(), peer.connection.call("any", None, dict[str, int])):
        with pytest.raises(BackendUnavailable) as caught:
            await waiter
        raised.append(caught.value)
    assert all(error is ended for error in raised)
    written = len(peer.written)
    peer.connection.cast("turn/interrupt", None)
    assert len(peer.written) == written


@pytest.fixture
async def checked() -> Peer:
    """Return a connection that holds what it sends against the pinned binary's schema."""
    return Peer(RpcCheck(pinned_schema()))


@pytest.mark.real
async def test_what_the_binary_does_not_take_is_not_sent_and_is_our_fault(checked: Peer) -> None:
    with capture_logs() as logs:
        for send in (checked.connection.send, checked.connection.cast):
            with pytest.raises(InternalFault, match="`turn/interrupt` that it does not take: `turnId` breaks"):
                send("turn/interrupt", {"threadId": "t", "turnId": 5})
        with pytest.raises(InternalFault, match="`reply to item/tool/call` that it does not take"):
            checked.connection.answer(1, {"output": "words"})
    assert checked.written == []
    assert [(log["log_level"], log["event"], log["sent"]) for log in logs] == [
        ("error", "rpc_violates_schema", "turn/interrupt"),
        ("error", "rpc_violates_schema", "turn/interrupt"),
        ("error", "rpc_violates_schema", "reply to item/tool/call"),
    ]


@pytest.mark.real
async def test_what_the_binary_takes_is_sent_and_so_is_every_decline(checked: Peer) -> None:
    checked.connection.cast("turn/interrupt", {"threadId": "t", "turnId": "u"})
    checked.connection.answer(1, {"contentItems": [], "success": True})
    for number, method in enumerate(DECLINES):
        checked.says({"id": number, "method": method, "params": {}})
    assert checked.written == [
        {"id": 1, "method": "turn/interrupt", "params": {"threadId": "t", "turnId": "u"}},
        {"id": 1, "result": {"contentItems": [], "success": True}},
        *({"id": number, "result": decline} for number, decline in enumerate(DECLINES.values())),
    ]


@pytest.mark.real
async def test_a_decline_that_the_binary_does_not_take_becomes_a_refusal(
    checked: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DECLINES, "item/tool/call", {"output": "words"})
    checked.says({"id": 7, "method": "item/tool/call", "params": {}})
    assert checked.written == [{"id": 7, "error": {"code": -32601, "message": DECLINED}}]


async def test_only_what_is_unread_counts_for_a_reader_that_is_too_slow() -> None:
    peer = Peer()
    inbox = peer.connection.subscribe("mine")
    inbox.max_unread_bytes = 10_000
    for _ in range(1000):
        peer.connection.receive(about("mine", WORDS))
        assert len(waiting(inbox)) == 1


async def test_of_several_updates_of_the_plan_in_one_piece_the_last_one_counts() -> None:
    peer, updates = Peer(), list[JsonObject]()
    for percent in (10, 20):
        used: JsonObject = {"rateLimits": {"primary": {"usedPercent": percent}}}
        updates.append({"method": UPDATED, "params": used})
    peer.says(*updates)
    assert peer.connection.plan.windows(0)["primary"].used_percent == 20


@on_a_loop_of_its_own
async def test_calls_that_failed_at_the_end_of_the_pipe_time_out_no_more() -> None:
    peer, time, problems = Peer(), PassingTime(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    peer.connection.send("any", None)
    peer.connection.end(BackendUnavailable("Codex ended"))
    await time.go_on(int(Connection.call_timeout_s) + 1)
    assert problems == []
