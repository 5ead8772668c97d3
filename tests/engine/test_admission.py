"""Who is let in, who waits, and who is told to come back."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replicas.memory_slots import MemorySlots
from turnbridge.engine.admission import COME_BACK_S, Admission
from turnbridge.engine.shared_admission import SharedAdmission
from turnbridge.turn.errors import BackendUnavailable, GatewayError, InvalidApiKey, RateLimited

pytestmark = pytest.mark.anyio

PATIENCE_S = 30.0
"""Longer than any test here takes."""


@dataclass(slots=True)
class House:
    """An admission, and everyone who ever came."""

    admission: Admission
    guests: list["Guest"] = field(default_factory=list)
    let_in: list["Guest"] = field(default_factory=list)

    async def ask(self, client: str = "a", turns: int = 1, size: int = 0) -> "Guest":
        """Let somebody come, and return when they are in, wait, or were refused."""
        guest = self.send(client, turns, size)
        await settled()
        return guest

    def send(self, client: str = "a", turns: int = 1, size: int = 0) -> "Guest":
        """Let somebody be on their way."""
        guest = Guest(self, client, turns, size)
        self.guests.append(guest)
        return guest

    async def close(self) -> None:
        """Send everyone home."""
        for guest in self.guests:
            guest.task.cancel()
        await asyncio.wait([guest.task for guest in self.guests])


class Guest:
    """A request of `client` for some turns, which run until it is told to end."""

    def __init__(self, house: House, client: str, turns: int, size: int) -> None:
        self.client = client
        self.turns = turns
        self.size = size
        self.inside = False
        self._house = house
        self._over = asyncio.Event()
        self.task = asyncio.create_task(self._visit())

    async def end(self) -> None:
        """Let the turns end."""
        self._over.set()
        await self.task

    def told_to_end(self) -> None:
        """Let the turns end some time soon."""
        self._over.set()

    @property
    def waits(self) -> bool:
        """Tell whether it is still outside."""
        return not self.inside and not self.task.done()

    def refusal(self) -> GatewayError:
        """Return why it was not let in."""
        refusal = self.task.exception()
        assert isinstance(refusal, GatewayError)
        return refusal

    async def _visit(self) -> None:
        async with self._house.admission.admitted(self.client, self.turns, lambda: self.size):
            self.inside = True
            self._house.let_in.append(self)
            try:
                await self._over.wait()
            finally:
                self.inside = False


async def settled() -> None:
    """Return when everyone has done what they could: nobody here takes more steps than this."""
    for _ in range(12):
        await asyncio.sleep(0)


@pytest.fixture(params=["alone", "counted", "by share"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every rule hold for a gateway alone, and for one of several replicas, with and without Redis."""
    if request.param != "alone":
        make = partial(SharedAdmission, MemorySlots(counted=request.param == "counted"))
        monkeypatch.setattr(f"{__name__}.Admission", make)


def house(
    turns: int = 1,
    *,
    waiting: int = 100,
    patience_s: float = PATIENCE_S,
    each: int | None = None,
    clients: int = 1,
) -> House:
    return House(
        Admission(turns=turns, waiting=waiting, patience_s=patience_s, turns_per_client=each, clients=lambda: clients)
    )


@pytest.mark.promise("limits.turns")
async def test_whoever_finds_room_enters_and_the_next_one_waits_until_somebody_ends() -> None:
    full = house(2)
    first, second, third = [await full.ask() for _ in range(3)]
    assert (first.inside, second.inside, third.waits) == (True, True, True)
    assert (full.admission.running, full.admission.waiting) == (2, 1)
    await first.end()
    await settled()
    assert (third.inside, full.admission.running, full.admission.waiting) == (True, 2, 0)
    await full.close()


async def test_a_full_queue_tells_the_next_one_to_come_back() -> None:
    full = house(1, waiting=1)
    await full.ask()
    await full.ask()
    refusal = (await full.ask()).refusal()
    assert isinstance(refusal, RateLimited)
    assert (refusal.error_code, refusal.retry_after) == ("queue_full", COME_BACK_S)
    assert refusal.message == "1 turns are running and 1 requests wait already. Try again later."
    await full.close()


