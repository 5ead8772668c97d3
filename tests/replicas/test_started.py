"""Replicas that start at once on an empty database."""

import pytest

from tests.replicas.cluster import MODEL, Fleet
from tests.support.plain_http import RESPONSES
from turnbridge.scripted_model.replies import answer, message


@pytest.mark.promise("replicas.start")
async def test_one_of_the_replicas_that_start_at_once_migrates_and_the_others_wait(fleet: Fleet) -> None:
    fleet.script(*(answer(message(name)) for name in fleet.replicas))
    for name, replica in fleet.replicas.items():
        # Of those that were started with the fleet: other tests take the store away later.
        assert "store_away" not in replica.log().partition("codex_ready")[0]
        async with replica.client() as http:
            made = (await http.post(RESPONSES, json={"model": MODEL, "input": "hi"})).json()
        for other in fleet.replicas.values():
            async with other.client() as http:
                kept = (await http.get(f"{RESPONSES}/{made['id']}")).json()
            assert kept["output"][0]["content"][0]["text"] == name
