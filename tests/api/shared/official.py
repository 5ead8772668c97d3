"""The official SDK's own types as judge: every field has its type, and no field is unknown to it."""

from collections.abc import Iterator
from typing import Annotated, get_args, get_origin

import msgspec
from openai import BaseModel
from openai.types.responses import ResponseStreamEvent

from turnbridge.turn.items import JsonObject


def _event_types() -> dict[str, type[BaseModel]]:
    union = get_args(ResponseStreamEvent)[0] if get_origin(ResponseStreamEvent) is Annotated else ResponseStreamEvent
    return {get_args(event.model_fields["type"].annotation)[0]: event for event in get_args(union)}


EVENTS = _event_types()
"""The type of each event of the Responses API, by its name."""


def unknown_fields(shape: type[BaseModel], value: JsonObject) -> set[str]:
    """Return the names that the SDK does not know; raises if a field that it knows is missing or has another type."""
    return set(_extras(shape.model_validate_json(msgspec.json.encode(value), strict=True)))


def _extras(value: object) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from value.model_extra or {}
        for name in type(value).model_fields.keys() & value.model_fields_set:
            yield from _extras(getattr(value, name))
    elif isinstance(value, list):
        for element in value:
            yield from _extras(element)
