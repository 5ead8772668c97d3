"""Responses that are made in the background: nobody has to wait for them, and anybody with their id may read along.

Whoever runs one holds a lease on it in the store. If the lease ends, the gateway that ran it is gone, and the response
has failed.
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.engine.records import RUNNING, ResponseRecord
from turnbridge.engine.turns import Served
from turnbridge.turn.errors import BackendUnavailable, GatewayError, InternalFault
from turnbridge.turn.events import TurnEvent, TurnFailed, Usage
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import TurnRequest
from turnbridge.web.access_log import context_of
from turnbridge.web.headers import encoded
from turnbridge.web.json_response import json_response
from turnbridge.web.keepalive import wants_no_keepalive
from turnbridge.web.leaving import Client
from turnbridge.web.output_mode import Runner
from turnbridge.web.state import Past, State, named, record_of
from turnbridge.web.turns import STREAM_HEADERS
from turnbridge.web.writers import named_frames
from turnbridge.wire import sse
from turnbridge.wire.openai_errors import error_event
from turnbridge.wire.responses.encode import ResponseEncoder

log = structlog.get_logger(__name__)

# After how long without a sign of its gateway a running response counts as lost, and how often the sign is given.
LEASE_S = 30.0
RENEWAL_S = 5.0

LOST = "The gateway stopped while this response was being made. Send the request again."
LOST_ERROR: JsonObject = {"code": "server_error", "message": LOST}


@dataclass(eq=False, slots=True, kw_only=True)
class Run:
    """A response that is being made, and its stream so far: event number `n` is `frames[n]`."""

    past: Past
    encoder: ResponseEncoder
    frames: list[bytes] = field(default_factory=list)
    last: list[bytes] = field(default_factory=list)
    """The end of the stream, until it is kept: who has heard it may ask for the response, or continue it, at once."""
    ended: bool = False
    unwanted: bool = False
    """Whether its client has cancelled it."""
    making: "asyncio.Task[None]" = field(init=False)
    """Its turn, which may be cancelled at any moment."""
    ending: "asyncio.Task[None]" = field(init=False)
    """What comes after the turn, whatever became of it; never cancelled, so that a response has one end."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """Return the response's id."""
        return str(self.encoder.response["id"])

    @property
    def made(self) -> bool:
        """Tell whether the response has its end."""
        return self.encoder.status not in RUNNING

    def add(self, events: Sequence[JsonObject]) -> None:
        """Let the readers know what has happened; the end of it, when it is kept."""
        frames = [named_frames([event]) for event in events]
        if self.made:
            self.last += frames
        else:
            self.frames += frames
            self._tell()

    def end(self) -> None:
        """Let the readers know how it ended, and that nothing more will happen."""
        self.frames += self.last
        self.ended = True
        self._tell()

    async def read(self, position: int) -> AsyncIterator[bytes]:
        """Yield the stream from a frame on, as it grows, to its end."""
        while True:
            changed, ended = self._changed, self.ended
            if ready := b"".join(self.frames[position:]):
                position = len(self.frames)
                yield ready
            elif ended:
                return
            else:
                await changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class BackgroundRuns:
    """The responses that this gateway makes in the background."""

    def __init__(self, state: State, *, keepalive_s: float | None, count: Callable[[Usage, str], None]) -> None:
        """`count` is told the tokens of each run, and how it was served."""
        self._state = state
        self._keepalive_s = keepalive_s
        self._count = count
        self._runs: dict[str, Run] = {}

    async def watch(self) -> None:
        """Hold the leases of what runs here, and end what was lost elsewhere, until cancelled."""
        told = ""
        while True:
            try:
                await self._renew()
                await self._fail_lost()
                told = ""
            except GatewayError as error:
                # A store may be down for hours; once is enough.
                if error.message != told:
                    log.warning("leases_not_renewed", reason=error.message)
                told = error.message
            await asyncio.sleep(RENEWAL_S)

    async def start(
        self,
        runner: Runner,
        past: Past,
        turn: TurnRequest,
        encoder: ResponseEncoder,
        admission: AbstractAsyncContextManager[float],
    ) -> Run:
        """Keep the response, and begin to make it."""
        run = Run(past=past, encoder=encoder)
        run.add(encoder.queued())
        await self._state.store.add_response(
            record_of(past, encoder),
            continues=past.segment,
            inputs=named(past.inputs),
            conversation=past.conversation,
            lease_until=time.time() + LEASE_S,
        )
        self._runs[run.id] = run
        served = Served()
        run.making = asyncio.create_task(self._make(run, runner.run(turn, served), admission))
        run.ending = asyncio.create_task(self._end(run, served))
        return run

    def answer(self, run: Run, *, streamed: bool, headers: Mapping[str, str]) -> ASGIApp:
        """Return what the request that started a run is answered with: the stream, or the response as it stands."""
        if streamed:
            return self.stream(run.read(0), headers)
        return json_response(run.encoder.response, headers=headers)

    def stream(self, frames: AsyncIterator[bytes], headers: Mapping[str, str]) -> ASGIApp:
        """Return an answer that streams frames as they come."""
        return EventStream(frames, headers=headers, keepalive_s=self._keepalive_s)

    def find(self, owner: str, response_id: str) -> Run | None:
        """Return a response that is being made here."""
        run = self._runs.get(response_id)
        return run if run is not None and run.past.owner == owner else None

    async def find_unmade(self, owner: str, response_id: str) -> Run | None:
        """Return a response that is being made here; if it has its end, wait until the store has it, too."""
        run = self.find(owner, response_id)
        if run is None or not run.made:
            return run
        await asyncio.wait((run.ending,))
        return None

    async def cancel(self, run: Run) -> JsonObject:
        """End a run because its client wants no more of it; return the response as it then is."""
        run.unwanted = True
        await self._stop(run)
        return run.encoder.response

    async def aclose(self) -> None:
        """End what still runs; each of them is kept as failed."""
        await asyncio.gather(*map(self._stop, list(self._runs.values())))

    async def _stop(self, run: Run) -> None:
        run.making.cancel()
        await asyncio.wait((run.ending,))

    async def _make(
        self,
        run: Run,
        source: AsyncGenerator[Sequence[TurnEvent], None],
        admission: AbstractAsyncContextManager[float],
    ) -> None:
        async with admission:
            run.add(run.encoder.begun())
            async with aclosing(source) as batches:
                async for batch in batches:
                    for event in batch:
                        run.add(run.encoder.feed(event, now=int(time.time())))

    async def _end(self, run: Run, served: Served) -> None:
        """Wait until the turn is over, then give the response its end."""
        began = time.monotonic()
        await asyncio.wait((run.making,))
        if not run.made:
            run.add(self._broken_off(run))
        await self._keep(run)
        # A turn that never began was served by nothing, and used no tokens.
        served_by = None if served.fidelity is None else served.thread
        if served_by is not None:
            self._count(run.encoder.usage, served_by)
        log.info(
            "background_response",
            response=run.id,
            status=run.encoder.status,
            served_by=served_by,
            total_s=round(time.monotonic() - began, 3),
        )

    def _broken_off(self, run: Run) -> Sequence[JsonObject]:
        """Return the end of a stream whose turn is over without one."""
        error: GatewayError
        if run.making.cancelled() and run.unwanted:
            return run.encoder.cancel()
        if run.making.cancelled():
            error = BackendUnavailable("The gateway is shutting down.", code="shutting_down")
        elif isinstance(raised := run.making.exception(), GatewayError):
            error = raised
        else:
            log.error("unexpected_fault", response=run.id, exc_info=raised)
            error = InternalFault("The gateway failed while it made this response; its log has the details.")
        return run.encoder.feed(TurnFailed(error), now=int(time.time()))

    async def _keep(self, run: Run) -> None:
        """Keep how the response ended, then tell its readers, and let them go."""
        outputs = named(run.encoder.said)
        events = zlib.compress(b"".join([*run.frames, *run.last]))
        try:
            await self._state.store.finish_response(record_of(run.past, run.encoder), outputs=outputs, events=events)
        except GatewayError as error:
            # The lease then ends, and with it the response.
            log.error("response_not_kept", response=run.id, reason=error.message)
        finally:
            self._runs.pop(run.id, None)
            run.end()

    async def _renew(self) -> None:
        if not self._runs:
            return
        held = list(self._runs.values())
        alive = await self._state.store.extend_leases([run.id for run in held], time.time() + LEASE_S)
        for run in held:
            if run.id not in alive:
                # Cancelled or deleted through another gateway; or it has just ended, and then nothing is cancelled.
                run.unwanted = True
                run.making.cancel()

    async def _fail_lost(self) -> None:
        for record in await self._state.store.lost_responses(time.time()):
            if record.id not in self._runs:
                log.warning("background_response_lost", response=record.id)
                await self._state.store.finish_response(lost(record), outputs=(), events=None)


