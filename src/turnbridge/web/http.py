"""HTTP as every route and layer uses it: headers and peers of a request, answers, and what differs between APIs."""

import os
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple, Protocol

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.api.shared.errors import error_headers, error_object, status_of
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import JsonObject

NO_KEEPALIVE = b"x-no-keepalive"

PAGE_TOKEN = b"x-turnbridge-page-token"
"""With this header, requests of the page say which session they belong to; no other page can send it unasked."""
PAGE_PREFIX = "/turnbridge/"
"""Of the page's files and of the data that it reads: requests below it are not those of a client."""

# Parsed addresses and host names: as many as there are connections.
CACHE_SIZE = 4096
# The smallest network that an IPv6 customer gets: one peer may use all of its addresses.
IPV6_NETWORK_BITS = 64


@dataclass(frozen=True, slots=True)
class RouteOf:
    """A route of an API, which is served with and without `/v1`."""

    method: str | None
    """None for any."""
    path: str
    endpoint: Callable[[Request], Awaitable[ASGIApp]]
    generates: bool = False
    """Whether it runs turns, and so counts for rate limits."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as plain ASGI: Starlette would add a layer of error handling that every frame pays for."""
        answer = await self.endpoint(Request(scope, receive))
        await answer(scope, receive, send)


class ErrorReply(NamedTuple):
    """An error as an API tells it."""

    status: int
    headers: dict[str, str]
    body: JsonObject


class TellError(Protocol):
    """How an API tells an error."""

    def __call__(self, error: GatewayError, scope: Scope | None = None, /) -> ErrorReply:
        """Return the error response in the API of the request; there is no request if it could not be parsed."""
        ...


class Dialect(NamedTuple):
    """What differs between APIs around their routes."""

    error: TellError
    key: Callable[[Scope], bytes | None]
    """Returns the key of a request, if it brings one."""


def header_value(scope: Scope, name: bytes) -> bytes | None:
    """Return the first value of the request header `name`, which is given in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


def wants_no_keepalive(scope: Scope) -> bool:
    """Tell whether a request asks for no keepalives, in its header or its query."""
    if header_value(scope, NO_KEEPALIVE) == b"1":
        return True
    query = scope["query_string"]
    return bool(query) and QueryParams(query).get("no_keepalive") == "1"


def wants_websocket(scope: Scope) -> bool:
    """Tell whether a request offers to continue as a WebSocket."""
    return b"websocket" in (header_value(scope, b"upgrade") or b"").lower()


def bearer_token(scope: Scope) -> bytes | None:
    """Return what follows `Bearer` in the request's Authorization header, if anything does."""
    scheme, _, token = (header_value(scope, b"authorization") or b"").strip().partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def json_response(body: JsonObject, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that is one JSON object."""
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


def _openai_error(error: GatewayError, _: Scope | None = None, /) -> ErrorReply:
    return ErrorReply(status_of(error), error_headers(error), {"error": error_object(error)})


OPENAI = Dialect(error=_openai_error, key=bearer_token)
"""Of every route that names no other, and of paths that are no route."""


def new_id(prefix: str) -> str:
    """Return a fresh id."""
    return prefix + os.urandom(16).hex()


@lru_cache(maxsize=CACHE_SIZE)
def network_of(address: str) -> str:
    """Return the unit that limits per peer count: an IPv4 address, or the network of an IPv6 customer."""
    match _parsed(address):
        case IPv6Address() as found:
            return str(IPv6Network((found, IPV6_NETWORK_BITS), strict=False))
        case None:
            return address
        case found:
            return str(found)


@lru_cache(maxsize=CACHE_SIZE)
def is_loopback(address: str) -> bool:
    found = _parsed(address)
    return found is not None and found.is_loopback


def names_us(scope: Scope, names: Container[str]) -> bool:
    """Tell whether the Host header is missing, an IP address, `localhost`, or one of `names`.

    Under DNS rebinding, a web page's own host name resolves to our address, and stands in the Host header.
    """
    hosts = [_without_port(value) for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1:
        return not hosts
    (host,) = hosts
    return host == "localhost" or host.endswith(".localhost") or host in names or _parsed(host) is not None


def _without_port(value: bytes) -> str:
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address)
    except ValueError:
        return None
    # A dual-stack socket shows 127.0.0.1 as ::ffff:127.0.0.1.
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
