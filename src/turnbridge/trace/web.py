"""The client's wire: an ASGI layer that writes down each request, and each piece of its answer as it leaves."""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnbridge.trace.record import Kind, Payload
from turnbridge.trace.trace import NOTHING, Moment, Trace, serving
from turnbridge.turn.items import JsonObject

EVENT_STREAM = b"text/event-stream"


class TraceHttp:
    """Passes everything on untouched. It stands outermost, so that nothing escapes it."""

    def __init__(self, app: ASGIApp, trace: Trace, *, request_id: Callable[[Scope], str]) -> None:
        """Take how a request's id is read from its scope, once it has been let in."""
        self._app = app
        self._trace = trace
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self._trace, scope, lambda: self._request_id(scope))

        async def traced_receive() -> Message:
            message = await receive()
            exchange.received(message)
            return message

        async def traced_send(message: Message) -> None:
            exchange.sent(message)
            await send(message)

        mark = serving.set(exchange.request_id)
        try:
            await self._app(scope, traced_receive, traced_send)
        finally:
            exchange.ended()
            serving.reset(mark)


class _Exchange:
    """One request and its answer."""

    def __init__(self, trace: Trace, scope: Scope, request_id: Callable[[], str]) -> None:
        self._trace = trace
        self._scope = scope
        self._began = trace.clock()
        self._asked: list[bytes] = []
        self._answered = bytearray()
        self._told = False
        self._streams = False
        self._complete = False
        self.request_id = request_id

    def received(self, message: Message) -> None:
        """Take what the client sent; the request is written down when it is whole."""
        if message["type"] == "http.request":
            self._asked.append(message.get("body", b""))
            if not message.get("more_body", False):
                self._tell_request()
        elif not self._complete:
            self._tell_request()
            note = partial(self._trace.note, "http_ingress", "inbound", "disconnect")
            self._trace.later(partial(note, at=self._trace.clock(), request_id=self.request_id()))

    def sent(self, message: Message) -> None:
        """Take what the client is sent."""
        if message["type"] == "http.response.start":
            self._tell_request()
            head: JsonObject = {"status": message["status"], "headers": _headers(message.get("headers", ()))}
            self._streams = any(
                name.lower() == b"content-type" and value.startswith(EVENT_STREAM)
                for name, value in message.get("headers", ())
            )
            self._tell_answer("response", lambda: self._trace.redaction.value(head))
        elif message["type"] == "http.response.body":
            self._answered += message.get("body", b"")
            self._complete = not message.get("more_body", False)
            if self._streams:
                self._tell_frames()
            elif self._complete:
                self._tell_body()

    def ended(self) -> None:
        """Write down what has not been told yet: the request of an answer that did not need to read it, and a break."""
        self._tell_request()
        if not self._complete:
            self._tell_body()
            self._tell_answer("aborted")

    def _tell_request(self) -> None:
        if self._told:
            return
        self._told = True
        asked, self._asked = self._asked, []
        size = sum(map(len, asked))
        self._trace.later(partial(self._note_request, asked, size, self.request_id()), size)

    def _note_request(self, asked: list[bytes], size: int, request_id: str) -> None:
        scope, redaction = self._scope, self._trace.redaction
        body = redaction.body(b"".join(asked)) if size else NOTHING
        shown: dict[str, object] = {"headers": redaction.clean(_headers(scope["headers"])), "body": body.raw}
        if scope["query_string"]:
            shown["query"] = redaction.text(scope["query_string"].decode("latin-1"))
        self._trace.note(
            "http_ingress",
            "inbound",
            "request",
            Payload(raw=msgspec.Raw(msgspec.json.encode(shown)), cut=body.cut),
            at=self._began,
            request_id=request_id,
            method=f"{scope['method']} {scope['path']}",
            size=size,
        )

    def _tell_frames(self) -> None:
        *frames, rest = bytes(self._answered).split(b"\n\n")
        self._answered = bytearray(rest)
        if self._complete and rest:
            frames.append(rest)
            self._answered.clear()
        for frame in frames:
            self._trace.later(partial(self._note_frame, frame, self.request_id(), self._trace.clock()), len(frame))

    def _note_frame(self, frame: bytes, request_id: str, at: Moment) -> None:
        name, data = _parsed(frame)
        payload, size = self._trace.redaction.body(data), len(frame)
        self._trace.note(
            "client_egress", "outbound", "sse", payload, at=at, request_id=request_id, size=size, method=name
        )

    def _tell_body(self) -> None:
        if self._answered:
            data = bytes(self._answered)
            self._answered.clear()
            self._tell_answer("body", lambda: self._trace.redaction.body(data), size=len(data))

    def _tell_answer(
        self, kind: Kind, payload: Callable[[], Payload] = lambda: NOTHING, *, size: int | None = None
    ) -> None:
        at, request_id = self._trace.clock(), self.request_id()
        self._trace.later(
            lambda: self._trace.note(
                "client_egress", "outbound", kind, payload(), at=at, request_id=request_id, size=size
            ),
            size or 0,
        )


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> JsonObject:
    headers: JsonObject = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _parsed(frame: bytes) -> tuple[str | None, bytes]:
    """Return the name of an event and its data; a comment is its own data."""
    name: str | None = None
    data: list[bytes] = []
    for line in frame.splitlines():
        field, _, value = line.partition(b":")
        if field == b"event":
            name = value.strip().decode(errors="replace")
        elif field == b"data":
            data.append(value.removeprefix(b" "))
    return name, b"\n".join(data) if data else frame
