"""Lists as OpenAI pages them: `limit`, `order` and `after` in, a page with its first and last id out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnbridge.api.shared.parameters import one_of
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import JsonObject

# OpenAI's own default and bound.
USUAL_LIMIT = 20
HIGHEST_LIMIT = 100
# More than any list or stream has, and few enough for every reader of numbers.
MOST_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """Which part of a list the client wants."""

    limit: int
    newest_first: bool
    after: str | None


def query_number(given: str) -> int | None:
    """Return a number that stands in a query string; None if it is none, or none that could be meant."""
    return int(given) if given.isascii() and given.isdigit() and len(given) <= MOST_DIGITS else None


def page_query(parameters: Mapping[str, str], *, usual_order: str = "desc") -> PageQuery:
    """Return what a query string asks for."""
    given = parameters.get("limit", str(USUAL_LIMIT))
    limit = query_number(given)
    if limit is None or not 1 <= limit <= HIGHEST_LIMIT:
        raise InvalidRequest(
            f"Invalid 'limit': expected a number from 1 to {HIGHEST_LIMIT}, but got '{given}'.",
            code="invalid_value",
            param="limit",
        )
    order = one_of(parameters.get("order"), ("asc", "desc"), param="order") or usual_order
    return PageQuery(limit=limit, newest_first=order == "desc", after=parameters.get("after") or None)


def page_of(objects: Sequence[JsonObject], query: PageQuery) -> JsonObject:
    """Return the page of a whole list, which is given oldest first."""
    ordered = list(reversed(objects)) if query.newest_first else list(objects)
    if query.after is not None:
        places = [place for place, each in enumerate(ordered) if each["id"] == query.after]
        if not places:
            raise unknown_after(query.after)
        ordered = ordered[places[-1] + 1 :]
    return page(ordered[: query.limit], has_more=len(ordered) > query.limit)


def unknown_after(after: str | None) -> InvalidRequest:
    """Return what a page after something that is not in the list is answered with."""
    return InvalidRequest(f"Invalid 'after': there is no '{after}' in this list.", code="invalid_value", param="after")


def page(objects: Sequence[JsonObject], *, has_more: bool) -> JsonObject:
    """Return the list object around a page."""
    return {
        "object": "list",
        "data": list(objects),
        "first_id": objects[0]["id"] if objects else None,
        "last_id": objects[-1]["id"] if objects else None,
        "has_more": has_more,
    }
