"""Decodes a body as the route does, without a store."""

from collections.abc import Sequence

from turnbridge.api.responses import decode as module
from turnbridge.api.responses.decode import DecodedResponses, input_items
from turnbridge.turn.items import JsonObject


def decode(body: JsonObject, history: Sequence[JsonObject] = ()) -> DecodedResponses:
    """Return what a body of `POST /v1/responses` asks for; `history` is what its input continues."""
    request, unknown = module.parse(body)
    return module.decode(request, unknown, input_items(request.input), history)
