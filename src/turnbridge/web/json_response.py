"""JSON answers."""

import msgspec
from starlette.responses import Response

from turnbridge.turn.items import JsonObject


def json_response(body: JsonObject, *, status: int = 200) -> Response:
    """Return an answer that is one JSON object."""
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")
