"""What happens to every request around its handler: identity, observation, errors, origins, the key.

`wrap` puts the layers around the router. They are plain ASGI, so a stream passes through untouched, and only
the outermost one looks at what is sent: the others leave the headers they want in the `RequestContext`.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from http import HTTPStatus

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnbridge.api.shared.errors import error_headers, error_object, status_of
from turnbridge.logs.redaction import OwnKeys
from turnbridge.turn.errors import (
    GatewayError,
    InternalFault,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    RequestTooLarge,
    WebSocketNotServed,
    without_frames,
)
from turnbridge.web.bodies import Upload, Uploads, overloaded
from turnbridge.web.http import encoded, header_value, new_id
from turnbridge.web.middleware.access_log import (
    CONTEXT_KEY,
    RequestContext,
    context_of,
    log_request,
)
from turnbridge.web.middleware.auth import Keys, RequireKey
from turnbridge.web.middleware.cors import AllowOrigins
from turnbridge.web.middleware.metrics import OTHER, Metrics
from turnbridge.web.server.peers import address_of

PROBES = ("/healthz", "/readyz", "/livez")
"""Served without the key: they say whether turns can be run."""

METRICS = "/metrics"
"""Has a rule of its own."""

EXACT_PATHS = frozenset((*PROBES, METRICS))
"""Reached by these bytes only: a proxy that keeps one of them from the world has to match no other form of it."""

SANE_REQUEST_ID = re.compile(rb"[!-~](?:[ -~]{0,126}[!-~])?")
"""Printable ASCII, at most 128 characters: safe to echo in a header and to write in a log."""

PATH_ECHO_LIMIT = 200
"""The 404 repeats the path, since a wrong base URL is its usual cause; no path of ours is this long."""

BYTES_PER_MB = 1024 * 1024

BODY_SILENCE_S = 60
"""How long a body may stop coming. A network that stalls has recovered by then, or its client has given up."""


def wrap(
    router: Router,
    *,
    api_key: str,
    metrics: Metrics,
    metrics_token: str | None = None,
    own_names: Collection[str] = (),
    allowed_origins: Iterable[str] = (),
    exposed_headers: Iterable[str] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> ASGIApp:
    """Return `router` inside the layers, from the key (innermost) to the observer (outermost).

    A bare router, because a Starlette application would answer errors itself before these layers see them.
    """
    # It would send whoever asks for `/metrics/` to `/metrics`, under whatever host the request names.
    router.redirect_slashes = False
    routes = RouteTable(router.routes)
    other = {METRICS: Keys([metrics_token], setting="PROXY_METRICS_TOKEN")} if metrics_token else {}
    app: ASGIApp = RequireKey(
        _shortcut(router), api_key=api_key, open_paths=PROBES, other_keys=other, own_names=own_names
    )
    app = AllowOrigins(app, origins=allowed_origins, exposed_headers=exposed_headers)
    app = AnswerErrors(app, routes=routes)
    return Observe(app, routes=routes, metrics=metrics, keys=OwnKeys(api_key.split(",")), clock=clock)


def _path_of(scope: Scope) -> str:
    """Return a path as it was meant: base URLs that end in a slash make `//` or a slash at the end."""
    path: str = scope["path"]
    if "//" in path or path.endswith("/"):
        path = "/" + "/".join(filter(None, path.split("/")))
    if path in EXACT_PATHS and scope["raw_path"] != path.encode():
        sent: bytes = scope["raw_path"]
        return sent.decode("latin-1")
    return path


def _shortcut(router: Router) -> ASGIApp:
    """Return `router`, with what has a path without parameters found by that path.

    The router tries one by one: that takes a request 10 µs longer.
    """
    fixed = {
        (method, route.path): route.app
        for route in router.routes
        if isinstance(route, Route) and not route.param_convertors
        for method in route.methods or ()
    }

    def serve(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return fixed.get((scope["method"], scope["path"]), router)(scope, receive, send)

    return serve


async def read_body(scope: Scope, receive: Receive, *, limit_bytes: int) -> bytes:
    """Return the request's body; raise Starlette's `ClientDisconnect` if the client leaves before its end."""
    encoding = (header_value(scope, b"content-encoding") or b"identity").decode("latin-1").strip().lower()
    if encoding != "identity":
        raise InvalidRequest(
            f"A body with 'Content-Encoding: {encoding}' cannot be read here. Send it uncompressed.",
            code="unsupported_content_encoding",
        )
    announced = header_value(scope, b"content-length") or b""
    if announced.isdigit() and int(announced) > limit_bytes:
        raise _too_large(limit_bytes)
    try:
        return b"".join(await _chunks(context_of(scope), receive, limit_bytes))
    except TimeoutError:
        silence = f"{BODY_SILENCE_S:g} seconds have passed without a byte of it"
        raise RequestTimeout(f"The request's body stopped coming: {silence}. Try again.") from None


async def _chunks(context: RequestContext, receive: Receive, limit_bytes: int) -> list[bytes]:
    """Return the pieces of a body; raise `TimeoutError` if they stop coming, however slowly they came before."""
    chunks: list[bytes] = []
    size = 0
    now = asyncio.get_running_loop().time
    upload: Upload | None = None
    try:
        async with asyncio.timeout(BODY_SILENCE_S) as patience:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk: bytes = message.get("body", b"")
                size += len(chunk)
                if size > limit_bytes:
                    raise _too_large(limit_bytes)
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return chunks
                if upload is None:
                    upload = context.uploads.begin("" if context.client is None else context.client.name, patience)
                context.uploads.add(upload, len(chunk))
                patience.reschedule(now() + BODY_SILENCE_S)
    except TimeoutError:
        if upload is not None and upload.rejected:
            raise overloaded() from None
        raise
    finally:
        if upload is not None:
            context.uploads.end(upload)


def _too_large(limit_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"The request body is larger than the {limit_bytes / BYTES_PER_MB:g} MB that this server takes. "
        "Send less, or raise PROXY_MAX_BODY_MB on the server."
    )


class RouteTable:
    """The router's templates: the only names under which requests are logged and counted."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._methods: dict[str, set[str]] = {}
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        for route in routes:
            if isinstance(route, Route):
                self._methods.setdefault(route.path_format, set()).update(route.methods or ())
                if route.param_convertors:
                    self._patterns.append((route.path_regex, route.path_format))

    def template_of(self, path: str) -> str:
        """Return the template that `path` belongs to, or `other`."""
        if path in self._methods and "{" not in path:
            return path
        return next((template for pattern, template in self._patterns if pattern.match(path)), OTHER)

    def methods_of(self, template: str) -> list[str]:
        """Return the verbs that `template` is served with."""
        return sorted(self._methods.get(template, ()))


