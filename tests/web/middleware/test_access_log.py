"""The one line that is logged for each request."""

import asyncio
import re
from dataclasses import dataclass

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.testing import capture_logs

from tests.web.asgi_driver import Exchange, call
from turnbridge.turn.errors import BackendUnavailable, InvalidRequest
from turnbridge.turn.events import Usage
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring, client_with
from turnbridge.web.middleware.observability import Metrics, Outcome, RequestContext, context_of

pytestmark = pytest.mark.anyio

KEY = {"authorization": "Bearer right-key", "x-request-id": "mine"}
START = {"type": "http.response.start", "status": 200, "headers": []}
PIECE = {"type": "http.response.body", "body": b"piece", "more_body": True}
END = {"type": "http.response.body", "body": b""}


@dataclass(slots=True)
class Clock:
    """A clock that the test moves."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def gateway(route: Route, clock: Clock | None = None) -> ASGIApp:
    return wrap(Router([route]), keyring=Keyring("right-key"), metrics=Metrics(), clock=clock or Clock())


@pytest.mark.promise("ingress.log", "ingress.log.private")
async def test_the_line_tells_who_waited_how_long_for_what() -> None:
    clock = Clock()

    class Turn:
        async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
            context = context_of(scope)
            context.model = "m" * 200
            context.served_by = "warm"
            context.stream = True
            clock.now += 0.25
            await send(START)
            clock.now += 0.5
            context.mark("output")
            await send(PIECE)
            clock.now += 1
            context.mark("output")
            context.usage = Usage(input=30, cached=20, output=10, reasoning=5)
            await send(END)

    with capture_logs() as logs:
        await call(
            gateway(Route("/v1/turns/{turn_id}", Turn()), clock),
            "POST",
            "/v1/turns/secret-path",
            headers=KEY,
            query=b"secret=query",
        )
    assert logs == [
        {
            "event": "request",
            "log_level": "info",
            "request_id": "mine",
            "client": client_with(b"right-key").name,
            "peer": "127.0.0.1",
            "method": "POST",
            "route": "/v1/turns/{turn_id}",
            "model": "m" * 128,
            "served_by": "warm",
            "stream": True,
            "status": 200,
            "outcome": "ok",
            "error_code": None,
            "input_tokens": 30,
            "cached_tokens": 20,
            "output_tokens": 10,
            "reasoning_tokens": 5,
            "first_byte_ms": 250.0,
            "first_output_ms": 750.0,
            "total_ms": 1750.0,
        }
    ]


@pytest.mark.promise("ingress.log.private")
async def test_an_unknown_path_is_not_logged_but_called_other() -> None:
    async def fine(_request: Request) -> Response:
        return PlainTextResponse("fine")

    with capture_logs() as logs:
        await call(gateway(Route("/v1/fine", fine)), "GET", "/private/path", headers=KEY)
    assert [log["route"] for log in logs] == ["other"]
    assert "private" not in str(logs)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InvalidRequest("No.", code="bad_field"), ("info", 400, "client_error", "bad_field")),
        (BackendUnavailable("Wait."), ("warning", 503, "server_error", "backend_unavailable")),
        (ValueError("a defect"), ("warning", 500, "server_error", "internal_error")),
    ],
)
async def test_an_error_is_logged_with_its_status_outcome_and_code(
    error: Exception, line: tuple[str, int, Outcome, str]
) -> None:
    async def fail(_request: Request) -> Response:
        raise error

    with capture_logs() as logs:
        await call(gateway(Route("/v1/fail", fail)), "GET", "/v1/fail", headers=KEY)
    last = logs[-1]
    assert (last["log_level"], last["status"], last["outcome"], last["error_code"]) == line


@pytest.mark.promise("ingress.log")
async def test_an_error_told_inside_the_stream_is_a_failure_though_the_status_was_200() -> None:
    class TellsItsError:
        async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
            await send(START)
            context_of(scope).error_code = "upstream_error"
            await send(END)

    with capture_logs() as logs:
        await call(gateway(Route("/v1/turn", TellsItsError())), "GET", "/v1/turn", headers=KEY)
    assert [(log["outcome"], log["error_code"]) for log in logs] == [("failed_mid_stream", "upstream_error")]


@pytest.mark.promise("ingress.log")
async def test_a_client_that_leaves_mid_stream_is_logged_as_gone() -> None:
    class Endless:
        async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await send(START)
            await send(PIECE)
            assert (await receive())["type"] == "http.disconnect"

    with capture_logs() as logs:
        async with Exchange(gateway(Route("/v1/turn", Endless())), "GET", "/v1/turn", headers=KEY) as exchange:
            await exchange.begin()
            assert await exchange.chunk() == b"piece"
            exchange.leave()
            assert await exchange.chunk() is None
    assert [(log["outcome"], log["status"]) for log in logs] == [("client_gone", 200)]


async def test_a_handler_that_finds_the_client_gone_while_sending_can_say_so() -> None:
    class SendsToNobody:
        async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
            await send(START)
            raise ClientDisconnect

    with capture_logs() as logs:
        await call(gateway(Route("/v1/turn", SendsToNobody())), "GET", "/v1/turn", headers=KEY)
    assert [(log["event"], log["outcome"]) for log in logs] == [("request", "client_gone")]


async def test_a_disconnect_after_the_whole_response_is_the_ordinary_end() -> None:
    class ListensOn:
        async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await send(START)
            await send(END)
            assert (await receive())["type"] == "http.disconnect"

    with capture_logs() as logs:
        await call(gateway(Route("/v1/turn", ListensOn())), "GET", "/v1/turn", headers=KEY)
    assert [log["outcome"] for log in logs] == ["ok"]


async def test_a_request_that_the_server_cancels_is_logged_all_the_same() -> None:
    class Hangs:
        async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
            await send(START)
            await asyncio.Event().wait()

    exchange = Exchange(gateway(Route("/v1/turn", Hangs())), "GET", "/v1/turn", headers=KEY)
    with capture_logs() as logs:
        async with exchange:
            await exchange.begin()
            exchange.cancel()
            assert await exchange.chunk() is None
    assert [(log["outcome"], log["status"]) for log in logs] == [("failed_mid_stream", 200)]


def test_a_request_that_never_got_an_answer_is_the_servers_failure() -> None:
    context = RequestContext(request_id="mine", method="GET", route="other", clock=Clock(), started_at=0)
    assert context.outcome() == "server_error"


def test_a_clients_name_is_the_same_every_time_and_tells_nothing_of_its_key() -> None:
    assert client_with(b"right-key").name == client_with(b"right-key").name != client_with(b"right-kez").name
    assert re.fullmatch(r"key-[0-9a-f]{8}", client_with(b"right-key").name)
