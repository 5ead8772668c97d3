"""The payloads of v1 are those of the origin, field by field, but for what no server ever read; 0.92.0 takes them."""

import pytest

from tests.support.codex_schema import old_schema
from tests.support.turn_requests import turn_request
from turnbridge.codex.legacy import v1
from turnbridge.codex.legacy.flat_text import NO_WORKSPACE, flat_config, tool_instructions
from turnbridge.codex.protocol.capabilities import RpcCheck
from turnbridge.turn.errors import InternalFault
from turnbridge.turn.items import (
    FilePart,
    ImagePart,
    Json,
    JsonObject,
    TextPart,
)
from turnbridge.turn.request import JsonOfSchema, Tool, TurnRequest

SCHEMA: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}
TOOL = Tool(name="getFileTree", description="Shows it.", parameters=SCHEMA)
PLAIN = turn_request(model="gpt-5.2", items=())
FULL = turn_request(
    model="gpt-5.2",
    items=(),
    instructions="Be brief.",
    effort="low",
    summary="auto",
    verbosity="high",
    output=JsonOfSchema(name="answer", schema=SCHEMA, strict=True, enforced=True),
    tools=(TOOL,),
)
PARTS = (TextPart(text="See:"), ImagePart(url="data:image/png;base64,AA==", param="input[0]"))
ITEMS: list[Json] = [
    {"type": "text", "data": {"text": "See:"}},
    {"type": "image", "data": {"image_url": "data:image/png;base64,AA=="}},
]

# The fields that the origin sent, by method.
ORIGIN = {
    "newConversation": {
        *("model", "cwd", "approvalPolicy", "sandbox", "developerInstructions", "baseInstructions"),
        *("compactPrompt", "config", "includeApplyPatchTool"),
    },
    "sendUserTurn": {
        *("conversationId", "items", "cwd", "approvalPolicy", "sandboxPolicy", "model", "summary", "effort"),
        *("choiceCount", "choice_count", "tools", "outputSchema", "output_schema"),
    },
    "sendUserMessage": {
        *("conversationId", "items", "includeUsage", "include_usage", "stream", "temperature", "topP", "top_p"),
        *("maxOutputTokens", "max_output_tokens", "tools", "responseFormat", "response_format", "reasoning"),
        *("finalOutputJsonSchema", "final_output_json_schema"),
    },
}
# Those of them that no server has read.
NEVER_READ = {
    "newConversation": set[str](),
    "sendUserTurn": {"choiceCount", "choice_count", "tools", "output_schema"},
    "sendUserMessage": ORIGIN["sendUserMessage"] - {"conversationId", "items"},
}


def sent(request: TurnRequest) -> dict[str, JsonObject]:
    """Return everything that is sent for a request, by method."""
    return {
        "newConversation": v1.new_conversation_params(request, ["Be kind."], cwd="/empty", logged_in=False),
        "sendUserTurn": v1.send_user_turn_params("c", PARTS, request, cwd="/empty"),
        "sendUserMessage": v1.send_user_message_params("c", PARTS),
    }


@pytest.mark.parametrize("method", ORIGIN)
def test_what_the_origin_sent_is_sent_unless_nobody_ever_read_it(method: str) -> None:
    check = RpcCheck(old_schema())
    assert sent(FULL)[method].keys() == ORIGIN[method] - NEVER_READ[method]
    for field in NEVER_READ[method]:
        assert check.request_problem(method, {**sent(FULL)[method], field: None}) == f"there is no field `{field}`"


@pytest.mark.parametrize("request_", [PLAIN, FULL])
@pytest.mark.parametrize("method", sent(PLAIN))
def test_codex_0_92_takes_what_it_is_sent(method: str, request_: TurnRequest) -> None:
    assert RpcCheck(old_schema()).request_problem(method, sent(request_)[method]) is None


def test_a_conversation_holds_the_clients_instructions_and_explains_its_functions() -> None:
    told = tool_instructions([TOOL], must_call=False, parallel_calls=True)
    assert sent(FULL)["newConversation"] == {
        "model": "gpt-5.2",
        "cwd": "/empty",
        "approvalPolicy": "never",
        "sandbox": "read-only",
        "developerInstructions": f"{NO_WORKSPACE}\n\n{told}\n\nBe kind.",
        "baseInstructions": "Be brief.",
        "compactPrompt": None,
        "config": {**flat_config(FULL, logged_in=False), "model_reasoning_effort": "low"},
        "includeApplyPatchTool": False,
    }


def test_a_turn_brings_every_wish() -> None:
    assert sent(FULL)["sendUserTurn"] == {
        "conversationId": "c",
        "items": ITEMS,
        "cwd": "/empty",
        "approvalPolicy": "never",
        "sandboxPolicy": {"type": "read-only"},
        "model": "gpt-5.2",
        "effort": "low",
        "summary": "auto",
        "outputSchema": SCHEMA,
    }


def test_a_turn_without_wishes_asks_for_no_summary() -> None:
    turn = sent(PLAIN)["sendUserTurn"]
    assert (turn["effort"], turn["summary"], turn["outputSchema"]) == (None, "none", None)


def test_a_file_never_gets_so_far() -> None:
    with pytest.raises(InternalFault):
        v1.send_user_message_params("c", [FilePart(filename="a", mime_type=None, data=b"", param="input[0]")])
