"""The v1 dialect: the history is sent as one flat input, and calls are found in the model's text.

A turn is sent by `sendUserTurn`, or by `sendUserMessage` where there is nothing else, never by both: each starts a turn
of its own. No turn is parked: the outputs of calls start another one.
"""

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from turnbridge.codex.legacy.calls import CallExtractor
from turnbridge.codex.legacy.flat_text import (
    NO_WORKSPACE,
    check_tools,
    developer_instructions,
    flat_config,
    flat_history,
    flat_outputs,
    tool_instructions,
)
from turnbridge.codex.legacy.v2_early import EarlyDecoder
from turnbridge.codex.process.thread import CodexThread
from turnbridge.codex.process.worker import Worker
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.decode import TurnDecoder
from turnbridge.codex.protocol.encode import STRICT, HostRules, image_of, output_schema
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn.events import TurnEvent
from turnbridge.turn.items import FunctionCallOutput, Item, Json, JsonObject, Part, TextPart
from turnbridge.turn.request import TurnRequest

TURN_METHOD = "sendUserTurn"
MESSAGE_METHOD = "sendUserMessage"


class NewConversationResult(schema.Wire, frozen=True):
    """The answer to `newConversation`."""

    conversation_id: str
    rollout_path: str
    """The file to which Codex writes the conversation; that cannot be disabled."""


class ListenerResult(schema.Wire, frozen=True):
    """The answer to `addConversationListener`."""

    subscription_id: str


def new_conversation_params(
    request: TurnRequest, developer: Iterable[str], *, cwd: str, logged_in: bool, rules: HostRules = STRICT
) -> JsonObject:
    """Return a conversation with the client's instructions, which describe its functions."""
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


def send_user_turn_params(
    conversation_id: str, parts: Sequence[Part], request: TurnRequest, *, cwd: str, rules: HostRules = STRICT
) -> JsonObject:
    """Return a turn with this input."""
    return {
        **send_user_message_params(conversation_id, parts),
        "cwd": cwd,
        "approvalPolicy": rules.approval_policy,
        "sandboxPolicy": {"type": rules.sandbox},
        "model": request.spec.model,
        "effort": request.spec.effort,
        "summary": request.spec.summary or "none",
        "outputSchema": output_schema(request),
    }


def send_user_message_params(conversation_id: str, parts: Sequence[Part]) -> JsonObject:
    """Return a turn with this input and the conversation's own settings."""
    items: list[Json] = [
        {"type": "text", "data": {"text": part.text}}
        if isinstance(part, TextPart)
        else {"type": "image", "data": {"image_url": image_of(part).url}}
        for part in parts
    ]
    return {"conversationId": conversation_id, "items": items}


class V1Decoder(EarlyDecoder):
    """Decodes the notifications of v1, which has no raw items and does not say which turn it has started."""

    calls = CallExtractor((), str)

    def read(self, notes: Sequence[schema.Note]) -> list[TurnEvent]:
        """Return the events of notifications, with calls in place of their text."""
        events: list[TurnEvent] = []
        for note in notes:
            self.turn_id = note.turn.id if isinstance(note, schema.TurnCompleted) else note.turn_id
            events += super().read([note])
        return self.calls.read(events)

    def _raw_item_of(self, item: schema.CompletedItem) -> JsonObject | None:
        if item.type == "agentMessage":
            content: list[Json] = [{"type": "output_text", "text": item.text}]
            return {"type": "message", "id": item.id, "role": "assistant", "content": content}
        if item.type == "reasoning":
            summary, thoughts = _texts(item.summary, "summary_text"), _texts(item.content, "reasoning_text")
            return {"type": "reasoning", "id": item.id, "summary": summary, "content": thoughts}
        return super()._raw_item_of(item)


def _texts(raw: msgspec.Raw, kind: str) -> list[Json]:
    return [{"type": kind, "text": text} for text in msgspec.json.decode(raw, type=list[str])]


async def open_v1(worker: Worker, request: TurnRequest) -> "V1Thread":
    """Start a conversation and subscribe to it."""
    check_tools(request)
    params = partial(
        new_conversation_params,
        request,
        flat_history(request.items).developer,
        cwd=str(worker.spec.workdir),
        logged_in=worker.login is not None,
        rules=worker.spec.rules,
    )
    # In a worker thread: describing large schemas takes long.
    made = await worker.connection.call("newConversation", await asyncio.to_thread(params), NewConversationResult)
    listener: JsonObject = {"conversationId": made.conversation_id, "experimentalRawEvents": False}
    added = await worker.connection.call("addConversationListener", listener, ListenerResult)
    return V1Thread(worker, made, added.subscription_id, request)


class V1Thread(CodexThread):
    """A conversation with one turn of the client; only the gateway itself may add others."""

    def __init__(self, worker: Worker, made: NewConversationResult, subscription_id: str, request: TurnRequest) -> None:
        super().__init__(worker, made.conversation_id, request, ToolNames(()))
        self._first = request
        self._rollout = Path(made.rollout_path)
        self._subscription_id = subscription_id
        self._input: Sequence[Part] = ()
        self._v1 = V1Decoder()

    @property
    def alive(self) -> bool:
        """Return False: no turn is ever parked here."""
        return False

    async def inject(self, items: Sequence[Item]) -> None:
        """Keep items for the input of the turn."""
        self._input = flat_history(items).parts

    async def _continue(self, outputs: Sequence[FunctionCallOutput]) -> None:
        """Send the outputs of calls in a turn of their own."""
        self._input = flat_outputs(outputs, self._v1.calls.functions)
        await self._begin((), self._first)

    def close(self) -> None:
        """Unsubscribe, interrupt the turn if it is still running, and delete Codex's file of the conversation."""
        super().close()
        self._connection.cast("removeConversationListener", {"subscriptionId": self._subscription_id})
        self._rollout.unlink(missing_ok=True)

    def _new_decoder(self, request: TurnRequest) -> TurnDecoder:
        total = self._v1.total
        self._v1 = self._make_decoder(V1Decoder, request)
        self._v1.total = total
        self._v1.calls = CallExtractor(
            (tool.name for tool in request.spec.tools), lambda: f"call_{secrets.token_hex(12)}"
        )
        return self._v1

    def _start_turn(self) -> asyncio.Future[msgspec.Raw]:
        spec = self._worker.spec
        if TURN_METHOD not in self._worker.capabilities.params or spec.rules.plain_messages:
            return self._connection.send(MESSAGE_METHOD, send_user_message_params(self._thread_id, self._input))
        params = send_user_turn_params(
            self._thread_id, self._input, self._request, cwd=str(spec.workdir), rules=spec.rules
        )
        return self._connection.send(TURN_METHOD, params)

    def _turn_id(self, answer: msgspec.Raw) -> str | None:
        """Return the current id: the answer does not name the turn, its first notification does."""
        del answer
        return self._decoder.turn_id

    def _interrupt(self, started: asyncio.Future[msgspec.Raw]) -> None:
        del started
        self._connection.cast("interruptConversation", {"conversationId": self._thread_id})
