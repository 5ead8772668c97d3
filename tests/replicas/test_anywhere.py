"""A request is answered whichever replica is asked, and whichever is gone."""

import asyncio

import openai
import pytest

from tests.replicas.cluster import MODEL, Fleet
from tests.replicas.observed import serving
from tests.support.gateway_process import API_KEY
from tests.support.plain_http import RESPONSES, client
from turnbridge.scripted_model.replies import Wait, answer, message

# Interrupting a turn elsewhere takes milliseconds; a parked turn would otherwise stay for 15 minutes.
LET_GO_S = 10.0


@pytest.mark.promise("replicas.killed")
async def test_a_request_whose_replica_is_killed_before_it_said_anything_is_answered_by_another(fleet: Fleet) -> None:
    await fleet.balanced()
    affinity = {"x-turnbridge-affinity": "killed before it said anything"}
    victim = await serving(fleet, affinity)
    fleet.script(answer(Wait(gate=fleet.gate()), message("never")), answer(message("Well.")))
    # As the SDK comes: it sends again what ended with 5xx.
    async with openai.AsyncOpenAI(
        base_url=f"{fleet.balancer.url}/v1", api_key=API_KEY, default_headers=affinity
    ) as sdk:
        asking = asyncio.ensure_future(sdk.responses.create(model=MODEL, input="hi"))
        await fleet.model.until(lambda model: len(model.requests) == 1)
        await victim.kill()
        response = await asking
    assert response.output_text == "Well."
    assert len(fleet.asked()) == 2
    # Whoever comes later notices nothing, before any health check has failed too.
    fleet.script(*[answer(message("Well."))] * 3)
    async with client(fleet.balancer.url, API_KEY) as http:
        for number in range(3):
            headers = {"x-turnbridge-affinity": f"after the kill {number}"}
            later = await http.post(RESPONSES, json={"model": MODEL, "input": "hi"}, headers=headers)
            assert later.status_code == 200, later.text
    stored = "SELECT count(*) FROM turnbridge.responses WHERE id = ANY($1)"
    assert await fleet.query(stored, [response.id]) == 1


@pytest.mark.promise("replicas.conversation")
async def test_two_responses_on_one_conversation_are_both_kept_in_the_order_of_their_ends(fleet: Fleet) -> None:
    slow, quick = fleet.gate(), answer(message("quick"))
    fleet.script(answer(message("slow", pieces=["s", Wait(gate=slow), "low"])), quick)
    async with fleet.one.client() as one, fleet.two.client() as two:
        conversation = (await one.post("/v1/conversations", json={})).json()["id"]

        def body(text: str) -> dict[str, object]:
            return {"model": MODEL, "input": text, "conversation": conversation}

        first = asyncio.ensure_future(one.post(RESPONSES, json=body("first")))
        await fleet.model.until(lambda model: model.active == 1)
        second = await two.post(RESPONSES, json=body("second"))
        slow.set()
        statuses = [(await first).status_code, second.status_code]
        assert statuses == [200, 200]
        for http in (one, two):
            items = (await http.get(f"/v1/conversations/{conversation}/items?order=asc")).json()["data"]
            texts = [item["content"][0]["text"] for item in items]
            assert texts == ["second", "quick", "first", "slow"]