def lost(record: ResponseRecord) -> ResponseRecord:
    """Return a response whose gateway is gone, as failed."""
    return replace(record, status="failed", body={**record.body, "status": "failed", "error": LOST_ERROR})


def kept_frames(record: ResponseRecord, events: bytes | None, after: int) -> bytes:
    """Return what of a finished response's stream comes after event number `after`."""
    if events is None:
        # The stream went with the gateway that wrote it; its end is known all the same.
        return named_frames(_ending(record, after + 1))
    frames = zlib.decompress(events).split(sse.END_OF_FRAME)[:-1]
    return b"".join(frame + sse.END_OF_FRAME for frame in frames[after + 1 :])


def _ending(record: ResponseRecord, number: int) -> list[JsonObject]:
    """Return the last events of a finished response's stream, from `number` on."""
    if record.status != "failed":
        return [{"type": "response.incomplete", "sequence_number": number, "response": record.body}]
    known = record.body.get("error")
    error: JsonObject = {"type": "server_error", "param": None, **(known if isinstance(known, dict) else LOST_ERROR)}
    failed: JsonObject = {"type": "response.failed", "sequence_number": number + 1, "response": record.body}
    return [error_event(error, number=number), failed]


class EventStream:
    """An ASGI response of frames that somebody else makes: the client may leave, and they are made all the same."""

    def __init__(self, frames: AsyncIterator[bytes], *, headers: Mapping[str, str], keepalive_s: float | None) -> None:
        self._frames = frames
        self._headers = encoded({**STREAM_HEADERS, **headers})
        self._keepalive_s = keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames until they end or the client leaves."""
        context_of(scope).stream = True
        keepalive_s = None if wants_no_keepalive(scope) else self._keepalive_s
        await Client(receive).served(self._send(send, keepalive_s))

    async def _send(self, send: Send, keepalive_s: float | None) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        frames = aiter(self._frames)
        coming = asyncio.ensure_future(anext(frames, None))
        try:
            while True:
                done, _ = await asyncio.wait((coming,), timeout=keepalive_s)
                frame = coming.result() if done else sse.comment("keepalive")
                if frame is None:
                    break
                await send({"type": "http.response.body", "body": frame, "more_body": True})
                if done:
                    coming = asyncio.ensure_future(anext(frames, None))
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await coming
        await send({"type": "http.response.body", "body": b""})
