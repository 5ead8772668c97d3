"""`GET /v1/responses` as a WebSocket: each `response.create` is served as a `POST` of the same connection would be.

A message goes through the whole application, so that keys, rate limits, the queue, log line, metrics and trace are
those of HTTP; the frames of its stream become messages. Only lanes, and responses that nobody stores, are known here.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

import msgspec
import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope
from websockets.frames import CloseCode

from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.responses.lanes import Lane, LaneMemory, Lanes, Remembered, checked_lane
from turnbridge.api.responses.socket_events import (
    CREATE,
    STEER,
    ClientEvent,
    error_message,
    messages,
    on_lane,
    read_event,
    refusal,
    told_headers,
    unsupported_event,
)
from turnbridge.api.responses.state import ADDED, MANY_ITEMS, Past
from turnbridge.api.responses.steering import Steer, Steering, uncommitted
from turnbridge.turn.errors import (
    BackendUnavailable,
    GatewayError,
    GatewayOverloaded,
    InvalidRequest,
    MethodNotAllowed,
    RateLimited,
)
from turnbridge.turn.items import JsonObject, size
from turnbridge.web.bodies import Bodies, beside, is_large, parsed
from turnbridge.web.http import OPENAI, RouteOf, new_id
from turnbridge.web.middleware.auth import client_of
from turnbridge.web.middleware.observability import context_of
from turnbridge.web.server.websocket import Upgrade, WebSocket, upgrade_of

log = structlog.get_logger(__name__)

SOCKET_REQUEST = "turnbridge.socket_request"
"""Where the scope of a request that came over a WebSocket has its `SocketRequest`."""

# An idle connection takes 16 KB. Of several keys, none may have all.
MOST_CONNECTIONS = 2048
MOST_OF_CLIENT = 1024
COME_BACK_S = 5.0
SHUTTING_DOWN = "shutting_down"

# Of a handshake, what its requests do not repeat: it belongs to the connection, or names a single request.
NOT_REPEATED = frozenset(
    {
        *(b"connection", b"upgrade", b"origin", b"expect", b"transfer-encoding", b"content-length"),
        *(b"content-encoding", b"idempotency-key", b"x-request-id"),
    }
)
HANDSHAKE_PREFIX = b"sec-websocket-"
REPEATED_SCOPE = ("type", "asgi", "http_version", "server", "client", "scheme", "root_path", "raw_path", "query_string")


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketRequest:
    """What a request over a WebSocket has besides those over HTTP."""

    memory: LaneMemory
    connection: object
    lane: Lane
    steering: Steering

    def find(self, response_id: str) -> tuple[JsonObject, ...] | None:
        """Return the conversation up to a response that this connection remembers."""
        return self.memory.find(self.connection, response_id)

    async def remember(self, past: Past, encoder: ResponseEncoder) -> None:
        """Let the lane continue from a response that is not stored."""
        response, place = encoder.whole(), (self.connection, self.lane)
        if encoder.status in ADDED:
            self.steering.finish(self.lane, encoder.said)
        if response["store"] or encoder.status not in ADDED:
            self.memory.drop(place)
            return
        items = (*past.history, *past.inputs, *encoder.said)
        held = await beside(partial(size, items), large=len(items) > MANY_ITEMS)
        self.memory.keep(past.owner, place, Remembered(str(response["id"]), items), held)


def socket_request_of(scope: Scope) -> SocketRequest | None:
    """Return what came with a request over a WebSocket; None if it came over HTTP."""
    found: SocketRequest | None = scope.get(SOCKET_REQUEST)
    return found


class ResponsesOverWebSocket:
    """The handler of handshakes, and what all connections share."""

    dialect = OPENAI

    def __init__(self, bodies: Bodies, draining: Callable[[], bool]) -> None:
        """`draining` tells whether the gateway is about to stop."""
        self._bodies = bodies
        self._draining = draining
        self._memory = LaneMemory()
        self._open: dict[str, set[Connection]] = {}

    def __len__(self) -> int:
        """Return how many connections are open."""
        return sum(map(len, self._open.values()))

    def retire(self, clients: frozenset[str]) -> None:
        """Let no response begin on the connections of these clients, and close them when nothing runs there."""
        for connection in [each for client in clients for each in self._open.get(client, ())]:
            connection.retire(CloseCode.POLICY_VIOLATION)

    def routes(self) -> list[RouteOf]:
        """Return the route of handshakes."""
        return [RouteOf("GET", "/responses", self.connect)]

    async def connect(self, request: Request) -> ASGIApp:
        """Accept a handshake."""
        scope, upgrade = request.scope, upgrade_of(request.scope)
        if upgrade is None:
            context = context_of(scope)
            context.response_headers.append((b"allow", b"POST"))
            raise MethodNotAllowed(
                f"{context.method} is not allowed on {context.route}, except for a WebSocket handshake. Allowed: POST."
            )
        self._check_room(client_of(scope))
        return upgrade.accept(partial(self._serve, upgrade, scope), max_message_bytes=self._bodies.limit_bytes)

    def _check_room(self, client: str) -> None:
        if self._draining():
            raise BackendUnavailable("The gateway is shutting down.", code=SHUTTING_DOWN, retry_after=COME_BACK_S)
        if len(self._open.get(client, ())) >= MOST_OF_CLIENT:
            raise RateLimited(
                f"This key has {MOST_OF_CLIENT} WebSocket connections open, which is the most. Close one of them.",
                code="too_many_connections",
                retry_after=COME_BACK_S,
            )
        if len(self) >= MOST_CONNECTIONS:
            raise GatewayOverloaded("Too many WebSocket connections are open.", retry_after=COME_BACK_S)

    async def _serve(self, upgrade: Upgrade, scope: Scope, socket: WebSocket) -> None:
        client = client_of(scope)
        connection = Connection(socket, upgrade.app, scope, self._memory, self._draining)
        connections = self._open.setdefault(client, set())
        connections.add(connection)
        try:
            await connection.serve()
        finally:
            connections.discard(connection)
            if not connections:
                del self._open[client]


class Connection:
    """One open WebSocket."""

    first_message_s = 75.0
    """How long a client may take to send anything."""
    age_s = 3600.0
    """After this, no response begins."""
    retirement_s = 300.0
    """An idle connection is closed this long after that."""

    def __init__(
        self, socket: WebSocket, app: ASGIApp, handshake: Scope, memory: LaneMemory, draining: Callable[[], bool]
    ) -> None:
        self._socket = socket
        self._app = app
        self._handshake = handshake
        self._memory = memory
        self._draining = draining
        self._lanes: Lanes[_Create] = Lanes()
        self._steering = Steering(partial(new_id, "steer_"))
        self._running: set[asyncio.Task[None]] = set()
        self._closing_code: int | None = None
        """With which the connection is closed as soon as nothing runs; no response begins from then on."""
        self._served = 0
        self._log = log.bind(request_id=context_of(handshake).request_id)

    async def serve(self) -> None:
        """Serve messages until the connection ends; then every response that runs is cancelled."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._timer = loop.call_later(self.age_s, self._age)
        self._socket.on_shutdown = partial(self.retire, CloseCode.SERVICE_RESTART)
        self._socket.mark(busy=False)
        try:
            await self._take_all()
        # The last resort: whatever the defect, the client must not wait in vain.
        except Exception:  # noqa: BLE001
            self._log.exception("unexpected_fault")
        finally:
            self._timer.cancel()
            self._socket.close(CloseCode.INTERNAL_ERROR)
            self._lanes.drop_waiting()
            if self._running:
                # They see the end of the connection as a disconnect.
                await asyncio.wait(self._running)
            self._memory.forget(self)
            self._log.info(
                "websocket_closed",
                code=self._socket.close_code,
                responses=self._served,
                total_s=round(loop.time() - began, 3),
            )

    async def _take_all(self) -> None:
        message: bytes | None = None
        try:
            async with asyncio.timeout(self.first_message_s):
                message = await self._socket.receive()
        except TimeoutError:
            self._socket.close(CloseCode.POLICY_VIOLATION, "No message came.")
        while message is not None:
            await self._take(message)
            message = None  # It may be large, and the next one may be long in coming.
            message = await self._socket.receive()

    async def _take(self, message: bytes) -> None:
        """Serve a message, or say why not; the connection stays."""
        lane: Lane = None
        try:
            event = await beside(partial(read_event, message), large=is_large(message))
            if event.type == STEER:
                steered, told = self._steering.submit(await parsed(message), len(message))
                await self._socket.send([on_lane(told, steered)])
                return
            if event.type != CREATE:
                raise unsupported_event(event.type)
            lane = checked_lane(event.stream_id)
            self._create(lane, event, message)
        except GatewayError as error:
            await self._socket.send([refusal(error, lane)])
            self._close_if_retired()

    def _create(self, lane: Lane, event: ClientEvent, message: bytes) -> None:
        if self._draining():
            self._closing_code = CloseCode.SERVICE_RESTART
        if self._closing_code is not None:
            raise _limit_reached()
        self._lanes.add(lane, _Create(message, event.previous_response_id), len(message))
        self._start()

    def _start(self) -> None:
        started = self._lanes.start()
        self._socket.mark(busy=not self._lanes.idle, waiting_bytes=self._lanes.waiting_bytes)
        for lane, create in started:
            task = asyncio.create_task(self._run(lane, create))
            self._running.add(task)
            task.add_done_callback(partial(self._ended, lane))

    def _ended(self, lane: Lane, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._lanes.end(lane)
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._log.error("unexpected_fault", exc_info=defect)
            self._socket.close(CloseCode.INTERNAL_ERROR)
        self._start()
        self._close_if_retired()

    async def _run(self, lane: Lane, create: "_Create") -> None:
        """Serve one request by the application, unless the gateway began to stop while it waited."""
        if self._draining():
            self._closing_code = CloseCode.SERVICE_RESTART
            await self._socket.send([refusal(_limit_reached(), lane)])
            return
        self._served += 1
        exchange, previous = _Exchange(self._socket, lane, create), create.previous_response_id
        del create  # Its message may be large, and is not needed for as long as the turn runs.
        request = SocketRequest(memory=self._memory, connection=self, lane=lane, steering=self._steering)
        await self._app(self._scope(request), exchange.receive, exchange.send)
        if exchange.failed and isinstance(previous, str):
            self._memory.drop((self, lane), previous)
        await self._continue_steered(lane)

    async def _continue_steered(self, lane: Lane) -> None:
        """Continue a response that was steered, before anything else on its lane."""
        told, successor = self._steering.end(lane)
        if successor is not None:
            body, steers = successor
            if self._closing_code is not None:
                told = [uncommitted(steer, "The connection takes no more responses.") for steer in steers]
            else:
                message = await beside(partial(msgspec.json.encode, {"type": CREATE, **body}), large=True)
                self._lanes.add_next(lane, _Create(message, body["previous_response_id"], steers), len(message))
        await self._socket.send([on_lane(each, lane) for each in told])

    def _scope(self, request: SocketRequest) -> Scope:
        """Return the scope of a request; its id is the connection's, and a number."""
        handshake = self._handshake
        headers = [
            (name, value)
            for name, value in handshake["headers"]
            if name not in NOT_REPEATED and not name.startswith(HANDSHAKE_PREFIX)
        ]
        request_id = f"{context_of(handshake).request_id}-{self._served}".encode()
        return {
            **{name: handshake[name] for name in REPEATED_SCOPE},
            "method": "POST",
            "path": handshake["path"],
            "headers": [*headers, (b"x-request-id", request_id)],
            "state": {},
            SOCKET_REQUEST: request,
        }

    def _age(self) -> None:
        """Let no response begin any more; an idle client has some time to notice."""
        self._closing_code = CloseCode.GOING_AWAY
        self._timer = asyncio.get_running_loop().call_later(self.retirement_s, self._close_if_retired)

    def retire(self, code: int) -> None:
        """Let no response begin any more, and close the connection when nothing runs."""
        self._closing_code = code
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self._closing_code is not None and self._lanes.idle:
            self._socket.close(self._closing_code, "Open another connection.")


def _limit_reached() -> InvalidRequest:
    return InvalidRequest(
        "This WebSocket connection has reached its limit. Open another one, and send the request there.",
        code="websocket_connection_limit_reached",
    )


@dataclass(frozen=True, slots=True)
class _Create:
    message: bytes
    previous_response_id: object
    steers: Sequence[Steer] = ()
    """The input that it commits, if it is the successor of a response that was steered."""


class _Exchange:
    """One request and its answer, as the application receives and sends them."""

    def __init__(self, socket: WebSocket, lane: Lane, create: _Create) -> None:
        self._socket = socket
        self._lane = lane
        self._steers = create.steers
        self._message: bytes | None = create.message
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = b""
        self.failed = False
        """Whether it ended in an error, before or after its first event."""

    async def receive(self) -> Message:
        """Return the message as a body, and the end of the connection as a disconnect."""
        if (message := self._message) is not None:
            self._message = None
            return {"type": "http.request", "body": message, "more_body": False}
        await self._socket.lost.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send the frames of a stream as messages; of any other answer, its error."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], told_headers(message.get("headers", ()))
            return
        body: bytes = message.get("body", b"")
        if self._status < HTTPStatus.BAD_REQUEST:
            told, names = messages(body, self._lane)
            self.failed = self.failed or b"response.failed" in names
            await self._socket.send(told)
            return
        self.failed = True
        self._body += body
        if not message.get("more_body", False):
            error: JsonObject = msgspec.json.decode(self._body, type=dict)["error"]
            if self._steers:
                # Its client did not ask for this request, so an error would belong to nothing that it knows.
                given_back = [uncommitted(steer, str(error["message"])) for steer in self._steers]
                await self._socket.send([on_lane(each, self._lane) for each in given_back])
            elif error["code"] == SHUTTING_DOWN:
                # Nothing of it was told. At this code, clients send it again over another connection.
                await self._socket.send([refusal(_limit_reached(), self._lane)])
            else:
                await self._socket.send([error_message(self._status, error, self._headers, self._lane)])
