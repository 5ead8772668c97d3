"""What differs between APIs around their routes: how an error is told, and where a request carries its key."""

from collections.abc import Callable
from typing import NamedTuple

from starlette.types import Scope

from turnbridge.api.shared.errors import error_headers, error_object, status_of
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import JsonObject
from turnbridge.web.http import header_value


class ErrorReply(NamedTuple):
    """An error as an API tells it."""

    status: int
    headers: dict[str, str]
    body: JsonObject


class Dialect(NamedTuple):
    """How one API speaks around its routes."""

    error: Callable[[GatewayError], ErrorReply]
    key: Callable[[Scope], bytes | None]
    """Returns the key of a request, if it brings one."""


def bearer_token(scope: Scope) -> bytes | None:
    """Return what follows `Bearer` in the request's Authorization header, if anything does."""
    header = header_value(scope, b"authorization")
    if header is None:
        return None
    scheme, _, token = header.strip().partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def _openai_error(error: GatewayError) -> ErrorReply:
    return ErrorReply(status_of(error), error_headers(error), {"error": error_object(error)})


OPENAI = Dialect(error=_openai_error, key=bearer_token)
"""Of every route that names no other, and of paths that are no route."""
