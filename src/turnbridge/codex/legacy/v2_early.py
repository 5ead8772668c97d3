"""A thread in an early version of the current protocol (v2-early): its history goes in as one flat input.

Its calls wait for the client as those of current versions do. Once its turn is over it is given up: the model has its
history in another form there than a client has.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from turnbridge.codex.legacy.flat_history import flat_history, tool_names
from turnbridge.codex.legacy.notifications import Translator
from turnbridge.codex.legacy.v2_early_messages import early_output, early_thread_params, early_turn_params
from turnbridge.codex.process.connection import Note
from turnbridge.codex.process.thread import CodexThread
from turnbridge.codex.process.worker import Worker
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.tools import ToolNames
from turnbridge.turn.events import TurnEvent
from turnbridge.turn.items import FunctionCallOutput, Item, JsonObject
from turnbridge.turn.request import TurnRequest

# Of the versions that have environments and no raw responses (0.125 to 0.142), some tell the end of a model call only
# once its functions are answered: there every call costs this wait. What a model calls later, it has to call again.
UNCOUNTED_CALLS_S = 2.0


async def open_early(worker: Worker, request: TurnRequest) -> "EarlyThread":
    """Start a thread of the early protocol."""
    names = tool_names(request)
    developer = flat_history(request.items).developer
    logged_in = worker.login is not None
    params = await asyncio.to_thread(
        early_thread_params,
        request,
        developer,
        names,
        worker.capabilities,
        logged_in=logged_in,
        rules=worker.spec.rules,
    )
    started = await worker.connection.call("thread/start", params, schema.ThreadStartResult)
    return EarlyThread(worker, started.thread.id, request, names)


class EarlyThread(CodexThread):
    """A thread with one turn; the gateway itself may add others to it, the client may not."""

    def __init__(self, worker: Worker, thread_id: str, request: TurnRequest, names: ToolNames) -> None:
        super().__init__(worker, thread_id, request, names)
        self._translator = Translator()
        self._unsent: Sequence[Item] = ()

    @property
    def alive(self) -> bool:
        """Tell whether the turn still waits where it was left."""
        return self._started is not None and super().alive

    async def show(self, items: Sequence[Item]) -> None:
        """Keep items for the turn, which takes them along."""
        self._unsent = items

    def _start_turn(self) -> asyncio.Future[msgspec.Raw]:
        parts = flat_history(self._unsent, self._names).parts
        self._unsent = ()
        params = early_turn_params(self._thread_id, parts, self._request, self._worker.capabilities)
        return self._connection.send("turn/start", params)

    def _read(self, notes: Sequence[Note]) -> list[TurnEvent]:
        return self._decoder.read([told for note in notes for told in self._translator.translate(note)])

    def _patience_s(self) -> float:
        known = self._worker.capabilities
        return UNCOUNTED_CALLS_S if known.environments and not known.raw_usage else super()._patience_s()

    def _reply(self, output: FunctionCallOutput) -> JsonObject:
        return early_output(output.output, self._worker.capabilities)
