"""What is known of one request while it is served, and the one line that is logged when it ends.

The line tells who waited how long for what, and how it ended. A client is named by a digest of its key. The line never
holds prompts, keys, query strings or the paths of unknown routes: only fields of `RequestContext` reach it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from starlette.types import Scope
from structlog.typing import FilteringBoundLogger

from turnbridge.web.bodies import Uploads

CONTEXT_KEY = "turnbridge"
"""Where the ingress puts the `RequestContext` in the ASGI scope."""

MODEL_NAME_LIMIT = 128
"""The model is the client's own word until it is checked; no real name is longer than this."""

Outcome: TypeAlias = Literal["ok", "client_error", "server_error", "client_gone", "failed_mid_stream"]

OUTCOMES_OF_CONCERN: frozenset[Outcome] = frozenset({"server_error", "failed_mid_stream"})
"""Outcomes that an operator should look at; the others are the client's own business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who makes a request."""

    id: str
    """Under which its data are stored and its limits counted."""
    name: str
    """As logs show it."""


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """One request's record: the ingress writes the first half, handlers write what they learn below it."""

    request_id: str
    method: str
    route: str
    """The route's template, such as `/v1/responses/{response_id}`."""
    clock: Callable[[], float]
    started_at: float
    response_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Headers that the answer to this request carries, whoever gives it."""
    status: int | None = None
    """The HTTP status, once the response has begun."""
    first_byte_at: float | None = None
    complete: bool = False
    """Whether the response was sent to its end."""

    peer: str = ""
    """The address at the other end of the connection; a reverse proxy's, if there is one."""
    client: Client | None = None
    """Who asks, once the key has been checked."""
    uploads: Uploads = field(default_factory=Uploads)
    """What counts the body of this request among those of all others, while it is received."""
    client_gone: bool = False
    model: str | None = None
    served_by: str | None = None
    stream: bool = False
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    first_output_at: float | None = None
    error_code: str | None = None
    """The code told to the client, also when it was told inside a stream that had begun with 200."""

    def mark_first_output(self) -> None:
        """Note when the model's first output came; later calls change nothing."""
        if self.first_output_at is None:
            self.first_output_at = self.clock()

    def outcome(self) -> Outcome:
        """Return how the request ended."""
        if self.client_gone:
            return "client_gone"
        if self.status is None or self.status >= 500:
            return "server_error"
        if not self.complete:
            return "failed_mid_stream"
        if self.status >= 400:
            return "client_error"
        return "ok" if self.error_code is None else "failed_mid_stream"


def context_of(scope: Scope) -> RequestContext:
    """Return the record of the request that `scope` belongs to."""
    context: RequestContext = scope[CONTEXT_KEY]
    return context


def log_request(log: FilteringBoundLogger, context: RequestContext, *, outcome: Outcome, ended_at: float) -> None:
    """Write the request's one line."""
    write = log.warning if outcome in OUTCOMES_OF_CONCERN else log.info
    started = context.started_at
    write(
        "request",
        request_id=context.request_id,
        client=None if context.client is None else context.client.name,
        peer=context.peer,
        method=context.method,
        route=context.route,
        model=None if context.model is None else context.model[:MODEL_NAME_LIMIT],
        served_by=context.served_by,
        stream=context.stream,
        status=context.status,
        outcome=outcome,
        error_code=context.error_code,
        input_tokens=context.input_tokens,
        cached_tokens=context.cached_tokens,
        output_tokens=context.output_tokens,
        reasoning_tokens=context.reasoning_tokens,
        first_byte_ms=_milliseconds(started, context.first_byte_at),
        first_output_ms=_milliseconds(started, context.first_output_at),
        total_ms=_milliseconds(started, ended_at),
    )


def _milliseconds(start: float, end: float | None) -> float | None:
    return None if end is None else round((end - start) * 1000, 3)
