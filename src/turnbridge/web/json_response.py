"""JSON answers."""

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from turnbridge.turn.items import JsonObject


def json_response(body: JsonObject, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that is one JSON object."""
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
