"""How many requests a key may make, and what a client is told about it."""

import asyncio
import re

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from tests.web.asgi_driver import Answer, call
from turnbridge.app import Probes, build_app
from turnbridge.settings.fields import load_settings
from turnbridge.web.bodies import Bodies
from turnbridge.web.http import OPENAI, RouteOf
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.meter import Meter
from turnbridge.web.middleware.observability import Metrics
from turnbridge.web.middleware.rate_limit import (
    RATE_HEADERS,
    RequestRates,
    duration,
)

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
MINE, ANOTHERS = "key-of-mine", "key-of-another"


class Generating:
    """An API with two routes that generate and one that does not, without a model behind them."""

    dialect = OPENAI

    def routes(self) -> list[RouteOf]:
        return [
            RouteOf("POST", "/chat/completions", self.answer, generates=True),
            RouteOf("POST", "/responses", self.answer, generates=True),
            RouteOf("GET", "/models", self.answer),
        ]

    async def answer(self, _request: Request) -> Response:
        return PlainTextResponse("answered")


class Clock:
    """The time of day, which only the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that limits are counted by."""
    stopped = Clock()
    monkeypatch.setattr("time.time", stopped.time)
    return stopped


def gateway(limit: str | RequestRates | None) -> ASGIApp:
    return build_app(
        [Generating()],
        probes=Probes(lambda _: "", lambda _: "exact"),
        keyring=Keyring(f"{MINE},{ANOTHERS}"),
        metrics=Metrics(),
        metrics_token=None,
        allowed_origins=(),
        rates=limit if isinstance(limit, RequestRates) else RequestRates(limit),
        meter=Meter(None),
        bodies=Bodies(1000),
    )


async def ask(app: ASGIApp, path: str = CHAT, *, key: str = MINE, method: str = "POST") -> Answer:
    return await call(app, method, path, headers={"authorization": f"Bearer {key}"})


def told(answer: Answer) -> tuple[int, str | None, list[str | None]]:
    """Return the status, `retry-after`, and limit, remaining and reset."""
    return answer.status, answer.header("retry-after"), [answer.header(name) for name in RATE_HEADERS]


@pytest.mark.promise("limits.rate", "limits.rate.headers")
async def test_every_answer_tells_what_remains_and_one_too_many_is_told_when_to_come_back(clock: Clock) -> None:
    app = gateway("2/minute")
    assert told(await ask(app)) == (200, None, ["2", "1", "1m0s"])
    clock.now += 20
    assert told(await ask(app)) == (200, None, ["2", "0", "40s"])
    clock.now += 9.5
    refused = await ask(app)
    assert told(refused) == (429, "31", ["2", "0", "30.5s"])
    assert refused.json() == {
        "error": {
            "message": "Rate limit reached for this key: 2 requests per minute. Try again in 30.5s.",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }


async def test_a_place_comes_free_when_the_oldest_request_leaves_the_window(clock: Clock) -> None:
    app = gateway("2/minute")
    await ask(app)
    clock.now += 20
    await ask(app)
    clock.now += 40.001
    assert told(await ask(app)) == (200, None, ["2", "0", "20s"])
    assert told(await ask(app)) == (429, "20", ["2", "0", "20s"])


async def test_the_tightest_of_several_limits_is_told_and_none_pays_for_what_another_refuses(clock: Clock) -> None:
    app = gateway("3/2 minutes; 1/second")
    assert told(await ask(app)) == (200, None, ["1", "0", "1s"])
    for _ in range(5):
        assert told(await ask(app)) == (429, "1", ["1", "0", "1s"])
    clock.now += 10
    assert told(await ask(app)) == (200, None, ["1", "0", "1s"])
    clock.now += 10
    assert told(await ask(app)) == (200, None, ["3", "0", "1m40s"])
    clock.now += 10
    refused = await ask(app)
    assert told(refused) == (429, "90", ["3", "0", "1m30s"])
    assert b"3 requests per 2 minutes" in refused.body


async def test_all_generation_routes_count_together_and_nothing_else_counts() -> None:
    app = gateway("4/hour")
    for path in ("/v1/chat/completions", "/chat/completions", "/v1/responses", "/responses"):
        assert (await ask(app, path, method="PUT")).status == 405
        assert (await ask(app, path, key="a-wrong-key")).status == 401
        assert (await ask(app, path)).status == 200
    assert (await ask(app, "/v1/responses")).status == 429
    assert told(await ask(app, "/healthz", method="GET")) == (200, None, [None, None, None])


@pytest.mark.promise("limits.rate")
async def test_each_key_has_limits_of_its_own() -> None:
    app = gateway("1/hour")
    assert [(await ask(app, key=key)).status for key in (MINE, MINE, ANOTHERS, ANOTHERS)] == [200, 429, 200, 429]


async def test_without_a_limit_nothing_is_said_about_one() -> None:
    assert told(await ask(gateway(None))) == (200, None, [None, None, None])


@pytest.mark.promise("limits.rate")
async def test_requests_at_the_same_time_get_no_more_than_the_limit() -> None:
    app = gateway("10/hour")
    answers = await asyncio.gather(*[ask(app) for _ in range(40)])
    assert sorted(answer.status for answer in answers) == [200] * 10 + [429] * 30


async def test_a_web_page_may_read_these_headers() -> None:
    headers = {"authorization": f"Bearer {MINE}", "origin": "http://localhost:3000"}
    answer = await call(gateway("1/hour"), "POST", CHAT, headers=headers)
    exposed = (answer.header("access-control-expose-headers") or "").split(", ")
    assert {*RATE_HEADERS, "retry-after"} <= set(exposed)


@pytest.mark.promise("limits.rate.headers")
@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0ms"),
        (0.0201, "21ms"),
        (0.9999, "1s"),
        (1.5, "1.5s"),
        (59.999, "59.999s"),
        (60, "1m0s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
        (86399.25, "23h59m59.25s"),
    ],
)
def test_a_duration_is_written_as_openai_does(seconds: float, written: str) -> None:
    assert duration(seconds) == written


@pytest.mark.parametrize("value", ["60", "sixty/minute", "60/fortnight", "0/minute", "60/minute;", "60/minute;0/day"])
def test_a_limit_that_cannot_be_understood_is_refused_at_the_start(value: str) -> None:
    expected = "PROXY_RATE_LIMIT: expected `60/minute`, or several limits as `60/minute;1000/day`"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        load_settings(PROXY_RATE_LIMIT=value)


@pytest.mark.parametrize("value", ["disk", "http://127.0.0.1", "memcached://127.0.0.1", "redis://127.0.0.1:many"])
def test_a_storage_that_is_none_is_refused_at_the_start(value: str) -> None:
    with pytest.raises(ValueError, match=r"^PROXY_RATE_LIMIT_STORAGE: .+$"):
        load_settings(PROXY_RATE_LIMIT_STORAGE=value)


def test_a_redis_without_its_client_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"a Redis needs a package: .+ pip install .*redis$"):
        load_settings(PROXY_RATE_LIMIT_STORAGE="redis://127.0.0.1")
