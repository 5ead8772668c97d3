"""A request that is sent twice is answered once."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.middleware import Middleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.testing import capture_logs

from tests.web.asgi_driver import Answer, Exchange, call
from turnbridge.engine.frame_log import PIECE_BYTES
from turnbridge.engine.sharing import AnswerClaims
from turnbridge.turn.errors import ContextTooLong, GatewayError, UpstreamFailed
from turnbridge.turn.events import Usage
from turnbridge.web.bodies import Bodies
from turnbridge.web.middleware.idempotency import (
    BOUNDS,
    AnswerOnce,
    Answers,
    Bounds,
)
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring, client_with
from turnbridge.web.middleware.observability import CONTEXT_KEY, Metrics, RequestContext, context_of

pytestmark = pytest.mark.anyio

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
MARK = "x-turnbridge-idempotent"
BODY_LIMIT = 1000
BODIES = Bodies(BODY_LIMIT)
PATIENCE_S = 25
"""Far longer than anything here takes."""


@pytest.fixture(autouse=True)
def unprinted_logs() -> Iterator[None]:
    """Spare the time that it takes to print a failure in colour."""
    with capture_logs():
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The answer is complete, with this code if it failed on the way."""

    error_code: str | None = None


Beat: TypeAlias = bytes | End | GatewayError


