"""One thread in one app-server: injects its items, decodes its turns, and answers its calls."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from turnbridge.codex.process.connection import CallRefused, decode_answer, ignore
from turnbridge.codex.process.spare_threads import ThreadKind
from turnbridge.codex.process.worker import Worker
from turnbridge.codex.protocol import images
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.decode import TurnDecoder, lost_image
from turnbridge.codex.protocol.encode import inject_items_params, thread_start_params, tool_output, turn_start_params
from turnbridge.codex.protocol.retries import Retries
from turnbridge.codex.protocol.tool_names import NO_TOOLS, ToolNames
from turnbridge.engine.ports import Batches
from turnbridge.turn.errors import BackendLost, GatewayError, InvalidRequest, QuotaExhausted, without_frames
from turnbridge.turn.events import TurnEvent, TurnFailed
from turnbridge.turn.items import FunctionCallOutput, ImagePart, Item, JsonObject, media_parts, parts_of, replace
from turnbridge.turn.request import PlainText, TurnRequest

log = structlog.get_logger(__name__)

D = TypeVar("D", bound=TurnDecoder)

# How long the calls of a script (code mode) are collected after the last one. Those of a `Promise.all` come within a
# millisecond; later ones are sent with the next answer.
SCRIPT_CALLS_S = 0.02

# Encoding more items than this takes milliseconds, so it is done in a worker thread.
MANY_ITEMS = 1000

# Decodes nothing: of a thread whose first turn has not begun.
UNSTARTED = TurnDecoder()

# How Codex reports that it has unloaded a thread, after half an hour without use.
THREAD_GONE = "thread not found"

# How long the lookup of a quota's reset time may delay the error.
QUOTA_LOOKUP_TIMEOUT_S = 3.0


async def open_v2(worker: Worker, request: TurnRequest) -> "CodexThread":
    """Start a thread of the current protocol (v2)."""
    if request.spec.image_generation and (request.spec.provider or not worker.makes_images):
        raise InvalidRequest(images.LOGIN_NEEDED, code="unsupported_tool")
    names = ToolNames.of(request.spec.tools) if request.spec.tools else NO_TOOLS
    params = partial(thread_start_params, request, names, worker.spec.rules)
    # Schemas of half a megabyte take 0.1 seconds.
    kind = ThreadKind(request.spec.client, await asyncio.to_thread(params) if request.large else params())
    thread = CodexThread(worker, await worker.spares.take(kind), request, names)
    if request.spec.provider is None:
        # Another provider may be reached over WebSocket, where each thread that is started is a request.
        thread.on_output = lambda: worker.spares.refill_soon(kind)
    return thread


class CodexThread:
    """One thread in one app-server, with at most one turn running."""

    # How long the rest of a model's parallel calls may take, once Codex asks for the output of the first. What comes
    # later is sent to the client as further calls.
    rest_of_calls_s = 20.0

    def __init__(self, worker: Worker, thread_id: str, request: TurnRequest, names: ToolNames) -> None:
        self._worker = worker
        self._connection = worker.connection
        self._thread_id = thread_id
        worker.held += 1
        self._inbox = worker.connection.subscribe(thread_id)
        self._inbox.on_overflow = self._stop_unread_turn
        # Already counted by the caller that opens it.
        self._running = True
        self._parked = False
        self._closed = False
        self._request = request
        self._names = names
        self._decoder = UNSTARTED
        self._started: asyncio.Future[msgspec.Raw] | None = None
        self._asked: dict[str, int | str] = {}
        self._outputs: dict[str, JsonObject] = {}
        self.on_output: Callable[[], None] | None = None
        """Called once, when the model has begun to answer."""

    @property
    def alive(self) -> bool:
        """Tell whether the parked turn is still waiting.

        Codex gives up a script of the model (code mode) after a while; the model then continues without it.
        """
        return not self._inbox.failed and not self._inbox.holds(schema.RawResponseCompleted, schema.TurnCompleted)

    @property
    def fidelity(self) -> str:
        """Return how faithfully the model is shown this thread."""
        return self._worker.fidelity

    @property
    def retrying(self) -> bool:
        """Tell whether the provider has just failed and Codex retries."""
        return self._decoder.retrying

    @property
    def heard(self) -> bool:
        """Tell whether the model has sent anything since the turn was started or resumed."""
        return self._decoder.heard

    @property
    def native_tools(self) -> bool:
        """Tell whether models keep their own tool mode here."""
        return not self._worker.spec.direct_tools

    async def inject(self, items: Sequence[Item]) -> None:
        """Add items to the history; raises if Codex cannot carry one of them."""
        encode = partial(inject_items_params, self._thread_id, items, self._names)
        params = await asyncio.to_thread(encode) if len(items) > MANY_ITEMS else encode()
        try:
            await self._connection.call("thread/inject_items", params, dict[str, msgspec.Raw])
        except CallRefused as refused:
            if THREAD_GONE in refused.message:
                raise BackendLost("Codex has let go of the thread.") from refused
            problem = f"Codex cannot carry this: {refused.message}"
            raise InvalidRequest(problem, code="unsupported_item", param="input") from refused
        if any(isinstance(part, ImagePart) for part in media_parts(items)):
            await self._check_images(items)

    def run(self, items: Sequence[Item] = (), request: TurnRequest | None = None) -> Batches:
        """Inject `items`, start a turn, and yield its events."""
        return self._events(partial(self._begin, items, request or self._request))

    def resume(self, outputs: Sequence[FunctionCallOutput]) -> Batches:
        """Send the outputs that the parked turn waits for, and yield its further events."""
        return self._events(partial(self._continue, outputs))

    def fail(self, error: GatewayError) -> None:
        """End the running turn with this error."""
        self._inbox.fail(error)

    def close(self) -> None:
        """Give the thread up: interrupt the turn if it is still running, and let Codex unload the thread."""
        if self._closed:
            return
        self._closed = True
        self._worker.held -= 1
        self._count(running=False, parked=False)
        # The inbox and the thread must not keep each other in memory.
        self._inbox.on_overflow = ignore
        self._connection.unsubscribe(self._thread_id)
        if self._started is not None:
            self._interrupt(self._started)
        self._worker.release(self._thread_id)
        if self._request.spec.image_generation:
            self._remove_images()

    def _remove_images(self) -> None:
        """Remove the files that Codex has written: clients have the images."""
        files = self._worker.spec.home / images.FOLDER / self._thread_id
        remove = partial(shutil.rmtree, files, ignore_errors=True)
        asyncio.get_running_loop().run_in_executor(None, remove)

    async def _begin(self, items: Sequence[Item], request: TurnRequest) -> None:
        self._request = request
        if items:
            await self.inject(items)
        self._decoder = self._new_decoder(request)
        self._inbox.hold()
        self._started = self._start_turn()
        self._started.add_done_callback(self._turn_started)
        # The thread may be kept long after its turn; the next request brings its own.
        spec = replace(request.spec, instructions=None, tools=(), servers=(), output=PlainText())
        self._request = replace(request, items=(), spec=spec)

    async def _continue(self, outputs: Sequence[FunctionCallOutput]) -> None:
        self._outputs = {output.call_id: self._encode_output(output) for output in outputs}
        self._decoder.resume()
        self._answer_calls(())

    def _new_decoder(self, request: TurnRequest) -> TurnDecoder:
        return self._make_decoder(TurnDecoder, request)

    def _make_decoder(self, kind: type[D], request: TurnRequest) -> D:
        return kind(
            self._names,
            allow_truncation=request.spec.allow_truncation,
            parallel_calls=request.parallel_calls,
            retries=Retries(self._worker.spec.connect_timeout_s, asyncio.get_running_loop().time),
        )

    def _start_turn(self) -> asyncio.Future[msgspec.Raw]:
        return self._connection.send("turn/start", turn_start_params(self._thread_id, self._request))

    def _encode_output(self, output: FunctionCallOutput) -> JsonObject:
        return tool_output(output.output)

    def _stop_unread_turn(self) -> None:
        log.warning("slow_reader", thread=self._thread_id)
        self.close()

    async def _events(self, begin: Callable[[], Awaitable[None]]) -> Batches:
        """Yield the events of a turn until it ends or is parked."""
        self._count(running=True, parked=False)
        await begin()
        while not self._decoder.ended:
            try:
                calls_wait = self._asked and self._decoder.holds_calls
                notes = await (self._rest_of_calls() if calls_wait else self._inbox.batch())
                # Before decoding: an answer that Codex would not take must fail a turn that has not ended yet.
                self._answer_calls(notes)
                events = self._decoder.read(notes)
                # They would stay in memory until the next ones come.
                del notes
            except TimeoutError:
                events = self._decoder.release_calls()
            except GatewayError as error:
                events = self._decoder.close(without_frames(error))
            if self._decoder.ended:
                await self._finish(events)
            if events:
                if self.on_output is not None:
                    self.on_output()
                    self.on_output = None
                yield events

    async def _finish(self, events: Sequence[TurnEvent]) -> None:
        if events and isinstance(events[-1], TurnFailed):
            await self._add_reset_time(events[-1].error)
        self._count(running=False, parked=self._started is not None)

    def _count(self, *, running: bool, parked: bool) -> None:
        """Update the load of the app-server."""
        self._worker.load += int(running) - int(self._running)
        self._worker.parked += int(parked) - int(self._parked)
        self._running, self._parked = running, parked
        if not running:
            self._worker.idle_since = asyncio.get_running_loop().time()

    async def _rest_of_calls(self) -> list[schema.Note]:
        """Wait for notifications; raises `TimeoutError` if the rest of the parallel calls does not come.

        If the provider's stream breaks off after a call, Codex silently waits for the output of that call. The end of
        a script's calls is not reported.
        """
        async with asyncio.timeout(self.rest_of_calls_s if self._decoder.responding else SCRIPT_CALLS_S):
            return await self._inbox.batch()

    def _answer_calls(self, notes: Sequence[schema.Note]) -> None:
        """Answer the calls whose output is known, in the order in which Codex asks."""
        # Nearly all notifications are deltas.
        for note in [note for note in notes if not isinstance(note, schema.AgentMessageDelta)]:
            if isinstance(note, schema.TurnCompleted):
                self._started = None
            elif isinstance(note, schema.ToolCallAsked):
                self._asked[note.call_id] = note.request_id
        if self._asked:
            for call_id in [call_id for call_id in self._asked if call_id in self._outputs]:
                self._connection.answer(self._asked.pop(call_id), self._outputs.pop(call_id))

    async def _check_images(self, items: Sequence[Item]) -> None:
        """Refuse an image that Codex could not read: it would replace it by a text and continue.

        Each injected item is echoed once, in order, before or after the answer to the injection.
        """
        waiting = list(items)
        while waiting:
            try:
                async with asyncio.timeout(self._connection.call_timeout_s):
                    notes = await self._inbox.batch()
            except TimeoutError:
                raise BackendLost("Codex did not say whether it could read the images. Try again.") from None
            for note in notes:
                if not waiting or not isinstance(note, schema.RawItemCompleted):
                    continue
                lost = lost_image(note, parts_of(waiting.pop(0)))
                # One that an MCP server gave was hidden before, too.
                if lost is not None and lost.param:
                    problem = "The image could not be read: it is broken, or not a PNG, JPEG, GIF or WebP file."
                    raise InvalidRequest(problem, code="invalid_image", param=lost.param)

    def _turn_started(self, started: asyncio.Future[msgspec.Raw]) -> None:
        """Let the decoder know the turn's id; notifications that came before are still in the inbox."""
        try:
            self._decoder.turn_id = self._turn_id(started.result())
            self._inbox.release()
        except GatewayError as error:
            self._inbox.fail(error)

    def _turn_id(self, answer: msgspec.Raw) -> str | None:
        return decode_answer(answer, "turn/start", schema.TurnStartResult).turn.id

    def _interrupt(self, started: asyncio.Future[msgspec.Raw]) -> None:
        """Interrupt the turn without waiting: Codex does not answer an interrupt that comes too late."""
        if not started.done():
            started.add_done_callback(self._interrupt)
        elif self._decoder.turn_id is not None:
            self._connection.cast("turn/interrupt", {"threadId": self._thread_id, "turnId": self._decoder.turn_id})

    async def _add_reset_time(self, error: GatewayError) -> None:
        """Set `retry_after` of an exhausted quota, if Codex knows the reset time."""
        if not isinstance(error, QuotaExhausted):
            return
        # Codex tells it before the error.
        told = self._connection.plan.spent_until(time.time())
        if told is not None:
            error.retry_after = max(0.0, told - time.time())
            return
        with contextlib.suppress(GatewayError):  # Only ChatGPT plans have reset times.
            limits = await self._connection.call(
                "account/rateLimits/read", None, schema.RateLimitsReadResult, timeout_s=QUOTA_LOOKUP_TIMEOUT_S
            )
            resets_at = _reset(limits.rate_limits)
            if resets_at is not None:
                error.retry_after = max(0.0, resets_at - time.time())


def _reset(limits: schema.RateLimits) -> int | None:
    """Return when the exhausted window is reset."""
    full = [window for window in (limits.primary, limits.secondary) if window and window.used_percent >= 100]
    return max((window.resets_at for window in full if window.resets_at is not None), default=None)
