"""Stored objects as OpenAI lists and deletes them: `limit`, `order` and `after` in, a page with its ids out."""

from collections.abc import Mapping, Sequence

from turnbridge.api.shared.validation import invalid, one_of
from turnbridge.engine.records import ItemQuery
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import JsonObject

# OpenAI's own default and bound.
DEFAULT_LIMIT = 20
MAX_LIMIT = 100
# More than any list or stream has, and quick to parse.
MAX_DIGITS = 12


def query_number(given: str) -> int | None:
    """Return a number of a query string; None if it is no number, or out of any range."""
    return int(given) if given.isascii() and given.isdigit() and len(given) <= MAX_DIGITS else None


def page_query(
    parameters: Mapping[str, str], *, default_order: str = "desc", default: int = DEFAULT_LIMIT, most: int = MAX_LIMIT
) -> ItemQuery:
    """Return the page that a query string asks for; `default` and `most` are of its `limit`."""
    given = parameters.get("limit", str(default))
    limit = query_number(given)
    if limit is None or not 1 <= limit <= most:
        raise invalid("limit", f"expected a number from 1 to {most}, but got '{given}'.")
    order = one_of(parameters.get("order"), ("asc", "desc"), param="order") or default_order
    return ItemQuery(limit=limit, newest_first=order == "desc", after=parameters.get("after") or None)


def page_of(objects: Sequence[JsonObject], query: ItemQuery) -> JsonObject:
    """Return a page of a whole list, which is given oldest first."""
    ordered = list(reversed(objects)) if query.newest_first else list(objects)
    if query.after is not None:
        ids = [each["id"] for each in ordered]
        if query.after not in ids:
            raise unknown_after(query.after)
        ordered = ordered[ids.index(query.after) + 1 :]
    return page(ordered[: query.limit], has_more=len(ordered) > query.limit)


def unknown_after(after: str | None) -> InvalidRequest:
    """Return the refusal of a page after an object that is not in the list."""
    return invalid("after", f"there is no '{after}' in this list.")


def page(objects: Sequence[JsonObject], *, has_more: bool) -> JsonObject:
    """Return the list object around a page."""
    return {
        "object": "list",
        "data": list(objects),
        "first_id": objects[0]["id"] if objects else None,
        "last_id": objects[-1]["id"] if objects else None,
        "has_more": has_more,
    }


def deleted(object_id: str, kind: str) -> JsonObject:
    """Return the answer to a deletion."""
    return {"id": object_id, "object": kind, "deleted": True}
