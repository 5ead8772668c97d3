"""`POST /v1/responses/compact` on the real Codex: what the model is asked, and what it is shown later."""

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.gateway import Bridge, running_bridge
from tests.support.tool_clients import inputs
from turnbridge.api.responses.compaction import INTRODUCTION, PROMPT
from turnbridge.scripted_model.replies import answer, error_reply, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
HISTORY: list[Any] = [
    {"role": "user", "content": "I live in Rome."},
    {"role": "assistant", "content": "Noted."},
    {"role": "user", "content": "And I like tea."},
]


def texts(items: Any) -> list[tuple[str, str]]:
    """Return who says what in the items that the model was shown."""
    return [(item["role"], item["content"][0]["text"]) for item in items]


async def compacted(bridge: Bridge, summary: str = "Rome, tea.") -> openai.types.responses.CompactedResponse:
    """Have a history compacted."""
    bridge.script(answer(message(summary)))
    return await bridge.client.responses.compact(model=MODEL, input=HISTORY, instructions="Be kind.")


@pytest.mark.promise("state.compacted")
async def test_a_history_becomes_its_user_messages_and_a_summary(bridge: Bridge) -> None:
    compact = await compacted(bridge)
    assert (compact.object, compact.usage.output_tokens) == ("response.compaction", 5)
    *messages, item = compact.output
    assert [(each.type, getattr(each, "role", None)) for each in messages] == [("message", "user")] * 2
    assert item.type == "compaction"
    assert "Rome" not in item.encrypted_content
    assert texts(inputs(bridge)[-1]) == [
        ("developer", "Be kind."),
        ("user", "I live in Rome."),
        ("assistant", "Noted."),
        ("user", "And I like tea."),
        ("user", PROMPT),
    ]


@pytest.mark.promise("state.compacted")
@pytest.mark.parametrize("stored", [False, True])
async def test_the_model_is_shown_the_summary_when_the_history_goes_on(bridge: Bridge, stored: bool) -> None:
    output: list[Any] = [
        item.model_dump(exclude_none=True, warnings=False) for item in (await compacted(bridge)).output
    ]
    bridge.script(answer(message("In Rome.")), answer(message("Tea.")))
    asked: Any = {"role": "user", "content": "Where do I live?"}
    first = await bridge.client.responses.create(model=MODEL, input=[*output, asked], store=stored)
    shown = [
        ("user", "I live in Rome."),
        ("user", "And I like tea."),
        ("developer", f"{INTRODUCTION}Rome, tea."),
        ("user", "Where do I live?"),
    ]
    assert texts(inputs(bridge)[-1]) == shown
    if stored:
        await bridge.client.responses.create(model=MODEL, input="What do I drink?", previous_response_id=first.id)
        assert texts(inputs(bridge)[-1]) == [*shown, ("assistant", "In Rome."), ("user", "What do I drink?")]


@pytest.mark.promise("state.compacted")
async def test_a_stored_response_is_compacted_with_what_came_before(bridge: Bridge) -> None:
    bridge.script(answer(message("Noted.")), answer(message("Rome.")))
    first = await bridge.client.responses.create(model=MODEL, input="I live in Rome.")
    compact = await bridge.client.responses.compact(model=MODEL, previous_response_id=first.id)
    assert [item.type for item in compact.output] == ["message", "compaction"]
    assert texts(inputs(bridge)[-1]) == [("user", "I live in Rome."), ("assistant", "Noted."), ("user", PROMPT)]


@pytest.mark.promise("state.compaction-seal")
async def test_an_item_that_was_changed_is_refused_and_another_providers_is_passed_on(bridge: Bridge) -> None:
    *_, item = (await compacted(bridge)).output
    assert item.type == "compaction"
    before = len(bridge.model.requests)
    for content in (f"{item.encrypted_content[:-6]}AAAAAA", "turnbridge1.", "turnbridge1.%%%"):
        changed: Any = {"type": "compaction", "encrypted_content": content}
        with pytest.raises(openai.BadRequestError) as refused:
            await bridge.client.responses.create(model=MODEL, input=[changed, *HISTORY])
        assert (refused.value.code, refused.value.param) == ("invalid_compaction", "input[0].encrypted_content")
    assert len(bridge.model.requests) == before
    bridge.script(answer(message("Hello.")))
    foreign: Any = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAB+/="}
    await bridge.client.responses.create(model=MODEL, input=[foreign, *HISTORY])
    shown: Any = bridge.model.requests[-1].body["input"]
    assert (shown[0]["type"], shown[0]["encrypted_content"]) == ("compaction", "gAAAAAB+/=")


@pytest.mark.promise("state.compaction-seal")
async def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    async with running_bridge(tmp_path) as bridge:
        output: list[Any] = [
            item.model_dump(exclude_none=True, warnings=False) for item in (await compacted(bridge)).output
        ]
    async with running_bridge(tmp_path) as bridge:
        bridge.script(answer(message("Hello.")))
        await bridge.client.responses.create(model=MODEL, input=[*output, HISTORY[0]])
        assert ("developer", f"{INTRODUCTION}Rome, tea.") in texts(inputs(bridge)[-1])


@pytest.mark.promise("state.compacted")
async def test_a_provider_that_fails_is_told(bridge: Bridge) -> None:
    bridge.script(error_reply(429, "Too fast."))
    with pytest.raises(openai.RateLimitError):
        await bridge.client.responses.compact(model=MODEL, input=HISTORY)
