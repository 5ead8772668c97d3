"""What the OpenAPI document says of routes: each API describes its own."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from turnbridge.api.openapi.schemas import TEXT, one_of
from turnbridge.turn.items import JsonObject

PAGE: Mapping[str, JsonObject] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "order": one_of("asc", "desc"),
    "after": TEXT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one route does."""

    summary: str
    tag: str
    answer: str | None = None
    """The schema of its answer; none if it has no JSON."""
    or_answer: str | None = None
    """The schema if the request is of another API."""
    error: str = "Error"
    """The schema of its errors."""
    or_error: str | None = None
    """The schema of what it says besides errors if it cannot answer."""
    body: type[msgspec.Struct] | None = None
    form: JsonObject | None = None
    """The schema of its body, if that is a form."""
    example: JsonObject | None = None
    needs_body: bool = True
    required: tuple[str, ...] = ()
    """The fields that a body must have, which its type does not say: their absence has an error of its own."""
    streams: bool = False
    plain: bool = False
    """Whether its answer is a text."""
    binary: bool = False
    """Whether its answer is bytes."""
    query: Mapping[str, JsonObject] | None = None
    gives: str | None = None
    """The parameter of other routes that the id of its answer is."""
    status: str = "200"
    open: bool = False
    """Whether it needs no key."""
    also_by: str | None = None
    """Another header that may bring the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one API adds to the document."""

    operations: Mapping[tuple[str, str], Operation]
    """By method and path; one that another part has, too, takes its place."""
    schemas: Mapping[str, JsonObject]
