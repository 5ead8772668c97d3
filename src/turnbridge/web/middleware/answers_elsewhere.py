"""Answers to `Idempotency-Key` that another replica makes: sent as they grow, or when they are whole.

A replica that finds a key claimed asks the maker to publish its answer, and passes on what comes. The whole answer,
which the maker keeps when it ends, fills what is missing. Without either, the stream breaks: it has no false end.
"""

import asyncio
import contextlib
import zlib
from collections.abc import Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec
from starlette.types import Send

from turnbridge.engine.sharing import AnswerClaims, Claim, LiveAnswers, SharedStateAway
from turnbridge.turn.errors import BackendUnavailable, InvalidRequest

if TYPE_CHECKING:
    from turnbridge.engine.frame_log import Reader
    from turnbridge.web.middleware.idempotency import Recording

KEY_HEADER = "Idempotency-Key"
REPEAT_HEADER = "x-turnbridge-idempotent"
# How often a replica looks whether another one has finished an answer, and reads what it has published meanwhile.
LOOK_AGAIN_S = 0.2
READS = 4
# How long the maker gathers what it publishes.
GATHER_S = 0.05
# How often the maker is asked for its answer, until something comes: messages may be lost.
ASK_AGAIN_S = 1.0
# How long a replica that knows of a maker waits for a Redis that is away: the maker's claim lasts as long.
PATIENCE_S = 25.0
# How long the end of an answer may take to be published before it is kept.
LAST_PIECES_S = 1.0
# The packed size of an answer that other replicas may have; a longer one is made again there.
MOST_SHARED_BYTES = 256 * 1024
# What is published of one answer; readers elsewhere are cut off from a longer one.
MOST_PUBLISHED_BYTES = 16 * 1024 * 1024


class Head(msgspec.Struct, frozen=True, array_like=True):
    """How an answer begins."""

    status: int
    headers: list[tuple[bytes, bytes]]
    model: str | None
    stream: bool


class Whole(msgspec.Struct, frozen=True, array_like=True):
    """A finished answer."""

    head: Head
    body: bytes


class Left(Enum):
    """What is left to do for a request."""

    MAKE = auto()
    """Make its answer, which is claimed."""
    MAKE_ALONE = auto()
    """Make its answer, without the other replicas."""
    NOTHING = auto()


