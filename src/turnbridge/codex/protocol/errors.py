"""Codex's `codexErrorInfo` and messages → `GatewayError`s."""

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from turnbridge.codex.protocol.messages import TurnError
from turnbridge.turn import errors
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.events import IncompleteReason

# Codex swallows the provider's Retry-After. Long enough not to hammer it, short enough that a client's retry helps.
DEFAULT_RETRY_AFTER_S = 5.0

# Several clients recognise an overflow only by OpenAI's words; LiteLLM, and so Aider, by all of them up to `is`.
CONTEXT_WORDS = "This model's maximum context length is exceeded by the input."

# How Codex's messages begin.
BROKEN_STREAM = "stream disconnected"
INCOMPLETE = "Incomplete response returned"
UNREACHABLE = "Connection failed"
# No WebSocket could be opened in time.
TIMED_OUT = "request timed out"
# The variable with the provider's key is not set.
KEY_MISSING = "Missing environment variable"
# Defects of Codex itself.
DEFECTS = ("internal error", "Fatal error")
# A rate limit, while Codex retries.
RATE_LIMITED = "rate limit exceeded"

LOGIN_HELP = "Run `turnbridge login` as the user who runs Turnbridge, then try again."

# In Codex's words for a refresh token that another process has used; it works once.
REFRESH_TOKEN_USED = "refresh token was already used"
USED_ELSEWHERE = (
    "Another machine or copy uses the same auth.json, and has refreshed it. Give each machine a login of its own."
)

# How older versions report a status without a name.
_UNEXPECTED_STATUS = re.compile(r"unexpected status (\d{3})\b")
_TRY_AGAIN = re.compile(r"try again in ((?:\d+(?:\.\d+)? ?(?:ms|s|m|h) ?)+)", re.IGNORECASE)
_AMOUNTS = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)", re.IGNORECASE)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

Make: TypeAlias = Callable[[str], GatewayError]


class UpstreamErrorBody(msgspec.Struct, frozen=True):
    """The provider's own error object."""

    message: str = ""
    code: str | int | None = None
    param: str | None = None


class UpstreamBody(msgspec.Struct, frozen=True):
    """A provider's HTTP error body: OpenAI's shape, ChatGPT's with `detail`, or plain text."""

    error: UpstreamErrorBody | str | None = None
    detail: str | None = None


def _rate_limited(message: str) -> GatewayError:
    return errors.UpstreamRateLimited(message, retry_after=wait_named_in(message) or DEFAULT_RETRY_AFTER_S)


def _context_too_long(message: str) -> GatewayError:
    return errors.ContextTooLong(f"{CONTEXT_WORDS} {message}", param="input")


def _login_required(message: str) -> GatewayError:
    cause = f"{USED_ELSEWHERE} " if REFRESH_TOKEN_USED in message else ""
    return errors.LoginRequired(f"The provider rejected Codex's login: {message} {cause}{LOGIN_HELP}")


def _overloaded(message: str) -> GatewayError:
    return errors.UpstreamOverloaded(message, retry_after=DEFAULT_RETRY_AFTER_S)


def _bad_request(message: str) -> GatewayError:
    return errors.InvalidRequest(message, code="upstream_bad_request")


def _unreachable(message: str) -> GatewayError:
    # Codex says no more than that, be it the network, the address or the certificate.
    advice = "Check the network, the provider's address and its certificate."
    return errors.UpstreamFailed(f"Codex cannot reach the provider: {message.rstrip('.')}. {advice}")


def _key_missing(message: str) -> GatewayError:
    return errors.LoginRequired(
        f"Codex has no key for the provider: {message.rstrip('.')}. "
        "Set the variable for Turnbridge, or in `.env` in the user's Codex home, and restart Turnbridge."
    )


BY_OPENING: dict[str, Make] = {
    UNREACHABLE: _unreachable,
    TIMED_OUT: _unreachable,
    KEY_MISSING: _key_missing,
    **dict.fromkeys(DEFECTS, errors.BackendLost),
}
"""Codex's own messages have no name, or one that stands for many things."""

