"""HTTP answers made of a run: streamed or whole; and streams that follow a log of frames.

Headers wait for the first output, so that an early failure is an HTTP status. Keepalives, slow clients and disconnects
are handled here for every API.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from functools import partial
from typing import Self

import msgspec
from starlette.types import Receive, Scope, Send

from turnbridge.engine.run import Run
from turnbridge.web.http import encoded, wants_no_keepalive
from turnbridge.web.middleware.observability import context_of

# How long the request waited for its turn.
QUEUED_HEADER = "x-turnbridge-queued-ms"
# Whether the turn went on in a thread that was kept: `parked`, `warm`, `replayed` or `fresh`.
THREAD_HEADER = "x-turnbridge-thread"
# Whether the model saw just what the client sent: `exact`, or in short what it did not, or saw besides.
FIDELITY_HEADER = "x-turnbridge-fidelity"
# Whether the tokens are the provider's count: `exact` or `estimated`.
USAGE_HEADER = "x-turnbridge-usage"

# JSON may begin with blanks, after which there is no status to fail with. Most answers are there before the third
# interval, with a status and all headers.
INTERVALS_BEFORE_BLANKS = 2
BLANK = b" "

# How often a client that does not read is looked for.
STALL_CHECK_S = 1.0

STREAM_HEADERS = {
    "cache-control": "no-cache, no-transform",
    # nginx would buffer a stream before passing it on.
    "x-accel-buffering": "no",
}


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When headers and keepalives are due, and how long a client that stops reading is waited for."""

    hold_s: float
    """How long headers wait for the first output."""
    keepalive_s: float | None
    """Keepalive interval; None for never."""
    whole_s: float
    """How long a client that stops reading is waited for."""