class Elsewhere:
    """An answer that another replica may make."""

    def __init__(self, claims: AnswerClaims, recording: "Recording", send: Send) -> None:
        self._claims = claims
        self._recording = recording
        self._send = send
        self._identity = recording.identity.hex()
        self._place: str | None = None
        self._asked_at = 0.0
        self._position = 0
        """How much of the published answer was read."""
        self._head_bytes = 0
        """How much of that is its head, which has been passed on."""
        self._made_at: float | None = None
        """When another replica was last known to make it."""

    async def run(self) -> Left:
        """Send the answer if another replica makes it; return what is left to do."""
        try:
            while (left := await self._look()) is None:
                if await self._pause(LOOK_AGAIN_S / READS):
                    return Left.NOTHING
            return left
        finally:
            if self._place is not None and self._claims.live is not None:
                with contextlib.suppress(SharedStateAway):
                    await self._claims.live.watch(self._place, wanted=False)

    async def _look(self) -> Left | None:
        """Look how things stand, and read on for a while."""
        now = asyncio.get_running_loop().time()
        try:
            match await self._claims.claim(self._identity, self._recording.fingerprint.hex()):
                case Claim.MINE:
                    return await self._is_free()
                case Claim.OTHER_REQUEST if not self._head_bytes:
                    raise reused()
                case Claim.FINISHED:
                    return await self._finish()
                case _:
                    self._made_at = now
                    return await self._follow(now)
        except SharedStateAway:
            if self._made_at is not None and now - self._made_at < PATIENCE_S:
                return None
            if self._head_bytes:
                raise _lost() from None
            return Left.MAKE_ALONE

    async def _is_free(self) -> Left:
        """Make the answer, unless another replica had begun it."""
        if not self._head_bytes:
            return Left.MAKE
        await self._claims.finish(self._recording.client, self._identity, None)
        return await self._end_without_maker()

    async def _end_without_maker(self) -> Left:
        """Send the rest of an answer whose maker has ended it without keeping it; raise an error if it is lost."""
        position = -1
        while position < self._position:
            position = self._position
            if await self._read():
                return Left.NOTHING
        raise _lost()

    async def _follow(self, now: float) -> Left | None:
        if (live := self._claims.live) is None:
            await self._pause(LOOK_AGAIN_S)
            return None
        if await self._has_another_maker(live):
            return await self._end_without_maker()
        if self._place is not None and not self._position and now - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = now
            await live.watch(self._place, wanted=True)
        for _ in range(READS):
            if await self._read() or await self._pause(LOOK_AGAIN_S / READS):
                return Left.NOTHING
        return None

    async def _has_another_maker(self, live: LiveAnswers) -> bool:
        """Tell whether an answer that was begun has lost its maker: what one has begun, another cannot end."""
        place = await live.place(self._identity)
        if self._head_bytes:
            return place != self._place
        self._place = place
        return False

    async def _read(self) -> bool:
        """Pass on what was published; tell whether that was all."""
        if self._place is None or self._claims.live is None:
            return False
        found = await self._claims.live.read(self._place, self._position)
        for chunk in found.chunks:
            if chunk.frames - len(chunk.body) != self._position:
                return False
            self._position = chunk.frames
            if self._head_bytes:
                await self._send({"type": "http.response.body", "body": chunk.body, "more_body": True})
            else:
                self._head_bytes = len(chunk.body)
                await self._begin(msgspec.msgpack.decode(chunk.body, type=Head), b"joined")
        if not found.sealed:
            return False
        self._recording.borrowed = True
        await self._send({"type": "http.response.body", "body": b""})
        return True

    async def _finish(self) -> Left | None:
        """Send the finished answer, or what is missing of it."""
        packed = await self._claims.finished(self._identity)
        if packed is None:
            return None
        if self._claims.live is not None and await self._has_another_maker(self._claims.live):
            return await self._end_without_maker()
        whole = await asyncio.to_thread(lambda: msgspec.msgpack.decode(zlib.decompress(packed), type=Whole))
        if not self._head_bytes:
            await self._begin(whole.head, b"replayed")
        await self._send({"type": "http.response.body", "body": whole.body[self._position - self._head_bytes :]})
        return Left.NOTHING

    async def _begin(self, head: Head, how: bytes) -> None:
        context = self._recording.context
        context.response_headers.append((REPEAT_HEADER.encode(), how))
        context.model, context.stream = head.model, head.stream
        await self._send({"type": "http.response.start", "status": head.status, "headers": head.headers})

    async def _pause(self, seconds: float) -> bool:
        """Wait; tell whether the last reader has left."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._recording.abandoned.wait(), seconds)
        return self._recording.abandoned.is_set()


class Publishing:
    """Publishes answers that are made here, while other replicas read them."""

    def __init__(
        self,
        live: LiveAnswers,
        find: Callable[[bytes], "Recording | None"],
        leave: Callable[["Recording", "Reader"], None],
    ) -> None:
        """`find` returns an answer that is made here; `leave` removes a reader."""
        self._live = live
        self._find = find
        self._leave = leave
        self._readers: dict[str, set[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        live.on_watched = self._watched

    async def ended(self, recording: "Recording") -> None:
        """Publish the rest of an answer that has ended; readers take the end of one that has none for a loss."""
        task = self._tasks.get(identity := recording.identity.hex())
        if task is not None:
            await asyncio.wait((task,), timeout=LAST_PIECES_S if recording.complete else 0)
            task.cancel()
        self._readers.pop(identity, None)

    def _watched(self, identity: str, reader: str, wanted: bool) -> None:
        recording = self._find(bytes.fromhex(identity))
        if recording is None or recording.over:
            return
        readers = self._readers.setdefault(identity, set())
        if wanted:
            readers.add(reader)
            if identity not in self._tasks:
                task = self._tasks[identity] = asyncio.create_task(self._publish(identity, recording))
                task.add_done_callback(lambda _: self._tasks.pop(identity))
        else:
            readers.discard(reader)
            if not readers and identity in self._tasks:
                self._tasks[identity].cancel()

    async def _publish(self, identity: str, recording: "Recording") -> None:
        """Publish an answer as it grows. A reader at another replica counts as one here."""
        reader, position = recording.log.enter(), 0
        try:
            if (head := await recording.head()) is None:
                return
            piece = msgspec.msgpack.encode(head)
            async with aclosing(recording.log.pieces(reader)) as pieces:
                while piece and position < MOST_PUBLISHED_BYTES:
                    if not await self._live.publish(identity, after=position, piece=piece):
                        return
                    position += len(piece)
                    if not recording.log.ended:
                        await asyncio.sleep(GATHER_S)
                    piece = await anext(pieces, b"")
            if recording.complete and not piece:
                await self._live.seal(identity, after=position)
        except SharedStateAway:
            return  # Readers wait until it is whole.
        finally:
            self._leave(recording, reader)


async def packed(whole: Whole | None) -> bytes | None:
    """Return an answer for other replicas, or None if it is too long."""
    if whole is None:
        return None
    found = await asyncio.to_thread(lambda: zlib.compress(msgspec.msgpack.encode(whole), 1))
    return found if len(found) <= MOST_SHARED_BYTES else None


def reused() -> InvalidRequest:
    """Return the error for a key that came with another request."""
    return InvalidRequest(
        f"The {KEY_HEADER} was used with another request before. Use a fresh key for each request, "
        "and the same one only to repeat a request as it was.",
        code="idempotency_key_reused",
        param=KEY_HEADER,
    )


def _lost() -> BackendUnavailable:
    return BackendUnavailable(
        "The replica that made this answer has gone. Send the request again.", code="replica_lost"
    )
