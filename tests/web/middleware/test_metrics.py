"""What is counted, and who may read it."""

from collections.abc import Iterator, Mapping

import pytest
from prometheus_client import REGISTRY
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tests.web.asgi_driver import call
from turnbridge.turn.errors import InvalidRequest, RateLimited, UpstreamOverloaded, UpstreamRateLimited
from turnbridge.turn.events import Usage
from turnbridge.web.middleware.auth import MOST_WRONG_KEYS
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import MOST_MODELS, Metrics, context_of

pytestmark = pytest.mark.anyio

KEY = {"authorization": "Bearer right-key"}
TOKEN = {"authorization": "Bearer let-me-in"}
HERE = {"host": "127.0.0.1:11435"}
NEAR = ("127.0.0.1", 40000)
FAR = ("203.0.113.9", 40000)


class Turn:
    """A handler that spends tokens, and looks at the gauge while it is active."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.active: float | None = None

    async def serve(self, request: Request) -> Response:
        self.active = self.metrics.registry.get_sample_value("turnbridge_active_requests")
        context = context_of(request.scope)
        context.usage = Usage(input=30, cached=20, output=10)
        context.codex_model = request.headers.get("x-model")
        context.mark("output")
        return PlainTextResponse("fine")


async def fail(request: Request) -> Response:
    match request.path_params["how"]:
        case "fast":
            raise RateLimited("Slow down.")
        case "provider":
            raise UpstreamRateLimited("Slow down.")
        case "overloaded":
            raise UpstreamOverloaded("Later.")
        case "own":
            raise InvalidRequest("No.", code="code_of_a_plugin")
        case how:
            raise InvalidRequest("No.", code=how)


def ticking() -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += 1.0


def gateway(metrics: Metrics, *, token: str | None = None) -> ASGIApp:
    routes = [
        Route("/v1/turn", Turn(metrics).serve, methods=["POST"]),
        Route("/v1/fail/{how}", fail),
        Route("/metrics", metrics.scrape),
    ]
    seconds = ticking()
    return wrap(
        Router(routes), keyring=Keyring("right-key"), metrics=metrics, metrics_token=token, clock=lambda: next(seconds)
    )


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.promise("ingress.metrics.labels")
async def test_requests_are_counted_by_template_status_and_outcome() -> None:
    metrics = Metrics()
    app = gateway(metrics)
    await call(app, "POST", "/v1/turn", headers=KEY)
    await call(app, "POST", "/v1/turn")
    for number in range(3):
        await call(app, "GET", f"/scan/{number}", headers=KEY)
    await call(app, "GET", "/v1/fail/fast", headers=KEY)
    assert samples(metrics, "turnbridge_requests_total") == {
        ("/v1/turn", "2xx", "ok"): 1,
        ("/v1/turn", "4xx", "client_error"): 1,
        ("other", "4xx", "client_error"): 3,
        ("/v1/fail/{how}", "4xx", "client_error"): 1,
    }


async def test_times_and_tokens_are_counted() -> None:
    metrics = Metrics()
    # The clock is read at the start, at the first output, at the first byte and at the end.
    await call(gateway(metrics), "POST", "/v1/turn", headers=KEY)
    assert samples(metrics, "turnbridge_request_seconds_sum") == {("/v1/turn",): 3}
    assert samples(metrics, "turnbridge_first_output_seconds_sum") == {("other",): 1}
    spent = {("input", "other"): 30, ("cached", "other"): 20, ("output", "other"): 10}
    assert samples(metrics, "turnbridge_tokens_total") == spent


@pytest.mark.promise("ingress.metrics.labels")
async def test_no_more_models_than_that_have_series_of_their_own() -> None:
    metrics = Metrics()
    app = gateway(metrics)
    for number in range(MOST_MODELS + 5):
        await call(app, "POST", "/v1/turn", headers={**KEY, "x-model": f"m{number}"})
    await call(app, "POST", "/v1/turn", headers={**KEY, "x-model": "m3"})
    counts = samples(metrics, "turnbridge_first_output_seconds_count")
    assert counts == {(f"m{number}",): 1 for number in range(MOST_MODELS)} | {("m3",): 2, ("other",): 5}


async def test_a_counter_may_be_read_from_what_counts_by_itself() -> None:
    metrics, lost = Metrics(), [3.0]
    ended: dict[tuple[str, ...], float] = {("a",): 1, ("b",): 0}
    metrics.watch_total("lost_total", "Lost.", lambda: lost[0])
    metrics.watch_each("ended_total", "Ended.", lambda: ended, labels=("reason",))
    lost[0], ended["b",] = 4.0, 2
    text = (await call(gateway(metrics), "GET", "/metrics", headers=KEY)).body.decode()
    assert "# TYPE lost_total counter\nlost_total 4.0\n" in text
    assert 'ended_total{reason="a"} 1.0\nended_total{reason="b"} 2.0\n' in text


async def test_a_request_is_active_while_it_is_served() -> None:
    metrics = Metrics()
    turn = Turn(metrics)
    app = wrap(Router([Route("/v1/turn", turn.serve)]), keyring=Keyring("right-key"), metrics=metrics)
    await call(app, "GET", "/v1/turn", headers=KEY)
    assert (turn.active, metrics.registry.get_sample_value("turnbridge_active_requests")) == (1, 0)


@pytest.mark.promise("ingress.metrics.labels")
async def test_errors_are_counted_by_known_codes_only() -> None:
    metrics = Metrics()
    app = gateway(metrics)
    for how in ("fast", "provider", "overloaded", "own", "made-up-1", "made-up-2"):
        await call(app, "GET", f"/v1/fail/{how}", headers=KEY)
    await call(app, "GET", "/v1/turn")
    assert samples(metrics, "turnbridge_errors_total") == {
        ("rate_limit_exceeded", "gateway"): 1,
        ("rate_limit_exceeded", "provider"): 1,
        ("server_is_overloaded", "provider"): 1,
        ("other", "client"): 3,
        ("invalid_api_key", "client"): 1,
    }


async def test_nothing_is_put_into_the_libraries_global_registry() -> None:
    Metrics()
    assert [family.name for family in REGISTRY.collect() if family.name.startswith("turnbridge")] == []


@pytest.mark.promise("ingress.metrics.access")
@pytest.mark.parametrize("client", [NEAR, FAR, None])
async def test_without_a_token_metrics_ask_for_the_key_of_everyone(client: tuple[str, int] | None) -> None:
    """Behind a reverse proxy on this machine, everybody seems to be on this machine."""
    app = gateway(Metrics())
    assert (await call(app, "GET", "/metrics", client=client, headers=HERE)).status == 401
    answer = await call(app, "GET", "/metrics", client=client, headers={**HERE, **KEY})
    assert answer.status == 200
    assert (answer.header("content-type") or "").startswith("text/plain; version=")
    assert b"turnbridge_active_requests 1.0\n" in answer.body


@pytest.mark.promise("ingress.metrics.access")
@pytest.mark.parametrize("client", [NEAR, FAR, None])
@pytest.mark.parametrize("headers", [HERE, {"host": "gateway.example", "x-forwarded-for": "203.0.113.9"}])
async def test_a_token_is_asked_of_everyone_and_enough(
    client: tuple[str, int] | None, headers: Mapping[str, str]
) -> None:
    app = gateway(Metrics(), token="let-me-in")
    for wrong in ({}, KEY, {"authorization": "Bearer let-me-i"}):
        answer = await call(app, "GET", "/metrics", client=client, headers={**headers, **wrong})
        assert answer.status == 401
        assert b"where YOUR_KEY is the PROXY_METRICS_TOKEN of this server." in answer.body
    assert (await call(app, "GET", "/metrics", client=client, headers={**headers, **TOKEN})).status == 200


async def test_a_token_cannot_be_guessed_at_any_speed() -> None:
    app = gateway(Metrics(), token="let-me-in")
    wrong = {"authorization": "Bearer guess"}
    answers = [await call(app, "GET", "/metrics", client=FAR, headers=wrong) for _ in range(MOST_WRONG_KEYS + 1)]
    assert [answer.status for answer in answers] == [401] * MOST_WRONG_KEYS + [429]
    assert (await call(app, "GET", "/metrics", client=FAR, headers=TOKEN)).status == 429


async def test_an_empty_metrics_token_is_none() -> None:
    app = gateway(Metrics(), token="")
    assert (await call(app, "GET", "/metrics", headers={"authorization": "Bearer "})).status == 401
    assert (await call(app, "GET", "/metrics", headers=KEY)).status == 200


@pytest.mark.promise("ingress.metrics")
async def test_metrics_speak_openmetrics_to_those_who_ask() -> None:
    headers = {"accept": "application/openmetrics-text; version=1.0.0", **KEY}
    answer = await call(gateway(Metrics()), "GET", "/metrics", headers=headers)
    assert (answer.header("content-type") or "").startswith("application/openmetrics-text; version=1.0.0")
    assert answer.body.endswith(b"# EOF\n")
