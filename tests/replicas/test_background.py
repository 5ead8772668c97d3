"""Background responses from any replica: the stream live, cancel and delete at once."""

import asyncio
import json
import time

import httpx2
import pytest

from tests.replicas.cluster import MODEL, Fleet
from tests.support.plain_http import RESPONSES, frames
from tests.support.waiting import until
from turnbridge.scripted_model.replies import Wait, answer, message
from turnbridge.turn.items import JsonObject

# Less than the period in which leases are renewed and cancels are noticed without Redis, which is 5 s.
AT_ONCE_S = 4.0


async def begun(http: httpx2.AsyncClient, text: str) -> str:
    """Return the id of a response that is being made in the background."""
    asked: JsonObject = {"model": MODEL, "input": text, "background": True, "stream": True}
    async with http.stream("POST", RESPONSES, json=asked) as stream:
        async for frame in frames(stream):
            return str(json.loads(frame)["response"]["id"])
    raise AssertionError("The stream had no event.")


async def read(http: httpx2.AsyncClient, response_id: str, heard: list[JsonObject], after: int = -1) -> None:
    """Read the stream of a response to its end."""
    where = f"{RESPONSES}/{response_id}?stream=true" + (f"&starting_after={after}" if after >= 0 else "")
    async with http.stream("GET", where) as stream:
        assert stream.status_code == 200
        async for frame in frames(stream):
            heard.append(json.loads(frame))


def said(heard: list[JsonObject]) -> str:
    """Return the text that a reader has so far."""
    return "".join(str(event["delta"]) for event in heard if event["type"] == "response.output_text.delta")


@pytest.mark.promise("replicas.background")
async def test_the_stream_of_a_response_is_live_and_the_same_at_every_replica_from_every_position(
    fleet: Fleet,
) -> None:
    gate = fleet.gate()
    fleet.script(answer(message("one two three", pieces=["one ", "two ", Wait(gate=gate), "three"])))
    async with fleet.one.client() as one, fleet.two.client() as two, fleet.three.client() as three:
        response_id = await begun(one, "live")
        own: list[JsonObject] = []
        elsewhere: list[JsonObject] = []
        late: list[JsonObject] = []
        reading = [asyncio.ensure_future(read(one, response_id, own))]
        reading.append(asyncio.ensure_future(read(two, response_id, elsewhere)))
        await until(lambda: said(own) == said(elsewhere) == "one two ")
        polled = [(await http.get(f"{RESPONSES}/{response_id}")).json()["status"] for http in (one, two, three)]
        assert polled == ["in_progress"] * 3
        place = next(index for index, event in enumerate(own) if said(own[: index + 1]) == "one ")
        reading.append(
            asyncio.ensure_future(read(three, response_id, late, after=int(str(own[place]["sequence_number"]))))
        )
        await until(lambda: said(late) == "two ")
        gate.set()
        await asyncio.gather(*reading)
    assert own[-1]["type"] == "response.completed"
    assert elsewhere == own
    assert late == own[place + 1 :]


@pytest.mark.promise("replicas.background")
@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_cancel_and_delete_at_one_replica_end_the_turn_at_another(fleet: Fleet, how: str) -> None:
    fleet.script(answer(message("one two", pieces=["one ", Wait(gate=fleet.gate()), "two"])))
    async with fleet.one.client() as one, fleet.two.client() as two:
        response_id = await begun(one, how)
        await fleet.model.until(lambda model: model.active == 1)
        dropped, began = fleet.model.dropped, time.monotonic()
        where = f"{RESPONSES}/{response_id}"
        done = await (two.post(f"{where}/cancel") if how == "cancel" else two.delete(where))
        assert done.status_code == 200
        async with asyncio.timeout(AT_ONCE_S):
            await fleet.model.until(lambda model: model.dropped > dropped)
        assert time.monotonic() - began < AT_ONCE_S
        found = [await http.get(where) for http in (one, two)]
        if how == "cancel":
            assert [(each.status_code, each.json()["status"]) for each in found] == [(200, "cancelled")] * 2
        else:
            assert [each.status_code for each in found] == [404] * 2
