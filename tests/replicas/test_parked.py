"""The outputs of calls that another replica made: replayed without a loss, and the other one lets go."""

import asyncio
import itertools
import json
from functools import partial

import pytest

from tests.replicas.cluster import Fleet
from tests.replicas.conversations import WAYS, Conversation, first_leg, last_leg, seen_last
from tests.replicas.observed import gauge, until_gauge
from tests.support.waiting import until_told
from turnbridge.scripted_model.replies import Wait, answer, message

# Interrupting a turn elsewhere takes milliseconds; a parked turn would otherwise stay for 15 minutes.
LET_GO_S = 10.0
# The ids of calls are new each time, as a model's are: the legs of an earlier run are still in the store.
NUMBERS = itertools.count()


@pytest.mark.promise("replicas.replay")
@pytest.mark.parametrize("way", WAYS)
async def test_outputs_for_a_call_of_a_living_replica_are_replayed_and_it_lets_go(fleet: Fleet, way: str) -> None:
    async with fleet.one.client() as one, fleet.two.client() as two:
        # What the model sees where the turn is parked.
        name = f"{next(NUMBERS)}_{way.replace(' ', '_')}"
        fleet.script(first_leg(f"call_parked_{name}"), last_leg())
        parked = Conversation(way=way, call_id=f"call_parked_{name}")
        await parked.begin(one)
        assert (await parked.go_on(one)).headers["x-turnbridge-thread"] == "parked"
        expected = seen_last(fleet)
        # The same elsewhere.
        fleet.script(first_leg(f"call_moved_{name}"), last_leg())
        moved = Conversation(way=way, call_id=f"call_moved_{name}")
        await moved.begin(one)
        answered = await moved.go_on(two)
        assert (answered.status_code, answered.headers["x-turnbridge-thread"]) == (200, "replayed")
        assert json.dumps(seen_last(fleet)).replace("call_moved", "call_parked") == json.dumps(expected)
        await until_gauge(one, "turnbridge_turns_parked", 0, within_s=LET_GO_S)


@pytest.mark.promise("replicas.replay")
async def test_outputs_for_the_calls_of_a_killed_replica_are_replayed_without_a_loss(fleet: Fleet) -> None:
    conversations = {way: Conversation(way=way, call_id=f"call_{place}") for place, way in enumerate(WAYS)}
    expected = {}
    async with fleet.one.client() as one:
        for way, conversation in conversations.items():
            before = Conversation(way=way, call_id=f"{conversation.call_id}_before")
            fleet.script(first_leg(before.call_id), last_leg())
            await before.begin(one)
            await before.go_on(one)
            expected[way] = json.dumps(seen_last(fleet)).replace("_before", "")
        fleet.script(*(first_leg(conversation.call_id) for conversation in conversations.values()))
        for conversation in conversations.values():
            await conversation.begin(one)
        assert await gauge(one, "turnbridge_turns_parked") == len(WAYS)
    # Legs are written in the background, within milliseconds; only a kill before that loses what the client left out.
    await until_told(partial(_stored, fleet, [each.call_id for each in conversations.values()]))
    await fleet.one.kill()
    seen = {}
    async with fleet.two.client() as two:
        for way, conversation in conversations.items():
            fleet.script(last_leg())
            assert (await conversation.go_on(two)).status_code == 200
            seen[way] = json.dumps(seen_last(fleet))
    assert seen == expected


async def _stored(fleet: Fleet, call_ids: list[str]) -> bool:
    count = await fleet.query("SELECT count(*) FROM turnbridge.parked_legs WHERE call_id = ANY($1)", call_ids)
    return bool(count == len(call_ids))


@pytest.mark.promise("replicas.replay")
async def test_outputs_that_come_to_two_replicas_at_once_are_answered_twice(fleet: Fleet) -> None:
    async with fleet.one.client() as one, fleet.two.client() as two:
        fleet.script(first_leg("call_twice"), last_leg(), last_leg())
        conversation = Conversation(way="history", call_id="call_twice")
        await conversation.begin(one)
        answers = await asyncio.gather(conversation.go_on(one), conversation.go_on(two))
        texts = [answered.json()["output"][0]["content"][0]["text"] for answered in answers]
        assert texts == ["Seen.", "Seen."]
        assert len(fleet.asked()) == 3
        for http in (one, two):
            await until_gauge(http, "turnbridge_turns_parked", 0, within_s=LET_GO_S)


@pytest.mark.promise("replicas.idempotency")
async def test_outputs_with_an_idempotency_key_that_come_to_two_replicas_are_run_once(fleet: Fleet) -> None:
    async with fleet.one.client() as one, fleet.two.client() as two:
        gate = fleet.gate()
        call_id = f"call_key_{next(NUMBERS)}"
        fleet.script(first_leg(call_id), answer(message("Seen.", pieces=["Se", Wait(gate=gate), "en."])))
        conversation = Conversation(way="history", call_id=call_id, idempotency_key=call_id)
        await conversation.begin(one)
        asking = [asyncio.ensure_future(conversation.go_on(http)) for http in (one, two)]
        await fleet.model.until(lambda model: len(model.requests) == 2)
        gate.set()
        first, second = await asyncio.gather(*asking)
        assert (first.status_code, second.status_code) == (200, 200)
        assert first.json() == second.json()
        assert len(fleet.asked()) == 2
        marks = [each.headers.get("x-turnbridge-idempotent") for each in (first, second)]
        # The other one passes it on while it is made, or repeats it, if there is no Redis.
        assert None in marks
        assert set(marks) & {"joined", "replayed"}
