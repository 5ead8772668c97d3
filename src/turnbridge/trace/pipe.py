"""Codex's wire: every line of one app-server's pipe, with the request that it belongs to.

What is sent while a request is served is that request's. What Codex sends belongs to whoever it answers, or to whoever
has its turn, or its thread. A thread may serve several requests, one after the other, and so may a turn that waits for
the outputs of its calls: the request that last gave it something to do has it.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import msgspec

from turnbridge.codex.protocol import jsonrpc
from turnbridge.trace.redaction import UNREADABLE
from turnbridge.trace.trace import Line, Moment, RpcKind, Trace, serving

K = TypeVar("K")
V = TypeVar("V")

# Far more threads, turns and open questions than an app-server has before it is replaced.
MOST_REMEMBERED = 10_000
# What is still to come of a turn that is interrupted belongs to the request that ran it, whoever interrupts it.
GIVES_NOTHING_TO_DO = ("turn/interrupt", "interruptConversation")


class _Ref(msgspec.Struct, frozen=True):
    id: str | None = None


class _Place(msgspec.Struct, frozen=True, rename="camel"):
    """Where the parameters or the result of a message say that it belongs; old dialects call threads conversations."""

    thread_id: str | None = None
    conversation_id: str | None = None
    turn_id: str | None = None
    thread: _Ref = _Ref()
    turn: _Ref = _Ref()


_place = msgspec.json.Decoder(_Place)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """What is known of a message, or of the question that it answers."""

    kind: RpcKind = "unreadable"
    method: str | None = None
    request_id: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None


class _Memory(OrderedDict[K, V]):
    """A dictionary that forgets its oldest entries."""

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > MOST_REMEMBERED:
            self.popitem(last=False)


class TracePipe:
    """Writes down what one app-server is told, and what it tells."""

    def __init__(self, trace: Trace, pid: int) -> None:
        self._trace = trace
        self._pid = pid
        self._lines = jsonrpc.LineSplitter()
        self._our_questions: _Memory[jsonrpc.RequestId | None, _Entry] = _Memory()
        self._its_questions: _Memory[jsonrpc.RequestId | None, _Entry] = _Memory()
        self._owners: _Memory[str, str] = _Memory()

    def sent(self, data: bytes) -> None:
        """Take a line to Codex."""
        ask = serving.get()
        note = partial(self._note, data.rstrip(b"\n"), self._trace.clock(), sent=True, request_id=ask and ask())
        self._trace.later(note, len(data))

    def received(self, data: bytes) -> None:
        """Take what the pipe brought, in whatever pieces."""
        at = self._trace.clock()
        for line in self._lines.feed(data):
            self._trace.later(partial(self._note, line, at, sent=False), len(line))

    # From here on all is done in the thread of the trace.

    def _to_codex(self, message: jsonrpc.Incoming | None, request_id: str | None) -> _Entry:
        if message is None:
            return _Entry(request_id=request_id)
        if message.method is None:
            asked = self._its_questions.pop(message.id, _Entry())
            entry = replace(asked, kind=_answer_kind(message), request_id=request_id or asked.request_id)
            self._give(entry, entry.thread_id, entry.turn_id)
            return entry
        entry = _told(message, request_id)
        if message.id is not None:
            self._our_questions[message.id] = entry
        if message.method not in GIVES_NOTHING_TO_DO:
            self._give(entry, entry.thread_id)
        return entry

    def _from_codex(self, message: jsonrpc.Incoming | None) -> _Entry:
        if message is None:
            return _Entry()
        if message.method is None:
            asked = self._our_questions.pop(message.id, _Entry())
            thread_id, turn_id = _place_in(message.result)
            entry = replace(
                asked,
                kind=_answer_kind(message),
                thread_id=asked.thread_id or thread_id,
                turn_id=asked.turn_id or turn_id,
            )
            self._give(entry, thread_id, turn_id)
            return entry
        told = _told(message, None)
        owner = self._owners.get(told.turn_id or "") or self._owners.get(told.thread_id or "")
        entry = replace(told, request_id=owner)
        if message.id is not None:
            self._its_questions[message.id] = entry
        return entry

    def _give(self, entry: _Entry, *to_do: str | None) -> None:
        """Let threads and turns be those of the entry's request."""
        for each in to_do:
            if each is not None and entry.request_id is not None:
                self._owners[each] = entry.request_id

    def _note(self, data: bytes, at: Moment, *, sent: bool, request_id: str | None = None) -> None:
        message = _read(data)
        entry = self._to_codex(message, request_id) if sent else self._from_codex(message)
        payload = self._trace.redaction.body(data)
        line = Line(
            *at,
            "backend_submission" if sent and entry.request_id is not None else "backend_io",
            "outbound" if sent else "inbound",
            entry.kind,
            request_id=entry.request_id,
            worker_pid=self._pid,
            thread_id=entry.thread_id,
            turn_id=entry.turn_id,
            method=entry.method,
            size=len(data),
            cut=payload.cut,
            payload=payload.raw,
        )
        self._trace.note(line)


def _read(line: bytes) -> jsonrpc.Incoming | None:
    try:
        return jsonrpc.decode_line(line)
    except msgspec.MsgspecError:
        return None


def _told(message: jsonrpc.Incoming, request_id: str | None) -> _Entry:
    """Return what a request or a notification says of itself."""
    thread_id, turn_id = _place_in(message.params)
    kind: RpcKind = "rpc_notification" if message.id is None else "rpc_request"
    return _Entry(kind=kind, method=message.method, request_id=request_id, thread_id=thread_id, turn_id=turn_id)


def _answer_kind(message: jsonrpc.Incoming) -> RpcKind:
    return "rpc_response" if message.error is None else "rpc_error"


def _place_in(raw: msgspec.Raw) -> tuple[str | None, str | None]:
    """Return the thread and the turn that parameters or a result name."""
    try:
        place = _place.decode(raw)
    except UNREADABLE:
        return None, None
    return place.thread_id or place.thread.id or place.conversation_id, place.turn_id or place.turn.id
