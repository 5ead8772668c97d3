"""Runs turns for one HTTP request and writes the answer, live or whole. The response owns the turns: when the client
leaves, they are interrupted in Codex.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from turnbridge.api.output_mode import Runner
from turnbridge.api.shared import sse
from turnbridge.engine.turns import Served
from turnbridge.turn.events import (
    MessageStarted,
    ReasoningStarted,
    Terminal,
    TextDelta,
    TurnEvent,
    TurnFailed,
    Usage,
)
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import TurnRequest
from turnbridge.web.choices import AnyBatch, numbered, run_choices
from turnbridge.web.disconnect import Client
from turnbridge.web.http import encoded
from turnbridge.web.later import Later
from turnbridge.web.middleware.access_log import RequestContext, context_of

# Said inside a stream, whose headers have long gone, in the words of the header that whole answers carry.
USAGE_HEADER = "x-turnbridge-usage"
# How long the request waited for its turn.
QUEUED_HEADER = "x-turnbridge-queued-ms"

# Whether the turn went on in a thread that was kept: `parked`, `warm`, `replayed` or `fresh`.
THREAD_HEADER = "x-turnbridge-thread"

# Whether the model saw just what the client sent: `exact`, or in short what it did not, or saw besides.
FIDELITY_HEADER = "x-turnbridge-fidelity"

# JSON may begin with blanks, after which there is no status to fail with. Most answers are there before the third
# interval, with a status and all headers.
INTERVALS_BEFORE_BLANKS = 2
BLANK = b" "

# How often a client that does not read is looked for.
STALL_CHECK_S = 1.0

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    # nginx would collect a stream before passing it on.
    "x-accel-buffering": "no",
}


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When something is sent though there is nothing to say."""

    hold_s: float
    """How long headers wait for the first output."""
    keepalive_s: float | None
    """After how much silence a sign of life is sent; None for never."""
    whole_s: float
    """How long a client that does not read is borne with."""


class Writer(Protocol):
    """One API's way of writing an answer."""

    @property
    def failure(self) -> TurnFailed | None:
        """Return the failure that ended the answer, if one did."""
        ...

    @property
    def usage(self) -> Usage:
        """Return the tokens so far."""
        ...

    def opening(self, *, speaks: bool) -> bytes:
        """Return the frames that come before any output; `speaks` tells whether it is known to begin with text."""
        ...

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        """Return the frames of events of choice `index`."""
        ...

    def closing(self) -> bytes:
        """Return the frames that come after every choice has ended."""
        ...

    def keepalive(self) -> bytes:
        """Return a frame that says nothing but that the answer is still to come."""
        ...

    def whole(self) -> JsonObject:
        """Return the answer in one piece."""
        ...


