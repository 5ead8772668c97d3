"""The client's wire: an ASGI layer that traces each request, and each piece of its answer as it leaves."""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnbridge.trace.trace import HttpKind, Line, Moment, Trace, serving
from turnbridge.turn.items import JsonObject

EVENT_STREAM = "text/event-stream"
PAGE_PREFIX = "/turnbridge/"


class TraceHttp:
    """Passes everything on untouched. It stands outermost, so that nothing escapes it."""

    def __init__(self, app: ASGIApp, trace: Trace, *, request_id: Callable[[Scope], str]) -> None:
        """Take how a request's id is read from its scope, once it has been let in."""
        self._app = app
        self._trace = trace
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        # The page of this gateway reads the trace, and its requests open sessions.
        if scope["type"] != "http" or scope["path"].startswith(PAGE_PREFIX):
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
        """Take what the client sent; the request is written when it is whole."""
        if message["type"] == "http.request":
            self._asked.append(message.get("body", b""))
            if not message.get("more_body", False):
                self._tell_request()
        elif not self._complete:
            self._tell_request()
            self._tell("disconnect")

    def sent(self, message: Message) -> None:
        """Take what the client is sent."""
        if message["type"] == "http.response.start":
            self._tell_request()
            headers = _headers(message.get("headers", ()))
            self._streams = str(headers.get("content-type", "")).startswith(EVENT_STREAM)
            self._tell("response", msgspec.json.encode({"status": message["status"], "headers": headers}))
        elif message["type"] == "http.response.body":
            self._answered += message.get("body", b"")
            self._complete = not message.get("more_body", False)
            if self._streams:
                self._tell_frames()
            elif self._complete:
                self._tell_body()

    def ended(self) -> None:
        """Write what is left: the request of an answer that did not need to read it, and a break."""
        self._tell_request()
        if not self._complete:
            self._tell_body()
            self._tell("aborted")

    def _tell_request(self) -> None:
        if self._told:
            return
        self._told = True
        asked, self._asked = self._asked, []
        size = sum(map(len, asked))
        self._trace.later(partial(self._note_request, asked, size, self.request_id()), size)

    def _tell_frames(self) -> None:
        *frames, rest = bytes(self._answered).split(b"\n\n")
        self._answered = bytearray(rest)
        for frame in frames:
            self._tell("sse", frame)
        if self._complete:
            self._tell_body("sse")

    def _tell_body(self, kind: HttpKind = "body") -> None:
        if self._answered:
            data = bytes(self._answered)
            self._answered.clear()
            self._tell(kind, data)

    def _tell(self, kind: HttpKind, data: bytes = b"null") -> None:
        self._trace.later(partial(self._note, kind, data, self.request_id(), self._trace.clock()), len(data))

    # From here on all is done in the thread of the trace.

    def _note_request(self, asked: list[bytes], size: int, request_id: str) -> None:
        scope, redaction = self._scope, self._trace.redaction
        body = redaction.body(b"".join(asked)) if size else None
        shown: dict[str, object] = {"headers": redaction.clean(_headers(scope["headers"])), "body": body and body.raw}
        if scope["query_string"]:
            shown["query"] = redaction.text(scope["query_string"].decode("latin-1"))
        line = Line(
            *self._began,
            "http_ingress",
            "inbound",
            "request",
            request_id=request_id,
            method=f"{scope['method']} {scope['path']}",
            size=size,
            cut=body is not None and body.cut,
            payload=msgspec.Raw(msgspec.json.encode(shown)),
        )
        self._trace.note(line)

    def _note(self, kind: HttpKind, data: bytes, request_id: str, at: Moment) -> None:
        name, body = _parsed(data) if kind == "sse" else (None, data)
        payload = self._trace.redaction.body(body)
        line = Line(
            *at,
            "http_ingress" if kind == "disconnect" else "client_egress",
            "inbound" if kind == "disconnect" else "outbound",
            kind,
            request_id=request_id,
            method=name,
            size=len(data) if kind in ("sse", "body") else None,
            cut=payload.cut,
            payload=payload.raw,
        )
        self._trace.note(line)


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
