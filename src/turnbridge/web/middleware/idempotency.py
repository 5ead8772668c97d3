"""`Idempotency-Key`: a repeated request is answered from the recording of the first one.

The answer is recorded in a log of frames while it is made, and every repetition reads the log from the beginning. The
turn is cancelled when the last reader disconnects. Replicas claim an answer before they make it; one that finds it
claimed passes on what the other one makes, and records that. Headers of each request (its id, its rate limits) are
added by outer middleware, and are not recorded.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnbridge.api.shared.output_mode import MODE_HEADER
from turnbridge.engine.frame_log import FrameLog, Reader
from turnbridge.engine.sharing import AnswerClaims, SharedStateAway
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.turn.fair_shares import FairShares
from turnbridge.web.answer import serve_until_disconnect
from turnbridge.web.bodies import Bodies
from turnbridge.web.http import NO_KEEPALIVE, header_value
from turnbridge.web.middleware.answers_elsewhere import (
    KEY_HEADER,
    REPEAT_HEADER,
    Elsewhere,
    Head,
    Left,
    Publishing,
    Whole,
    packed,
    reused,
)
from turnbridge.web.middleware.auth import client_of
from turnbridge.web.middleware.observability import RequestContext, context_of

KEY_FIELD = KEY_HEADER.lower().encode()
# The headers of a request that its answer depends on.
ANSWER_HEADERS = (MODE_HEADER.encode(), NO_KEEPALIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits on recordings."""

    kept_s: float = 600
    """TTL of a finished answer: longer than clients go on retrying."""
    answers: int = 1000
    """Number of recordings; the client that has most loses its oldest."""
    total_bytes: int = 64 * 1024 * 1024
    """Size of all recordings; the client that has most loses what has not grown for longest."""
    answer_bytes: int = 8 * 1024 * 1024
    """A longer answer reaches only those who read it already: some 30,000 tokens, streamed one by one."""


BOUNDS = Bounds()


class Recording:
    """An answer while it is made and afterwards: its headers, and the log of its body that clients read."""

    def __init__(self, client: str, identity: bytes, fingerprint: bytes, context: RequestContext) -> None:
        self.client = client
        self.identity = identity
        self.fingerprint = fingerprint
        self.context = context
        self.log = FrameLog()
        self.complete = False
        """Whether the answer was recorded to its end."""
        self.borrowed = False
        """Whether another replica makes it, and keeps it if it is good."""
        self.abandoned = asyncio.Event()
        self.expiry: asyncio.TimerHandle | None = None
        """What forgets the finished answer."""
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
        return 200 <= status < 300 and self.context.error_code is None and not self.borrowed

    async def head(self) -> Head | None:
        """Return how the answer begins, once it has; None if it ends before."""
        await asyncio.wait((self._start,))
        if self._start.cancelled():
            return None
        start = self._start.result()
        return Head(start["status"], list(start["headers"]), self.context.model, self.context.stream)

    async def to_share(self) -> Whole | None:
        """Return the answer for other replicas, if it is a good one and all of it was kept."""
        head = await self.head() if self.successful and self.log.is_whole else None
        return None if head is None else Whole(head, b"".join(self.log.chunks))

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
        """Remove a reader; tell whether it was the last one, in which case the turn is cancelled."""
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


class Answers:
    """The registry of recordings: of answers that are being made, and of finished ones until they expire."""

    def __init__(self, bounds: Bounds = BOUNDS, claims: AnswerClaims | None = None) -> None:
        """`claims` are those of all replicas."""
        self._bounds = bounds
        self.claims = claims
        live = None if claims is None else claims.live
        self.publishing = None if live is None else Publishing(live, self.by_identity, self.leave)
        self._known: dict[bytes, Recording] = {}
        self._shares: FairShares[bytes] = FairShares(most=bounds.answers, most_bytes=bounds.total_bytes)

    def find(self, identity: bytes, fingerprint: bytes) -> Recording | None:
        """Return the answer to this very request; raise `InvalidRequest` if its key came with another one."""
        found = self._known.get(identity)
        if found is not None and found.fingerprint != fingerprint:
            raise reused()
        return found

    def by_identity(self, identity: bytes) -> Recording | None:
        """Return the answer to a key."""
        return self._known.get(identity)

    def begin(self, recording: Recording) -> None:
        """Register a recording, so that repetitions can join it."""
        self._known[recording.identity] = recording

    async def add(self, recording: Recording, message: Message) -> None:
        """Record a message of the answer, within the bounds."""
        if self._known.get(recording.identity) is recording:
            size = recording.log.size + len(message.get("body", b""))
            self._shares.add(recording.client, recording.identity, size)
            if size > self._bounds.answer_bytes:
                self._stop_recording(recording)
            self._make_room()
        await recording.add(message)

    def forget(self, recording: Recording) -> None:
        """Unregister a recording."""
        if self._known.get(recording.identity) is recording:
            del self._known[recording.identity]
            self._shares.remove(recording.identity)
        if recording.expiry is not None:
            recording.expiry.cancel()

    def leave(self, recording: Recording, reader: Reader) -> None:
        """Remove a reader; a recording without readers ends."""
        if recording.leave(reader):
            self.forget(recording)

    def ended(self, recording: Recording) -> None:
        """Keep a successful answer until its TTL."""
        if not recording.successful:
            self.forget(recording)
        elif self._known.get(recording.identity) is recording:
            recording.expiry = asyncio.get_running_loop().call_later(self._bounds.kept_s, self.forget, recording)
            self._shares.add(recording.client, recording.identity, recording.log.size)
            self._make_room()

    def _make_room(self) -> None:
        while (excess := self._shares.excess()) is not None:
            self._stop_recording(self._known[excess])

    def _stop_recording(self, recording: Recording) -> None:
        """Forget an answer, which from now on reaches only those who read it already."""
        self.forget(recording)
        recording.log.keep_nothing()


