"""How this API tells errors and carries its key, and how other requests to a shared path are told from its own."""

from starlette.types import Scope

from turnbridge.api.anthropic.decode import VERSION_HEADER
from turnbridge.api.anthropic.errors import error_body, headers_of, status_of
from turnbridge.turn.errors import GatewayError, InvalidApiKey
from turnbridge.web.http import OPENAI, Dialect, ErrorReply, bearer_token, header_value
from turnbridge.web.middleware.observability import context_of

REQUEST_ID = "request-id"


def is_anthropic(scope: Scope) -> bool:
    """Tell whether a request to a path that OpenAI's API has too is of this API."""
    return header_value(scope, VERSION_HEADER.encode()) is not None


def mark(scope: Scope) -> str:
    """Let the answer carry its id as this API names it, and return that id."""
    context = context_of(scope)
    context.response_headers.append((REQUEST_ID.encode(), context.request_id.encode()))
    return context.request_id


def _error(error: GatewayError, scope: Scope | None = None, /) -> ErrorReply:
    headers, request_id = headers_of(error), ""
    if scope is not None:
        context = context_of(scope)
        request_id = context.request_id
        if not any(name == REQUEST_ID.encode() for name, _ in context.response_headers):
            headers[REQUEST_ID] = request_id
    return ErrorReply(status_of(error), headers, error_body(error, request_id))


def _key(scope: Scope) -> bytes | None:
    """Return the key, from `x-api-key` or as a bearer token; both may be sent, if they are equal."""
    own, bearer = header_value(scope, b"x-api-key"), bearer_token(scope)
    own = (own or b"").strip() or None
    if own is not None and bearer is not None and own != bearer:
        raise InvalidApiKey(
            "The headers 'x-api-key' and 'Authorization' have different keys. Send one of them: in Claude Code, "
            "ANTHROPIC_API_KEY is the first and ANTHROPIC_AUTH_TOKEN the second."
        )
    return own or bearer


def _shared_error(error: GatewayError, scope: Scope | None = None, /) -> ErrorReply:
    return (_error if scope is not None and is_anthropic(scope) else OPENAI.error)(error, scope)


def _shared_key(scope: Scope) -> bytes | None:
    return (_key if is_anthropic(scope) else OPENAI.key)(scope)


ANTHROPIC = Dialect(error=_error, key=_key)
SHARED = Dialect(error=_shared_error, key=_shared_key)
"""Of paths that both APIs have."""
