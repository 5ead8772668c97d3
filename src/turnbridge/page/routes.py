"""The routes of the page: `/`, its files, its sessions, and what every visitor may read.

All data are below `/turnbridge/api`. A session of the page may read them, and so may a request with a key. What only
the owner may see is in `owner.py`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from turnbridge import __version__
from turnbridge.api.openapi.operations import Part
from turnbridge.api.shared.validation import convert, parse_body
from turnbridge.page.assets import ASSETS, INDEX, SAFE_HEADERS, load_assets
from turnbridge.page.openapi import API, ROWS, SCHEMAS, CodeBody
from turnbridge.page.recent import RecentRequests
from turnbridge.page.sessions import SESSION_LIFE_S, Sessions, Visitor, cookie_name
from turnbridge.turn.clients import Client
from turnbridge.turn.errors import Forbidden, GatewayOverloaded, InvalidApiKey, RequestTooLarge
from turnbridge.turn.items import JsonObject
from turnbridge.web.http import PAGE_TOKEN, header_value, json_response, names_us
from turnbridge.web.middleware.ingress import PageSide
from turnbridge.web.middleware.observability import context_of

T = TypeVar("T")

log = structlog.get_logger(__name__)

# Codes, names and numbers.
MOST_BODY_BYTES = 16 * 1024
# How often gauges are looked at: a person does not see more.
GAUGE_INTERVAL_S = 1.0
# Proxies close connections that are silent for longer.
KEEPALIVE_S = 15.0
MOST_WATCHERS = 32

LINKS: JsonObject = {
    "name": "turnbridge",
    "links": {
        "page": "/",
        "responses": "/v1/responses",
        "chat_completions": "/v1/chat/completions",
        "messages": "/v1/messages",
        "models": "/v1/models",
        "ready": "/readyz",
        "openapi": "/openapi.json",
        "metrics": "/metrics",
    },
}

Handler = Callable[[Request, Visitor], Awaitable[Response]]
"""Answers a request of the page."""
Entry = tuple[str, str, Handler]
"""A method, a path below the prefix of data, and who answers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """What the page shows of the running gateway."""

    problem: Callable[[str | None], str]
    """Returns why turns of an account cannot be run now, or nothing."""
    fidelity: Callable[[str | None], str]
    codex_version: Callable[[], str | None]
    models: Callable[[Request], Awaitable[Response]]
    """Lists the models, as the API does."""
    usage: Callable[[Request], Awaitable[Response]]
    """Answers with the usage that a client may see, as the API does."""
    gauges: Callable[[], JsonObject]
    closing: Callable[[], bool]
    demo: bool
    others: Mapping[str, str]
    """The URLs of the APIs that have a listener of their own, by their names."""
    traced: bool
    """Whether a wire trace is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may look at the page."""

    sessions: Sessions
    owner: Client
    """Whose session a code opens."""
    own_names: Collection[str]
    """Names of this server besides its addresses."""

    def visitor(self, scope: Scope) -> Visitor:
        """Return who makes a request; raises `InvalidApiKey` or `Forbidden`."""
        if not names_us(scope, self.own_names):
            raise Forbidden(
                "The page is served under the server's own names only. Use its address, or name the origin of this "
                "page in PROXY_CORS_ALLOWED_ORIGINS."
            )
        if header_value(scope, PAGE_TOKEN) is not None:
            return self.sessions.visitor(scope)
        client = context_of(scope).client
        if client is None:
            raise InvalidApiKey("Open a session first, or send a key.")
        return Visitor(client=client, owner=client.admin)


