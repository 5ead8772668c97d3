"""Counting what clients use, and token limits."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from turnbridge.turn.clients import Client, ClientLimits
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.turn.events import Usage
from turnbridge.turn.items import replace
from turnbridge.turn.usage import DAY_S, HOUR_S, Counts, TokenLimit, UsageKey, UsageQuery, UsageSum, parse_token_limits
from turnbridge.web.middleware.meter import RELOAD_S, Meter
from turnbridge.web.middleware.observability import Outcome, RequestContext

pytestmark = pytest.mark.anyio

NOON = 20_000 * DAY_S + 12 * HOUR_S
SOME = Usage(input=60, cached=10, output=40, reasoning=5)


class Store:
    """Usage in memory."""

    def __init__(self) -> None:
        self.rows: dict[UsageKey, Counts] = {}
        self.writes = 0
        self.away = False
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while usage is written."""

    async def add_usage(self, usage: Mapping[UsageKey, Counts], names: Mapping[str, str]) -> None:
        self.meanwhile()
        if self.away:
            raise BackendUnavailable("away")
        self.writes += 1
        assert {key.client for key in usage} <= set(names)
        for key, counts in usage.items():
            self.rows.setdefault(key, Counts()).add(counts)

    async def tokens_since(self, clients: Sequence[str], since: int) -> Mapping[str, int]:
        if self.away:
            raise BackendUnavailable("away")
        sums: dict[str, int] = {}
        for key, counts in self.rows.items():
            if key.client in clients and key.hour >= since:
                sums[key.client] = sums.get(key.client, 0) + counts.input + counts.output
        return sums

    async def usage(self, query: UsageQuery) -> Sequence[UsageSum]:
        raise NotImplementedError


class House:
    """Gateways on one store, with one clock."""

    def __init__(self, *limits: TokenLimit) -> None:
        self.now = float(NOON)
        self.store = Store()
        self.client = Client(id="a", name="alice", limits=ClientLimits(tokens=limits))
        self.one, self.other = (
            Meter(self.store, lambda: [self.client], now=lambda: self.now) for _ in ("one", "other")
        )

    def left(self, meter: Meter) -> tuple[int, float] | None:
        standing = meter.standing(self.client)
        return None if standing is None else (standing.remaining, standing.resets_in_s)


async def test_usage_is_written_in_batches_by_client_model_and_hour() -> None:
    house = House()
    for _ in range(100):
        house.one.turn_ended(SOME, "m", house.client)
    house.now += HOUR_S
    house.one.turn_ended(SOME, None, house.client)
    await house.one.flush()
    await house.one.flush()

    assert house.store.writes == 1
    assert house.store.rows == {
        UsageKey("a", NOON, "m"): Counts(input=6000, cached=1000, output=4000, reasoning=500),
        UsageKey("a", NOON + HOUR_S, ""): Counts(input=60, cached=10, output=40, reasoning=5),
    }


async def test_a_limit_counts_at_once_here_and_with_the_next_batch_elsewhere() -> None:
    house = House(TokenLimit(150, "day"), TokenLimit(1000, "week"))
    assert house.left(house.one) == (150, 12 * HOUR_S)

    house.one.turn_ended(SOME, "m", house.client)
    assert house.left(house.one) == (50, 12 * HOUR_S)
    assert house.left(house.other) == (150, 12 * HOUR_S)
    await house.one.flush()
    await house.other.flush()
    assert house.left(house.one) == house.left(house.other) == (50, 12 * HOUR_S)

    house.other.turn_ended(SOME, "m", house.client)
    assert house.left(house.other) == (0, 12 * HOUR_S)
    house.now += 12 * HOUR_S
    assert house.left(house.other) == (150, DAY_S)


async def test_what_is_not_stored_yet_counts_beside_what_is() -> None:
    house = House(TokenLimit(1000, "hour"))
    house.one.turn_ended(SOME, "m", house.client)
    house.store.away = True
    with pytest.raises(BackendUnavailable):
        await house.one.flush()
    house.one.turn_ended(SOME, "m", house.client)
    assert house.left(house.one) == (800, HOUR_S)

    house.store.away = False
    await house.one.flush()
    assert house.left(house.one) == (800, HOUR_S)
    assert house.store.rows[UsageKey("a", NOON, "m")].input == 120


