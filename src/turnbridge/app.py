"""The application: its routes, each with and without `/v1`, inside the ingress."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.api.chat.stored_routes import StoredChats
from turnbridge.api.generation import IGNORED_HEADER, MODEL_HEADER, Generation
from turnbridge.api.models import Models
from turnbridge.api.output_mode import MODE_HEADER
from turnbridge.api.responses.conversations import Conversations
from turnbridge.api.responses.stored_routes import StoredResponses
from turnbridge.api.unserved import REASONS, refuse
from turnbridge.web.http import json_response
from turnbridge.web.middleware.access_log import context_of
from turnbridge.web.middleware.idempotency import REPEAT_HEADER, AnswerOnce, Answers
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.metrics import Metrics, metrics_endpoint
from turnbridge.web.middleware.rate_limit import RATE_HEADERS, LimitRate, RequestRates
from turnbridge.web.turns import (
    FIDELITY_HEADER,
    QUEUED_HEADER,
    THREAD_HEADER,
    USAGE_HEADER,
)

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

EXPOSED_HEADERS = (
    MODEL_HEADER,
    IGNORED_HEADER,
    USAGE_HEADER,
    QUEUED_HEADER,
    THREAD_HEADER,
    REPEAT_HEADER,
    MODE_HEADER,
    FIDELITY_HEADER,
    *RATE_HEADERS,
)
"""What the gateway says of an answer, which the pages of allowed origins may read."""

REASON_FOR_OTHERS = "Turns cannot be run now. Send the API key with this request to see why, or look into the log."
"""The reason itself may name paths, a user and a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """Everything that answers requests with the key."""

    generation: Generation
    models: Models
    responses: StoredResponses
    conversations: Conversations
    chats: StoredChats


def build_app(
    handlers: Handlers,
    *,
    problem: Callable[[], str],
    api_key: str,
    metrics: Metrics,
    metrics_token: str | None,
    own_names: Collection[str] = (),
    allowed_origins: Iterable[str],
    rates: RequestRates | None,
    body_limit_bytes: int,
) -> ASGIApp:
    """Return the whole HTTP side.

    `problem` says why turns cannot be run now, or nothing; `own_names` are names of the server besides its addresses.
    """
    limited = [] if rates is None else [Middleware(LimitRate, rates=rates)]
    once = Middleware(AnswerOnce, answers=Answers(), body_limit_bytes=body_limit_bytes)
    routes = [
        *_both("POST", "/chat/completions", handlers.generation.chat, [*limited, once]),
        *_both("POST", "/responses", handlers.generation.responses, [*limited, once]),
        *_both("GET", "/models", handlers.models.list),
        *_both("GET", "/models/{model:path}", handlers.models.retrieve),
        # Before the routes whose parameter would take these paths for an id.
        *(route for path in REASONS for route in _both(None, path, refuse)),
        *_kept(handlers, once),
        *_probes(problem, handlers.models),
        Route("/metrics", metrics_endpoint(metrics)),
    ]
    return wrap(
        Router(routes),
        api_key=api_key,
        metrics=metrics,
        metrics_token=metrics_token,
        own_names=own_names,
        allowed_origins=allowed_origins,
        exposed_headers=EXPOSED_HEADERS,
    )


def _probes(problem: Callable[[], str], models: Models) -> list[Route]:
    async def alive(_: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(request: Request) -> Response:
        reason = problem()
        if not reason:
            return json_response({"status": "ready", "fidelity": models.fidelity()})
        shown = REASON_FOR_OTHERS if context_of(request.scope).client is None else reason
        return json_response({"status": "not_ready", "reason": shown}, status=503)

    return [Route("/healthz", alive), Route("/livez", alive), Route("/readyz", ready)]


def _kept(handlers: Handlers, once: Middleware) -> list[Route]:
    """Return the routes of what is kept; what creates something does so once for each `Idempotency-Key`."""
    responses, conversations, chats = handlers.responses, handlers.conversations, handlers.chats
    response, conversation, chat = (
        "/responses/{response_id}",
        "/conversations/{conversation_id}",
        "/chat/completions/{completion_id}",
    )
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", response, responses.retrieve),
        ("DELETE", response, responses.delete),
        ("POST", f"{response}/cancel", responses.cancel),
        ("GET", f"{response}/input_items", responses.input_items),
        ("POST", "/conversations", conversations.create),
        ("GET", conversation, conversations.retrieve),
        ("POST", conversation, conversations.update),
        ("DELETE", conversation, conversations.delete),
        ("GET", f"{conversation}/items", conversations.list_items),
        ("POST", f"{conversation}/items", conversations.create_items),
        ("GET", f"{conversation}/items/{{item_id}}", conversations.retrieve_item),
        ("DELETE", f"{conversation}/items/{{item_id}}", conversations.delete_item),
        ("GET", "/chat/completions", chats.list),
        ("GET", chat, chats.retrieve),
        ("POST", chat, chats.update),
        ("DELETE", chat, chats.delete),
        ("GET", f"{chat}/messages", chats.messages),
    ]
    return [
        route
        for method, path, endpoint in table
        for route in _both(method, path, endpoint, [once] if method == "POST" else ())
    ]


def _both(method: str | None, path: str, endpoint: Endpoint, layers: Sequence[Middleware] = ()) -> list[Route]:
    """Return a route twice: clients differ in whether their base URL ends in `/v1`. No method means any."""
    methods = None if method is None else [method]
    return [Route(name, _Answering(endpoint), methods=methods, middleware=layers) for name in (f"/v1{path}", path)]


class _Answering:
    """An endpoint as plain ASGI: Starlette would put a layer of error handling around it that every frame pays for."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._endpoint(Request(scope, receive))
        await answer(scope, receive, send)