class Page:
    """The page and the data that every visitor may read."""

    def __init__(
        self,
        gateway: PageView,
        access: Access,
        recent: RecentRequests,
        handlers: Iterable[Entry] = (),
    ) -> None:
        """`handlers` are further ones."""
        self._gateway = gateway
        self._access = access
        self._recent = recent
        self._assets = load_assets()
        self._handlers = list(handlers)

    def new_code(self) -> str:
        """Return a code that opens a session of the owner's."""
        return self._access.sessions.new_code()

    def side(self) -> PageSide:
        """Return what it needs of every request."""
        return PageSide(
            open_paths=("/", f"{API}/code", *self._assets),
            visitor=lambda scope: self._access.visitor(scope).client,
            on_end=self._recent.note,
        )

    def routes(self) -> list[Route]:
        """Return the routes."""
        own: list[Entry] = [
            ("POST", "/session", self._open_session),
            ("DELETE", "/session", self._close_session),
            ("GET", "/state", self._state),
            ("GET", "/models", self._models),
            ("GET", "/usage", self._usage),
            ("GET", "/figures", self._figures),
            ("GET", "/live", self._live),
        ]
        routes = [Route("/", self._index, methods=["GET"]), Route(f"{API}/code", self._redeem, methods=["POST"])]
        routes += [Route(path, partial(self._asset, path), methods=["GET"]) for path in self._assets]
        routes += [_route(self._access, *each) for each in (*own, *self._handlers)]
        return routes

    def described(self) -> Part:
        """Return its part of the OpenAPI document: not every gateway has every route."""
        served = {(method, route.path) for route in self.routes() for method in route.methods or ()}
        return Part(operations={key: row for key, row in ROWS.items() if key in served}, schemas=SCHEMAS)

    async def _index(self, request: Request) -> Response:
        """Answer browsers with the page, and programs with links."""
        if "text/html" in request.headers.get("accept", ""):
            return self._assets[f"{ASSETS}/{INDEX}"].answer(request)
        return json_response(LINKS, headers={"vary": "Accept"})

    async def _asset(self, path: str, request: Request) -> Response:
        return self._assets[path].answer(request)

    async def _redeem(self, request: Request) -> Response:
        """Open a session of the owner's by a one-time code."""
        _refuse_other_pages(request)
        if self._access.sessions.redeem((await small_body(request, CodeBody)).code):
            return self._opened(request, Visitor(client=self._access.owner, owner=True), by="code")
        raise InvalidApiKey(
            "This link was used already, or is too old. Enter a key, or restart the gateway for a new link."
        )

    async def _open_session(self, request: Request, visitor: Visitor) -> Response:
        """Open a session for the client whose key the request brings."""
        _refuse_other_pages(request)
        return self._opened(request, visitor, by="key")

    def _opened(self, request: Request, visitor: Visitor, *, by: str) -> Response:
        cookie, token = self._access.sessions.open(visitor)
        context = context_of(request.scope)
        log.info("page_session_opened", by=by, client=visitor.client.name, peer=context.peer, owner=visitor.owner)
        answer = json_response({"token": token, "client": visitor.client.name, "owner": visitor.owner})
        answer.set_cookie(
            cookie_name(request.scope),
            cookie,
            max_age=int(SESSION_LIFE_S),
            httponly=True,
            samesite="strict",
            # The browser tells how it reached us, also through a proxy that ends TLS.
            secure=request.headers.get("origin", "").startswith("https:"),
        )
        return answer

    async def _close_session(self, request: Request, _: Visitor) -> Response:
        self._access.sessions.close(request.scope)
        answer = json_response({"closed": True})
        answer.delete_cookie(cookie_name(request.scope), httponly=True, samesite="strict")
        return answer

    async def _state(self, _: Request, visitor: Visitor) -> Response:
        account = visitor.client.limits.account
        reason = self._gateway.problem(account)
        return json_response(
            {
                "version": __version__,
                "client": visitor.client.name,
                "owner": visitor.owner,
                "ready": not reason,
                # It may name paths, a user and a command.
                "reason": reason if visitor.owner else "Turns cannot be run now." if reason else "",
                "fidelity": self._gateway.fidelity(account),
                "codex_version": self._gateway.codex_version(),
                "demo": self._gateway.demo,
                "traced": self._gateway.traced,
                "others": dict(self._gateway.others),
            }
        )

    async def _models(self, request: Request, _: Visitor) -> Response:
        return await self._gateway.models(request)

    async def _usage(self, request: Request, _: Visitor) -> Response:
        return await self._gateway.usage(request)

    async def _figures(self, _: Request, visitor: Visitor) -> Response:
        """Answer with errors by code and latencies by model, of the visitor's requests or of all."""
        return json_response(self._recent.figures(_whose(visitor)))

    async def _live(self, _: Request, visitor: Visitor) -> Response:
        if self._recent.watchers >= MOST_WATCHERS:
            raise GatewayOverloaded("Too many pages are open. Close one, and try again.", retry_after=KEEPALIVE_S)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._events(visitor), media_type="text/event-stream", headers=headers)

    async def _events(self, visitor: Visitor) -> AsyncIterator[bytes]:
        """Yield all requests that a visitor may see, then each new one, and the gauges whenever they change."""
        whose = _whose(visitor)
        with self._recent.watched() as watcher:
            shown = self._gauges(visitor)
            yield _event("requests", list(self._recent.seen_by(whose))) + _event("gauges", shown)
            silent_s = 0.0
            while not self._gateway.closing():
                told = await watcher.next(GAUGE_INTERVAL_S)
                frames = []
                gauges = self._gauges(visitor)
                if gauges != shown:
                    frames.append(_event("gauges", gauges))
                    shown = gauges
                if watcher.lost:
                    watcher.lost, told = False, []
                    frames.append(_event("requests", list(self._recent.seen_by(whose))))
                frames += [_event("request", entry) for entry in told if whose in (None, entry["client"])]
                silent_s = 0.0 if frames else silent_s + GAUGE_INTERVAL_S
                if silent_s >= KEEPALIVE_S:
                    frames, silent_s = [b": keepalive\n\n"], 0.0
                if frames:
                    yield b"".join(frames)

    def _gauges(self, visitor: Visitor) -> JsonObject:
        ready = not self._gateway.problem(visitor.client.limits.account)
        return {"ready": ready, **(self._gateway.gauges() if visitor.owner else {})}


class _Answering:
    """A route that knows who asks, as plain ASGI."""

    def __init__(self, access: Access, handler: Handler) -> None:
        self._access = access
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = self._access.visitor(scope)
        answer = await self._handler(Request(scope, receive), visitor)
        answer.headers.update({**SAFE_HEADERS, "cache-control": "no-store"})
        await answer(scope, receive, send)


def _route(access: Access, method: str, path: str, handler: Handler) -> Route:
    return Route(f"{API}{path}", _Answering(access, handler), methods=[method])


def _whose(visitor: Visitor) -> str | None:
    """Return the client whose requests a visitor may see; None for all."""
    return None if visitor.owner else visitor.client.name


async def small_body(request: Request, shape: type[T]) -> T:
    """Return what a request brings; raises `RequestTooLarge` or `InvalidRequest`."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise RequestTooLarge(f"At most {MOST_BODY_BYTES} bytes are read here.")
    return convert(parse_body(body), shape)


def _refuse_other_pages(request: Request) -> None:
    """Raise `Forbidden` if another page than ours opens a session."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Forbidden("Sessions are opened by the page of this server only.")


def _event(name: str, data: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
