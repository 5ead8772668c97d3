"""A `TurnRequest` → the payloads of the first protocol (v1): conversations, listeners, and turns of a user.

A turn is sent by `sendUserTurn`, or by `sendUserMessage` where there is nothing else, never by both: each starts a turn
of its own.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from turnbridge.codex.legacy.flat_history import NO_WORKSPACE, developer_instructions, flat_config
from turnbridge.codex.legacy.tool_prompt import tool_instructions
from turnbridge.codex.protocol.messages import Wire
from turnbridge.codex.protocol.permissions import STRICT, HostRules
from turnbridge.turn.errors import InternalFault
from turnbridge.turn.items import (
    FilePart,
    ImagePart,
    JsonObject,
    Part,
    TextPart,
)
from turnbridge.turn.request import JsonOfSchema, TurnRequest

TURN_METHOD = "sendUserTurn"
MESSAGE_METHOD = "sendUserMessage"


class NewConversationResult(Wire, frozen=True):
    """The answer to `newConversation`."""

    conversation_id: str
    rollout_path: str
    """Where Codex writes the conversation down; it cannot be told not to."""


class ListenerResult(Wire, frozen=True):
    """The answer to `addConversationListener`."""

    subscription_id: str


def new_conversation_params(
    request: TurnRequest, developer: Iterable[str], *, cwd: str, logged_in: bool, rules: HostRules = STRICT
) -> JsonObject:
    """Return a conversation with the client's instructions, in which its functions are explained."""
    told = tool_instructions(
        request.spec.tools,
        must_call=request.must_call,
        parallel_calls=request.parallel_calls,
        web_search=request.spec.web_search is not None,
    )
    config = flat_config(request, logged_in=logged_in)
    if request.spec.effort is not None:
        config["model_reasoning_effort"] = request.spec.effort
    return {
        "model": request.spec.model,
        "cwd": cwd,
        "approvalPolicy": rules.approval_policy,
        "sandbox": rules.sandbox,
        "developerInstructions": developer_instructions((NO_WORKSPACE, told, *developer)),
        "baseInstructions": request.spec.instructions or "",
        "compactPrompt": None,
        "config": config,
        "includeApplyPatchTool": rules.apply_patch,
    }


def add_listener_params(conversation_id: str) -> JsonObject:
    """Return the wish to hear what happens in a conversation."""
    return {"conversationId": conversation_id, "experimentalRawEvents": False}


def remove_listener_params(subscription_id: str) -> JsonObject:
    """Return the wish to hear no more."""
    return {"subscriptionId": subscription_id}


def interrupt_params(conversation_id: str) -> JsonObject:
    """Return the wish that the turn end."""
    return {"conversationId": conversation_id}


def send_user_turn_params(
    conversation_id: str, parts: Sequence[Part], request: TurnRequest, *, cwd: str, rules: HostRules = STRICT
) -> JsonObject:
    """Return a turn with this input."""
    output = request.spec.output
    return {
        "conversationId": conversation_id,
        "items": [input_item(part) for part in parts],
        "cwd": cwd,
        "approvalPolicy": rules.approval_policy,
        "sandboxPolicy": {"type": rules.sandbox},
        "model": request.spec.model,
        "effort": request.spec.effort,
        "summary": request.spec.summary or "none",
        "outputSchema": output.schema if isinstance(output, JsonOfSchema) and output.enforced else None,
    }


def send_user_message_params(conversation_id: str, parts: Sequence[Part]) -> JsonObject:
    """Return a turn with this input and the conversation's own settings."""
    return {"conversationId": conversation_id, "items": [input_item(part) for part in parts]}


def input_item(part: Part) -> JsonObject:
    """Return a text or an image of a turn's input."""
    match part:
        case TextPart():
            return {"type": "text", "data": {"text": part.text}}
        case ImagePart():
            return {"type": "image", "data": {"image_url": part.url}}
        case FilePart():
            raise InternalFault("A file reached Codex without having been turned into text.")
        case _:
            assert_never(part)
