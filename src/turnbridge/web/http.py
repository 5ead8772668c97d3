"""Small parts of HTTP that every route uses: headers as ASGI has them, ids, JSON responses, `x-no-keepalive`."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from turnbridge.turn.items import JsonObject


class RouteOf(NamedTuple):
    """A route of an API, which is served with and without `/v1`."""

    method: str | None
    """None for any."""
    path: str
    endpoint: Callable[[Request], Awaitable[ASGIApp]]
    generates: bool = False
    """Whether it runs turns, and so counts for rate limits."""


def header_value(scope: Scope, name: bytes) -> bytes | None:
    """Return the first value of the request header `name`, which is given in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Return all values of the request header `name`, which is given in lower case."""
    return [value for key, value in scope["headers"] if key == name]


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def new_id(prefix: str) -> str:
    """Return a fresh id."""
    return prefix + os.urandom(16).hex()


def json_response(body: JsonObject, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that is one JSON object."""
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


NO_KEEPALIVE = b"x-no-keepalive"


def wants_no_keepalive(scope: Scope) -> bool:
    """Tell whether a request asks for no signs of life, in its header or its query."""
    if header_value(scope, NO_KEEPALIVE) == b"1":
        return True
    query = scope["query_string"]
    return bool(query) and QueryParams(query).get("no_keepalive") == "1"
