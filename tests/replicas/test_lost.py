"""One replica is killed, another paused for longer than its lease, and the third has a wrong clock.

All of it is one episode of less than a minute, which is what leases take to lapse; each test looks at one side of it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx2
import pytest

from tests.replicas.cluster import FAKETIME, MODEL, Fleet
from tests.replicas.test_background import begun, read, said
from tests.replicas.test_limits import known
from tests.support.issued_keys import issued
from tests.support.plain_http import CHAT, RESPONSES, Answer, ask
from tests.support.waiting import until, until_told
from turnbridge.api.responses.background import GRACE_S, LEASE_S, RENEWAL_S
from turnbridge.api.responses.endings import LOST
from turnbridge.scripted_model.replies import Reply, Wait, answer, message
from turnbridge.turn.clients import ClientLimits
from turnbridge.turn.items import JsonObject

SLOTS = 2
AHEAD_S = 60
# What a loaded machine adds to a lapse.
SLACK_S = 15.0
LAPSE_S = LEASE_S + GRACE_S + RENEWAL_S + SLACK_S
SLOT_LAPSE_S = 30.0 + SLACK_S
TERMINAL = ("response.completed", "response.failed", "response.incomplete")
BODY: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": "slot"}]}
HELD: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": "once"}], "stream": True}


@dataclass(kw_only=True)
class Episode:
    """What was seen."""

    fleet: Fleet
    ahead_s: float = 0.0
    """How far ahead the wrong clock was."""
    before: dict[str, str] = field(default_factory=dict)
    """The status of each background response, as the replica with the wrong clock saw it."""
    stored_before: int = 0
    full: int = 0
    """What a client with all slots in use was told."""
    broken: BaseException | None = None
    """How the stream of the killed replica ended."""
    retried: list[tuple[int, str]] = field(default_factory=list)
    """What its client got when it sent the same again, until it was answered."""
    asked_once: int = 0
    """How often the model was asked for that answer."""
    asked_again: int = 0
    """How often it was asked for a background response that had lost its maker."""
    slots_back_s: float = 0.0
    failed: dict[str, JsonObject] = field(default_factory=dict)
    failed_s: float = 0.0
    heard: list[JsonObject] = field(default_factory=list)
    """What a reader elsewhere heard of the response of the killed replica."""
    heard_at_paused: list[JsonObject] = field(default_factory=list)
    after: dict[str, list[str]] = field(default_factory=dict)
    """The status of each background response at both replicas that are left, after the paused one went on."""


def respond(gate: asyncio.Event, open_gates: bool) -> Reply:
    """Begin to answer, and wait."""
    return answer(message("one two", pieces=["one ", *([] if open_gates else [Wait(gate=gate)]), "two"]))


@pytest.fixture(scope="module")
async def episode(whole: Fleet) -> AsyncIterator[Episode]:
    """Return what was seen."""
    fleet = whole
    await fleet.mend()
    await fleet.two.kill()
    await fleet.two.start(ahead_s=AHEAD_S if FAKETIME else 0)
    fleet.script()
    seen = Episode(fleet=fleet)
    async with contextlib.AsyncExitStack() as stack:
        one, two, three = [
            await stack.enter_async_context(replica.client(timeout_s=LAPSE_S + 30))
            for replica in (fleet.one, fleet.two, fleet.three)
        ]
        await _live_through(seen, one, two, three)
    yield seen
    await fleet.rest()
    # The next test finds a right clock again.
    await fleet.two.kill()


async def _live_through(
    seen: Episode, one: httpx2.AsyncClient, two: httpx2.AsyncClient, three: httpx2.AsyncClient
) -> None:
    fleet = seen.fleet
    gate = fleet.gate()
    fleet.model.respond = lambda _: respond(gate, open_gates=False)
    ids = {
        name: await begun(http, f"background {name}") for name, http in (("one", one), ("two", two), ("three", three))
    }
    slot_key = await issued(fleet.database_url, "slots", ClientLimits(turns=SLOTS))
    async with fleet.one.client(slot_key) as slots_one, fleet.two.client(slot_key, LAPSE_S) as slots_two:
        await known([slots_one, slots_two])
        heard = Answer()
        one.headers["idempotency-key"] = two.headers["idempotency-key"] = "asked once"
        streaming = asyncio.ensure_future(ask(one, CHAT, HELD, heard=heard))
        holding = [asyncio.ensure_future(slots_one.post(CHAT, json=BODY)) for _ in range(SLOTS)]
        reading = [asyncio.ensure_future(read(two, ids["one"], seen.heard))]
        reading.append(asyncio.ensure_future(read(three, ids["three"], seen.heard_at_paused)))
        await until(lambda: heard.text == "one " and said(seen.heard_at_paused) == "one ")
        await fleet.model.until(lambda model: model.active == len(ids) + 1 + SLOTS)
        seen.full = (await slots_two.post(CHAT, json=BODY)).status_code
        seen.stored_before = await fleet.query("SELECT count(*) FROM turnbridge.responses")
        await _renewed(fleet, ids["three"])
        made = (await two.get(f"{RESPONSES}/{ids['two']}")).json()["created_at"]
        seen.ahead_s = made - (await two.get(f"{RESPONSES}/{ids['one']}")).json()["created_at"]
        seen.before = {name: await _status(two, response_id) for name, response_id in ids.items()}
        began = time.monotonic()
        with fleet.three.paused():
            await fleet.one.kill()
            with contextlib.suppress(httpx2.HTTPError):
                await streaming
            seen.broken = streaming.exception()
            await asyncio.gather(*holding, return_exceptions=True)
            fleet.model.requests.clear()
            fleet.model.respond = lambda request: respond(gate, open_gates="background" not in str(request["input"]))
            after = asyncio.gather(_retry(seen, two), _take_slot(seen, slots_two, began))
            await until_told(lambda: _both_failed(seen, two, ids), within_s=LAPSE_S)
            seen.failed_s = time.monotonic() - began
            await after
            seen.asked_once = sum("once" in str(request["input"]) for request in fleet.asked())
            seen.asked_again = sum("background" in str(request["input"]) for request in fleet.asked())
        gate.set()
        async with asyncio.timeout(SLACK_S):
            await asyncio.gather(*reading)
        await until_told(lambda: _is_completed(two, ids["two"]))
        for name, response_id in ids.items():
            seen.after[name] = [await _status(http, response_id) for http in (two, three)]


async def _status(http: httpx2.AsyncClient, response_id: str) -> str:
    return str((await http.get(f"{RESPONSES}/{response_id}")).json()["status"])


async def _is_completed(http: httpx2.AsyncClient, response_id: str) -> bool:
    return await _status(http, response_id) == "completed"


async def _renewed(fleet: Fleet, response_id: str) -> None:
    """Return once the lease of a response was renewed twice: every replica has then looked for lost ones."""
    lease = "SELECT lease_until FROM turnbridge.responses WHERE id = $1"
    leases = {await fleet.query(lease, response_id)}

    async def twice() -> bool:
        leases.add(await fleet.query(lease, response_id))
        return len(leases) > 2

    await until_told(twice, within_s=3 * RENEWAL_S + SLACK_S)


async def _retry(seen: Episode, http: httpx2.AsyncClient) -> None:
    """Send the broken request again until it is answered."""

    async def answered() -> bool:
        ending = await ask(http, CHAT, HELD)
        seen.retried.append((ending.status, ending.text))
        return ending.status == 200

    await until_told(answered, within_s=LAPSE_S)


async def _take_slot(seen: Episode, http: httpx2.AsyncClient, began: float) -> None:
    """Ask until the slots of the killed replica have come back."""

    async def admitted() -> bool:
        return (await http.post(CHAT, json=BODY)).status_code == 200

    await until_told(admitted, within_s=LAPSE_S)
    seen.slots_back_s = time.monotonic() - began


async def _both_failed(seen: Episode, http: httpx2.AsyncClient, ids: dict[str, str]) -> bool:
    for name in ("one", "three"):
        found: JsonObject = (await http.get(f"{RESPONSES}/{ids[name]}")).json()
        if found["status"] == "failed":
            seen.failed[name] = found
    return len(seen.failed) == 2


@pytest.mark.promise("replicas.lost")
async def test_responses_of_lost_replicas_have_failed_with_the_reason_within_a_lapse(episode: Episode) -> None:
    errors = [response["error"] for response in episode.failed.values()]
    assert errors == [{"code": "server_error", "message": LOST}] * 2
    assert episode.asked_again == 0
    assert episode.failed_s < LAPSE_S


@pytest.mark.promise("replicas.lost")
@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed")
async def test_a_wrong_clock_neither_ends_the_responses_of_others_nor_its_own(episode: Episode) -> None:
    assert AHEAD_S <= episode.ahead_s < AHEAD_S + SLACK_S
    assert set(episode.before.values()) <= {"queued", "in_progress"}
    assert episode.after["two"] == ["completed", "completed"]


@pytest.mark.promise("replicas.lost")
async def test_what_a_paused_replica_writes_after_its_lease_is_refused(episode: Episode) -> None:
    assert episode.after["three"] == ["failed", "failed"]
    assert [event["type"] for event in episode.heard_at_paused if event["type"] in TERMINAL] == ["response.failed"]


@pytest.mark.promise("replicas.lost")
async def test_a_reader_elsewhere_hears_what_there_was_and_one_end(episode: Episode) -> None:
    assert said(episode.heard) == "one "
    assert [event["type"] for event in episode.heard if event["type"] in TERMINAL] == ["response.failed"]
    assert episode.heard[-1]["type"] == "response.failed"


@pytest.mark.promise("replicas.killed")
async def test_a_stream_of_a_killed_replica_breaks_and_leaves_nothing_in_the_store(episode: Episode) -> None:
    assert isinstance(episode.broken, httpx2.HTTPError)
    # The three in the background, from before, and nothing of the stream.
    running = "SELECT count(*) FROM turnbridge.responses WHERE status IN ('queued', 'in_progress')"
    assert await episode.fleet.query(running) == 0


@pytest.mark.promise("replicas.idempotency")
async def test_a_retry_with_the_key_of_a_killed_replica_is_run_once(episode: Episode) -> None:
    assert episode.retried[-1] == (200, "one two")
    assert {status for status, _ in episode.retried[:-1]} <= {409, 503}
    assert episode.asked_once == 1


@pytest.mark.promise("replicas.lost")
async def test_slots_of_a_killed_replica_come_back(episode: Episode) -> None:
    assert episode.full == 429
    assert episode.slots_back_s < SLOT_LAPSE_S
