"""Answers of a model that means harm, or has lost its way: floods, and pieces of any size."""

import json

import pytest

from tests.hostile.site import Site, repeat
from turnbridge.scripted_model.replies import (
    Reply,
    answer,
    function_call,
    message,
    reasoning,
)
from turnbridge.scripted_model.server import in_order

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MB = 1_000_000
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}

ANSWERS: dict[str, Reply] = {
    "a flood of pieces": answer(message("x" * 20_000, pieces=["x"] * 20_000), burst=True),
    "one huge piece": answer(message("x" * (8 * MB)), burst=True),
    "a huge text of escapes": answer(message('"\\\n\u2028' * MB), burst=True),
    "many messages": answer(*(message("Well.") for _ in range(2_000)), burst=True),
    "many thoughts": answer(reasoning(["Hm."] * 2_000), message("Well."), burst=True),
    "many calls": answer(*(function_call("look", "{}") for _ in range(1_000)), burst=True),
    "huge arguments": answer(function_call("look", json.dumps({"n": list(range(500_000))})), burst=True),
    "deep arguments": answer(function_call("look", "[" * 100_000 + "]" * 100_000), burst=True),
}


@pytest.mark.promise("limits.answers")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_no_answer_of_a_model_keeps_others_waiting(site: Site, name: str, streamed: bool) -> None:
    async def ask() -> None:
        # Arguments that Codex cannot read it tells the model, which is asked again.
        site.model.respond = in_order(ANSWERS[name], answer(message("Well.")))
        try:
            body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "Go on."}], "tools": [TOOL]}
            reply = await site.hostile.post("/v1/chat/completions", json={**body, "stream": streamed})
        finally:
            site.model.respond = repeat
        assert reply.status_code == 200, reply.text[:500]

    await site.assert_undisturbed(ask)
