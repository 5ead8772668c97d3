"""The application of the second listener: who may use it, and its routes around those of the other APIs.

Most of Ollama's clients can send no key, so programs on this machine need none. A web page is no such program, though
it runs here: one of a foreign origin is refused, and so is one that comes under a name that is not this machine's (DNS
rebinding). Whoever comes from another machine, or through a proxy that says so, needs a key of the gateway's.
"""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from starlette.middleware import Middleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Scope

from turnbridge.api.ollama.routes import OLLAMA, Ollama
from turnbridge.api.own_listener import OwnListener
from turnbridge.turn.clients import Client
from turnbridge.turn.errors import Forbidden, InvalidApiKey
from turnbridge.web.bodies import Bodies
from turnbridge.web.http import Dialect, RouteOf, header_value, is_loopback, names_us
from turnbridge.web.middleware.auth import ENDED, HOST_ECHO_LIMIT, Keys
from turnbridge.web.middleware.cors import Origins
from turnbridge.web.middleware.idempotency import AnswerOnce, Answers
from turnbridge.web.middleware.ingress import Ingress, PageSide, RequestEnded
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.limits import Limits
from turnbridge.web.middleware.meter import Meter
from turnbridge.web.middleware.observability import OTHER, Metrics, context_of
from turnbridge.web.middleware.rate_limit import RequestRates
from turnbridge.web.middleware.spans import Spans

LISTENER = OwnListener(
    name="ollama",
    title="Ollama",
    setting="PROXY_OLLAMA",
    host="127.0.0.1",
    ports=range(11434, 11454),
    rival="Ollama itself",
    note="no key on this machine",
)
CLIENT = Client(id="ollama", name="ollama")
"""Whom the requests without a key count for. Other ids are digests, so that none is the same."""

# How containers name the machine that they run on; `.internal` is no domain that anybody can own.
HOST_NAMES = ("host.docker.internal", "gateway.docker.internal", "host.containers.internal")
# What reverse proxies add. Behind one of them, everybody seems to be on this machine.
PROXY_HEADERS = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
ANY_ORIGIN = "*"
GRANTED = b"access-control-allow-origin"


class Api(Protocol):
    """One of the APIs that are served under `/v1` too."""

    def routes(self) -> list[RouteOf]:
        """Return its routes."""
        ...

    @property
    def dialect(self) -> Dialect:
        """Return how errors are told on its routes."""
        ...


class Visitors:
    """Who may use the listener, and as which client."""

    def __init__(self, keyring: Keyring) -> None:
        self._keys = Keys(keyring)
        self._keyring = keyring

    def client(self, scope: Scope) -> Client:
        """Return the client of a request; raises what refuses it."""
        proxied = any(name in PROXY_HEADERS for name, _ in scope["headers"])
        # A key that comes from here is not looked at: many clients send just any, since Ollama asks for none.
        here = is_loopback(context_of(scope).peer) and not proxied
        return self._without_key(scope) if here else self._keys.check(scope)

    def _without_key(self, scope: Scope) -> Client:
        """Return the client of a program on this machine: that of the key of this name, if the operator made one."""
        _check_local(scope)
        record = self._keyring.named(CLIENT.name)
        if record is None:
            return CLIENT
        if (ended := record.ended(time.time())) is not None:
            raise InvalidApiKey(f"{ENDED[ended]}: `{record.name}`, which stands for programs that send none.")
        return record.as_client()


def _check_local(scope: Scope) -> None:
    """Raise `Forbidden` for a page that is not of this machine."""
    if not names_us(scope, HOST_NAMES):
        host = (header_value(scope, b"host") or b"")[:HOST_ECHO_LIMIT].decode("latin-1")
        raise Forbidden(f"The host '{host}' is not a name of this machine. Use 127.0.0.1 or localhost.")
    granted = any(name == GRANTED for name, _ in context_of(scope).response_headers)
    if header_value(scope, b"origin") is not None and not granted:
        # A browser only keeps the page from reading the answer, and the turn is run.
        raise Forbidden(
            "This origin may not call this server from a browser. Add it to PROXY_CORS_ALLOWED_ORIGINS to allow it."
        )


def build_listener(
    api: Ollama,
    others: Iterable[Api],
    *,
    keyring: Keyring,
    metrics: Metrics,
    leaving: Callable[[], bool],
    spans: Spans | None,
    allowed_origins: Iterable[str],
    exposed_headers: Iterable[str],
    rates: RequestRates,
    meter: Meter,
    bodies: Bodies,
    on_end: RequestEnded | None,
    replica: str | None = None,
) -> ASGIApp:
    """Return the whole HTTP side of the listener; `others` are served under `/v1` as on the main port.

    `leaving` tells whether the gateway is about to stop; `on_end` is told of each request that has ended;
    `replica` is named in every answer.
    """
    routes, dialects = _routes(api, others, rates, meter, bodies)
    # Any origin is a choice for a server that asks for a key.
    origins = Origins((origin for origin in allowed_origins if origin != ANY_ORIGIN), exposed_headers)
    return Ingress(
        Router(routes),
        origins=origins,
        identify=Visitors(keyring).client,
        prefixes=("/api/", "/v1/"),
        metrics=metrics,
        keyring=keyring,
        dialects=dialects,
        leaving=leaving,
        spans=spans,
        page=PageSide(on_end=on_end),
        replica=replica,
    )


def _routes(
    api: Ollama, others: Iterable[Api], rates: RequestRates, meter: Meter, bodies: Bodies
) -> tuple[list[Route], dict[str, Dialect]]:
    """Return all routes, and their dialects by template."""
    layers = [Middleware(AnswerOnce, answers=Answers(), bodies=bodies)]
    limited = [Middleware(Limits, meter=meter, rates=rates), *layers]
    routes: list[Route] = []
    dialects: dict[str, Dialect] = {OTHER: OLLAMA}
    for prefix, each in (("", api), *(("/v1", other) for other in others)):
        for route in each.routes():
            inside = (limited if route.generates else layers) if route.method == "POST" else []
            methods = None if route.method is None else [route.method]
            routes.append(Route(f"{prefix}{route.path}", route, methods=methods, middleware=inside))
            dialects[routes[-1].path_format] = each.dialect
    return routes, dialects
