"""Maps errors to Anthropic's: HTTP status, `type`, and whether clients ask again.

Claude Code repeats a 401 for minutes, and a 400 up to six times with one feature fewer each, unless a
header says not to.
"""

import math

from turnbridge.api.shared.errors import MAX_MESSAGE_CHARS, Shape, error_headers
from turnbridge.api.shared.validation import cut
from turnbridge.turn import errors
from turnbridge.turn.items import JsonObject

INVALID = "invalid_request_error"

TABLE: dict[type[errors.GatewayError], Shape] = {
    errors.GatewayError: Shape(500, "api_error"),
    errors.RequestError: Shape(400, INVALID),
    errors.RequestTooLarge: Shape(413, "request_too_large"),
    errors.HeadersTooLarge: Shape(431, INVALID),
    errors.RequestTimeout: Shape(408, INVALID),
    errors.ModelNotFound: Shape(404, "not_found_error"),
    errors.NotFound: Shape(404, "not_found_error"),
    errors.MethodNotAllowed: Shape(405, INVALID),
    errors.WebSocketNotServed: Shape(426, INVALID),
    errors.InvalidApiKey: Shape(401, "authentication_error"),
    errors.Forbidden: Shape(403, "permission_error"),
    errors.LoginRequired: Shape(403, "permission_error"),
    errors.RateLimited: Shape(429, "rate_limit_error"),
    errors.QuotaExhausted: Shape(429, "rate_limit_error"),
    # Clients treat 422 like 400, and ask again.
    errors.OutputRejected: Shape(400, INVALID),
    errors.UpstreamFailed: Shape(502, "api_error"),
    errors.UpstreamOverloaded: Shape(529, "overloaded_error"),
    errors.BackendUnavailable: Shape(503, "api_error"),
    errors.GatewayOverloaded: Shape(529, "overloaded_error"),
    errors.CodexActed: Shape(502, "api_error"),
    errors.TurnTimeout: Shape(504, "timeout_error"),
}

NOT_RETRIED = (
    errors.InvalidApiKey,
    errors.LoginRequired,
    errors.OutputRejected,
    errors.QuotaExhausted,
    errors.CodexActed,
)
"""What would fail again at once."""

QUOTA_RETRY_AFTER_S = 3600
"""Codex does not tell when a plan is renewed. After more than a minute, Claude Code shows the message and stops."""

# Claude Code recognises these words. At the first it compacts the conversation, at the second it drops old thinking.
TOO_LONG = "prompt is too long"
FOREIGN_THINKING = "The thinking blocks are bound to a different conversation."
# How OpenAI names reasoning that it cannot decrypt.
FOREIGN_CODES = ("invalid_encrypted_content",)


def status_of(error: errors.GatewayError) -> int:
    """Return the HTTP status of this error."""
    return _shape(error).status


def error_body(error: errors.GatewayError, request_id: str) -> JsonObject:
    """Return the body of an error, which is also the event that ends a broken stream."""
    told: JsonObject = {"type": _shape(error).type, "message": cut(_message(error), MAX_MESSAGE_CHARS)}
    return {"type": "error", "error": told, "request_id": request_id}


def headers_of(error: errors.GatewayError) -> dict[str, str]:
    """Return the headers of this error."""
    headers = error_headers(error)
    if isinstance(error, errors.QuotaExhausted):
        headers["retry-after"] = str(math.ceil(error.retry_after or QUOTA_RETRY_AFTER_S))
    if isinstance(error, NOT_RETRIED):
        headers["x-should-retry"] = "false"
    return headers


def too_long(error: errors.ContextTooLong, *, tokens: int, window: int) -> errors.ContextTooLong:
    """Return the error in the words that clients read numbers from; `tokens` is an estimate."""
    counted = f"{TOO_LONG}: {max(tokens, window + 1)} tokens > {window} maximum"
    return errors.ContextTooLong(f"{counted}. {error.message}", param=error.param)


def _message(error: errors.GatewayError) -> str:
    message = error.message
    if isinstance(error, errors.ContextTooLong):
        return message if message.startswith(TOO_LONG) else f"{TOO_LONG}: {message}"
    if error.error_code in FOREIGN_CODES:
        return f"{message} {FOREIGN_THINKING}"
    # This API has no field for the parameter.
    return message if error.param is None or error.param in message else f"{error.param}: {message}"


def _shape(error: errors.GatewayError) -> Shape:
    """Return the row of the error's class, or of its nearest base class."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
