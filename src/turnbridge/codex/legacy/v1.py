"""A conversation of the first protocol (v1): its history goes in as one flat input, its calls come out as text."""

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from turnbridge.codex.legacy import v1_messages as v1
from turnbridge.codex.legacy.flat_history import flat_history, flat_outputs
from turnbridge.codex.legacy.notifications import V1Translator
from turnbridge.codex.legacy.spoken_calls import SpokenCalls
from turnbridge.codex.process.connection import Note
from turnbridge.codex.process.thread import CodexThread
from turnbridge.codex.process.worker import Worker
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.tools import ToolNames
from turnbridge.turn.events import FunctionCallDone, TurnEvent
from turnbridge.turn.items import FunctionCallOutput, Item, Part
from turnbridge.turn.request import TurnRequest


async def open_v1(worker: Worker, request: TurnRequest) -> "V1Thread":
    """Start a conversation and listen to it."""
    developer = flat_history(request.items).developer
    logged_in = worker.login is not None
    # In a thread: schemas are explained in words and examples, which takes long for large ones.
    params = await asyncio.to_thread(
        v1.new_conversation_params,
        request,
        developer,
        cwd=str(worker.spec.workdir),
        logged_in=logged_in,
        rules=worker.spec.rules,
    )
    made = await worker.connection.call("newConversation", params, v1.NewConversationResult)
    listening = v1.add_listener_params(made.conversation_id)
    heard = await worker.connection.call("addConversationListener", listening, v1.ListenerResult)
    return V1Thread(worker, made, heard.subscription_id, request)


class V1Thread(CodexThread):
    """A conversation with one turn for the client; the gateway itself may add others."""

    def __init__(
        self, worker: Worker, made: v1.NewConversationResult, subscription_id: str, request: TurnRequest
    ) -> None:
        super().__init__(worker, made.conversation_id, request, ToolNames(()))
        self._first = request
        self._rollout = Path(made.rollout_path)
        self._subscription_id = subscription_id
        self._translator = V1Translator()
        self._input: Sequence[Part] = ()
        self._called: dict[str, str] = {}
        self._spoken = self._new_spoken()

    @property
    def alive(self) -> bool:
        """Tell that no turn ever waits here."""
        return False

    async def show(self, items: Sequence[Item]) -> None:
        """Keep items for the turn, which takes them along."""
        self._input = flat_history(items).parts

    async def _go_on(self, outputs: Sequence[FunctionCallOutput]) -> None:
        """Give the outputs of calls in a turn of their own."""
        self._input = flat_outputs(outputs, self._called)
        await self._begin((), self._first)

    def close(self) -> None:
        """Stop listening, interrupt the turn if it still runs, and remove what Codex wrote down of it."""
        super().close()
        self._connection.cast("removeConversationListener", v1.remove_listener_params(self._subscription_id))
        self._rollout.unlink(missing_ok=True)

    def _start_turn(self) -> asyncio.Future[msgspec.Raw]:
        self._spoken = self._new_spoken()
        spec = self._worker.spec
        if v1.TURN_METHOD in self._worker.capabilities.params and not spec.rules.plain_messages:
            params = v1.send_user_turn_params(
                self._thread_id, self._input, self._request, cwd=str(spec.workdir), rules=spec.rules
            )
            return self._connection.send(v1.TURN_METHOD, params)
        return self._connection.send(v1.MESSAGE_METHOD, v1.send_user_message_params(self._thread_id, self._input))

    def _new_spoken(self) -> SpokenCalls:
        return SpokenCalls((tool.name for tool in self._request.spec.tools), lambda: f"call_{secrets.token_hex(12)}")

    def _read(self, notes: Sequence[Note]) -> list[TurnEvent]:
        said: list[TurnEvent] = []
        for told in [told for note in notes for told in self._translator.translate(note)]:
            # The answer to its start does not name a turn, so what is told is taken to be of the one that runs.
            self._decoder.turn_id = told.turn.id if isinstance(told, schema.TurnCompleted) else told.turn_id
            said += self._decoder.feed(told)
        events = self._spoken.read(said)
        self._called |= {event.call_id: event.name for event in events if isinstance(event, FunctionCallDone)}
        return events

    def _turn_id(self, answer: msgspec.Raw) -> str | None:
        """Codex names it in the first notification."""
        del answer
        return self._decoder.turn_id

    def _interrupt(self, started: asyncio.Future[msgspec.Raw]) -> None:
        """Stop the turn without waiting."""
        del started
        self._connection.cast("interruptConversation", v1.interrupt_params(self._thread_id))
