"""`GET /v1/organization/usage/completions`: the usage of clients in OpenAI's shape.

A client sees its own usage only, unless its key is an admin's. The id of a key is the name of its client.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from turnbridge.api.shared.pagination import query_number
from turnbridge.api.shared.validation import invalid, one_of
from turnbridge.engine.records import UsageStore
from turnbridge.turn.clients import Client
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.usage import DAY_S, HOUR_S, UsageQuery, UsageSum
from turnbridge.web.http import OPENAI, RouteOf, json_response
from turnbridge.web.middleware.auth import caller

WIDTHS = {"1h": HOUR_S, "1d": DAY_S}
# OpenAI's own defaults and bounds, in buckets.
LIMITS = {"1h": (24, 168), "1d": (7, 31)}
GROUPS = ("project_id", "user_id", "api_key_id", "model", "batch", "service_tier", "api_source")
PAGE_PREFIX = "page_"
MOST_VALUES = 100
LONGEST_VALUE = 200
# Of no use beyond, and quick to list.
LATEST = 10**11


class OrganizationUsage:
    """The handler of the route."""

    dialect = OPENAI

    def __init__(self, store: UsageStore | None, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now

    def routes(self) -> list[RouteOf]:
        """Return the route."""
        return [RouteOf("GET", "/organization/usage/completions", self.completions)]

    async def completions(self, request: Request) -> Response:
        """Answer with the usage in buckets of a day or an hour."""
        query, groups, end = read_query(request.query_params, caller(request.scope), now=int(self._now()))
        sums = [] if self._store is None else await self._store.usage(query)
        return json_response(usage_page(query, groups, sums, end))


def read_query(given: QueryParams, client: Client, *, now: int) -> tuple[UsageQuery, frozenset[str], int]:
    """Return what one page is asked for, how it is grouped, and when the whole range ends."""
    width_name = given.get("bucket_width", "1d")
    if width_name == "1m":
        raise invalid("bucket_width", "usage is stored by the hour here: use '1h' or '1d'.")
    one_of(width_name, tuple(WIDTHS), param="bucket_width")
    width, (usual, most) = WIDTHS[width_name], LIMITS[width_name]
    limit = query_number(given.get("limit", str(usual)))
    if limit is None or not 1 <= limit <= most:
        raise invalid("limit", f"expected a number from 1 to {most} for buckets of {width_name}.")
    if given.get("start_time") is None:
        raise invalid("start_time", "it is required: the time from which usage is wanted, in Unix seconds.")
    start = _moment(given, "start_time") // width * width
    end = _moment(given, "end_time") if given.get("end_time") is not None else now + 1
    if (page := given.get("page")) is not None:
        next_start = query_number(page.removeprefix(PAGE_PREFIX)) if page.startswith(PAGE_PREFIX) else None
        if next_start is None or next_start % width or not start <= next_start < LATEST:
            raise invalid("page", "expected `next_page` of the page before, with the same parameters.")
        start = next_start
    groups = frozenset(_values(given, "group_by"))
    for group in groups:
        one_of(group, GROUPS, param="group_by")
    query = UsageQuery(
        start=start,
        end=min(start + limit * width, max(end, start)),
        width=width,
        by_client="api_key_id" in groups,
        by_model="model" in groups,
        client=None if client.admin else client.id,
        names=_values(given, "api_key_ids") or None,
        models=_values(given, "models") or None,
    )
    return query, groups, end


def usage_page(query: UsageQuery, groups: frozenset[str], sums: Sequence[UsageSum], end: int) -> JsonObject:
    """Return a page of buckets; those without usage are empty."""
    found: dict[int, list[Json]] = {}
    for each in sums:
        found.setdefault(each.start, []).append(_result(each, groups))
    data: list[Json] = [
        {"object": "bucket", "start_time": start, "end_time": start + query.width, "results": found.get(start, [])}
        for start in range(query.start, query.end, query.width)
    ]
    has_more = end > query.end
    return {
        "object": "page",
        "data": data,
        "has_more": has_more,
        "next_page": f"{PAGE_PREFIX}{query.end}" if has_more else None,
    }


def _result(each: UsageSum, groups: Iterable[str]) -> JsonObject:
    counts = each.counts
    return {
        "object": "organization.usage.completions.result",
        "input_tokens": counts.input,
        "output_tokens": counts.output,
        "input_cached_tokens": counts.cached,
        "output_reasoning_tokens": counts.reasoning,
        "input_audio_tokens": 0,
        "output_audio_tokens": 0,
        "num_model_requests": counts.requests,
        "num_failed_requests": counts.errors,
        "project_id": None,
        "user_id": None,
        "api_key_id": each.client,
        "model": each.model,
        "batch": False if "batch" in groups else None,
        "service_tier": None,
        "api_source": "unlabeled" if "api_source" in groups else None,
    }


def _moment(given: QueryParams, name: str) -> int:
    moment = query_number(given.get(name, ""))
    if moment is None or moment >= LATEST:
        raise invalid(name, "expected a time in Unix seconds.")
    return moment


def _values(given: QueryParams, name: str) -> tuple[str, ...]:
    """Return a list, as SDKs write it in a query: repeated, with brackets, or with commas."""
    written = [*given.getlist(name), *given.getlist(f"{name}[]")]
    values = tuple(dict.fromkeys(value for each in written for value in each.split(",", MOST_VALUES + 1) if value))
    if len(values) > MOST_VALUES or any(len(value) > LONGEST_VALUE for value in values):
        raise invalid(name, f"expected at most {MOST_VALUES} values of {LONGEST_VALUE} characters.")
    return values
