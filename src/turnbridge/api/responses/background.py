"""Background responses: they run without a client, and anybody with their id may follow the stream.

The gateway that runs one holds a lease on it in the store. If the lease lapses, that gateway is gone, and the response
has failed. A response has one end: the first that is stored. So an end is reported only once it is stored; until the
store takes it, the gateway that made it holds it in memory.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import msgspec
import structlog
from starlette.types import ASGIApp

from turnbridge.api.generation import State
from turnbridge.api.responses.elsewhere import MadeElsewhere, Shared
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.responses.endings import last_frames, lost
from turnbridge.api.responses.state import Past, grown, legs_of, named, record_of
from turnbridge.api.shared import sse
from turnbridge.engine.frame_log import FrameLog, frame_count, pack
from turnbridge.engine.records import RUNNING, KeptItem, ResponseRecord
from turnbridge.engine.run import Run
from turnbridge.engine.shared_frames import Publisher
from turnbridge.turn.clients import Client
from turnbridge.turn.errors import BackendUnavailable, GatewayError, InternalFault
from turnbridge.turn.events import TurnFailed, Usage
from turnbridge.turn.items import JsonObject
from turnbridge.web.answer import Followed
from turnbridge.web.http import new_id

log = structlog.get_logger(__name__)

# How long a lease lasts without renewal, and how often it is renewed.
LEASE_S = 20.0
RENEWAL_S = 5.0
# How long a lease must have lapsed before the response is declared failed: after an outage of the store, or a jump of
# its clock, all leases have, and every gateway needs a moment to renew its own.
GRACE_S = 12.0
# How often storing an end is retried.
KEEP_RETRY_S = 1.0
# While more than this waits for the store, no further background response is accepted.
MOST_WAITING_BYTES = 64 * 1024 * 1024

Count: TypeAlias = Callable[[Usage, str, str | None, Client | None], None]


class BackgroundRun:
    """A response that is being made, and its stream so far."""

    def __init__(self, run: Run, past: Past, encoder: ResponseEncoder, client: Client | None = None) -> None:
        self.run = run
        self.client = client
        self.past = past
        self.encoder = encoder
        self.inputs = named(past.inputs, past.seen)
        self.publishing: asyncio.Task[None] | None = None
        """Shares the stream with other replicas."""
        self.log = FrameLog()
        self.unwanted = False
        """Whether its client has cancelled it."""
        self.tried = asyncio.Event()
        """Set when its end was stored, or could not be."""
        self._ended_elsewhere: JsonObject | None = None
        self.log.add(encoder.queued())

    @property
    def id(self) -> str:
        """Return the response's id."""
        return str(self.encoder.whole()["id"])

    @property
    def response(self) -> JsonObject:
        """Return the response as it stands."""
        return self._ended_elsewhere or self.encoder.whole()

    @property
    def made(self) -> bool:
        """Tell whether the response has its end."""
        return self.encoder.status not in RUNNING

    def begin(self, end: Callable[[], Coroutine[None, None, None]]) -> None:
        """Make the response, then give it its end, whatever became of its turn."""
        self.making = asyncio.create_task(self._make())
        # Never cancelled, so that a response has one end.
        self.ending = asyncio.create_task(end())

    async def _make(self) -> None:
        async with aclosing(self.run.frames()) as source:
            async for frames in source:
                self.log.add(frames)

    def break_off(self) -> None:
        """End a response whose turn is over without an end of its own."""
        error: GatewayError
        if self.making.cancelled() and self.unwanted:
            self.log.add(self.encoder.cancel())
            return
        if self.making.cancelled():
            error = BackendUnavailable("The gateway is shutting down.", code="shutting_down")
        elif isinstance(raised := self.making.exception(), GatewayError):
            error = raised
        else:
            log.error("unexpected_fault", response=self.id, exc_info=raised)
            error = InternalFault("The gateway failed while it made this response; its log has the details.")
        self.log.add(self.encoder.frames(0, [TurnFailed(error)]))

    def newly_seen(self) -> list[KeptItem]:
        """Return the items whose links were loaded for this response."""
        linked = self.run.linked
        inputs = self.past.inputs_seen(linked).items() if linked else ()
        return [*(replace(self.inputs[index], seen=seen) for index, seen in inputs), *self.past.history_seen(linked)]

    def end(self) -> None:
        """Let the readers know how it ended."""
        self.log.add(self.encoder.closing())
        self.log.end()

    def end_as(self, record: ResponseRecord) -> None:
        """Let the readers know how somebody else has ended it."""
        self._ended_elsewhere = record.body
        self.log.add(last_frames(record, frame_count(self.log.chunks)))
        self.log.end()