class TurnResponse:
    """An ASGI response that runs `choices` turns of one request."""

    def __init__(
        self,
        runner: Runner,
        request: TurnRequest,
        writer: Writer,
        *,
        choices: int = 1,
        at_once: int = 1,
        admission: AbstractAsyncContextManager[float],
        timing: Timing,
        headers: Mapping[str, str],
        finish: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`finish` is run when the answer is whole, before its client hears of the end.

        Of several choices, `at_once` run at the same time.
        """
        self._served = Served()
        self._events: AsyncGenerator[AnyBatch, None] = (
            runner.run(request, self._served)
            if choices == 1
            else run_choices(runner, request, self._served, choices=choices, at_once=at_once)
        )
        self._streamed = request.streamed
        self._running = choices
        self._failed = False
        self._writer = writer
        self._admission = admission
        self._timing = timing
        self._headers = dict(headers)
        self._told: dict[str, str] = {}
        """What the headers of a stream say of how the turn is served."""
        self._finish = finish

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client leaves first."""
        context = context_of(scope)
        outlet = _Outlet(send)
        client = Client(receive)
        try:
            with Later(self._timing.whole_s, partial(_leave_if_stalled, client, outlet)):
                await client.served(self._answer(context, outlet))
        finally:
            _count(context, self._writer)
            context.served_by = None if self._served.fidelity is None else self._served.thread

    async def _answer(self, context: RequestContext, outlet: "_Outlet") -> None:
        async with self._admission as waited_s:
            self._headers[QUEUED_HEADER] = str(round(waited_s * 1000))
            undecided = partial(self._is_undecided, outlet)
            with Later(self._first_sign_s(), partial(self._keep_alive, outlet), postponed=undecided):
                await (self._stream(context, outlet) if self._streamed else self._whole(context, outlet))

    def _first_sign_s(self) -> float | None:
        """Return when the first sign of life is due.

        A whole answer should have a status of its own; only when it takes long, it begins with blanks instead.
        """
        interval = self._timing.keepalive_s
        return interval if interval is None or self._streamed else interval * INTERVALS_BEFORE_BLANKS

    def _is_undecided(self, outlet: "_Outlet") -> bool:
        """Tell whether the answer has no status yet, and should keep it for an error that may come.

        That is while the provider fails; and for a whole answer as long as the model has not said anything, since one
        that never will cannot be told from one that is slow.
        """
        if outlet.started:
            return False
        return self._served.retrying or not (self._streamed or self._served.heard)

    async def _keep_alive(self, outlet: "_Outlet") -> None:
        """Say something whenever nothing has been said for a while, so that nobody on the way hangs up."""
        interval = self._timing.keepalive_s or 0.0
        while True:
            if self._streamed and outlet.started and outlet.silent_for() >= interval:
                await outlet.write(self._writer.keepalive())
            elif not self._streamed:
                await outlet.start({"content-type": "application/json", **self._headers})
                await outlet.write(BLANK)
            await asyncio.sleep(interval - min(outlet.silent_for(), interval / 2))

    async def _whole(self, context: RequestContext, outlet: "_Outlet") -> None:
        async with aclosing(self._events) as source:
            async for batch in source:
                index, events = numbered(batch)
                self._writer.frames(index, events)
                _mark_output(context, events)
                if self._writer.failure is not None:
                    raise self._writer.failure.error
        if self._finish is not None:
            await self._finish()
        body = msgspec.json.encode(self._writer.whole())
        usage = "estimated" if self._writer.usage.estimated else "exact"
        head = {"content-type": "application/json", "content-length": str(len(body)), USAGE_HEADER: usage}
        await outlet.start({**head, **self._headers, **self._how_served()})
        await outlet.end(body)

    async def _stream(self, context: RequestContext, outlet: "_Outlet") -> None:
        """Hold the headers back until the turn has said something, so that a failure before it is an HTTP status."""
        async with aclosing(self._events) as source:
            undecided = partial(self._is_undecided, outlet)
            with Later(self._timing.hold_s, partial(self._open, outlet), postponed=undecided) as early:
                held = await _until_output(source)
                await early.settled()
            if not outlet.started:
                _refuse_if_failed(held)
            opening = await self._begin(outlet, speaks=_speaks(held))
            last = await self._say(outlet, opening + b"".join([self._frames(context, batch) for batch in held]))
            if not self._failed:
                async for batch in source:
                    last = await self._say(outlet, self._frames(context, batch))
                    if self._failed:
                        break
        if self._finish is not None:
            await self._finish()
        await outlet.end(last + self._writer.closing())

    async def _begin(self, outlet: "_Outlet", *, speaks: bool) -> bytes:
        """Send the headers, and return the frames that come before any output.

        If the headers have gone, only what they could not know yet is returned.
        """
        how = self._how_served()
        if outlet.started:
            unsaid = [f"{name}: {value}" for name, value in how.items() if self._told.get(name) != value]
            return b"".join(map(sse.comment, unsaid))
        self._told = how
        await outlet.start({**STREAM_HEADERS, **self._headers, **how})
        return self._writer.opening(speaks=speaks)

    def _how_served(self) -> dict[str, str]:
        """Return how the turn is served, in the words of the headers; nothing, as long as it is not known."""
        served = self._served
        return {} if served.fidelity is None else {THREAD_HEADER: served.thread, FIDELITY_HEADER: served.fidelity}

    async def _open(self, outlet: "_Outlet") -> None:
        """Begin before there is any output."""
        await outlet.write(await self._begin(outlet, speaks=False))

    async def _say(self, outlet: "_Outlet", frames: bytes) -> bytes:
        """Send frames; the last words of an answer are returned instead, to leave with its end in one write."""
        if self._running == 0 and self._finish is None:
            return frames
        await outlet.write(frames)
        return b""

    def _frames(self, context: RequestContext, batch: AnyBatch) -> bytes:
        index, events = numbered(batch)
        if context.first_output_at is None:
            _mark_output(context, events)
        frames = self._writer.frames(index, events)
        ending = events[-1]
        # Nearly always it is none, and to ask for four kinds in vain takes longer.
        if not isinstance(ending, TextDelta) and isinstance(ending, Terminal):
            self._running -= 1
            self._failed = self._writer.failure is not None
            if ending.usage.estimated:
                return sse.comment(f"{USAGE_HEADER}: estimated") + frames
        return frames


async def _until_output(source: AsyncIterator[AnyBatch]) -> list[AnyBatch]:
    """Return the batches up to the first one that can be shown."""
    batches: list[AnyBatch] = []
    async for batch in source:
        batches.append(batch)
        if _has_output(numbered(batch)[1]):
            break
    return batches


def _has_output(events: Sequence[TurnEvent]) -> bool:
    """Tell whether something of it can be shown: an item that has merely begun cannot."""
    return any(not isinstance(event, MessageStarted | ReasoningStarted) for event in events)


def _speaks(held: Sequence[AnyBatch]) -> bool:
    """Tell whether the first thing that can be shown is text."""
    shown = (e for batch in held for e in numbered(batch)[1] if not isinstance(e, MessageStarted | ReasoningStarted))
    return isinstance(next(shown, None), TextDelta)


def _mark_output(context: RequestContext, events: Sequence[TurnEvent]) -> None:
    if _has_output(events) and not isinstance(events[0], TurnFailed):
        context.mark_first_output()


def _refuse_if_failed(held: list[AnyBatch]) -> None:
    for _, events in map(numbered, held):
        failed = events[-1]
        if isinstance(failed, TurnFailed):
            raise failed.error


class _Outlet:
    """The response as it leaves: begun once, then whole frames, and when the last one went."""

    def __init__(self, send: Send) -> None:
        self._send = send
        # Held, because to ask for it takes a system call.
        self._loop = asyncio.get_running_loop()
        self._said_at = 0.0
        self.busy = False
        """Whether the client is yet to take something."""
        self.started = False

    async def start(self, headers: Mapping[str, str]) -> None:
        """Send the headers, unless they have gone."""
        if self.started:
            return
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": encoded(headers)})

    async def write(self, data: bytes) -> None:
        """Send some frames."""
        if data:
            self.busy = True
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            self._said_at = self._loop.time()
            self.busy = False

    async def end(self, data: bytes) -> None:
        """Send the rest."""
        self.busy = True
        await self._send({"type": "http.response.body", "body": data})
        self.busy = False

    def silent_for(self) -> float:
        """Return how long nothing has been said; a client that is slow to take the last frame has heard enough."""
        return 0.0 if self.busy else self._loop.time() - self._said_at


async def _leave_if_stalled(client: Client, outlet: _Outlet) -> None:
    """Give up a client that takes nothing any more, and has had all the time that a turn may have."""
    while True:
        if outlet.busy:
            client.leave()
            return
        await asyncio.sleep(STALL_CHECK_S)


def _count(context: RequestContext, writer: Writer) -> None:
    usage = writer.usage
    context.input_tokens, context.cached_tokens = usage.input, usage.cached
    context.output_tokens, context.reasoning_tokens = usage.output, usage.reasoning
    if writer.failure is not None:
        context.error_code = writer.failure.error.error_code
