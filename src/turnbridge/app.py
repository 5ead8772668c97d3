"""The application: its routes, each with and without `/v1`, inside the ingress."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from turnbridge.api.generation import IGNORED_HEADER, MODEL_HEADER
from turnbridge.api.openapi.document import OpenApi
from turnbridge.api.openapi.gateway import PART as GATEWAY
from turnbridge.api.openapi.gateway import PATH as OPENAPI
from turnbridge.api.openapi.operations import Part
from turnbridge.api.shared.output_mode import MODE_HEADER
from turnbridge.api.unserved import Unserved
from turnbridge.engine.ports import PlanWindow
from turnbridge.engine.sharing import AnswerClaims
from turnbridge.turn.items import JsonObject
from turnbridge.web.answer import FIDELITY_HEADER, QUEUED_HEADER, THREAD_HEADER, USAGE_HEADER
from turnbridge.web.bodies import Bodies
from turnbridge.web.http import Dialect, RouteOf, json_response
from turnbridge.web.middleware.answers_elsewhere import REPEAT_HEADER
from turnbridge.web.middleware.idempotency import AnswerOnce, Answers
from turnbridge.web.middleware.ingress import NO_PAGE, REPLICA_HEADER, PageSide, wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.limits import PLAN_HEADERS, Limits
from turnbridge.web.middleware.meter import TOKEN_HEADERS, Meter
from turnbridge.web.middleware.observability import Metrics, context_of
from turnbridge.web.middleware.rate_limit import RATE_HEADERS, RequestRates
from turnbridge.web.middleware.spans import Spans

EXPOSED_HEADERS = (
    MODEL_HEADER,
    IGNORED_HEADER,
    USAGE_HEADER,
    QUEUED_HEADER,
    THREAD_HEADER,
    REPEAT_HEADER,
    MODE_HEADER,
    FIDELITY_HEADER,
    REPLICA_HEADER,
    *RATE_HEADERS,
    *TOKEN_HEADERS,
    *PLAN_HEADERS,
)
"""What the gateway says of an answer, which the pages of allowed origins may read."""

REASON_FOR_OTHERS = "Turns cannot be run now. Send the API key with this request to see why, or look into the log."
"""The reason itself may name paths, a user and a command."""


class Api(Protocol):
    """One of the APIs that are served."""

    def routes(self) -> list[RouteOf]:
        """Return its routes."""
        ...

    @property
    def dialect(self) -> Dialect:
        """Return how errors are told and keys are sent on its routes."""
        ...


class OneOfMany(Protocol):
    """This gateway, if it is one of several replicas."""

    @property
    def id(self) -> str:
        """Return its id."""
        ...

    def degraded(self) -> str:
        """Return what does not work as it should, though requests are served; or nothing."""
        ...


class Page(Protocol):
    """The page for browsers."""

    def routes(self) -> list[Route]:
        """Return its routes."""
        ...

    def described(self) -> Part:
        """Return its part of the OpenAPI document."""
        ...

    def side(self) -> PageSide:
        """Return what it needs of every request."""
        ...


@dataclass(frozen=True, slots=True)
class Probes:
    """What the routes say that tell whether the gateway is well."""

    problem: Callable[[str | None], str]
    """Returns why turns of an account cannot be run now, or nothing."""
    fidelity: Callable[[str | None], str]
    accounts: Callable[[], Mapping[str, str]] = dict
    """Returns the problem of each account, if there are several."""

    def routes(self, replica: OneOfMany | None) -> list[Route]:
        """Return the routes."""
        ready = partial(self._ready, replica)
        return [Route("/healthz", _alive), Route("/livez", _alive), Route("/readyz", ready)]

    async def _ready(self, replica: OneOfMany | None, request: Request) -> Response:
        """Answer for the account of the key that the request brings; the operator sees all accounts."""
        client = context_of(request.scope).client
        account = None if client is None else client.limits.account
        reason = self.problem(account)
        each: JsonObject = {}
        if client is not None and client.admin:
            each = {name: why or "ready" for name, why in self.accounts().items()}
        listed: JsonObject = {"accounts": each} if each else {}
        if not reason:
            if replica is not None and (lack := replica.degraded()):
                listed["degraded"] = lack
            return json_response({"status": "ready", "fidelity": self.fidelity(account), **listed})
        shown = REASON_FOR_OTHERS if client is None else reason
        return json_response({"status": "not_ready", "reason": shown, **listed}, status=503)


async def _alive(_: Request) -> Response:
    return json_response({"status": "ok"})


def build_app(
    apis: Iterable[Api],
    *,
    probes: Probes,
    leaving: Callable[[], bool] = lambda: False,
    spans: Spans | None = None,
    keyring: Keyring,
    metrics: Metrics,
    metrics_token: str | None,
    replica: OneOfMany | None = None,
    claims: AnswerClaims | None = None,
    own_names: Collection[str] = (),
    allowed_origins: Iterable[str],
    rates: RequestRates,
    meter: Meter,
    plan: Callable[[str | None], Mapping[str, PlanWindow]] = lambda _: {},
    bodies: Bodies,
    page: Page | None = None,
    described: Iterable[Part] = (),
) -> ASGIApp:
    """Return the whole HTTP side.

    `described` is what the OpenAPI document has of each API.
    `leaving` says whether the gateway is about to stop; `replica` which of several gateways it is; `claims` are those
    of all of them on answers; `own_names` are names of the server besides its addresses.
    """
    # What creates something does so once for each `Idempotency-Key`.
    once = [Middleware(AnswerOnce, answers=Answers(claims=claims), bodies=bodies)]
    limited = [Middleware(Limits, rates=rates, meter=meter, plan=plan), *once]
    # First what is not served: some of its paths would be taken for ids.
    routes, dialects = _api_routes((Unserved(), *apis), once=once, limited=limited)
    routes += [*probes.routes(replica), Route("/metrics", metrics.scrape), *_page_and_document(described, page)]
    return wrap(
        Router(routes),
        keyring=keyring,
        metrics=metrics,
        metrics_token=metrics_token,
        own_names=own_names,
        allowed_origins=allowed_origins,
        exposed_headers=EXPOSED_HEADERS,
        dialects=dialects,
        leaving=leaving,
        replica=None if replica is None else replica.id,
        page=NO_PAGE if page is None else page.side(),
        spans=spans,
    )


def _page_and_document(described: Iterable[Part], page: Page | None) -> list[Route]:
    own = [] if page is None else [page.described()]
    document = Route(OPENAPI, OpenApi([GATEWAY, *described, *own]).serve)
    return [document] if page is None else [document, *page.routes()]


def _api_routes(
    apis: Iterable[Api], *, once: Sequence[Middleware], limited: Sequence[Middleware]
) -> tuple[list[Route], dict[str, Dialect]]:
    """Return the routes of all APIs, and their dialects by template."""
    routes: list[Route] = []
    dialects: dict[str, Dialect] = {}
    for api in apis:
        served = [each for route in api.routes() for each in _both(route, limited if route.generates else once)]
        routes += served
        dialects |= {route.path_format: api.dialect for route in served}
    return routes, dialects


def _both(route: RouteOf, layers: Sequence[Middleware] = ()) -> list[Route]:
    """Return a route twice: clients differ in whether their base URL ends in `/v1`."""
    methods = None if route.method is None else [route.method]
    inside = layers if route.method == "POST" else ()
    return [Route(path, route, methods=methods, middleware=inside) for path in (f"/v1{route.path}", route.path)]
