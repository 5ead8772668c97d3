"""One thread in one app-server: its items injected, its turns decoded, its calls answered."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import cast

import msgspec
import structlog

from turnbridge.codex.legacy.notifications import Told
from turnbridge.codex.process.connection import (
    CallRefused,
    Note,
    ignored,
    understood,
)
from turnbridge.codex.process.spare_threads import ThreadKind
from turnbridge.codex.process.worker import Worker, fidelity_of
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.decode import TurnDecoder, lost_image
from turnbridge.codex.protocol.encode import (
    inject_items_params,
    thread_start_params,
    tool_output,
    turn_start_params,
)
from turnbridge.codex.protocol.retries import Retries
from turnbridge.codex.protocol.tools import ToolNames
from turnbridge.engine.ports import Batches
from turnbridge.turn.errors import (
    BackendLost,
    GatewayError,
    InvalidRequest,
    QuotaExhausted,
    without_frames,
)
from turnbridge.turn.events import TurnEvent, TurnFailed
from turnbridge.turn.items import (
    FunctionCallOutput,
    ImagePart,
    Item,
    JsonObject,
    Message,
    Part,
)
from turnbridge.turn.request import PlainText, TurnRequest
from turnbridge.turn.values import replace

log = structlog.get_logger(__name__)

# How long the rest of a model's calls may take, once Codex has begun to ask for the first. It is no harm if the rest
# comes later all the same: it is then passed on as calls of its own.
REST_OF_CALLS_S = 20.0

# How long the calls of a script (code mode) are collected, after the last one. Those of a `Promise.all` come within a
# millisecond; what comes later is passed on with the next answer.
SCRIPT_CALLS_S = 0.02

# So many items take some milliseconds to be written down: they are left to a thread.
MANY_ITEMS = 1000

# How Codex says that it has let go of a thread: after half an hour in which nobody used it.
THREAD_GONE = "thread not found"

# When the plan's quota is used up, its reset time is worth a short wait.
QUOTA_LOOKUP_TIMEOUT_S = 3.0


async def open_v2(worker: Worker, request: TurnRequest) -> "CodexThread":
    """Start a thread of the current protocol (v2)."""
    names = ToolNames(tool.name for tool in request.spec.tools)
    started = partial(thread_start_params, request, names, worker.spec.rules)
    # Schemas of half a megabyte take 0.1 seconds.
    kind = ThreadKind(request.spec.client, await asyncio.to_thread(started) if request.large else started())
    thread = CodexThread(worker, await worker.spares.take(kind), request, names)
    thread.answering = lambda: worker.spares.refill_soon(kind)
    return thread


class CodexThread:
    """One thread in one app-server, with at most one turn running."""

    def __init__(self, worker: Worker, thread_id: str, request: TurnRequest, names: ToolNames) -> None:
        self._worker = worker
        self._connection = worker.connection
        self._thread_id = thread_id
        self._inbox = worker.connection.subscribe(thread_id)
        self._inbox.overflowed = self._overflowed
        # Whoever opens it has counted it already.
        self._running = True
        self._parked = False
        self._request = request
        self._names = names
        self._decoder = TurnDecoder()
        self._started: asyncio.Future[msgspec.Raw] | None = None
        self._asked: dict[str, int | str] = {}
        self._outputs: dict[str, JsonObject] = {}
        self.answering: Callable[[], None] | None = None
        """Called once, when the model has begun to answer."""

    @property
    def alive(self) -> bool:
        """Tell whether the turn still waits where it was left.

        A script of the model's (code mode) is given up by Codex after a while; the model then goes on without it.
        """
        return not self._inbox.failed and not self._inbox.holds(schema.RawResponseCompleted, schema.TurnCompleted)

    @property
    def fidelity(self) -> str:
        """Tell how faithfully the model is shown this thread."""
        return fidelity_of([self._worker])

    @property
    def retrying(self) -> bool:
        """Tell whether the provider has just failed, and Codex asks it again."""
        return self._decoder.retrying

    @property
    def heard(self) -> bool:
        """Tell whether the model has said anything since it was last asked."""
        return self._decoder.heard

    @property
    def native_tools(self) -> bool:
        """Tell whether the model's tool mode is left alone here."""
        return not self._worker.spec.direct_tools

    async def show(self, items: Sequence[Item]) -> None:
        """Add items to the history; raises if Codex cannot carry one of them."""
        written = partial(inject_items_params, self._thread_id, items, self._names)
        params = await asyncio.to_thread(written) if len(items) > MANY_ITEMS else written()
        try:
            await self._connection.call("thread/inject_items", params, dict[str, msgspec.Raw])
        except CallRefused as refused:
            if THREAD_GONE in refused.message:
                raise BackendLost("Codex has let go of the thread.") from refused
            problem = f"Codex cannot carry this: {refused.message}"
            raise InvalidRequest(problem, code="unsupported_item", param="input") from refused
        if any(isinstance(part, ImagePart) for item in items for part in _parts(item)):
            await self._check_images(items)

    def run(self, items: Sequence[Item] = (), request: TurnRequest | None = None) -> Batches:
        """Let the model answer, and yield what it says."""
        return self._events(partial(self._begin, items, request or self._request))

    def resume(self, outputs: Sequence[FunctionCallOutput]) -> Batches:
        """Give the outputs that the turn waits for, and yield what the model says then."""
        return self._events(partial(self._go_on, outputs))

    def fail(self, error: GatewayError) -> None:
        """End the turn that runs with this error."""
        self._inbox.fail(error)

    def close(self) -> None:
        """Stop listening, and interrupt the turn if it still runs."""
        self._count(running=False, parked=False)
        # The inbox knows the conversation only to be heard from it: the two must not keep each other in memory.
        self._inbox.overflowed = ignored
        self._connection.unsubscribe(self._thread_id)
        if self._started is not None:
            self._interrupt(self._started)

    async def _begin(self, items: Sequence[Item], request: TurnRequest) -> None:
        """Start a turn, after showing the model these items."""
        self._request = request
        if items:
            await self.show(items)
        self._decoder = TurnDecoder(
            self._names,
            allow_truncation=request.spec.allow_truncation,
            parallel_calls=request.parallel_calls,
            retries=Retries(self._worker.spec.connect_timeout_s, asyncio.get_running_loop().time),
        )
        self._inbox.doze()
        self._started = self._start_turn()
        self._started.add_done_callback(self._turn_begins)
        # The thread may be kept for long after its turn; the next request brings its own.
        self._request = replace(
            request, items=(), spec=replace(request.spec, instructions=None, tools=(), output=PlainText())
        )

    async def _go_on(self, outputs: Sequence[FunctionCallOutput]) -> None:
        """Let the turn that waits go on."""
        self._outputs = {output.call_id: self._reply(output) for output in outputs}
        self._decoder.resume()
        self._answer()

    def _start_turn(self) -> asyncio.Future[msgspec.Raw]:
        return self._connection.send("turn/start", turn_start_params(self._thread_id, self._request))

    def _reply(self, output: FunctionCallOutput) -> JsonObject:
        return tool_output(output.output)

    def _read(self, notes: Sequence[Note]) -> list[TurnEvent]:
        """Return what notifications mean; those of a current Codex need no translation."""
        return self._decoder.read(cast("Sequence[Told]", notes))

    def _patience_s(self) -> float:
        """Return how long the rest of a model's calls is waited for."""
        return REST_OF_CALLS_S

    def _overflowed(self) -> None:
        log.warning("slow_reader", thread=self._thread_id)
        self.close()

    async def _events(self, begin: Callable[[], Awaitable[None]]) -> Batches:
        """Yield what Codex tells until the turn ends or waits for the client."""
        self._count(running=True, parked=False)
        await begin()
        while not self._decoder.ended:
            try:
                calls_wait = self._asked and self._decoder.holds_calls
                events = self._understood(await (self._rest_of_calls() if calls_wait else self._inbox.batch()))
            except TimeoutError:
                events = self._decoder.release_calls()
            except GatewayError as error:
                events = self._decoder.close(without_frames(error))
            if self._decoder.ended:
                if events and isinstance(events[-1], TurnFailed):
                    await self._add_reset_time(events[-1].error)
                self._count(running=False, parked=self._started is not None)
            if events:
                yield events

    def _count(self, *, running: bool, parked: bool) -> None:
        """Let the app-server know what this conversation needs of it."""
        self._worker.load += int(running) - int(self._running)
        self._worker.parked += int(parked) - int(self._parked)
        self._running, self._parked = running, parked

    async def _rest_of_calls(self) -> list[Note]:
        """Wait for what Codex tells; raises `TimeoutError` if the rest of a batch of calls does not come.

        If the provider's answer breaks off after a call, Codex waits for the call's output in silence. A script's calls
        have no end that is told.
        """
        async with asyncio.timeout(self._patience_s() if self._decoder.responding else SCRIPT_CALLS_S):
            return await self._inbox.batch()

    def _understood(self, notes: list[Note]) -> list[TurnEvent]:
        """Return what notifications mean; Codex's questions are answered in the order that it asks."""
        # Nearly all of them are deltas, which need none of this.
        for note in [note for note in notes if not isinstance(note, schema.AgentMessageDelta)]:
            if isinstance(note, schema.TurnCompleted):
                self._started = None
            elif isinstance(note, schema.ToolCallAsked):
                self._asked[note.call_id] = note.request_id
        # Before the notes are read: if an answer is one that Codex does not take, the turn must not have ended yet.
        if self._asked:
            self._answer()
        events = self._read(notes)
        if events and self.answering is not None:
            self.answering()
            self.answering = None
        return events

    def _answer(self) -> None:
        for call_id in [call_id for call_id in self._asked if call_id in self._outputs]:
            self._connection.answer(self._asked.pop(call_id), self._outputs.pop(call_id))

    async def _check_images(self, items: Sequence[Item]) -> None:
        """Refuse what Codex could not read: it would put a text in the image's place and carry on.

        Each injected item is echoed once, in order, before or after the answer to the injection.
        """
        waiting = list(items)
        while waiting:
            for note in await self._echoes():
                if not waiting or not isinstance(note, schema.RawItemCompleted):
                    continue
                if (lost := lost_image(note, _parts(waiting.pop(0)))) is not None:
                    raise InvalidRequest(
                        "The image could not be read: it is broken, or not a PNG, JPEG, GIF or WebP file.",
                        code="invalid_image",
                        param=lost.param,
                    )

    async def _echoes(self) -> list[Note]:
        """Wait for injected items to come back, as long as for the answer to a call."""
        try:
            async with asyncio.timeout(self._connection.call_timeout_s):
                return await self._inbox.batch()
        except TimeoutError:
            raise BackendLost("Codex did not say whether it could read the images. Try again.") from None

    def _turn_begins(self, started: asyncio.Future[msgspec.Raw]) -> None:
        """Learn which turn is ours. What Codex may have told of it before that is not lost: it is read from here on."""
        try:
            self._decoder.turn_id = self._turn_id(started.result())
            self._inbox.rouse()
        except GatewayError as error:
            self._inbox.fail(error)

    def _turn_id(self, answer: msgspec.Raw) -> str | None:
        return understood(answer, "turn/start", schema.TurnStartResult).turn.id

    def _interrupt(self, started: asyncio.Future[msgspec.Raw]) -> None:
        """Stop the turn without waiting: Codex does not answer an interrupt that comes too late."""
        if not started.done():
            started.add_done_callback(self._interrupt)
        elif self._decoder.turn_id is not None:
            self._connection.cast("turn/interrupt", {"threadId": self._thread_id, "turnId": self._decoder.turn_id})

    async def _add_reset_time(self, error: GatewayError) -> None:
        """Add to an exhausted quota when it comes back, if Codex knows it."""
        if not isinstance(error, QuotaExhausted):
            return
        with contextlib.suppress(GatewayError):  # Only ChatGPT plans have reset times.
            limits = await self._connection.call(
                "account/rateLimits/read", None, schema.RateLimitsReadResult, timeout_s=QUOTA_LOOKUP_TIMEOUT_S
            )
            resets_at = _reset(limits.rate_limits)
            if resets_at is not None:
                error.retry_after = max(0.0, resets_at - time.time())


def _parts(item: Item) -> tuple[Part, ...]:
    if isinstance(item, Message):
        return item.parts
    if isinstance(item, FunctionCallOutput) and not isinstance(item.output, str):
        return item.output
    return ()


def _reset(limits: schema.RateLimits) -> int | None:
    """Return when the window that is used up comes back."""
    full = [window for window in (limits.primary, limits.secondary) if window and window.used_percent >= 100]
    return max((window.resets_at for window in full if window.resets_at is not None), default=None)