@pytest.mark.promise("limits.queue.fair")
async def test_a_full_queue_refuses_the_newest_request_of_the_client_that_holds_most() -> None:
    full = house(1, waiting=3, clients=2)
    loud = [await full.ask("loud") for _ in range(4)]
    quiet = await full.ask("quiet")
    assert [guest.waits for guest in loud] == [False, True, True, False]
    assert loud[3].refusal().error_code == "queue_full"
    assert quiet.waits
    again = await full.ask("loud")
    assert again.refusal().error_code == "queue_full"
    await loud[0].end()
    await settled()
    await loud[1].end()
    await settled()
    assert quiet.inside
    await full.close()


async def test_a_queue_that_two_clients_share_alike_refuses_whoever_comes() -> None:
    full = house(1, waiting=2, clients=2)
    await full.ask("a")
    waiting = [await full.ask("a"), await full.ask("b")]
    late = await full.ask("b")
    assert late.refusal().error_code == "queue_full"
    assert all(guest.waits for guest in waiting)
    await full.close()


@pytest.mark.promise("limits.queue.size")
async def test_requests_that_wait_are_bounded_in_size() -> None:
    full = house(1, clients=2)
    full.admission.most_waiting_characters = 1000
    await full.ask("loud")
    loud = [await full.ask("loud", size=400) for _ in range(3)]
    assert [guest.waits for guest in loud] == [True, True, False]
    assert loud[2].refusal().error_code == "queue_full"
    quiet = await full.ask("quiet", size=300)
    assert (quiet.waits, loud[0].waits, loud[1].waits) == (True, True, False)
    greedy = await full.ask("quiet", size=900)
    assert greedy.refusal().error_code == "queue_full"
    await full.close()


async def test_a_request_larger_than_all_that_may_wait_waits_alone() -> None:
    full = house(1)
    full.admission.most_waiting_characters = 1000
    await full.ask()
    assert (await full.ask(size=2000)).waits
    await full.close()


@pytest.mark.promise("limits.queue.fair")
async def test_of_several_clients_none_runs_all_turns() -> None:
    busy = house(8, clients=2, waiting=2)
    loud = [await busy.ask("loud") for _ in range(9)]
    assert [guest.inside for guest in loud] == [True] * 7 + [False] * 2
    quiet = await busy.ask("quiet")
    assert (quiet.inside, busy.admission.running) == (True, 8)
    assert (await busy.ask("quiet")).waits
    await loud[0].end()
    await settled()
    assert busy.admission.running == 8
    await busy.close()


@pytest.mark.promise("limits.queue.fair")
async def test_a_client_that_runs_all_it_may_holds_up_nobody_behind_it() -> None:
    busy = house(8, clients=2)
    loud = [await busy.ask("loud") for _ in range(8)]
    quiet = [await busy.ask("quiet") for _ in range(2)]
    assert (loud[7].waits, quiet[1].waits) == (True, True)
    await quiet[0].end()
    await settled()
    assert (loud[7].waits, quiet[1].inside) == (True, True)
    await busy.close()


async def test_a_client_alone_runs_all_turns() -> None:
    busy = house(8)
    assert all([(await busy.ask()).inside for _ in range(8)])
    assert busy.admission.at_once(9) == 8
    await busy.close()


async def test_a_small_request_does_not_overtake_a_large_one_of_its_own_client() -> None:
    busy = house(8, clients=2)
    for _ in range(6):
        await busy.ask()
    large = await busy.ask(turns=2)
    small = await busy.ask()
    assert (large.waits, small.waits) == (True, True)
    await busy.close()


async def test_whoever_waits_too_long_is_told_to_come_back_and_leaves_the_queue() -> None:
    full = house(1, patience_s=0.01)
    await full.ask()
    late = await full.ask()
    await asyncio.wait([late.task])
    refusal = late.refusal()
    assert isinstance(refusal, BackendUnavailable)
    assert (refusal.error_code, refusal.retry_after) == ("queue_timeout", COME_BACK_S)
    assert (full.admission.running, full.admission.waiting) == (1, 0)
    await full.close()


async def test_a_request_for_more_turns_than_there_are_runs_alone() -> None:
    small = house(2)
    large = await small.ask(turns=5)
    other = await small.ask()
    assert (large.inside, other.waits, small.admission.running) == (True, True, 2)
    await large.end()
    await settled()
    assert (other.inside, small.admission.running) == (True, 1)
    await small.close()


