"""What can go wrong with a turn, and whose fault it is.

No HTTP number stands here: `api.shared.errors` holds the one table that turns these into statuses.
"""

from typing import ClassVar, Literal, TypeAlias, TypeVar

E = TypeVar("E", bound=BaseException)

Source: TypeAlias = Literal["client", "gateway", "provider"]
"""Where a failure comes from: the request, this gateway with its limits, or what is behind Codex."""


class GatewayError(Exception):
    """A failure that may be told to the client; `message` never holds a secret."""

    code: ClassVar[str | None] = None
    source: ClassVar[Source] = "gateway"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = code if code is not None else self.code
        self.param = param
        self.retry_after = retry_after


class RequestError(GatewayError):
    """The client's request cannot be served as it stands."""

    source = "client"


class InvalidRequest(RequestError):
    """A field of the request is wrong, missing, or not supported."""


class RequestTooLarge(RequestError):
    """The body exceeds the limit."""

    code = "request_too_large"


class HeadersTooLarge(RequestError):
    """The request's target and headers exceed the limit."""

    code = "headers_too_large"


class RequestTimeout(RequestError):
    """The client stopped sending the body before its end."""

    code = "request_timeout"


class ModelNotFound(RequestError):
    """The model id is neither Codex's nor an alias."""

    code = "model_not_found"


class NotFound(RequestError):
    """There is no such route or object."""

    code = "not_found"


class MethodNotAllowed(RequestError):
    """The route exists, but not with this verb."""

    code = "method_not_allowed"


class WebSocketNotServed(RequestError):
    """The client asks for a WebSocket; this route is served over HTTP only."""

    code = "websocket_not_served"


class InvalidApiKey(RequestError):
    """The gateway's own key is missing or wrong."""

    code = "invalid_api_key"


class Forbidden(RequestError):
    """The origin, address or key is not allowed to do this."""

    code = "forbidden"


class ContextTooLong(RequestError):
    """The input exceeds the model's context window."""

    code = "context_length_exceeded"


class PolicyRefusal(RequestError):
    """The provider refuses the content of the request."""

    code = "content_policy_violation"


class LoginRequired(GatewayError):
    """Codex is not logged in, or the provider rejected its login."""

    code = "codex_login_required"
    source = "provider"


class RateLimited(GatewayError):
    """A rate limit of this gateway."""

    code = "rate_limit_exceeded"


class UpstreamRateLimited(RateLimited):
    """A rate limit of the provider."""

    source = "provider"


class QuotaExhausted(GatewayError):
    """The plan, credits or budget behind Codex are used up."""

    code = "insufficient_quota"
    source = "provider"


class OutputRejected(GatewayError):
    """The (billed) answer does not match the requested format."""

    code = "invalid_structured_output"
    source = "provider"


class UpstreamFailed(GatewayError):
    """The provider behind Codex failed."""

    code = "upstream_error"
    source = "provider"


class UpstreamOverloaded(UpstreamFailed):
    """The provider behind Codex is at capacity."""

    code = "server_is_overloaded"


class ToolServerFailed(GatewayError):
    """An MCP server that the client named did not list its tools."""

    code = "http_error"
    source = "client"


class BackendUnavailable(GatewayError):
    """No Codex process can take the turn now."""

    code = "backend_unavailable"


class BackendLost(BackendUnavailable):
    """The Codex process that ran the turn has ended; a retry uses another one."""


class GatewayOverloaded(BackendUnavailable):
    """Too many connections or request bodies; the connection is closed."""

    code = "gateway_overloaded"


class CodexActed(GatewayError):
    """Codex acted on its own although everything forbids it; the turn was stopped, and a retry would repeat it."""

    code = "codex_acted"


class TurnTimeout(GatewayError):
    """The turn exceeded its time limit."""

    code = "turn_timeout"
    source = "provider"


class InternalFault(GatewayError):
    """A defect of the gateway; the log has the details."""

    code = "internal_error"


def unknown_file(file_id: str, param: str) -> NotFound:
    """Return the refusal of a part that names an uploaded file which its client does not have."""
    return NotFound(
        f"No such file: '{file_id}'. It was not uploaded with this key, was deleted, or has expired. Upload it again.",
        code="file_not_found",
        param=f"{param}.file_id",
    )


def without_frames(error: E) -> E:
    """Remove the tracebacks of an error and of its causes, and return it.

    A traceback references its frames, and these reference whole requests and often the error itself: a cycle, which
    would stay in memory until the next full garbage collection.
    """
    passed: BaseException | None = error
    while passed is not None:
        passed.__traceback__ = None
        passed = passed.__cause__ or passed.__context__
    return error
