"""Maps errors to OpenAI's: HTTP status, `type`, and whether SDKs retry them."""

import math
from typing import NamedTuple

from turnbridge.api.shared.validation import cut
from turnbridge.turn import errors
from turnbridge.turn.items import JsonObject


class Shape(NamedTuple):
    """The HTTP status and the `type` of one kind of error."""

    status: int
    type: str


# OpenAI's SDKs retry 408, 409, 429 and 5xx, so the status decides which failures are paid for twice.
TABLE: dict[type[errors.GatewayError], Shape] = {
    errors.GatewayError: Shape(500, "server_error"),
    errors.RequestError: Shape(400, "invalid_request_error"),
    errors.InvalidRequest: Shape(400, "invalid_request_error"),
    errors.RequestTooLarge: Shape(413, "invalid_request_error"),
    errors.HeadersTooLarge: Shape(431, "invalid_request_error"),
    errors.RequestTimeout: Shape(408, "invalid_request_error"),
    errors.ModelNotFound: Shape(404, "invalid_request_error"),
    errors.NotFound: Shape(404, "invalid_request_error"),
    errors.MethodNotAllowed: Shape(405, "invalid_request_error"),
    # At this status Codex falls back to HTTP at once; after any other it retries the WebSocket.
    errors.WebSocketNotServed: Shape(426, "invalid_request_error"),
    errors.InvalidApiKey: Shape(401, "invalid_request_error"),
    errors.Forbidden: Shape(403, "invalid_request_error"),
    errors.ContextTooLong: Shape(400, "invalid_request_error"),
    errors.PolicyRefusal: Shape(400, "invalid_request_error"),
    errors.LoginRequired: Shape(401, "authentication_error"),
    errors.RateLimited: Shape(429, "rate_limit_error"),
    errors.UpstreamRateLimited: Shape(429, "rate_limit_error"),
    errors.QuotaExhausted: Shape(429, "insufficient_quota"),
    errors.OutputRejected: Shape(422, "server_error"),
    errors.UpstreamFailed: Shape(502, "server_error"),
    errors.UpstreamOverloaded: Shape(503, "server_error"),
    # OpenAI's own answer to a server that fails; SDKs do not retry it.
    errors.ToolServerFailed: Shape(424, "external_connector_error"),
    errors.BackendUnavailable: Shape(503, "server_error"),
    errors.BackendLost: Shape(503, "server_error"),
    errors.GatewayOverloaded: Shape(503, "server_error"),
    errors.CodexActed: Shape(502, "server_error"),
    errors.TurnTimeout: Shape(504, "server_error"),
    errors.InternalFault: Shape(500, "server_error"),
}


# Of those that OpenAI lists for a failed response, the ones that occur here.
FAILURE_CODES = frozenset(
    {"server_error", "rate_limit_exceeded", "invalid_prompt"}
    | {"invalid_image", "invalid_image_format", "invalid_image_url", "image_too_large"}
)

# A message may repeat what the client sent, of any length. Other messages are shorter than this.
MAX_MESSAGE_CHARS = 4000
MAX_PARAM_CHARS = 500


def status_of(error: errors.GatewayError) -> int:
    """Return the HTTP status of this error."""
    return _shape(error).status


def error_object(error: errors.GatewayError) -> JsonObject:
    """Return the object that OpenAI puts under `error`."""
    return {
        "message": cut(error.message, MAX_MESSAGE_CHARS),
        "type": _shape(error).type,
        "param": None if error.param is None else cut(error.param, MAX_PARAM_CHARS),
        "code": error.error_code,
    }


def failure_code(error: errors.GatewayError) -> str:
    """Return the code of a failed response, one of the few that OpenAI's SDKs know; the event before it has ours."""
    if error.error_code in FAILURE_CODES:
        return error.error_code
    if isinstance(error, errors.RateLimited | errors.QuotaExhausted):
        return "rate_limit_exceeded"
    # Whatever was wrong with the request, it was its prompt: the rest was refused before the response began.
    return "invalid_prompt" if isinstance(error, errors.RequestError) else "server_error"


def error_event(told: JsonObject, *, number: int) -> JsonObject:
    """Return the event before `response.failed`, from what OpenAI puts under `error`.

    The SDKs raise at it, while many clients ignore `response.failed` and take the answer for a whole one. OpenAI
    documents its fields as flat, and sends them nested.
    """
    flat = {name: told[name] for name in ("code", "message", "param")}
    return {"type": "error", "sequence_number": number, **flat, "error": told}


def _shape(error: errors.GatewayError) -> Shape:
    """Return the row of the error's class, or of its nearest base class."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def error_headers(error: errors.GatewayError) -> dict[str, str]:
    """Return the headers of this error."""
    if error.retry_after is not None:
        retry_after = {"retry-after": str(max(1, math.ceil(error.retry_after)))}
        return {**retry_after, "connection": "close"} if isinstance(error, errors.GatewayOverloaded) else retry_after
    if isinstance(error, errors.InvalidApiKey):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, errors.RequestTimeout):
        # The rest of the body, if it arrives, would be read as another request.
        return {"connection": "close"}
    if isinstance(error, errors.WebSocketNotServed):
        # RFC 9110 requires the supported protocols with this status.
        return {"upgrade": "HTTP/1.1", "connection": "upgrade"}
    if isinstance(error, errors.CodexActed):
        return {"x-should-retry": "false"}
    return {}
