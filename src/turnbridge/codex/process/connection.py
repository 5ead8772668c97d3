"""One pipe pair to one app-server: matches answers to calls, and hands each thread's notifications to its reader.

Knows nothing of processes: bytes come in through `receive`, and go out through the `write` that it was given.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias, TypeVar

import msgspec
import structlog

from turnbridge.codex.legacy.notifications import OlderNotification
from turnbridge.codex.protocol import jsonrpc
from turnbridge.codex.protocol.messages import (
    NOTIFICATIONS,
    ItemStarted,
    Notification,
    RawItemCompleted,
    ToolCallAsked,
)
from turnbridge.codex.protocol.permissions import DECLINES, NOBODY
from turnbridge.codex.protocol.rpc_check import RpcCheck
from turnbridge.turn.errors import (
    BackendLost,
    BackendUnavailable,
    GatewayError,
    InternalFault,
)
from turnbridge.turn.items import Json

log = structlog.get_logger(__name__)

T = TypeVar("T")

Note: TypeAlias = Notification | OlderNotification | ToolCallAsked

# Longest answer time of any call that we make, if nobody says otherwise; a healthy app-server needs milliseconds.
CALL_TIMEOUT_S = 30.0


_thread_of = attrgetter("thread_id")


# Some megabytes for a client that has stopped reading; a model that is read never gets so far ahead. Whole items do not
# count: the model's were told in deltas before, and the client's are as large as its request.
MOST_UNREAD_BYTES = 8_000_000


class CallRefused(InternalFault):
    """Codex answered a call with an error."""


class CodexFaulted(BackendLost):
    """Codex answered a call with an internal error of its own; the same call may succeed elsewhere."""


class Inbox:
    """What Codex tells and asks about one thread, in order, in batches: all that one read of the pipe brought."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._notes: list[Note] = []
        self._unread = 0
        self._error: GatewayError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._dozing = False
        self.overflowed: Callable[[], None] = ignored
        """Called once if the notifications are not read; the thread's owner stops the turn."""

    def put(self, notes: Sequence[Note], size: int) -> None:
        """Add notifications of so many bytes, unless so many wait already that nobody seems to read them.

        What comes in one piece is never too much: nobody can have read a part of it.
        """
        if self._error is not None:
            return
        if self._unread >= MOST_UNREAD_BYTES and self._unread - self._in_items() >= MOST_UNREAD_BYTES:
            self.fail(BackendUnavailable("The client read too slowly; the turn was interrupted.", code="slow_reader"))
            self.overflowed()
            return
        self._unread += size
        self._notes += notes
        if self._reader is not None and not self._dozing and not _only_opens_a_message(notes):
            self._wake()

    def doze(self) -> None:
        """Let the reader sleep while a turn is being started: what Codex tells then is an echo of what was injected."""
        self._dozing = True

    def rouse(self) -> None:
        """Let the reader hear of the turn that has been started."""
        self._dozing = False
        if not all(isinstance(note, RawItemCompleted) for note in self._notes):
            self._wake()

    def fail(self, error: GatewayError) -> None:
        """End the inbox: its reader gets what is there, then the error."""
        self._error = error
        self._wake()

    @property
    def failed(self) -> bool:
        """Tell whether nothing more can come."""
        return self._error is not None

    def holds(self, *kinds: type[Notification]) -> bool:
        """Tell whether something of these kinds waits to be read."""
        return any(isinstance(note, kinds) for note in self._notes)

    async def batch(self) -> list[Note]:
        """Wait for notifications and return all that have arrived; raises once the connection has ended."""
        if not self._notes and self._error is None:
            self._reader = self._loop.create_future()
            await self._reader
        if not self._notes and self._error is not None:
            raise self._error
        notes, self._notes, self._unread = self._notes, [], 0
        return notes

    def _in_items(self) -> int:
        """Return how much of what waits is whole items: those that were injected come back, however large they are."""
        return sum(len(note.item) for note in self._notes if isinstance(note, RawItemCompleted))

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)