class Observe:
    """Gives each request its id and its record, and logs and counts it when it ends, however it ends."""

    def __init__(
        self, app: ASGIApp, *, routes: RouteTable, metrics: Metrics, keys: OwnKeys, clock: Callable[[], float]
    ) -> None:
        self._app = app
        self._routes = routes
        self._metrics = metrics
        self._keys = keys
        self._clock = clock
        self._uploads = Uploads()
        self._log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request under observation."""
        scope["path"] = _path_of(scope)
        context = self._context_for(scope)
        scope[CONTEXT_KEY] = context

        async def watched_receive() -> Message:
            message = await receive()
            # Servers also say "disconnect" to whoever still listens after a complete response.
            if message["type"] == "http.disconnect" and not context.complete:
                context.client_gone = True
            return message

        async def watched_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                context.first_byte_at = self._clock()
                message = {**message, "headers": [*message.get("headers", ()), *context.response_headers]}
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                context.complete = True

        self._metrics.request_began()
        try:
            await self._app(scope, watched_receive, watched_send)
        finally:
            ended_at = self._clock()
            outcome = context.outcome()
            self._metrics.request_ended(context, outcome=outcome, ended_at=ended_at)
            log_request(self._log, context, outcome=outcome, ended_at=ended_at)

    def _context_for(self, scope: Scope) -> RequestContext:
        request_id = header_value(scope, b"x-request-id") or b""
        # A key that is sent as an id by mistake would stand in every log line and trace of the request.
        if not SANE_REQUEST_ID.fullmatch(request_id) or self._keys.are_in(request_id.decode("ascii")):
            request_id = new_id("req_").encode()
        return RequestContext(
            request_id=request_id.decode("ascii"),
            method=scope["method"],
            route=self._routes.template_of(scope["path"]),
            peer=address_of(scope),
            uploads=self._uploads,
            clock=self._clock,
            started_at=self._clock(),
            response_headers=[(b"x-request-id", request_id)],
        )


class AnswerErrors:
    """Turns whatever is raised before the response began into OpenAI's error object."""

    def __init__(self, app: ASGIApp, *, routes: RouteTable) -> None:
        self._app = app
        self._routes = routes
        self._log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request; nothing but a cancellation is raised."""
        context = context_of(scope)
        # Starlette's router raises its 404 and 405 only inside an application; else it answers in plain text.
        scope["app"] = self
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            context.client_gone = True
        except GatewayError as error:
            if context.status is not None:
                self._log.warning(
                    "error_after_response_began",
                    request_id=context.request_id,
                    code=error.error_code,
                    reason=error.message,
                )
            await _answer(without_frames(error), context, send)
        except HTTPException as error:
            await _answer(self._not_served(error.status_code, scope), context, send)
        # The last resort: whatever the defect, the client must get an answer and the log its cause.
        except Exception as defect:  # noqa: BLE001
            self._log.exception("unexpected_fault", request_id=context.request_id, route=context.route)
            without_frames(defect)
            fault = InternalFault(
                "The gateway failed by a defect of its own. Try again; if that does not help, "
                f"look for the request id {context.request_id} in the gateway's log."
            )
            await _answer(fault, context, send)

    def _not_served(self, status: int, scope: Scope) -> GatewayError:
        """Return what the router's 404 or 405 means to a client."""
        context = context_of(scope)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            if b"websocket" in (header_value(scope, b"upgrade") or b"").lower():
                return WebSocketNotServed(
                    f"WebSockets are not served here. Send the same over HTTP: POST {context.route}, with `stream`."
                )
            allow = ", ".join(self._routes.methods_of(context.route))
            context.response_headers.append((b"allow", allow.encode()))
            return MethodNotAllowed(f"{context.method} is not allowed on {context.route}. Allowed: {allow}.")
        url = f"{context.method} {scope['path'][:PATH_ECHO_LIMIT]}"
        advice = "The base URL of this API ends in /v1, once; clients add the route to it."
        return NotFound(f"Invalid URL ({url}). {advice}")


async def _answer(error: GatewayError, context: RequestContext, send: Send) -> None:
    if context.complete:
        return
    context.error_code = error.error_code
    if context.status is not None:
        return
    body = msgspec.json.encode({"error": error_object(error)})
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error_headers(error)}
    await send({"type": "http.response.start", "status": status_of(error), "headers": encoded(headers)})
    await send({"type": "http.response.body", "body": b"" if context.method == "HEAD" else body})