class Answer:
    """An ASGI response made of a run, which ends with it: a client that disconnects cancels its turns."""

    def __init__(
        self,
        run: Run,
        *,
        streamed: bool,
        timing: Timing,
        headers: Mapping[str, str],
        finish: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`finish` is run when the answer is whole, before the end is sent."""
        self._run = run
        self._streamed = streamed
        self._timing = timing
        self._headers = dict(headers)
        self._told: dict[str, str] = {}
        """What the headers of a stream say of how its turns are served."""
        self._held = b""
        """Frames that wait for the headers."""
        self._finish = finish

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client disconnects first; then note in the log line what the answer cost."""
        context, outlet = context_of(scope), _Outlet(send)
        answering = asyncio.create_task(self._stream(outlet) if self._streamed else self._whole(outlet))
        try:
            with Delayed(self._timing.whole_s, partial(_cancel_if_stalled, answering, outlet)):
                await serve_until_disconnect(receive, answering)
        finally:
            context.usage, failure = self._run.encoder.usage, self._run.encoder.failure
            if failure is not None:
                context.note_error(failure.error)
            for served in self._run.served.values():
                context.served_by = served.thread

    async def _whole(self, outlet: "_Outlet") -> None:
        run, encoder, interval = self._run, self._run.encoder, self._timing.keepalive_s
        blanks_after_s = None if interval is None else interval * INTERVALS_BEFORE_BLANKS
        async with aclosing(run.frames()) as source:
            await self._admitted(source)
            with Delayed(
                blanks_after_s,
                partial(self._send_blanks, outlet),
                # A model that will never send anything cannot be distinguished from a slow one.
                postponed=lambda: not outlet.started and (run.undecided or not run.heard),
            ):
                async for _ in source:
                    if encoder.failure is not None:
                        raise encoder.failure.error
                if self._finish is not None:
                    await self._finish()
                body = msgspec.json.encode(encoder.whole())
                usage = "estimated" if encoder.usage.estimated else "exact"
                head = {"content-type": "application/json", "content-length": str(len(body)), USAGE_HEADER: usage}
                await outlet.start({**head, **self._headers, **self._how_served()})
                await outlet.end(body)

    async def _stream(self, outlet: "_Outlet") -> None:
        """Hold the headers back until there is output, so that a failure before it is an HTTP status."""
        run, encoder, interval = self._run, self._run.encoder, self._timing.keepalive_s
        keep_alive = partial(outlet.keep_alive, interval or 0.0, encoder.keepalive)

        def undecided() -> bool:
            """Tell whether the status is kept for an error that may come, while Codex retries the provider."""
            return not outlet.started and run.undecided

        async with aclosing(run.frames()) as source:
            await self._admitted(source)
            with Delayed(interval, keep_alive, postponed=undecided):
                with Delayed(self._timing.hold_s, partial(self._open, outlet), postponed=undecided) as early:
                    async for frames in source:
                        self._held += frames
                        if run.has_output:
                            break
                    await early.settled()
                if encoder.failure is not None and not outlet.started:
                    raise encoder.failure.error
                notes = await self._start(outlet)
                frames, self._held = notes + self._held, b""
                last = await self._say(outlet, frames)
                # What has been sent would stay in memory until the next frames come.
                del frames
                async for frames in source:
                    last = await self._say(outlet, frames)
                    del frames
                if self._finish is not None:
                    await self._finish()
                if encoder.usage.estimated:
                    last += encoder.note(USAGE_HEADER, "estimated")
                await outlet.end(last + self._untold() + encoder.closing())

    async def _admitted(self, source: AsyncGenerator[bytes, None]) -> None:
        await anext(source)
        self._headers[QUEUED_HEADER] = str(round((self._run.queued_s or 0.0) * 1000))

    async def _send_blanks(self, outlet: "_Outlet") -> None:
        await outlet.start({"content-type": "application/json", **self._headers})
        await outlet.keep_alive(self._timing.keepalive_s or 0.0, lambda: BLANK)

    async def _open(self, outlet: "_Outlet") -> None:
        """Send the headers before there is any output."""
        await self._start(outlet)
        frames, self._held = self._held or self._run.encoder.opening(), b""
        await outlet.write(frames)

    async def _start(self, outlet: "_Outlet") -> bytes:
        """Send the headers; if they have gone, return what they could not tell yet."""
        if outlet.started:
            return self._untold()
        self._told = self._how_served()
        kind = {"content-type": self._run.encoder.content_type}
        await outlet.start({**kind, **STREAM_HEADERS, **self._headers, **self._told})
        return b""

    def _how_served(self) -> dict[str, str]:
        """Return how the turns are served, as far as it is known, in the words of the headers; of several, each."""
        if len(self._run.served) < 2:
            one = next(iter(self._run.served.values()), None)
            return {} if one is None else {THREAD_HEADER: one.thread, FIDELITY_HEADER: one.fidelity}
        served = [self._run.served[index] for index in sorted(self._run.served)]
        fidelity = dict.fromkeys(each.fidelity for each in served)
        return {THREAD_HEADER: ", ".join(each.thread for each in served), FIDELITY_HEADER: ", ".join(fidelity)}

    def _untold(self) -> bytes:
        """Return what the headers did not know of how the turns are served."""
        known, how = self._told, self._how_served()
        self._told = how
        note = self._run.encoder.note
        return b"".join([note(name, value) for name, value in how.items() if known.get(name) != value])

    async def _say(self, outlet: "_Outlet", frames: bytes) -> bytes:
        """Send frames; the last ones of an answer are returned instead, to leave with its end in one write."""
        if self._run.running == 0 and self._finish is None:
            return frames
        await outlet.write(frames)
        return b""


class Followed:
    """An ASGI response that follows frames which are made elsewhere, whether or not its client disconnects."""

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str],
        keepalive: bytes,
        keepalive_s: float | None,
    ) -> None:
        """`headers` name the type of the frames; `keepalive` is a frame without news."""
        self._frames = frames
        self._headers = {**STREAM_HEADERS, **headers}
        self._keepalive = keepalive
        self._keepalive_s = keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames until they end or the client disconnects."""
        context_of(scope).stream = True
        interval = None if wants_no_keepalive(scope) else self._keepalive_s
        await serve_until_disconnect(receive, self._send(_Outlet(send), interval))

    async def _send(self, outlet: "_Outlet", interval: float | None) -> None:
        await outlet.start(self._headers)
        # A frame that comes in several pieces has no keepalive inside: the next piece is always there.
        keep_alive = partial(outlet.keep_alive, interval or 0.0, lambda: self._keepalive)
        with Delayed(interval, keep_alive):
            async with aclosing(self._frames) as frames:
                async for piece in frames:
                    await outlet.write(piece)
        await outlet.end(b"")


class _Outlet:
    """The response on its way to the client: headers once, then whole frames."""

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

    async def keep_alive(self, interval: float, frame: Callable[[], bytes]) -> None:
        """Send a keepalive whenever the stream has been silent for an interval: proxies close idle connections."""
        while True:
            silent = 0.0 if self.busy else self._loop.time() - self._said_at
            if self.started and silent >= interval:
                await self.write(frame())
                silent = 0.0
            await asyncio.sleep(interval - min(silent, interval / 2))


async def serve_until_disconnect(receive: Receive, answer: Awaitable[None]) -> None:
    """Run an answer and raise what it raises; cancel it if the client disconnects first.

    The answer has a task of its own, while this one listens: every delta resumes the whole stack of its task, and
    around a request there is a deep one.
    """
    listening = asyncio.current_task()
    if listening is None:
        raise AssertionError("Requests are served in a task.")
    cancelled_before = listening.cancelling()
    answering = asyncio.ensure_future(answer)
    awaited, done = True, False

    def stop_listening(_: object) -> None:
        nonlocal done
        if awaited:
            done = True
            listening.cancel()

    answering.add_done_callback(stop_listening)
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except asyncio.CancelledError:
        if not done or listening.uncancel() > cancelled_before:
            raise
    finally:
        awaited = False
        if not answering.done():
            answering.cancel()
            await asyncio.wait((answering,))
    if not answering.cancelled():
        answering.result()


class Delayed:
    """A block beside which some work begins after a delay, and is cancelled when the block is over.

    Nearly every answer is whole before anything of this kind is due: a timer costs it 1 µs, a task that sleeps 5.
    """

    __slots__ = ("_delay_s", "_postponed", "_timer", "_work", "_working")

    # How often work that is due, but postponed, is looked at again.
    postponed_check_s = 0.25

    def __init__(
        self,
        delay_s: float | None,
        work: Callable[[], Coroutine[None, None, None]],
        *,
        postponed: Callable[[], bool] = lambda: False,
    ) -> None:
        """No delay means that the work is never due; while `postponed` says so, it does not begin."""
        self._delay_s = delay_s
        self._work = work
        self._postponed = postponed
        self._timer: asyncio.TimerHandle | None = None
        self._working: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        """Set the timer."""
        if self._delay_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel the work, whether it has begun or not."""
        self._cancel_timer()
        if self._working is not None:
            self._working.cancel()

    async def settled(self) -> None:
        """Let the work begin no more; if it has begun, wait for its end."""
        self._cancel_timer()
        if self._working is not None:
            await self._working

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            # It would take half a kilobyte for as long as the stream.
            self._timer = None

    def _begin(self) -> None:
        if self._postponed():
            self._timer = asyncio.get_running_loop().call_later(self.postponed_check_s, self._begin)
            return
        self._working = asyncio.ensure_future(self._work())


async def _cancel_if_stalled(answering: "asyncio.Task[None]", outlet: _Outlet) -> None:
    """Disconnect a client that has stopped reading, once it has had all the time that a turn may take."""
    while True:
        if outlet.busy:
            answering.cancel()
            return
        await asyncio.sleep(STALL_CHECK_S)
