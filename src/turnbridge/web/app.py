"""The application: its routes, each with and without `/v1`, inside the ingress."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from turnbridge.turn.items import JsonObject
from turnbridge.web.generation import IGNORED_HEADER, MODEL_HEADER, Generation, Models
from turnbridge.web.idempotency import REPEAT_HEADER, AnswerOnce, Answers
from turnbridge.web.ingress import wrap
from turnbridge.web.metrics import Metrics, metrics_endpoint
from turnbridge.web.rate_limit import RATE_HEADERS, LimitRate, RequestRates
from turnbridge.web.turns import QUEUED_HEADER, THREAD_HEADER, USAGE_HEADER
from turnbridge.wire.model_list import model_list, model_object

Endpoint = Callable[[Request], object]


def build_app(
    generation: Generation,
    models: Models,
    *,
    problem: Callable[[], str],
    api_key: str,
    metrics: Metrics,
    metrics_token: str | None,
    allowed_origins: Iterable[str],
    rates: RequestRates | None,
    body_limit_bytes: int,
) -> ASGIApp:
    """Return the whole HTTP side; `problem` says why turns cannot be run now, or nothing."""

    async def list_models(_: Request) -> Response:
        catalog = await models.catalog()
        listed = [model_object(model) for model in catalog.listed()]
        aliases = [model_object(model, name=name) for name, model in catalog.aliases().items()]
        return _json(model_list([*listed, *aliases]))

    async def get_model(request: Request) -> Response:
        name = request.path_params["model"]
        return _json(model_object((await models.catalog()).resolve(name).model, name=name))

    async def alive(_: Request) -> Response:
        return _json({"status": "ok"})

    async def ready(_: Request) -> Response:
        reason = problem()
        if not reason:
            return _json({"status": "ready"})
        return _json({"status": "not_ready", "reason": reason}, status=503)

    limited = [] if rates is None else [Middleware(LimitRate, rates=rates)]
    once = Middleware(AnswerOnce, answers=Answers(), body_limit_bytes=body_limit_bytes)
    routes = [
        *_both("/chat/completions", generation.chat, "POST", [*limited, once]),
        *_both("/responses", generation.responses, "POST", [*limited, once]),
        *_both("/models", list_models, "GET"),
        *_both("/models/{model:path}", get_model, "GET"),
        Route("/healthz", alive),
        Route("/livez", alive),
        Route("/readyz", ready),
        Route("/metrics", metrics_endpoint(metrics, token=metrics_token)),
    ]
    return wrap(
        Router(routes),
        api_key=api_key,
        metrics=metrics,
        allowed_origins=allowed_origins,
        exposed_headers=(
            *(MODEL_HEADER, IGNORED_HEADER, USAGE_HEADER, QUEUED_HEADER, THREAD_HEADER, REPEAT_HEADER),
            *RATE_HEADERS,
        ),
    )


def _both(path: str, endpoint: Endpoint, method: str, layers: Sequence[Middleware] = ()) -> list[Route]:
    """Return a route twice: clients differ in whether their base URL ends in `/v1`."""
    return [Route(name, endpoint, methods=[method], middleware=layers) for name in (f"/v1{path}", path)]


def _json(body: JsonObject, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")
