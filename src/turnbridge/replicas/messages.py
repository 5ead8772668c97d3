"""Short messages between replicas: "let this parked turn go", "this response has ended". Each has one addressee.

A message may be lost: parked turns expire, and a response that was ended elsewhere is noticed when its lease is
renewed. So nothing waits for a message, and none is stored.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

log = structlog.get_logger(__name__)

# What may wait while the connection is away; the oldest are dropped.
MOST_WAITING = 1024
# The most that Postgres takes is 8,000; the ids in a message have some fifty characters.
LONGEST_BYTES = 7500
# How long a connection that hangs goes unnoticed.
CHECK_S = 5.0
CHANNEL = "turnbridge_"

_message = msgspec.json.Decoder(tuple[str, ...])


class Messages(ABC):
    """Sends and receives messages over one connection, which is opened again when it breaks."""

    failures: tuple[type[Exception], ...]
    retry_s = 1.0

    def __init__(self, replica: str) -> None:
        self._id = replica
        self._handlers: dict[str, tuple[int, Callable[..., None]]] = {}
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=MOST_WAITING)
        self._arrived = asyncio.Event()
        self._warned = False
        self.connected = asyncio.Event()
        """Set while messages can be received."""

    @property
    def id(self) -> str:
        """Return the name of this replica."""
        return self._id

    def on(self, kind: str, fields: int, handler: Callable[..., None]) -> None:
        """Call `handler` with so many fields of each message that begins with `kind`."""
        self._handlers[kind] = (fields, handler)

    def tell(self, replica: str, message: tuple[str, ...]) -> None:
        """Send a message soon."""
        if replica == self._id:
            self._dispatch(message)
            return
        body = msgspec.json.encode(message)
        if len(body) <= LONGEST_BYTES:
            self._waiting.append((f"{CHANNEL}{replica}", body))
            self._arrived.set()

    async def run(self) -> None:
        """Send and receive until cancelled."""
        while True:
            try:
                async with self._connection(), asyncio.TaskGroup() as both:
                    self._note(None)
                    both.create_task(self._send())
                    both.create_task(self._receive())
            except* self.failures as errors:
                self._note(errors.exceptions[0])
            await asyncio.sleep(self.retry_s)

    def _note(self, failure: BaseException | None) -> None:
        """Note whether messages can be received; one warning is enough for hours without."""
        if failure is None:
            self.connected.set()
            self._warned = False
            return
        self.connected.clear()
        if not self._warned:
            log.warning("replica_messages_away", reason=type(failure).__name__)
        self._warned = True

    async def _send(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                await self._publish(*self._waiting[0])
                self._waiting.popleft()

    @abstractmethod
    def _connection(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context in which this replica's channel is listened to."""

    @abstractmethod
    async def _receive(self) -> None:
        """Receive messages until the connection breaks or hangs; then raise one of `failures`."""

    @abstractmethod
    async def _publish(self, channel: str, body: bytes) -> None: ...

    def _received(self, body: str | bytes) -> None:
        """Handle a message; whoever may write to the channel may have written anything."""
        try:
            message = _message.decode(body)
        except msgspec.MsgspecError:
            log.warning("replica_message_unreadable")
            return
        self._dispatch(message)

    def _dispatch(self, message: tuple[str, ...]) -> None:
        fields, handler = self._handlers.get("".join(message[:1]), (0, None))
        if handler is None or len(message) <= fields:
            # A later version may send more kinds, and more fields.
            log.debug("replica_message_unknown", kind=message[:1])
            return
        handler(*message[1 : fields + 1])
