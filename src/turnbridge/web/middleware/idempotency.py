"""`Idempotency-Key`: a request that is sent twice is answered once.

The answer is recorded as it is made, and every client that asks for it reads the recording: from the beginning, and
then as it grows. The turn belongs to all of them: it is interrupted when the last one leaves. What is a client's own
(its request id, its rate limits) is added further out, and is no part of the recording.
"""

import asyncio
import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnbridge.api.output_mode import MODE_HEADER
from turnbridge.engine.frame_log import FrameLog, Reader
from turnbridge.turn.errors import BackendUnavailable, InvalidRequest
from turnbridge.turn.fair_shares import FairShares
from turnbridge.web.disconnect import Client
from turnbridge.web.http import NO_KEEPALIVE, header_value
from turnbridge.web.middleware.access_log import RequestContext, context_of
from turnbridge.web.middleware.auth import client_of
from turnbridge.web.middleware.ingress import read_body

KEY_HEADER = "Idempotency-Key"
REPEAT_HEADER = "x-turnbridge-idempotent"
# The headers of a request that its answer depends on.
ANSWER_HEADERS = (MODE_HEADER.encode(), NO_KEEPALIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is recorded, and for how long."""

    kept_s: float = 600
    """How long a finished answer can be had again: longer than clients go on retrying."""
    answers: int = 1000
    """Answers that are recorded or kept; the client that has most loses its oldest."""
    total_bytes: int = 64 * 1024 * 1024
    """All recordings together; the client that has most of it loses what has not grown for longest."""
    answer_bytes: int = 8 * 1024 * 1024
    """A longer answer only reaches those who read it already: some 30,000 tokens, streamed one by one."""


BOUNDS = Bounds()


class _Recording:
    """An answer while it is made and afterwards: its headers, and the log of its body that clients read."""

    def __init__(self, client: str, identity: bytes, fingerprint: bytes, context: RequestContext) -> None:
        self.client = client
        self.identity = identity
        self.fingerprint = fingerprint
        self.context = context
        self.log = FrameLog()
        self.complete = False
        """Whether the answer was recorded to its end."""
        self.abandoned = asyncio.Event()
        self._start: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._work: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        """Tell whether nothing more will be recorded."""
        return self._work.done()

    @property
    def successful(self) -> bool:
        """Tell whether this is a whole answer and no error, not even one inside a stream."""
        status = self._start.result()["status"] if self.complete else 0
        return 200 <= status < 300 and self.context.error_code is None

    def follow(self, work: "asyncio.Future[None]") -> None:
        """Let the recording end when `work` does."""
        self._work = work
        work.add_done_callback(lambda _: self._end())

    async def add(self, message: Message) -> None:
        """Record a message of the answer; if nothing is kept, wait until every reader has taken it."""
        if message["type"] == "http.response.start":
            self._start.set_result(message)
            return
        self.log.add(message.get("body", b""))
        if not message.get("more_body", False):
            self.complete = True
            self.log.end()
        await self.log.taken()

    def leave(self, reader: Reader) -> bool:
        """Let a reader go; tell whether nobody waits for the rest any more, in which case the turn is cancelled."""
        self.log.leave(reader)
        if self.log.is_read or self.complete:
            return False
        self.abandoned.set()
        return True

    async def play(self, reader: Reader, send: Send) -> None:
        """Send the answer, as far as it goes; raise what ended it early."""
        await asyncio.wait((self._start,))
        if not self._start.cancelled():
            await send(self._start.result())
            async for piece in self.log.pieces(reader):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        if self.complete:
            await send({"type": "http.response.body", "body": b""})
        elif self._work.cancelled():
            raise BackendUnavailable("The gateway is shutting down.", code="shutting_down")
        else:
            self._work.result()

    def _end(self) -> None:
        self._start.cancel()
        self.log.end()


class _Kept(NamedTuple):
    """A whole answer, and what will forget it."""

    recording: _Recording
    expiry: asyncio.TimerHandle


class Answers:
    """The answers that can be had again: those that are being made, and those that were a while ago."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self._bounds = bounds
        self._running: dict[bytes, _Recording] = {}
        self._kept: dict[bytes, _Kept] = {}
        self._shares: FairShares[bytes] = FairShares(most=bounds.answers, most_bytes=bounds.total_bytes)

    def find(self, identity: bytes, fingerprint: bytes) -> _Recording | None:
        """Return the answer to this very request; raise `InvalidRequest` if its key came with another one."""
        kept = self._kept.get(identity)
        found = self._running.get(identity) if kept is None else kept.recording
        if found is not None and found.fingerprint != fingerprint:
            raise InvalidRequest(
                f"The {KEY_HEADER} was used with another request before. Use a fresh key for each request, "
                "and the same one only to repeat a request as it was.",
                code="idempotency_key_reused",
                param=KEY_HEADER,
            )
        return found

    def begin(self, recording: _Recording) -> None:
        """Let others join this answer."""
        self._running[recording.identity] = recording

    async def add(self, recording: _Recording, message: Message) -> None:
        """Record a message of the answer, within the bounds."""
        if self._running.get(recording.identity) is recording:
            size = recording.log.size + len(message.get("body", b""))
            self._shares.add(recording.client, recording.identity, size)
            if size > self._bounds.answer_bytes:
                self._stop_recording(recording)
            self._make_room()
        await recording.add(message)

    def forget(self, recording: _Recording) -> None:
        """Let nobody join this answer any more."""
        if self._running.get(recording.identity) is recording:
            del self._running[recording.identity]
            self._shares.remove(recording.identity)

    def ended(self, recording: _Recording) -> None:
        """Keep the answer if it is one that can be had again."""
        known = self._running.get(recording.identity) is recording
        self.forget(recording)
        if not known or not recording.successful:
            return
        expiry = asyncio.get_running_loop().call_later(self._bounds.kept_s, self._forget_kept, recording.identity)
        self._kept[recording.identity] = _Kept(recording, expiry)
        self._shares.add(recording.client, recording.identity, recording.log.size)
        self._make_room()

    def _make_room(self) -> None:
        while (excess := self._shares.excess()) is not None:
            if excess in self._kept:
                self._forget_kept(excess)
            else:
                self._stop_recording(self._running[excess])

    def _stop_recording(self, recording: _Recording) -> None:
        """Let an answer reach only those who read it already."""
        self.forget(recording)
        recording.log.keep_nothing()

    def _forget_kept(self, identity: bytes) -> None:
        self._kept.pop(identity).expiry.cancel()
        self._shares.remove(identity)


class AnswerOnce:
    """Runs a request with an `Idempotency-Key` once, however often it comes; leaves others alone."""

    def __init__(self, app: ASGIApp, *, answers: Answers, body_limit_bytes: int) -> None:
        self._app = app
        self._answers = answers
        self._body_limit_bytes = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request: by running it, from a running one, or from a kept answer."""
        key = header_value(scope, KEY_HEADER.lower().encode())
        if not key:
            await self._app(scope, receive, send)
            return
        body = await read_body(scope, receive, limit_bytes=self._body_limit_bytes)
        identity, fingerprint = _identity(scope, key), _fingerprint(scope, body)
        found = self._answers.find(identity, fingerprint)
        if found is None:
            recording = _Recording(client_of(scope), identity, fingerprint, context_of(scope))
            await self._run(recording, body, scope, receive, send)
        else:
            del body  # A client that reads slowly would hold it all the while.
            _mark_repeat(scope, found.context, b"replayed" if found.over else b"joined")
            await self._serve(found, receive, send)

    async def _run(self, recording: _Recording, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request for this client and for all that join; stay until it is over, even if this client leaves."""
        request = [body]

        async def receive_recorded() -> Message:
            if request:
                return {"type": "http.request", "body": request.pop(), "more_body": False}
            await recording.abandoned.wait()
            return {"type": "http.disconnect"}

        async def work() -> None:
            try:
                await self._app(scope, receive_recorded, lambda message: self._answers.add(recording, message))
            finally:
                self._answers.ended(recording)

        self._answers.begin(recording)
        working = asyncio.ensure_future(work())
        recording.follow(working)
        try:
            await self._serve(recording, receive, send)
            await asyncio.wait((working,))
        finally:
            working.cancel()
            await asyncio.wait((working,))
        working.result()

    async def _serve(self, recording: _Recording, receive: Receive, send: Send) -> None:
        """Send what is recorded and what comes, until the end or until the client leaves."""
        reader = recording.log.enter()
        try:
            await Client(receive).served(recording.play(reader, send))
        finally:
            if recording.leave(reader):
                self._answers.forget(recording)


def _identity(scope: Scope, key: bytes) -> bytes:
    """Return what a key stands for: each client and each route has keys of its own."""
    route = scope["path"].removeprefix("/v1")
    return hashlib.sha256(b"\0".join((client_of(scope).encode(), route.encode(), key))).digest()


def _fingerprint(scope: Scope, body: bytes) -> bytes:
    """Return what tells a repeat from another request: all that its answer depends on, besides client and route."""
    chosen = (header_value(scope, name) or b"" for name in ANSWER_HEADERS)
    digest = hashlib.sha256(b"\0".join((scope["query_string"], *chosen, b"")))
    digest.update(body)
    return digest.digest()


def _mark_repeat(scope: Scope, first: RequestContext, how: bytes) -> None:
    """Tell the client, and the log, where its answer comes from; the tokens were counted for the first request."""
    context = context_of(scope)
    context.response_headers.append((REPEAT_HEADER.encode(), how))
    context.model, context.stream = first.model, first.stream
