"""Requests of turns, from the fields of their thread's spec and their own side by side."""

from turnbridge.turn.items import replace
from turnbridge.turn.request import ThreadSpec, TurnRequest

SPEC_FIELDS = frozenset(ThreadSpec.__struct_fields__)


def turn_request(**fields: object) -> TurnRequest:
    """Return a request with these fields, without items and for the model `m` unless told otherwise."""
    return changed(TurnRequest(spec=ThreadSpec(model="m"), items=()), **fields)


def changed(request: TurnRequest, **fields: object) -> TurnRequest:
    """Return the request with other values in these fields."""
    spec = {name: fields.pop(name) for name in SPEC_FIELDS & fields.keys()}
    return replace(request, spec=replace(request.spec, **spec), **fields)
