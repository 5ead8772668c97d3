"""The JSON-RPC connection to one app-server: matches answers to calls, and routes notifications to threads.

It knows nothing of processes: bytes come in through `receive`, and go out through the `write` that it was given.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias, TypeVar

import msgspec
import structlog

from turnbridge.codex.protocol import jsonrpc
from turnbridge.codex.protocol.capabilities import RpcCheck
from turnbridge.codex.protocol.encode import DECLINED, DECLINES
from turnbridge.codex.protocol.messages import (
    NOTIFICATIONS,
    ItemStarted,
    Note,
    Notification,
    OlderNotification,
    RateLimitsUpdated,
    RawItemCompleted,
    ToolCallAsked,
)
from turnbridge.codex.protocol.plan import UPDATED, Plan
from turnbridge.turn.errors import BackendLost, BackendUnavailable, GatewayError, InternalFault
from turnbridge.turn.items import Json

log = structlog.get_logger(__name__)

T = TypeVar("T")

Told: TypeAlias = Notification | OlderNotification | RateLimitsUpdated
_thread_of = attrgetter("thread_id")

# How Codex begins an answer. Found by that, it does not make the notifications beside it be decoded in vain.
ANSWER = b'{"id":'


class CallRefused(InternalFault):
    """Codex answered a call with an error."""


class CodexFaulted(BackendLost):
    """Codex answered a call with an internal error of its own; the same call may succeed elsewhere."""


class Inbox:
    """The queue of notifications and requests of one thread; its reader gets everything that one read brought."""

    # A client that reads never falls this far behind. Whole items do not count: the model's are streamed as deltas
    # before, and the client's are as large as its request.
    max_unread_bytes = 8_000_000

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._notes: list[Note] = []
        self._unread = 0
        self._error: GatewayError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._held = False
        self.on_overflow: Callable[[], None] = ignore
        """Called once if the notifications are not read; the thread's owner stops the turn."""

    def put(self, notes: Sequence[Note], size: int) -> None:
        """Add notifications of so many bytes; fails the inbox if too many are unread, but never for one batch alone."""
        if self._error is not None:
            return
        if self._unread >= self.max_unread_bytes and self._unread - self._in_items() >= self.max_unread_bytes:
            self.fail(BackendUnavailable("The client read too slowly; the turn was interrupted.", code="slow_reader"))
            self.on_overflow()
            return
        self._unread += size
        self._notes += notes
        if self._reader is not None and not self._held and not _only_starts_a_message(notes):
            self._wake()

    def hold(self) -> None:
        """Do not wake the reader while a turn is being started: Codex echoes the injected items then."""
        self._held = True

    def release(self) -> None:
        """Wake the reader again, now that the turn has been started."""
        self._held = False
        if not all(isinstance(note, RawItemCompleted) for note in self._notes):
            self._wake()

    def fail(self, error: GatewayError) -> None:
        """End the inbox: its reader gets what is there, then the error."""
        self._error = error
        self._wake()

    @property
    def failed(self) -> bool:
        """Tell whether the inbox has ended."""
        return self._error is not None

    def holds(self, *kinds: type[Notification]) -> bool:
        """Tell whether a notification of these kinds is unread."""
        return any(isinstance(note, kinds) for note in self._notes)

    async def batch(self) -> list[Note]:
        """Wait for notifications and return all that have arrived; raises once the inbox has ended."""
        if not self._notes and self._error is None:
            self._reader = self._loop.create_future()
            await self._reader
        if not self._notes and self._error is not None:
            raise self._error
        notes, self._notes, self._unread = self._notes, [], 0
        return notes

    def _in_items(self) -> int:
        return sum(len(note.item) for note in self._notes if isinstance(note, RawItemCompleted))

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)