async def test_when_a_large_request_leaves_the_queue_a_small_one_behind_it_enters() -> None:
    full = house(3)
    for _ in range(2):
        await full.ask()
    large = await full.ask("b", turns=2)
    small = await full.ask("c")
    assert (large.waits, small.waits) == (True, True)
    large.task.cancel()
    await settled()
    assert (small.inside, full.admission.running) == (True, 3)
    await full.close()


async def test_a_place_given_to_somebody_who_leaves_at_that_moment_is_free_again() -> None:
    full = house(1)
    async with full.admission.admitted("a"):
        next_one = await full.ask()
    while not full.admission.running:  # noqa: ASYNC110 - Until the very step in which it changes.
        await asyncio.sleep(0)
    # It has the place, and no chance yet to take it.
    assert (full.admission.running, next_one.inside) == (1, False)
    next_one.task.cancel()
    async with asyncio.timeout(PATIENCE_S / 2):
        assert await full.admission.drained(PATIENCE_S)
    assert full.let_in == []
    assert (await full.ask()).inside
    await full.close()


@pytest.mark.promise("limits.fair")
@given(st.lists(st.sampled_from("abcd"), max_size=12))
async def test_clients_enter_in_rotation_however_many_requests_each_one_has(clients: list[str]) -> None:
    full = house(1)
    await full.ask("the first")
    waiting = [await full.ask(client) for client in clients]
    nth = [clients[:index].count(client) for index, client in enumerate(clients)]
    fair = sorted(range(len(clients)), key=lambda index: (nth[index], clients.index(clients[index])))
    for place in range(len(clients)):
        await full.let_in[place].end()
        await settled()
    assert full.let_in[1:] == [waiting[index] for index in fair]
    await full.close()


async def test_whoever_leaves_the_queue_behind_others_makes_room_in_it_at_once() -> None:
    full = house(1, waiting=2)
    for _ in range(2):
        await full.ask("a")
    behind = await full.ask("a")
    behind.task.cancel()
    await settled()
    assert full.admission.waiting == 1
    assert (await full.ask("b")).waits
    await full.close()


async def test_a_client_whose_first_request_has_left_keeps_its_turn() -> None:
    full = house(1)
    async with full.admission.admitted("the first"):
        gone, next_of_a, of_b = await full.ask("a"), await full.ask("a"), await full.ask("b")
        # It leaves at the moment at which it would have been let in.
        gone.task.cancel()
    await settled()
    assert (next_of_a.inside, of_b.waits) == (True, True)
    await full.close()


@pytest.mark.promise("limits.key-turns")
async def test_a_client_may_have_so_many_turns_running_or_waiting_and_others_are_not_disturbed() -> None:
    shared = house(2, each=2)
    first = await shared.ask("a")
    await shared.ask("b")
    waiting = await shared.ask("a")
    refusal = (await shared.ask("a")).refusal()
    assert waiting.waits
    assert isinstance(refusal, RateLimited)
    assert (refusal.error_code, refusal.retry_after) == ("rate_limit_exceeded", COME_BACK_S)
    assert refusal.message == (
        "This key may have at most 2 turns running or queued; it has 2. Try again when one has ended."
    )
    assert (await shared.ask("b")).waits
    await first.end()
    assert not (await shared.ask("a")).task.done()
    await shared.close()


async def test_a_client_that_leaves_the_queue_has_its_share_again() -> None:
    shared = house(1, each=2)
    await shared.ask("a")
    waiting = await shared.ask("a")
    waiting.task.cancel()
    await settled()
    assert (await shared.ask("a")).waits
    await shared.close()


async def test_a_request_for_more_turns_than_a_client_may_have_runs_when_it_has_no_other() -> None:
    shared = house(8, each=2)
    large = await shared.ask("a", turns=3)
    assert (large.inside, shared.admission.running) == (True, 3)
    assert isinstance((await shared.ask("a")).refusal(), RateLimited)
    await shared.close()


async def test_all_turns_of_a_request_count_for_its_client_though_few_of_them_run_at_once() -> None:
    shared = house(2, each=4)
    large = await shared.ask("a", turns=3)
    assert (large.inside, shared.admission.running) == (True, 2)
    assert isinstance((await shared.ask("a", turns=2)).refusal(), RateLimited)
    await shared.close()