class BackgroundRuns:
    """The background responses of this gateway."""

    def __init__(self, state: State, *, keepalive_s: float | None, count: Count, shared: Shared | None = None) -> None:
        """`count` receives the tokens of each run, how it was served, by which model and for whom.

        `shared` is what there is between replicas, if there may be some.
        """
        self._state = state
        self._shared = shared
        self._replica = new_id("replica_") if shared is None else shared.peers.id
        self.elsewhere = None if shared is None else MadeElsewhere(state.store, shared)
        self._keepalive_s = keepalive_s
        self._count = count
        self._runs: dict[str, BackgroundRun] = {}
        self._closing = asyncio.Event()
        self._waiting_bytes = 0
        """The size of streams that have ended and are not stored yet."""
        self._lost_since: dict[str, float] = {}
        """Responses of other gateways whose lease has lapsed, and when that was first seen."""

    async def watch(self) -> None:
        """Renew the leases of this gateway, and fail responses whose gateway is gone, until cancelled."""
        told = ""
        while True:
            try:
                await self._renew()
                await self._end_lost()
                told = ""
            except GatewayError as error:
                # Others could not renew their leases either.
                self._lost_since.clear()
                # A store may be down for hours: one warning is enough.
                if error.message != told:
                    log.warning("leases_not_renewed", reason=error.message)
                told = error.message
            await asyncio.sleep(RENEWAL_S)

    async def start(
        self, run: Run, past: Past, encoder: ResponseEncoder, client: Client | None = None
    ) -> BackgroundRun:
        """Store the response, and begin to make it."""
        if self._waiting_bytes > MOST_WAITING_BYTES:
            raise _not_kept_yet("Too many background responses wait for the store, which cannot be used now.")
        begun = BackgroundRun(run, past, encoder, client)
        await self._state.store.add_response(
            record_of(past, encoder),
            continues=past.segment,
            inputs=begun.inputs,
            lease_s=LEASE_S,
            maker=self._replica,
        )
        self._runs[begun.id] = begun
        begun.begin(partial(self._end, begun))
        if (shared := self._shared) is not None:
            publisher = Publisher(begun.log, begun.id, shared.frames, shared.alone)
            begun.publishing = asyncio.create_task(publisher.run())
        return begun

    def stream(self, frames: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> ASGIApp:
        """Return an answer that streams frames as they come."""
        kind = {"content-type": sse.CONTENT_TYPE}
        keepalive = sse.comment("keepalive")
        return Followed(frames, headers={**kind, **headers}, keepalive=keepalive, keepalive_s=self._keepalive_s)

    def find(self, owner: str, response_id: str) -> BackgroundRun | None:
        """Return a response that is being made here."""
        run = self._runs.get(response_id)
        return run if run is not None and run.past.owner == owner else None

    async def find_unkept(self, owner: str, response_id: str) -> BackgroundRun | None:
        """Return a response that is here and not yet in the store as it stands.

        If it has its end, wait for the attempt to keep it. An end that could not be kept, and that somebody else may
        have replaced, is not told.
        """
        run = self.find(owner, response_id)
        if run is None or not run.made:
            return run
        await self._settled(run)
        return self.find(owner, response_id)

    async def cancel(self, run: BackgroundRun) -> JsonObject:
        """End a run because its client wants no more of it; return the response as it then is."""
        self.end_unwanted(run.id)
        await self._settled(run)
        return run.response

    def end_unwanted(self, response_id: str) -> None:
        """Begin to end a run that nobody wants any more, or that was ended elsewhere; nothing if it is not here."""
        run = self._runs.get(response_id)
        if run is not None:
            run.unwanted = True
            run.making.cancel()

    def forget(self, run: BackgroundRun) -> None:
        """Remove a response that was deleted."""
        self._runs.pop(run.id, None)

    async def aclose(self) -> None:
        """End what still runs; each is stored as failed."""
        self._closing.set()
        runs = list(self._runs.values())
        for run in runs:
            run.making.cancel()
        if runs:
            await asyncio.wait([run.ending for run in runs])

    async def _settled(self, run: BackgroundRun) -> None:
        await run.tried.wait()
        if not run.log.ended:
            raise _not_kept_yet(
                f"The response '{run.id}' has ended, and the store must say how, but cannot be used now."
            )

    async def _end(self, run: BackgroundRun) -> None:
        """Wait until the turn is over, then store and report the end of the response."""
        began = time.monotonic()
        await asyncio.wait((run.making,))
        if not run.made:
            run.break_off()
        await self._keep(run)
        served = run.run.served.get(0)
        # A turn that never began was served by nothing, and used no tokens.
        if served is not None:
            self._count(run.encoder.usage, served.thread, run.run.model, run.client)
        log.info(
            "background_response",
            response=run.id,
            status=run.encoder.status,
            served_by=None if served is None else served.thread,
            total_s=round(time.monotonic() - began, 3),
        )

    async def _keep(self, run: BackgroundRun) -> None:
        """Store the end of a response, and report it to readers; retry for as long as the gateway runs."""
        record, outputs = record_of(run.past, run.encoder), named(run.encoder.said)
        chunks = [*run.log.chunks, run.encoder.closing()]
        events, size = await pack(chunks), sum(map(len, chunks))
        self._waiting_bytes += size
        try:
            while (reason := await self._kept(run, record, outputs, events)) is not None:
                if self._closing.is_set():
                    # Its stream is cut off, and later requests are told that the gateway stopped.
                    log.error("response_not_kept", response=run.id, reason=reason)
                    break
                if not run.tried.is_set():
                    log.warning("response_waits_for_store", response=run.id, reason=reason)
                run.tried.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), KEEP_RETRY_S)
        finally:
            self._waiting_bytes -= size
            self._runs.pop(run.id, None)
            run.log.end()
            run.tried.set()
        if run.publishing is not None and self.elsewhere is not None:
            run.publishing.cancel()
            await self.elsewhere.over(run.id)

    async def _kept(
        self, run: BackgroundRun, record: ResponseRecord, outputs: Sequence[KeptItem], events: bytes
    ) -> str | None:
        """Store the end of a response and report it; return why that failed, if it did."""
        store = self._state.store
        try:
            if seen := run.newly_seen():
                await store.keep_seen(run.past.owner, seen)
            legs = legs_of(self._state, run.past, run.encoder)
            if not await store.finish_response(
                record,
                outputs=outputs,
                legs=legs,
                events=events,
                conversation=grown(run.past, run.encoder),
                maker=self._replica,
            ):
                found = await store.response(record.owner, record.id)
                # It may be our own: an attempt that timed out here, and was committed all the same.
                if found is not None and msgspec.json.encode(found.body) != msgspec.json.encode(record.body):
                    run.end_as(found)
                    return None
        except GatewayError as error:
            return error.message
        run.end()
        return None

    async def _renew(self) -> None:
        if not self._runs:
            return
        held = list(self._runs.values())
        alive = await self._state.store.extend_leases([run.id for run in held], LEASE_S, self._replica)
        for run in held:
            if run.id not in alive:
                # Ended or taken over by another gateway; or it has just ended here, and then nothing is cancelled.
                self.end_unwanted(run.id)

    async def _end_lost(self) -> None:
        """Fail the responses of gateways that are gone, once their leases have lapsed for long enough."""
        store, now = self._state.store, asyncio.get_running_loop().time()
        records = {record.id: record for record in await store.lost_responses() if record.id not in self._runs}
        self._lost_since = {each: self._lost_since.get(each, now) for each in records}
        for response_id, since in self._lost_since.items():
            if now - since >= GRACE_S and await store.take_over(records[response_id], self._replica, LEASE_S):
                await self._end_taken_over(lost(records[response_id]))

    async def _end_taken_over(self, record: ResponseRecord) -> None:
        """Store the end of a response that was taken over, with what its maker has shared of its stream."""
        events = None if self.elsewhere is None else await self.elsewhere.stream_so_far(record)
        if await self._state.store.finish_response(record, events=events, maker=self._replica):
            log.warning("background_response_lost", response=record.id)
            if self.elsewhere is not None:
                await self.elsewhere.over(record.id)


def _not_kept_yet(message: str) -> BackendUnavailable:
    return BackendUnavailable(f"{message} Try again later.", code="store_unavailable")