BY_NAME: dict[str, Make] = {
    "contextWindowExceeded": _context_too_long,
    "sessionBudgetExceeded": errors.QuotaExhausted,
    "usageLimitExceeded": errors.QuotaExhausted,
    "rateLimitExceeded": _rate_limited,
    "flexUnavailable": _overloaded,
    "serverOverloaded": _overloaded,
    "cyberPolicy": errors.PolicyRefusal,
    "misalignmentPolicyViolation": errors.PolicyRefusal,
    "tooManyDenials": errors.PolicyRefusal,
    "internalServerError": errors.UpstreamFailed,
    "unauthorized": _login_required,
    "badRequest": _bad_request,
    "threadRollbackFailed": errors.InternalFault,
    "sandboxError": errors.InternalFault,
    "httpConnectionFailed": errors.UpstreamFailed,
    "responseStreamConnectionFailed": errors.UpstreamFailed,
    "responseStreamDisconnected": errors.UpstreamFailed,
    "responseTooManyFailedAttempts": errors.UpstreamFailed,
    "activeTurnNotSteerable": errors.InternalFault,
}

BY_STATUS: dict[int, Make] = {
    400: _bad_request,
    401: _login_required,
    403: _login_required,
    404: lambda message: errors.InvalidRequest(message, code="upstream_not_found"),
    409: _bad_request,
    413: _context_too_long,
    422: _bad_request,
    429: _rate_limited,
    503: _overloaded,
}


def gateway_error(error: TurnError) -> GatewayError:
    """Return the client's error for a failed turn."""
    name, status = _name_and_status(error.codex_error_info)
    make = BY_STATUS.get(status or 0) or _by_opening(error.message) or BY_NAME.get(name or "")
    return make(error.message) if make else _from_message(error.message, is_other=name == "other")


def attempt_error(error: TurnError) -> GatewayError:
    """Return the client's error for the last failed attempt of a turn.

    Codex names all of them `responseStreamDisconnected`, so only the status and the reason count.
    """
    reason = error.additional_details or error.message
    _, status = _name_and_status(error.codex_error_info)
    if make := BY_STATUS.get(status or 0) or _by_opening(reason):
        return make(reason)
    if reason.startswith(RATE_LIMITED) or wait_named_in(reason) is not None:
        return _rate_limited(reason)
    return errors.UpstreamFailed(reason)


def _by_opening(message: str) -> Make | None:
    return next((make for opening, make in BY_OPENING.items() if message.startswith(opening)), None)


def incomplete_reason(error: TurnError) -> IncompleteReason | None:
    """Return why the provider cut the answer off, if that is what the error says."""
    match error.message.partition(f"{INCOMPLETE}, reason: ")[2].strip():
        case "max_output_tokens" | "content_filter" as reason:
            return reason
        case _:
            return None


def wait_named_in(message: str) -> float | None:
    """Return the seconds that a message like "try again in 11.054s" asks to wait."""
    found = _TRY_AGAIN.search(message)
    if found is None:
        return None
    return sum(float(amount) * _UNIT_SECONDS[unit.lower()] for amount, unit in _AMOUNTS.findall(found[1]))


def _name_and_status(info: msgspec.Raw) -> tuple[str | None, int | None]:
    """Read `"name"` or `{"name": {"httpStatusCode": 429}}`; anything else is unknown."""
    value = msgspec.json.decode(info)
    if isinstance(value, dict) and len(value) == 1:
        name, details = next(iter(value.items()))
        return name, details.get("httpStatusCode") if isinstance(details, dict) else None
    return (value, None) if isinstance(value, str) else (None, None)


def _from_message(message: str, *, is_other: bool) -> GatewayError:
    """Judge an error by its message: a 400 arrives as the provider's JSON body, under the name `other`."""
    try:
        body = msgspec.json.decode(message, type=UpstreamBody)
    except msgspec.MsgspecError:
        if (status := _UNEXPECTED_STATUS.match(message)) is not None:
            return BY_STATUS.get(int(status[1]), errors.UpstreamFailed)(message)
        if message.startswith(BROKEN_STREAM) and wait_named_in(message) is not None:
            return _rate_limited(message)
        if not is_other or not message or message.startswith((BROKEN_STREAM, INCOMPLETE)):
            return errors.UpstreamFailed(message)
        # A plain sentence is the provider's own, about the prompt; the same one would only be refused again.
        return errors.InvalidRequest(message, code="invalid_prompt")
    if body.error is None or isinstance(body.error, str):
        return _bad_request(body.error or body.detail or message)
    if body.error.code == errors.ContextTooLong.code:
        return _context_too_long(body.error.message)
    code = None if body.error.code is None else str(body.error.code)
    return errors.InvalidRequest(body.error.message or message, code=code, param=body.error.param)