async def test_sums_are_known_after_a_start_and_read_again_for_those_who_ask() -> None:
    house = House(TokenLimit(1000, "day"))
    house.store.rows[UsageKey("a", NOON, "m")] = Counts(input=300)
    await house.one.load()
    assert house.left(house.one) == (700, 12 * HOUR_S)
    await house.one.flush()
    house.store.rows[UsageKey("a", NOON, "m")] = Counts(input=400)
    await house.one.flush()
    house.now += RELOAD_S
    await house.one.flush()
    assert house.left(house.one) == (600, 12 * HOUR_S - RELOAD_S)


async def test_a_store_that_is_away_fills_no_memory() -> None:
    house = House()
    house.one.most_waiting = 3
    house.store.away = True
    for number in range(10):
        house.one.turn_ended(SOME, f"m{number}", house.client)
        with pytest.raises(BackendUnavailable):
            await house.one.flush()
    with capture_logs() as logs:
        await house.one.aclose()
    assert [(line["event"], line["entries"]) for line in logs] == [("usage_lost", 3)]


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("2M/day", (TokenLimit(2_000_000, "day"),)),
        ("1.5k/hour; 100 per Week", (TokenLimit(1500, "hour"), TokenLimit(100, "week"))),
    ],
)
def test_limits_are_read(text: str, limits: tuple[TokenLimit, ...]) -> None:
    assert parse_token_limits(text) == limits


@pytest.mark.parametrize(
    "text", ["", "2M", "M/day", "0/day", "-1/day", "2M/minute", "9999999999999/day", "1e9/day", "2M/day;"]
)
def test_wrong_limits_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_token_limits(text)


async def test_what_is_used_while_usage_is_written_is_neither_lost_nor_counted_twice() -> None:
    house = House(TokenLimit(1000, "hour"))
    house.store.meanwhile = lambda: house.one.turn_ended(SOME, "m", house.client)
    house.one.turn_ended(SOME, "m", house.client)
    house.store.away = True
    with pytest.raises(BackendUnavailable):
        await house.one.flush()
    house.store.away = False
    await house.one.flush()
    assert house.left(house.one) == (700, HOUR_S)
    assert house.store.rows[UsageKey("a", NOON, "m")].input == 120
    house.store.meanwhile = lambda: None
    await house.one.flush()
    assert house.store.rows[UsageKey("a", NOON, "m")].input == 180


async def test_what_was_used_in_the_hour_before_does_not_count_in_the_next() -> None:
    house = House(TokenLimit(1000, "hour"))

    def next_hour() -> None:
        house.one.turn_ended(SOME, "m", house.client)
        house.now += HOUR_S

    house.store.meanwhile = next_hour
    house.one.turn_ended(SOME, "m", house.client)
    await house.one.flush()
    assert house.left(house.one) == (1000, HOUR_S)


def test_of_two_limits_with_as_much_left_the_one_that_lasts_longer_is_told() -> None:
    house = House(TokenLimit(150, "hour"), TokenLimit(150, "day"))
    assert house.left(house.one) == (150, 12 * HOUR_S)


async def test_a_client_that_comes_later_has_used_what_is_stored_of_it() -> None:
    house = House(TokenLimit(1000, "day"))
    await house.one.load()
    house.client = replace(house.client, id="b")
    house.store.rows[UsageKey("b", NOON, "m")] = Counts(input=300)
    await house.one.flush()
    assert house.left(house.one) == (700, 12 * HOUR_S)


@pytest.mark.parametrize(
    ("outcome", "errors"),
    [("ok", 0), ("client_gone", 0), ("client_error", 1), ("server_error", 1), ("failed_mid_stream", 1)],
)
async def test_a_request_that_failed_is_an_error_and_one_whose_client_left_is_none(
    outcome: Outcome, errors: int
) -> None:
    house = House()
    context = RequestContext(request_id="r", method="POST", route="/", clock=lambda: 0.0, started_at=0.0)
    context.client = house.client
    house.one.request_ended(context, outcome)
    await house.one.flush()
    assert house.store.rows == {UsageKey("a", NOON, ""): Counts(requests=1, errors=errors)}
