"""What happens to every request around its handler: identity, observation, errors, origins, the key.

All of it is one layer of plain ASGI, so that a stream passes through untouched. Only this layer looks at what is sent:
everything else leaves the headers that it wants in the `RequestContext`.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnbridge.turn.clients import Client
from turnbridge.turn.errors import (
    GatewayError,
    InternalFault,
    MethodNotAllowed,
    NotFound,
    WebSocketNotServed,
    without_frames,
)
from turnbridge.web.http import OPENAI, PAGE_PREFIX, PAGE_TOKEN, Dialect, encoded, new_id, wants_websocket
from turnbridge.web.middleware.auth import Authentication, Keys
from turnbridge.web.middleware.cors import Origins
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import (
    CONTEXT_KEY,
    OTHER,
    Metrics,
    Outcome,
    RequestContext,
    context_of,
    log_request,
)
from turnbridge.web.middleware.spans import Spans

PROBES = ("/healthz", "/readyz", "/livez")
"""Served without the key: they say whether turns can be run."""

OPEN_PATHS = (*PROBES, "/api/hello")
"""The last one is where Claude Code looks for a server, without a key, before its first request."""

METRICS = "/metrics"
"""Has a rule of its own."""

EXACT_PATHS = frozenset((*PROBES, METRICS))
"""Reached by these bytes only: a proxy that keeps one of them from the world has to match no other form of it."""

SANE_REQUEST_ID = re.compile(rb"[!-~](?:[ -~]{0,126}[!-~])?")
"""Printable ASCII, at most 128 characters: safe to echo in a header and to write in a log."""

PATH_ECHO_LIMIT = 200
"""The 404 repeats the path, since a wrong base URL is a usual cause; no path of ours is this long."""

VERSION = "/v1"

# Azure puts `/openai/deployments/NAME` before its routes.
MOST_MISPLACED = 4


# Enough to recognise a client by.
AGENT_LIMIT = 120

RequestEnded: TypeAlias = Callable[[RequestContext, Outcome, float], None]
"""Is told of a request that has ended, how and when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSide:
    """What the page for browsers needs of every request."""

    open_paths: Collection[str] = ()
    """Paths that ask for no key."""
    visitor: Callable[[Scope], Client] | None = None
    """Returns whose session a request of the page belongs to; raises `InvalidApiKey` or `Forbidden`."""
    on_end: RequestEnded | None = None
    """Is told of each request to an API."""


NO_PAGE = PageSide()
REPLICA_HEADER = "x-turnbridge-replica"