class Turns:
    """The handler of both routes: each request runs through the beats that come next, unless its client leaves."""

    def __init__(self, *beats: Beat, status: int = 200) -> None:
        self._status = status
        self._beats: asyncio.Queue[Beat] = asyncio.Queue()
        self.say(*beats)
        self.asked: list[bytes] = []
        self.begun = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.may_wind_down = asyncio.Event()
        self.may_wind_down.set()

    def say(self, *beats: Beat) -> None:
        for beat in beats:
            self._beats.put_nowait(beat)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(await BODIES.read(scope, receive))
        self.begun.set()
        context_of(scope).model, context_of(scope).stream = "a model", True
        answering = asyncio.ensure_future(self._answer(scope, send))
        leaving = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not answering.done():
                self.interrupted.set()
            answering.cancel()
            leaving.cancel()
            await asyncio.wait((answering, leaving))
            await self.may_wind_down.wait()
        if not answering.cancelled():
            answering.result()

    async def _answer(self, scope: Scope, send: Send) -> None:
        started = False
        while True:
            beat = await self._beats.get()
            if isinstance(beat, GatewayError):
                raise beat
            if not started:
                started = True
                headers = [(b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": self._status, "headers": headers})
            if isinstance(beat, End):
                context = context_of(scope)
                context.usage, context.error_code = Usage(output=7), beat.error_code
                await send({"type": "http.response.body", "body": b""})
                return
            await send({"type": "http.response.body", "body": beat, "more_body": True})


def gateway(turns: Turns, bounds: Bounds = BOUNDS, claims: AnswerClaims | None = None) -> ASGIApp:
    once = Middleware(AnswerOnce, answers=Answers(bounds, claims), bodies=BODIES)
    paths = (CHAT, "/chat/completions", RESPONSES)
    routes = [Route(path, turns, methods=["POST"], middleware=[once]) for path in paths]
    return wrap(Router(routes), keyring=Keyring("mine,another"), metrics=Metrics())


def headers(key: str | None = "k", client: str = "mine") -> Mapping[str, str]:
    own = {} if key is None else {"idempotency-key": key}
    return {"authorization": f"Bearer {client}", **own}


async def ask(
    app: ASGIApp, body: bytes = b"hi", path: str = CHAT, *, key: str | None = "k", client: str = "mine"
) -> Answer:
    return await call(app, "POST", path, headers=headers(key, client), body=[body])


def asking(app: ASGIApp, key: str = "k", request_id: str = "") -> Exchange:
    return Exchange(app, "POST", CHAT, headers={**headers(key), "x-request-id": request_id}, body=[b"hi"])


def shown(answer: Answer) -> tuple[int, bytes, str | None]:
    return answer.status, answer.body, answer.header(MARK)


async def rest(exchange: Exchange) -> bytes:
    """Return all that is still to come."""
    pieces = []
    while (piece := await exchange.chunk()) is not None:
        pieces.append(piece)
    return b"".join(pieces)


async def settled() -> None:
    """Return when everyone has done what they could: nobody here takes more steps than this."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_repeat_gets_the_stored_answer_and_headers_of_its_own() -> None:
    turns = Turns(b"one", b"two", End())
    app = gateway(turns)
    first = await call(app, "POST", CHAT, headers={**headers(), "x-request-id": "1"}, body=[b"hi"])
    again = await call(app, "POST", CHAT, headers={**headers(), "x-request-id": "2"}, body=[b"h", b"i"])
    assert (first.status, first.body, first.headers) == (
        200,
        b"onetwo",
        [("content-type", "text/plain"), ("x-request-id", "1")],
    )
    assert (again.status, again.body, again.headers) == (
        200,
        b"onetwo",
        [("content-type", "text/plain"), ("x-request-id", "2"), (MARK, "replayed")],
    )
    assert turns.asked == [b"hi"]


async def test_without_the_header_every_request_runs() -> None:
    turns = Turns(b"one", End(), b"two", End(), b"three", End())
    app = gateway(turns)
    answers = [await ask(app, key=None), await ask(app, key=None), await ask(app, key="")]
    assert list(map(shown, answers)) == [(200, b"one", None), (200, b"two", None), (200, b"three", None)]


async def test_a_repeat_joins_the_running_answer_from_its_beginning() -> None:
    turns = Turns(b"one")
    app = gateway(turns)
    async with asking(app) as first:
        await first.begin()
        assert await first.chunk() == b"one"
        async with asking(app) as second:
            assert (MARK, "joined") in (await second.begin())[1]
            assert await second.chunk() == b"one"
            turns.say(b"two")
            assert (await first.chunk(), await second.chunk()) == (b"two", b"two")
            turns.say(End())
            assert (await rest(first), await rest(second)) == (b"", b"")
    assert turns.asked == [b"hi"]


async def test_a_repeat_joins_a_turn_that_has_said_nothing_yet() -> None:
    turns = Turns()
    app = gateway(turns)
    async with asking(app) as first:
        await turns.begun.wait()
        async with asking(app) as second:
            turns.say(b"one", End())
            for exchange in (first, second):
                assert (await exchange.begin())[0] == 200
                assert await rest(exchange) == b"one"
    assert turns.asked == [b"hi"]


async def test_a_turn_goes_on_while_anybody_reads_it() -> None:
    turns = Turns(b"one")
    app = gateway(turns)
    with capture_logs() as logs:
        async with asking(app, request_id="first") as first:
            await first.begin()
            async with asking(app, request_id="second") as second:
                await second.begin()
                first.leave()
                turns.say(b"two", End())
                assert await rest(second) == b"onetwo"
    assert not turns.interrupted.is_set()
    assert shown(await ask(app)) == (200, b"onetwo", "replayed")
    # The tokens are counted once, whoever got the answer.
    assert {log["request_id"]: (log["outcome"], log["model"], log["output_tokens"]) for log in logs} == {
        "first": ("client_gone", "a model", 7),
        "second": ("ok", "a model", None),
    }


async def test_a_turn_is_interrupted_when_its_last_reader_leaves_and_then_runs_anew() -> None:
    turns = Turns(b"one")
    app = gateway(turns)
    async with asking(app) as first:
        await first.begin()
        async with asking(app) as second:
            await second.begin()
            second.leave()
        assert not turns.interrupted.is_set()
        first.leave()
        await turns.interrupted.wait()
    turns.say(b"two", End())
    assert shown(await ask(app)) == (200, b"two", None)


async def test_nobody_joins_a_turn_that_is_being_interrupted() -> None:
    turns = Turns(b"one")
    turns.may_wind_down.clear()
    app = gateway(turns)
    async with asking(app) as first:
        await first.begin()
        first.leave()
        await turns.interrupted.wait()
        async with asking(app) as second:
            turns.say(b"two", End())
            assert (MARK, "joined") not in (await second.begin())[1]
            turns.may_wind_down.set()
            assert await rest(second) == b"two"
    assert shown(await ask(app)) == (200, b"two", "replayed")


@pytest.mark.promise("limits.idempotency.other-body")
@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "when it is over"])
async def test_another_body_under_the_same_key_is_refused(running: bool) -> None:
    turns = Turns(b"one") if running else Turns(b"one", End())
    app = gateway(turns)
    async with asking(app) as first:
        await first.begin()
        refused = await ask(app, b"hello")
        turns.say(End())
    assert (refused.status, refused.header(MARK)) == (400, None)
    assert refused.json() == {
        "error": {
            "message": "The Idempotency-Key was used with another request before. Use a fresh key for each request, "
            "and the same one only to repeat a request as it was.",
            "type": "invalid_request_error",
            "param": "Idempotency-Key",
            "code": "idempotency_key_reused",
        }
    }
    assert shown(await ask(app)) == (200, b"one", "replayed")


@pytest.mark.parametrize(
    ("more", "query"),
    [
        ({"x-proxy-output-mode": "obsidian-xml"}, b""),
        ({"x-no-keepalive": "1"}, b""),
        ({}, b"no_keepalive=1"),
    ],
    ids=["output mode", "no keepalive", "query"],
)
async def test_the_same_body_is_another_request_if_its_answer_would_be_another(
    more: dict[str, str], query: bytes
) -> None:
    app = gateway(Turns(b"one", End()))
    plain = await ask(app)
    other = await call(app, "POST", CHAT, headers={**headers(), **more}, body=[b"hi"], query=query)
    same = await call(app, "POST", CHAT, headers={**headers(), "user-agent": "another"}, body=[b"hi"])
    assert (shown(plain), shown(same)) == ((200, b"one", None), (200, b"one", "replayed"))
    assert (other.status, b"idempotency_key_reused" in other.body) == (400, True)


async def test_a_key_belongs_to_one_client_and_one_route_with_or_without_v1() -> None:
    turns = Turns(b"one", End(), b"two", End(), b"three", End())
    app = gateway(turns)
    assert shown(await ask(app)) == (200, b"one", None)
    assert shown(await ask(app, client="another")) == (200, b"two", None)
    assert shown(await ask(app, path=RESPONSES)) == (200, b"three", None)
    assert shown(await ask(app, path="/chat/completions")) == (200, b"one", "replayed")


@pytest.mark.promise("limits.idempotency.other-body")
@pytest.mark.parametrize(
    ("beats", "status"),
    [
        ([ContextTooLong("Shorten it.")], 400),
        ([b"half", UpstreamFailed("Broken.")], 200),
        ([b"half", End(error_code="upstream_error")], 200),
    ],
    ids=["an error before the answer", "a broken answer", "an error inside a stream"],
)
async def test_what_failed_is_not_kept(beats: list[Beat], status: int) -> None:
    turns = Turns(*beats)
    app = gateway(turns)
    assert (await ask(app)).status == status
    turns.say(b"one", End())
    assert shown(await ask(app)) == (200, b"one", None)


async def test_an_answer_that_is_an_error_is_not_kept() -> None:
    app = gateway(Turns(b"no", End(), b"still no", End(), status=503))
    assert shown(await ask(app)) == (503, b"no", None)
    assert shown(await ask(app)) == (503, b"still no", None)


async def test_whoever_joined_gets_the_same_error() -> None:
    turns = Turns()
    app = gateway(turns)
    async with asking(app) as first:
        await turns.begun.wait()
        async with asking(app) as second:
            turns.say(ContextTooLong("Shorten it."))
            begun = [await first.begin(), await second.begin()]
            bodies = [await rest(first), await rest(second)]
    assert [(status, (MARK, "joined") in given) for status, given in begun] == [(400, False), (400, True)]
    assert bodies[0] == bodies[1]


async def test_when_the_server_stops_the_request_that_runs_the_turn_those_who_joined_are_told() -> None:
    turns = Turns()
    app = gateway(turns)
    async with asking(app) as first:
        await turns.begun.wait()
        async with asking(app) as second:
            await settled()
            first.cancel()
            assert (await second.begin())[0] == 503
            assert b'"code":"shutting_down"' in await rest(second)


async def test_answers_are_forgotten_after_their_time() -> None:
    turns = Turns(b"one", End(), b"two", End())
    app = gateway(turns, Bounds(kept_s=0))
    assert shown(await ask(app)) == (200, b"one", None)
    # Timers that are due have run when this one has.
    await asyncio.sleep(0.001)
    assert shown(await ask(app)) == (200, b"two", None)


@pytest.mark.parametrize(
    "bounds", [Bounds(answers=2), Bounds(total_bytes=7), Bounds(total_bytes=6)], ids=["number", "bytes", "exactly"]
)
async def test_the_oldest_answer_makes_room(bounds: Bounds) -> None:
    turns = Turns(b"aaa", End(), b"bbb", End(), b"ccc", End(), b"ddd", End())
    app = gateway(turns, bounds)
    for key in "abc":
        await ask(app, key=key)
    assert shown(await ask(app, key="b")) == (200, b"bbb", "replayed")
    assert shown(await ask(app, key="c")) == (200, b"ccc", "replayed")
    assert shown(await ask(app, key="a")) == (200, b"ddd", None)


@pytest.mark.parametrize("bounds", [Bounds(answers=2), Bounds(total_bytes=7)], ids=["number", "bytes"])
async def test_no_client_drives_out_the_answers_of_another(bounds: Bounds) -> None:
    turns = Turns(b"mine", End(), b"abc", End(), b"abc", End(), b"abc", End(), b"abc", End())
    app = gateway(turns, bounds)
    await ask(app, key="mine")
    for key in "abcd":
        assert shown(await ask(app, key=key, client="another")) == (200, b"abc", None)
    assert shown(await ask(app, key="mine")) == (200, b"mine", "replayed")


async def test_an_answer_that_made_room_is_not_forgotten_again() -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    turns = Turns(b"one", End(), b"two", End())
    app = gateway(turns, Bounds(answers=1, kept_s=0.01))
    await ask(app, key="makes room")
    await ask(app)
    # Later than the time of either.
    await asyncio.sleep(0.02)
    asyncio.get_running_loop().set_exception_handler(None)
    assert faults == []


async def test_what_is_forgotten_gives_its_room_back() -> None:
    turns = Turns()
    app = gateway(turns, Bounds(total_bytes=4, answer_bytes=4, kept_s=0))
    for _ in range(5):
        turns.say(b"gone", End())
        await ask(app, key="expires")
        await asyncio.sleep(0.001)
        turns.say(b"gone", UpstreamFailed("Broken."))
        await ask(app, key="fails")
        turns.say(b"too long", End())
        await ask(app, key="is too long")
    turns.say(b"four")
    async with asking(app) as first:
        await first.begin()
        async with asking(app) as second:
            assert (MARK, "joined") in (await second.begin())[1]
            turns.say(End())


@pytest.mark.parametrize("bounds", [Bounds(answer_bytes=5), Bounds(total_bytes=5)], ids=["its own", "the total"])
async def test_an_answer_over_the_bound_reaches_its_readers_and_nobody_else(bounds: Bounds) -> None:
    turns = Turns(b"one")
    app = gateway(turns, bounds)
    async with asking(app) as first:
        await first.begin()
        async with asking(app) as second:
            await second.begin()
            turns.say(b"two", b"three", b"four", End())
            assert (await rest(first), await rest(second)) == (b"onetwothreefour",) * 2
    turns.say(b"five", End())
    assert shown(await ask(app)) == (200, b"five", None)


class Client:
    """A client of the layer alone, which takes nothing until it may."""

    def __init__(self) -> None:
        self.may_take = asyncio.Event()
        self.left = asyncio.Event()
        self.taken = 0
        self._request: list[Message] = [{"type": "http.request", "body": b"hi"}]

    async def ask(self, app: ASGIApp) -> None:
        context = RequestContext(request_id="1", method="POST", route=CHAT, clock=time.monotonic, started_at=0)
        context.client = client_with(b"a key")
        context.headers = {b"idempotency-key": b"k"}
        scope = {"path": CHAT, "query_string": b"", "headers": [*context.headers.items()], CONTEXT_KEY: context}
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self._request:
            return self._request.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.may_take.wait()
        self.taken += len(message.get("body", b""))


@pytest.mark.parametrize(("leaves", "taken"), [(False, 100), (True, 0)], ids=["it takes all", "it leaves"])
async def test_an_answer_over_the_bound_waits_for_its_slowest_reader(leaves: bool, taken: int) -> None:
    turns = Turns()
    once = AnswerOnce(turns, answers=Answers(Bounds(answer_bytes=50)), bodies=BODIES)
    quick, slow = Client(), Client()
    quick.may_take.set()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(quick.ask(once))
        group.create_task(slow.ask(once))
        await settled()
        turns.say(*[b"x" * 10] * 10, End())
        await settled()
        # The bound, and the piece that went over it.
        assert (quick.taken, slow.taken) == (60, 0)
        (slow.left if leaves else slow.may_take).set()
    assert (quick.taken, slow.taken) == (100, taken)


async def test_an_answer_over_the_bound_loses_nothing_that_is_sent_while_it_waits() -> None:
    client = Client()
    piece: Message = {"type": "http.response.body", "body": b"x" * 10, "more_body": True}

    async def answers_in_two_voices(scope: Scope, receive: Receive, send: Send) -> None:
        await BODIES.read(scope, receive)
        client.may_take.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await settled()
        client.may_take.clear()
        async with asyncio.TaskGroup() as voices:
            voices.create_task(say(send))
            # The client is taking the first piece when the second one comes.
            await settled()
            voices.create_task(say(send))
            await settled()
            client.may_take.set()
        await send({"type": "http.response.body", "body": b"x"})

    async def say(send: Send) -> None:
        await send(piece)

    once = AnswerOnce(answers_in_two_voices, answers=Answers(Bounds(answer_bytes=5)), bodies=BODIES)
    async with asyncio.timeout(PATIENCE_S):
        await client.ask(once)
    assert client.taken == 21


async def test_a_body_over_the_limit_is_refused() -> None:
    turns = Turns()
    assert (await ask(gateway(turns), b"x" * (BODY_LIMIT + 1))).status == 413
    assert turns.asked == []


@given(
    steps=st.lists(
        st.sampled_from(["join", "join", "settle"])
        | st.tuples(st.just("leave"), st.integers(0, 9))
        | st.tuples(st.just("say"), st.binary(min_size=1, max_size=5)),
        max_size=25,
    ),
    bounds=st.sampled_from([BOUNDS, Bounds(answer_bytes=8), Bounds(total_bytes=8)]),
)
async def test_whoever_stays_gets_the_whole_answer_whenever_it_came_and_whoever_else_left(
    steps: list[str | tuple[str, int] | tuple[str, bytes]], bounds: Bounds
) -> None:
    turns = Turns()
    app = gateway(turns, bounds)
    said = b""
    readers: list[Exchange] = []
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        for step in ["join", *steps, "join", "settle"]:
            match step:
                # Nobody can join an answer over the bound: that would be another turn, with another answer.
                case "join" if not readers or len(said) <= 8:
                    readers.append(await stack.enter_async_context(asking(app)))
                case "settle":
                    await settled()
                case ("leave", int(number)) if readers:
                    # Who has not come yet cannot leave.
                    await settled()
                    readers.pop(number % len(readers)).leave()
                    await settled()
                    assert turns.interrupted.is_set() == (not readers)
                    if not readers:
                        said = b""
                        turns.interrupted.clear()
                case ("say", bytes(piece)) if readers:
                    turns.say(piece)
                    said += piece
                    await settled()
        turns.say(End())
        for reader in readers:
            await reader.begin()
        assert [await rest(reader) for reader in readers] == [said] * len(readers)
    kept = shown(await ask(app)) if len(said) <= 8 else None
    assert kept in (None, (200, said, "replayed"))


async def test_a_long_answer_is_played_in_pieces() -> None:
    long = bytes(range(256)) * 1000
    app = gateway(Turns(long, b"the end", End()))
    async with asking(app) as first:
        await first.begin()
        played = [piece async for piece in chunks(first)]
    assert (b"".join(played), max(map(len, played)) <= PIECE_BYTES) == (long + b"the end", True)
    async with asking(app) as repeat:
        await repeat.begin()
        replayed = [piece async for piece in chunks(repeat)]
    assert (b"".join(replayed), max(map(len, replayed))) == (long + b"the end", PIECE_BYTES)


async def chunks(exchange: Exchange) -> AsyncIterator[bytes]:
    while (piece := await exchange.chunk()) is not None:
        yield piece