class Connection:
    """The conversation with one app-server. When the pipe ends, everybody who waits gets the same error.

    With a `check`, nothing goes out that the binary's own schema does not allow. An `older` Codex is also listened to
    where a current one tells the same in a better way.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        *,
        check: RpcCheck | None = None,
        older: Mapping[str, type[OlderNotification]] | None = None,
        call_timeout_s: float | None = None,
    ) -> None:
        # Held, because to ask for it takes a system call.
        self._loop = asyncio.get_running_loop()
        self._write = write
        self.call_timeout_s = call_timeout_s or CALL_TIMEOUT_S
        self._check = check
        self._lines = jsonrpc.LineSplitter()
        self._ids = itertools.count(1)
        self._calls: dict[jsonrpc.RequestId, tuple[asyncio.Future[msgspec.Raw], asyncio.TimerHandle]] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._shapes: dict[str, type[Notification | OlderNotification]] = {**NOTIFICATIONS, **(older or {})}
        self._notifications = jsonrpc.Notifications(self._shapes)
        self._ended: GatewayError | None = None
        self._broken = False
        self.skipped: Counter[str] = Counter()
        self.broke: Callable[[], None] = ignored
        """Called once if nothing that comes can be understood any more; the owner of the pipe ends it."""
        self.unanswered: Callable[[], None] = ignored
        """Called whenever an answer has not come in time; the owner of the app-server replaces it."""

    async def call(self, method: str, params: Json, result: type[T], *, timeout_s: float | None = None) -> T:
        """Ask Codex and return its answer; raises `CallRefused` with Codex's own words if it refuses.

        A call with a time of its own may wait for somebody else than Codex: if it is not answered, nothing follows.
        """
        return await self.answered(self.send(method, params, timeout_s=timeout_s), method, result)

    async def answered(self, answer: "asyncio.Future[msgspec.Raw]", method: str, result: type[T]) -> T:
        """Return the answer to a call of `method` that was sent before."""
        try:
            raw = await answer
        except (CallRefused, CodexFaulted) as refused:
            log.warning("codex_call_refused", method=method, reason=refused.message)
            raise
        return understood(raw, method, result)

    def send(self, method: str, params: Json, *, timeout_s: float | None = None) -> asyncio.Future[msgspec.Raw]:
        """Ask Codex; return its answer to come, which fails if it does not come in time."""
        if self._ended is not None:
            raise self._ended
        self._check_request(method, params)
        request_id = next(self._ids)
        answer: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s or self.call_timeout_s, self._give_up, request_id, method, timeout_s)
        self._calls[request_id] = answer, timer
        self._write(jsonrpc.encode_request(request_id, method, params))
        return answer

    def cast(self, method: str, params: Json) -> None:
        """Ask Codex for something whose answer nobody needs, and which may never come."""
        if self._ended is None:
            self._check_request(method, params)
            self._write(jsonrpc.encode_request(next(self._ids), method, params))

    def answer(self, request_id: jsonrpc.RequestId, result: Json) -> None:
        """Answer a request of Codex's for the output of a client's function."""
        if problem := self._reply_problem("item/tool/call", result):
            raise InternalFault(problem)
        self._write(jsonrpc.encode_result(request_id, result))

    def tell(self, method: str) -> None:
        """Notify Codex."""
        self._write(jsonrpc.encode_notification(method))

    def subscribe(self, thread_id: str) -> Inbox:
        """Return the inbox of a thread; what arrives for a thread without one is dropped."""
        inbox = self._inboxes[thread_id] = Inbox(self._loop)
        if self._ended is not None:
            inbox.fail(self._ended)
        return inbox

    def unsubscribe(self, thread_id: str) -> None:
        """Stop listening to a thread."""
        self._inboxes.pop(thread_id, None)

    def receive(self, data: bytes) -> None:
        """Take what the pipe brought."""
        self._receive_lines(self._lines.whole(data))
        if self._lines.endless and not self._broken:
            log.error("codex_line_endless", longer_than=jsonrpc.LONGEST_LINE_BYTES)
            self._break()

    def end(self, error: GatewayError) -> None:
        """Fail everybody who waits, now and later."""
        self._ended = error
        # Those who are told know the connection: they and it must not keep each other in memory.
        self.broke = self.unanswered = ignored
        for answer, timer in self._calls.values():
            timer.cancel()
            _fail(answer, error)
        self._calls.clear()
        for inbox in self._inboxes.values():
            inbox.fail(error)

    def _give_up(self, request_id: int, method: str, timeout_s: float | None) -> None:
        """Wait no more for an answer; should it come after all, it is nobody's."""
        answer, _ = self._calls.pop(request_id)
        _fail(
            answer, BackendLost(f"Codex did not answer `{method}` within {timeout_s or self.call_timeout_s:g} seconds.")
        )
        if timeout_s is None:
            log.error("codex_call_unanswered", method=method, within_s=self.call_timeout_s)
            self.unanswered()

    def _break(self) -> None:
        """Read no more of a pipe that makes no sense."""
        self._broken = True
        self.broke()

    def _check_request(self, method: str, params: Json) -> None:
        problem = self._check.request_problem(method, params) if self._check is not None else None
        if problem is not None:
            raise InternalFault(_violation(method, problem))

    def _reply_problem(self, question: str, result: Json) -> str | None:
        problem = self._check.reply_problem(question, result) if self._check is not None else None
        return None if problem is None else _violation(f"reply to {question}", problem)

    def _receive_lines(self, lines: bytes) -> None:
        if self._broken:
            return
        notes = self._notifications.read(lines)
        if notes is not None:
            self._tell(notes, len(lines))
            return
        # One of them is something else, or broken. It is looked for by halves, so that the others are read together.
        middle = lines.rfind(b"\n", 0, len(lines) // 2) + 1 or lines.find(b"\n") + 1
        if 0 < middle < len(lines):
            self._receive_lines(lines[:middle])
            self._receive_lines(lines[middle:])
        else:
            self._receive_other(lines)

    def _receive_other(self, line: bytes) -> None:
        """Take a line that is no notification of a known kind, or a broken one."""
        try:
            message = jsonrpc.decode_line(line)
        except msgspec.MsgspecError:
            self.skipped["unreadable"] += 1
            log.warning("codex_line_unreadable", size=len(line))
            return
        if not jsonrpc.is_utf8(line):
            # Whose answer or notification this is may be just what is wrong with it: nobody can go on.
            log.error("codex_line_not_utf8", size=len(line))
            self._break()
            return
        if message.method is None:
            self._answer(message)
        elif message.id is None:
            self._receive_notification(message.method, message.params)
        elif message.method == "item/tool/call":
            self._ask_client(message.id, message.params)
        else:
            self._decline(message.id, message.method)

    def _answer(self, message: jsonrpc.Incoming) -> None:
        answer, timer = self._calls.pop(message.id, (None, None)) if message.id is not None else (None, None)
        if timer is not None:
            timer.cancel()
        if answer is None or answer.done():
            self.skipped["answer"] += 1
        elif message.error is not None and message.error.code == jsonrpc.INTERNAL_ERROR:
            _fail(answer, CodexFaulted(f"Codex failed by itself: {message.error.message}"))
        elif message.error is not None:
            _fail(answer, CallRefused(message.error.message))
        else:
            answer.set_result(message.result)

    def _receive_notification(self, method: str, params: msgspec.Raw) -> None:
        shape = self._shapes.get(method)
        if shape is None:
            self.skipped[method] += 1
            return
        try:
            self._tell([jsonrpc.decode_as(shape, params)], len(params))
        except msgspec.MsgspecError as error:
            # We no longer know what this thread's turn is doing, nor which thread it was: every turn must end.
            log.error("codex_notification_broken", method=method, error=str(error))
            for inbox in self._inboxes.values():
                inbox.fail(InternalFault(f"Codex sent a `{method}` that this version of Turnbridge cannot read."))

    def _tell(self, notes: Sequence[Notification | OlderNotification], size: int) -> None:
        """Hand notifications of so many bytes to those who read of their threads."""
        runs = [notes] if len(notes) == 1 else [list(run) for _, run in itertools.groupby(notes, _thread_of)]
        for run in runs:
            inbox = self._inboxes.get(run[0].thread_id)
            if inbox is None:
                self.skipped["late"] += len(run)
            else:
                inbox.put(run, size * len(run) // len(notes))

    def _ask_client(self, request_id: jsonrpc.RequestId, params: msgspec.Raw) -> None:
        """Hand a call of a client's function to whoever runs the turn; it is answered when the client has done so."""
        try:
            asked = msgspec.structs.replace(jsonrpc.decode_as(ToolCallAsked, params), request_id=request_id)
        except msgspec.MsgspecError as error:
            log.error("codex_tool_call_broken", error=str(error))
            self._decline(request_id, "item/tool/call")
            return
        if asked.thread_id in self._inboxes:
            self._inboxes[asked.thread_id].put([asked], len(params))
        else:
            self._decline(request_id, "item/tool/call")

    def _decline(self, request_id: jsonrpc.RequestId, method: str) -> None:
        self.skipped[f"declined {method}"] += 1
        log.warning("codex_request_declined", method=method)
        if method in DECLINES and self._reply_problem(method, DECLINES[method]) is None:
            self._write(jsonrpc.encode_result(request_id, DECLINES[method]))
        else:
            self._write(jsonrpc.encode_refusal(request_id, NOBODY))


def ignored() -> None:
    """Do nothing about what nobody wants to hear of."""


def understood(raw: msgspec.Raw, method: str, result: type[T]) -> T:
    """Return an answer to a call of `method`."""
    try:
        return jsonrpc.decode_as(result, raw)
    except msgspec.MsgspecError as error:
        log.error("codex_answer_broken", method=method, error=str(error))
        raise InternalFault(
            f"Codex answered `{method}` in a way that this version of Turnbridge cannot read."
        ) from error


def _only_opens_a_message(notes: Sequence[Note]) -> bool:
    """Tell whether all that is told is that a message begins: that is read with its first words."""
    first = notes[0]
    return len(notes) == 1 and isinstance(first, ItemStarted) and first.item.type == "agentMessage"


def _fail(answer: "asyncio.Future[msgspec.Raw]", error: GatewayError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # Retrieved here, since a call that was let go has nobody to do it.


def _violation(sent: str, problem: str) -> str:
    """Log a message of ours that Codex does not take: a defect; return it as a sentence."""
    log.error("rpc_violates_schema", sent=sent, problem=problem)
    return f"Turnbridge was about to send Codex a `{sent}` that it does not take: {problem}."