def wrap(
    router: Router,
    *,
    keyring: Keyring,
    metrics: Metrics,
    metrics_token: str | None = None,
    own_names: Collection[str] = (),
    allowed_origins: Iterable[str] = (),
    exposed_headers: Iterable[str] = (),
    dialects: Mapping[str, Dialect] | None = None,
    leaving: Callable[[], bool] = lambda: False,
    replica: str | None = None,
    page: PageSide = NO_PAGE,
    spans: Spans | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> ASGIApp:
    """Return `router` inside the ingress of the main listener.

    `dialects` has those of the routes, by their templates, that are not OpenAI's; `replica` is named in every answer.
    """
    keys, token = Keys(keyring), "the PROXY_METRICS_TOKEN of this server"
    scrape = Keys(Keyring(metrics_token), setting=token).check if metrics_token else keys.check_operator
    authentication = Authentication(
        keys,
        open_paths=(*OPEN_PATHS, *page.open_paths),
        other_checks={METRICS: scrape},
        own_names=own_names,
        visitor=page.visitor,
    )
    return Ingress(
        router,
        origins=Origins(allowed_origins, exposed_headers),
        identify=authentication.client,
        metrics=metrics,
        keyring=keyring,
        dialects=dialects or {},
        leaving=leaving,
        spans=spans,
        replica=replica,
        page=page,
        clock=clock,
    )


def _path_of(scope: Scope) -> str:
    """Return a path as it was meant: base URLs that end in a slash make `//` or a slash at the end."""
    path: str = scope["path"]
    if "//" in path or path.endswith("/"):
        path = "/" + "/".join(filter(None, path.split("/")))
    if path in EXACT_PATHS and scope["raw_path"] != path.encode():
        sent: bytes = scope["raw_path"]
        return sent.decode("latin-1")
    return path


class RouteTable:
    """The router's templates, the only names under which requests are logged and counted; and a way around it."""

    def __init__(self, routes: Iterable[BaseRoute], prefixes: tuple[str, ...]) -> None:
        self._prefixes = prefixes
        self._methods: dict[str, set[str]] = {}
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        self.fixed: dict[tuple[str, str], ASGIApp] = {}
        """The routes without parameters, by method and path: the router, which tries one by one, takes 10 µs longer."""
        for route in routes:
            if isinstance(route, Route):
                self._methods.setdefault(route.path_format, set()).update(route.methods or ())
                if route.param_convertors:
                    self._patterns.append((route.path_regex, route.path_format))
                else:
                    self.fixed.update({(method, route.path): route.app for method in route.methods or ()})

    def template_of(self, path: str) -> str:
        """Return the template that `path` belongs to, or `other`."""
        if path in self._methods and "{" not in path:
            return path
        return next((template for pattern, template in self._patterns if pattern.match(path)), OTHER)

    def served(self, path: str) -> list[str]:
        """Return the routes without parameters of the API that `path` looks for."""
        prefix = next((each for each in self._prefixes if path.startswith(each)), self._prefixes[0])
        return sorted({path for _, path in self.fixed if path.startswith(prefix)})

    def meant_by(self, path: str) -> str | None:
        """Return the path of a served route that a wrong base URL has put something before, such as a second `/v1`."""
        rest = path
        for _ in range(MOST_MISPLACED):
            rest = rest[1:].partition("/")[2]
            if not rest:
                return None
            rest = f"/{rest}"
            if rest not in EXACT_PATHS and self.methods_of(self.template_of(rest)):
                return rest if rest.startswith(self._prefixes) else f"{VERSION}{rest}"
        return None

    def methods_of(self, template: str) -> list[str]:
        """Return the verbs that `template` is served with."""
        return sorted(self._methods.get(template, ()))


class Ingress:
    """Gives each request its id and record, finds its client, answers errors, and logs and counts it when it ends."""

    def __init__(
        self,
        router: Router,
        *,
        origins: Origins,
        identify: Callable[[Scope], Client | None],
        metrics: Metrics,
        keyring: Keyring,
        dialects: Mapping[str, Dialect],
        leaving: Callable[[], bool],
        spans: Spans | None,
        page: PageSide,
        replica: str | None = None,
        prefixes: tuple[str, ...] = (f"{VERSION}/",),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`identify` returns whose request it is, or raises; `prefixes` are those of the routes that a 404 names.

        A bare router, because a Starlette application would answer errors itself before this layer sees them.
        """
        # It would send whoever asks for `/metrics/` to `/metrics`, under whatever host the request names.
        router.redirect_slashes = False
        self._router = router
        self._routes = RouteTable(router.routes, prefixes)
        self._origins = origins
        self._identify = identify
        self._metrics = metrics
        self._secrets = keyring.secrets
        self._dialects = dialects
        self._leaving = leaving
        self._own_headers = [] if replica is None else [(REPLICA_HEADER.encode(), replica.encode())]
        self._on_end = page.on_end
        self._has_page = bool(page.open_paths)
        self._spans = spans
        self._clock = clock
        self._log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request; nothing but a cancellation is raised."""
        scope["path"] = path = _path_of(scope)
        scope[CONTEXT_KEY] = context = self._context_for(scope)
        # Starlette's router raises its 404 and 405 only inside an application; else it answers in plain text.
        scope["app"] = self

        async def watched_receive() -> Message:
            message = await receive()
            # Servers also say "disconnect" to whoever still listens after a complete response.
            if message["type"] == "http.disconnect" and not context.complete:
                context.client_gone = True
            return message

        async def watched_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = context.begun(message, leaving=self._leaving())
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                context.complete = True

        if not context.own:
            self._metrics.active += 1
        try:
            preflight = self._origins.check(scope) if b"origin" in context.headers else None
            if preflight is None:
                context.client = self._identify(scope)
                served = self._routes.fixed.get((scope["method"], path), self._router)
                await served(scope, watched_receive, watched_send)
            else:
                await watched_send({"type": "http.response.start", "status": 204, "headers": preflight})
                await watched_send({"type": "http.response.body", "body": b""})
        # The last resort: whatever the defect, the client must get an answer and the log its cause.
        except Exception as raised:  # noqa: BLE001
            await self._answer(raised, scope, watched_send)
        finally:
            self._end(context, scope)

    def _end(self, context: RequestContext, scope: Scope) -> None:
        ended_at = self._clock()
        outcome = context.outcome()
        if not context.own:
            self._metrics.request_ended(context, outcome=outcome, ended_at=ended_at)
            if context.on_end is not None:
                context.on_end(context, outcome)
            if self._on_end is not None and context.route not in EXACT_PATHS:
                self._on_end(context, outcome, ended_at)
        log_request(self._log, context, outcome=outcome, ended_at=ended_at)
        if self._spans is not None:
            self._spans.request_ended(context, scope, outcome=outcome, ended_at=ended_at)

    def _context_for(self, scope: Scope) -> RequestContext:
        # The first of several counts.
        headers = dict(reversed(scope["headers"]))
        request_id = headers.get(b"x-request-id", b"")
        # A key that is sent as an id by mistake would stand in every log line and trace of the request.
        if not SANE_REQUEST_ID.fullmatch(request_id) or self._secrets.are_in(request_id.decode("ascii")):
            request_id = new_id("req_").encode()
        route = self._routes.template_of(scope["path"])
        # On a Unix socket there is no address.
        peer: tuple[str, int] = scope.get("client") or ("", 0)
        return RequestContext(
            request_id=request_id.decode("ascii"),
            method=scope["method"],
            route=route,
            dialect=self._dialects.get(route, OPENAI),
            headers=headers,
            agent=headers.get(b"user-agent", b"")[:AGENT_LIMIT].decode("latin-1"),
            from_page=PAGE_TOKEN in headers,
            own=self._has_page and (route == "/" or route.startswith(PAGE_PREFIX)),
            peer=peer[0],
            clock=self._clock,
            started_at=self._clock(),
            response_headers=[(b"x-request-id", request_id), *self._own_headers],
        )

    def _not_served(self, status: int, scope: Scope) -> GatewayError:
        """Return what the router's 404 or 405 means to a client."""
        context = context_of(scope)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            if wants_websocket(scope):
                return WebSocketNotServed(
                    f"WebSockets are served on /v1/responses only. Send the same over HTTP: POST {context.route}."
                )
            allow = ", ".join(self._routes.methods_of(context.route))
            context.response_headers.append((b"allow", allow.encode()))
            return MethodNotAllowed(f"{context.method} is not allowed on {context.route}. Allowed: {allow}.")
        path: str = scope["path"]
        meant = self._routes.meant_by(path)
        if meant is None:
            advice = f"There is no such route. Served are {', '.join(self._routes.served(path))}."
        elif meant.startswith(f"{VERSION}/"):
            advice = f"Did you mean {meant}? The base URL of this API ends in /v1, once; clients add the route to it."
        else:
            advice = f"Did you mean {meant}? Clients add the route to their URL, which ends with the port."
        return NotFound(f"Invalid URL ({context.method} {path[:PATH_ECHO_LIMIT]}). {advice}")

    async def _answer(self, raised: Exception, scope: Scope, send: Send) -> None:
        """Send what was raised as an error in the shape of its API, unless the response has begun."""
        context = context_of(scope)
        error = self._error(raised, scope)
        if error is None or context.complete:
            return
        context.note_error(error)
        if context.status is not None:
            return
        reply = context.dialect.error(error, scope)
        body = msgspec.json.encode(reply.body)
        headers = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
        await send({"type": "http.response.start", "status": reply.status, "headers": encoded(headers)})
        await send({"type": "http.response.body", "body": b"" if context.method == "HEAD" else body})

    def _error(self, raised: Exception, scope: Scope) -> GatewayError | None:
        """Return what a client is told of what was raised; nothing if it has left."""
        context = context_of(scope)
        match raised:
            case ClientDisconnect():
                context.client_gone = True
                return None
            case GatewayError():
                if context.status is not None:
                    self._log.warning(
                        "error_after_response_began",
                        request_id=context.request_id,
                        code=raised.error_code,
                        reason=raised.message,
                    )
                return without_frames(raised)
            case HTTPException():
                return self._not_served(raised.status_code, scope)
            case _:
                self._log.exception("unexpected_fault", request_id=context.request_id, route=context.route)
                without_frames(raised)
                return InternalFault(
                    "The gateway failed by a defect of its own. Try again; if that does not help, "
                    f"look for the request id {context.request_id} in the gateway's log."
                )