class AnswerOnce:
    """Middleware that runs a request with an `Idempotency-Key` once."""

    def __init__(self, app: ASGIApp, *, answers: Answers, bodies: Bodies) -> None:
        self._app = app
        self._answers = answers
        self._bodies = bodies

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request that has no key as it is."""
        key = context_of(scope).headers.get(KEY_FIELD)
        return self._answer(key, scope, receive, send) if key else self._app(scope, receive, send)

    async def _answer(self, key: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request, join one that runs, or replay a finished one."""
        body = await self._bodies.read(scope, receive)
        identity, fingerprint = _identity(scope, key), _fingerprint(scope, body)
        found = self._answers.find(identity, fingerprint)
        if found is None:
            recording = Recording(client_of(scope), identity, fingerprint, context_of(scope))
            await self._run(recording, body, scope, receive, send)
        else:
            del body  # A slow reader would hold it.
            _mark_repeat(scope, found.context, b"replayed" if found.over else b"joined")
            await self._serve(found, receive, send)

    async def _run(self, recording: Recording, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request for this client and for all that join, until it is over, even if this client disconnects."""
        request = [body]

        async def receive_recorded() -> Message:
            if request:
                return {"type": "http.request", "body": request.pop(), "more_body": False}
            await recording.abandoned.wait()
            return {"type": "http.disconnect"}

        async def work() -> None:
            def record(message: Message) -> Awaitable[None]:
                return self._answers.add(recording, message)

            try:
                if self._answers.claims is None:
                    await self._app(scope, receive_recorded, record)
                else:
                    await self._made_once(self._answers.claims, recording, scope, receive_recorded, record)
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

    async def _made_once(
        self, claims: AnswerClaims, recording: Recording, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Make the answer if no other replica does, or send the one that another replica has made."""
        left = await Elsewhere(claims, recording, send).run()
        if left is Left.NOTHING:
            return
        if left is Left.MAKE_ALONE:
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            if self._answers.publishing is not None:
                await self._answers.publishing.ended(recording)
            # If it is not told now, the claim lapses.
            with contextlib.suppress(SharedStateAway):
                await claims.finish(
                    recording.client, recording.identity.hex(), await packed(await recording.to_share())
                )

    async def _serve(self, recording: Recording, receive: Receive, send: Send) -> None:
        """Send the recording until its end, or until the client disconnects."""
        reader = recording.log.enter()
        try:
            await serve_until_disconnect(receive, recording.play(reader, send))
        finally:
            self._answers.leave(recording, reader)


def _identity(scope: Scope, key: bytes) -> bytes:
    """Return the identity of a key: it is scoped to its client and route."""
    route = scope["path"].removeprefix("/v1")
    return hashlib.sha256(b"\0".join((client_of(scope).encode(), route.encode(), key))).digest()


def _fingerprint(scope: Scope, body: bytes) -> bytes:
    """Return a digest of all that the answer depends on besides client and route."""
    chosen = (header_value(scope, name) or b"" for name in ANSWER_HEADERS)
    digest = hashlib.sha256(b"\0".join((scope["query_string"], *chosen, b"")))
    digest.update(body)
    return digest.digest()


def _mark_repeat(scope: Scope, first: RequestContext, how: bytes) -> None:
    """Say in the headers and the log where the answer comes from; tokens count for the first request."""
    context = context_of(scope)
    context.response_headers.append((REPEAT_HEADER.encode(), how))
    context.model, context.stream = first.model, first.stream
