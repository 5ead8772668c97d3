"""What is counted of a turn whose last answer nobody has counted."""

import pytest

from tests.support.gateway import Bridge
from tests.support.tool_clients import MODEL, declared
from turnbridge.scripted_model.replies import StreamReply, answer, created, incomplete, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.mark.promise("usage.estimated")
async def test_an_answer_that_is_cut_off_after_a_reminder_counts_what_came_before_the_reminder(bridge: Bridge) -> None:
    cut_off = StreamReply(steps=(created(), message("four five"), incomplete("max_output_tokens")))
    bridge.script(answer(message("No.")), cut_off)
    asked = await bridge.http.post(
        "/v1/responses",
        json={"model": MODEL, "input": "hi", "tools": declared("responses"), "tool_choice": "required"},
    )
    response = asked.json()
    assert (response["status"], asked.headers["x-turnbridge-usage"]) == ("incomplete", "estimated")
    # Five tokens that the provider has counted, and two words.
    assert response["usage"]["output_tokens"] == 5 + 2