class Connection:
    """The connection to one app-server. When the pipe ends, every pending call and inbox gets the same error.

    With a `check`, nothing is sent that the binary's own schema does not allow. `older` are notifications that only
    older versions of Codex need to be read for.
    """

    # A healthy app-server needs milliseconds.
    call_timeout_s = 30.0

    def __init__(
        self,
        write: Callable[[bytes], None],
        *,
        check: RpcCheck | None = None,
        older: Mapping[str, type[OlderNotification]] | None = None,
    ) -> None:
        # Kept, because `get_running_loop` takes a system call.
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._check = check
        self._lines = jsonrpc.LineSplitter()
        self._ids = itertools.count(1)
        self._calls: dict[jsonrpc.RequestId, tuple[asyncio.Future[msgspec.Raw], asyncio.TimerHandle]] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._shapes: dict[str, type[Notification | OlderNotification]] = {**NOTIFICATIONS, **(older or {})}
        self._notifications = jsonrpc.Notifications[Told]({**self._shapes, UPDATED: RateLimitsUpdated})
        self._ended: GatewayError | None = None
        self._broken = False
        self.skipped: Counter[str] = Counter()
        self.plan = Plan()
        """What this app-server tells of the plan; the owner of several replaces it by one for all of them."""
        self.on_broken: Callable[[], None] = ignore
        """Called once if the stream can no longer be decoded; the owner of the pipe closes it."""
        self.on_timeout: Callable[[], None] = ignore
        """Called whenever a call times out; the owner of the app-server recycles it."""

    async def call(self, method: str, params: Json, result: type[T], *, timeout_s: float | None = None) -> T:
        """Call Codex and return its answer; raises `CallRefused` with Codex's message if it refuses.

        A call with a timeout of its own may depend on somebody else than Codex: its timeout has no consequences.
        """
        return await self.answered(self.send(method, params, timeout_s=timeout_s), method, result)

    async def answered(self, answer: "asyncio.Future[msgspec.Raw]", method: str, result: type[T]) -> T:
        """Return the answer to a call of `method` that was sent before."""
        try:
            raw = await answer
        except (CallRefused, CodexFaulted) as refused:
            log.warning("codex_call_refused", method=method, reason=refused.message)
            raise
        return decode_answer(raw, method, result)

    def send(self, method: str, params: Json, *, timeout_s: float | None = None) -> asyncio.Future[msgspec.Raw]:
        """Send a call and return its future answer, which fails after a timeout."""
        if self._ended is not None:
            raise self._ended
        if self._check is not None:
            self._check_request(self._check, method, params)
        request_id = next(self._ids)
        answer: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s or self.call_timeout_s, self._time_out, request_id, method, timeout_s)
        self._calls[request_id] = answer, timer
        self._write(jsonrpc.encode_request(request_id, method, params))
        return answer

    def cast(self, method: str, params: Json) -> None:
        """Send a call whose answer nobody needs, and which may never come."""
        if self._ended is None:
            if self._check is not None:
                self._check_request(self._check, method, params)
            self._write(jsonrpc.encode_request(next(self._ids), method, params))

    def answer(self, request_id: jsonrpc.RequestId, result: Json) -> None:
        """Answer Codex's request for the output of a client's function."""
        if problem := self._reply_problem("item/tool/call", result):
            raise InternalFault(problem)
        self._write(jsonrpc.encode_result(request_id, result))

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._write(jsonrpc.encode_notification(method))

    def subscribe(self, thread_id: str) -> Inbox:
        """Return the inbox of a thread; notifications of a thread without one are dropped."""
        inbox = self._inboxes[thread_id] = Inbox(self._loop)
        if self._ended is not None:
            inbox.fail(self._ended)
        return inbox

    def unsubscribe(self, thread_id: str) -> None:
        """Remove the inbox of a thread."""
        self._inboxes.pop(thread_id, None)

    def receive(self, data: bytes) -> None:
        """Process data from the pipe."""
        lines = self._lines.whole(data)
        start, whole = 0, len(lines)
        while start < whole and not self._broken:
            if lines.startswith(ANSWER, start):
                end = lines.find(b"\n", start) + 1
                self._receive_other(lines[start:end])
            else:
                end = lines.find(b"\n" + ANSWER, start) + 1 or whole
                self._receive_notifications(lines[start:end])
            start = end
        if self._lines.endless and not self._broken:
            log.error("codex_line_endless", longer_than=self._lines.longest_bytes)
            self._break()

    def end(self, error: GatewayError) -> None:
        """Fail all pending and future calls and inboxes."""
        self._ended = error
        # The callbacks refer to the connection: it must not be kept in memory by them.
        self.on_broken = self.on_timeout = ignore
        for answer, timer in self._calls.values():
            timer.cancel()
            _fail(answer, error)
        self._calls.clear()
        for inbox in self._inboxes.values():
            inbox.fail(error)

    def _time_out(self, request_id: int, method: str, timeout_s: float | None) -> None:
        answer, _ = self._calls.pop(request_id)
        within_s = timeout_s or self.call_timeout_s
        _fail(answer, BackendLost(f"Codex did not answer `{method}` within {within_s:g} seconds."))
        if timeout_s is None:
            log.error("codex_call_unanswered", method=method, within_s=within_s)
            self.on_timeout()

    def _break(self) -> None:
        self._broken = True
        self.on_broken()

    def _check_request(self, check: RpcCheck, method: str, params: Json) -> None:
        if (problem := check.request_problem(method, params)) is not None:
            raise InternalFault(_violation(method, problem))

    def _reply_problem(self, question: str, result: Json) -> str | None:
        problem = self._check.reply_problem(question, result) if self._check is not None else None
        return None if problem is None else _violation(f"reply to {question}", problem)

    def _receive_notifications(self, lines: bytes) -> None:
        if self._broken:
            return
        notes = self._notifications.read(lines)
        if notes is not None:
            self._deliver(notes, len(lines))
            return
        # One line is something else, or broken. A binary search finds it, so that the others are decoded together.
        middle = lines.rfind(b"\n", 0, len(lines) // 2) + 1 or lines.find(b"\n") + 1
        if 0 < middle < len(lines):
            self._receive_notifications(lines[:middle])
            self._receive_notifications(lines[middle:])
        else:
            self._receive_other(lines)

    def _receive_other(self, line: bytes) -> None:
        """Process an answer, a request, or a notification that is unknown or broken."""
        try:
            message = jsonrpc.decode_line(line)
        except msgspec.MsgspecError:
            self.skipped["unreadable"] += 1
            log.warning("codex_line_unreadable", size=len(line))
            return
        if not jsonrpc.is_utf8(line):
            # The broken part may be the id of a call or thread: every one of them could be affected.
            log.error("codex_line_not_utf8", size=len(line))
            self._break()
        elif message.method is None:
            self._receive_answer(message)
        elif message.id is None:
            self._receive_notification(message.method, message.params)
        elif message.method == "item/tool/call":
            self._receive_tool_call(message.id, message.params)
        else:
            self._decline(message.id, message.method)

    def _receive_answer(self, message: jsonrpc.Incoming) -> None:
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
        if method == UPDATED:
            # It comes here only if it cannot be read. No turn depends on it, so that harms none.
            self.skipped[method] += 1
            log.warning("codex_limits_unreadable", size=len(params))
            return
        shape = self._shapes.get(method)
        if shape is None:
            self.skipped[method] += 1
            return
        try:
            self._deliver([jsonrpc.decode_as(shape, params)], len(params))
        except msgspec.MsgspecError as error:
            # The thread is unknown, and so is the state of its turn: every turn must end.
            log.error("codex_notification_broken", method=method, error=str(error))
            for inbox in self._inboxes.values():
                inbox.fail(InternalFault(f"Codex sent a `{method}` that this version of Turnbridge cannot read."))

    def _deliver(self, notes: Sequence[Told], size: int) -> None:
        """Put notifications of so many bytes into the inboxes of their threads."""
        runs = [notes] if len(notes) == 1 else [list(run) for _, run in itertools.groupby(notes, _thread_of)]
        for run in runs:
            inbox = self._inboxes.get(run[0].thread_id)
            if inbox is not None:
                # The notifications of a thread are all of this kind.
                inbox.put(run, size * len(run) // len(notes))  # type: ignore[arg-type]
            elif isinstance(run[0], RateLimitsUpdated):
                for note in run:
                    self.plan.update(note.rate_limits)  # type: ignore[union-attr]
            else:
                self.skipped["late"] += len(run)

    def _receive_tool_call(self, request_id: jsonrpc.RequestId, params: msgspec.Raw) -> None:
        """Put a call of a client's function into the inbox of its thread, which answers it later."""
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
            self._write(jsonrpc.encode_refusal(request_id, DECLINED))


def ignore() -> None:
    """Do nothing: the default of callbacks."""


def decode_answer(raw: msgspec.Raw, method: str, result: type[T]) -> T:
    """Return the answer to a call of `method`; raises `InternalFault` if it has another shape."""
    try:
        return jsonrpc.decode_as(result, raw)
    except msgspec.MsgspecError as error:
        log.error("codex_answer_broken", method=method, error=str(error))
        problem = f"Codex answered `{method}` in a way that this version of Turnbridge cannot read."
        raise InternalFault(problem) from error


def _only_starts_a_message(notes: Sequence[Note]) -> bool:
    """Tell whether these only announce a message, which is then read together with its first delta."""
    first = notes[0]
    return len(notes) == 1 and isinstance(first, ItemStarted) and first.item.type == "agentMessage"


def _fail(answer: "asyncio.Future[msgspec.Raw]", error: GatewayError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # Marked as retrieved: a cancelled call has nobody to do it.


def _violation(sent: str, problem: str) -> str:
    """Log a message that Codex would not take, which is a defect of the gateway; return it as a sentence."""
    log.error("rpc_violates_schema", sent=sent, problem=problem)
    return f"Turnbridge was about to send Codex a `{sent}` that it does not take: {problem}."