@pytest.mark.promise("keys.revoked.running")
async def test_a_client_whose_key_ended_waits_no_more_and_others_do() -> None:
    full = house(1)
    await full.ask("c")
    ended, other = await full.ask("a"), await full.ask("b")
    full.admission.bar(frozenset("a"))
    await settled()
    assert [type(guest.refusal()) for guest in (ended, await full.ask("a"))] == [InvalidApiKey] * 2
    assert other.waits
    await full.close()


async def test_closing_tells_everyone_who_waits_and_everyone_who_comes_and_lets_the_running_end() -> None:
    full = house(1)
    running = await full.ask("a")
    waiting = [await full.ask(client) for client in "aab"]
    full.admission.close()
    assert full.admission.leaving, "answers tell their clients to open another connection"
    await settled()
    late = await full.ask("c")
    for guest in (*waiting, late):
        refusal = guest.refusal()
        assert isinstance(refusal, BackendUnavailable)
        assert (refusal.error_code, refusal.retry_after) == ("shutting_down", COME_BACK_S)
    assert (running.inside, full.admission.waiting) == (True, 0)
    assert not await full.admission.drained(0)
    await running.end()
    assert await full.admission.drained(0)


async def test_draining_ends_when_the_last_turn_does() -> None:
    full = house(2)
    guests = [await full.ask(), await full.ask()]
    draining = asyncio.ensure_future(full.admission.drained(PATIENCE_S))
    await guests[0].end()
    await settled()
    assert not draining.done()
    await guests[1].end()
    assert await draining


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from("abc"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["end", "cancel"]), st.integers(0, 20)),
    st.just(("pause",)),
    st.just(("settle",)),
)


@pytest.mark.promise("limits.turns")
@given(
    steps=st.lists(STEPS, max_size=40),
    turns=st.integers(1, 4),
    waiting=st.integers(0, 5),
    each=st.none() | st.integers(1, 3),
    closing=st.booleans(),
)
async def test_whatever_comes_and_goes_the_bounds_hold_and_nothing_is_lost(
    steps: list[tuple[object, ...]], turns: int, waiting: int, each: int | None, closing: bool
) -> None:
    busy = house(turns, waiting=waiting, each=each)
    for step in steps:
        match step:
            case ("ask", str(client), int(size)):
                busy.send(client, size)
            case ("end" | "cancel" as how, int(index)) if busy.guests:
                guest = busy.guests[index % len(busy.guests)]
                guest.told_to_end() if how == "end" else guest.task.cancel()
            case ("pause",):
                await asyncio.sleep(0)
            case ("settle",):
                await settled()
                nobody_starves(busy, turns)
        bounds_hold(busy, turns, waiting, each)
    if closing:
        busy.admission.close()
    for guest in busy.guests:
        guest.told_to_end()
    async with asyncio.timeout(PATIENCE_S / 2):
        ends = await asyncio.gather(*[guest.task for guest in busy.guests], return_exceptions=True)
    assert all(end is None or isinstance(end, asyncio.CancelledError | GatewayError) for end in ends)
    assert (busy.admission.running, busy.admission.waiting) == (0, 0)
    assert await busy.admission.drained(0)
    if not closing:
        assert (await busy.ask("a", turns=turns)).inside
        await busy.close()


def bounds_hold(busy: House, turns: int, waiting: int, each: int | None) -> None:
    inside = [guest for guest in busy.guests if guest.inside]
    assert sum(min(guest.turns, turns) for guest in inside) <= busy.admission.running <= turns
    assert busy.admission.waiting <= waiting
    if each is not None:
        shares: Counter[str] = Counter()
        for guest in inside:
            shares[guest.client] += min(guest.turns, each)
        assert all(share <= each for share in shares.values())


def nobody_starves(busy: House, turns: int) -> None:
    outside = [guest for guest in busy.guests if guest.waits]
    assert len(outside) == busy.admission.waiting
    room = turns - sum(min(guest.turns, turns) for guest in busy.guests if guest.inside)
    # The next one in rotation may be too large for the room; if all are small enough, nobody may wait.
    assert not outside or any(min(guest.turns, turns) > room for guest in outside)


@pytest.mark.parametrize(("asked", "per_client", "at_once"), [(2, None, 2), (9, None, 3), (9, 2, 2), (1, 2, 1)])
def test_the_turns_of_one_request_run_in_the_places_that_it_has(
    asked: int, per_client: int | None, at_once: int
) -> None:
    admission = Admission(turns=3, waiting=0, patience_s=1, turns_per_client=per_client)
    assert admission.at_once(asked) == at_once
