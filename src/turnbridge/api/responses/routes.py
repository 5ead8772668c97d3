"""The routes of Responses: creating them, and those that are stored: read, streamed again, cancelled, deleted."""

import dataclasses
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from turnbridge.api.generation import Generation, Settled
from turnbridge.api.responses.background import BackgroundRuns
from turnbridge.api.responses.compaction import (
    CompactionEncoder,
    Seal,
    compaction_body,
    expanded,
    planned,
    threshold_of,
)
from turnbridge.api.responses.decode import (
    ENCRYPTED,
    ENCRYPTED_REASONING,
    DecodedResponses,
    decode,
    item_type,
    parse,
    with_content,
)
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.responses.endings import last_frames
from turnbridge.api.responses.schema import ResponsesRequest
from turnbridge.api.responses.socket_events import request_body
from turnbridge.api.responses.state import FindRemembered, Past, keep, recall, remember_nothing
from turnbridge.api.responses.websocket import SocketRequest, socket_request_of
from turnbridge.api.shared.pagination import deleted, page, page_query, query_number, unknown_after
from turnbridge.api.shared.validation import invalid
from turnbridge.engine.frame_log import PackedStreams
from turnbridge.engine.input_tokens import uncounted
from turnbridge.engine.models import DEFAULT_MODEL
from turnbridge.engine.records import (
    CANCELLED,
    RUNNING,
    ItemPage,
    ItemQuery,
    KeptItem,
    ResponseRecord,
)
from turnbridge.engine.run import Run
from turnbridge.turn.errors import InvalidRequest, NotFound
from turnbridge.turn.events import TurnCompleted, Usage
from turnbridge.turn.items import Json, JsonObject, replace
from turnbridge.turn.request import TurnRequest
from turnbridge.web.answer import FIDELITY_HEADER, USAGE_HEADER
from turnbridge.web.bodies import beside
from turnbridge.web.http import OPENAI, RouteOf, json_response, new_id
from turnbridge.web.middleware.auth import caller, client_of
from turnbridge.web.middleware.observability import context_of

E = TypeVar("E", bound=ResponseEncoder)

UNCOUNTED_HEADER = "x-turnbridge-uncounted"

NOT_IN_BACKGROUND = "Only a response that was created with `background: true` can be {what}."


class Responses:
    """Handlers of `/v1/responses` and what is below it."""

    dialect = OPENAI

    def __init__(
        self,
        generation: Generation,
        background: BackgroundRuns,
        count: Callable[[TurnRequest], Awaitable[int]],
        seal: Seal,
    ) -> None:
        """`count` returns about how many tokens of input a turn has; `seal` is that of compacted histories."""
        self._generation = generation
        self._seal = seal
        self._count = count
        self._state = generation.state
        self._background = background
        self._streams = PackedStreams()

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        one = "/responses/{response_id}"
        return [
            RouteOf("POST", "/responses", self.create, generates=True),
            RouteOf("POST", "/responses/compact", self.compact, generates=True),
            RouteOf("POST", "/responses/input_tokens", self.count_input),
            RouteOf("GET", one, self.retrieve),
            RouteOf("DELETE", one, self.delete),
            RouteOf("POST", f"{one}/cancel", self.cancel),
            RouteOf("GET", f"{one}/input_items", self.input_items),
        ]

    async def create(self, request: Request) -> ASGIApp:
        """Answer a Responses request, or begin it in the background."""
        generation, socket = self._generation, socket_request_of(request.scope)
        body, large = await generation.body(request)
        generates = True
        if socket is not None:
            body, generates = request_body(socket.steering.with_pending(socket.lane, body))
            context_of(request.scope).stream = True
        remembered = remember_nothing if socket is None else socket.find
        past, decoded, settled = await self._settled(
            request, body, large=large, needs_input=generates, remembered=remembered
        )
        encoder = _encoder(ResponseEncoder, decoded, settled, stored=past.keep)
        if managed := decoded.body.context_management:
            threshold = threshold_of(managed, settled.choice.model.context_window)
            settled = settled if threshold is None else await self._compacting(past, settled, encoder, threshold)
        if not generates:
            return await _warmed_up(encoder, partial(self._finish, socket, past, encoder))
        run = generation.run(request, settled, encoder)
        if socket is not None:
            socket.steering.begin(socket.lane, encoder.response_id, body, run.cut)
        finish = partial(self._finish, socket, past, encoder, run)
        if past.background:
            begun = await self._background.start(run, past, encoder, caller(request.scope))
            headers = {FIDELITY_HEADER: generation.backend.fidelity(settled.turn.spec.account), **settled.headers}
            if settled.turn.streamed:
                return self._background.stream(begun.log.read(), headers)
            return json_response(begun.response, headers=headers)
        return generation.answer(request, run, settled, finish if past.keep or socket is not None else None)

    async def compact(self, request: Request) -> ASGIApp:
        """Answer with a history in short: the user's messages, and a summary that the model writes."""
        body, large = await self._generation.body(request)
        past, decoded, settled = await self._settled(request, compaction_body(body), large=large, needs_input=True)
        encoder = _encoder(CompactionEncoder, decoded, settled, stored=False)
        *asked, _ = (*past.history, *past.inputs)
        encoder.messages = [
            listed_item(str(item.get("id") or new_id("msg_")), item, encrypted=False)
            for item in asked
            if item_type(item) == "message" and item.get("role") == "user"
        ]
        encoder.seal, encoder.item_id = self._seal, new_id("cmp_")
        return self._generation.answer(request, self._generation.run(request, settled, encoder), settled, None)

    async def count_input(self, request: Request) -> Response:
        """Return about how many tokens of input the same request to `create` would have."""
        body, large = await self._generation.body(request)
        # To count, neither a model nor an input is needed.
        if body.get("model") is None:
            body = {**body, "model": DEFAULT_MODEL}
        _, _, settled = await self._settled(request, body, large=large, needs_input=False)
        tokens = await self._count(settled.turn)
        headers = {USAGE_HEADER: "estimated", **settled.headers}
        if left_out := uncounted(settled.turn):
            headers[UNCOUNTED_HEADER] = ", ".join(left_out)
        return json_response({"object": "response.input_tokens", "input_tokens": tokens}, headers=headers)

    async def _settled(
        self,
        request: Request,
        body: JsonObject,
        *,
        large: bool,
        needs_input: bool,
        remembered: FindRemembered = remember_nothing,
    ) -> tuple[Past, DecodedResponses, Settled]:
        """Return what a request asks for."""
        generation = self._generation
        asked, unknown = await beside(partial(parse, body), large=large)
        past = await recall(self._state, client_of(request.scope), asked, remembered)
        large = large or bool(past.history)
        decoded = await beside(partial(self._decoded, asked, unknown, past, needs_input=needs_input), large=large)
        turn = replace(decoded.turn, large=large)
        if generation.rules.omit_response_tools and (turn.spec.tools or turn.spec.servers):
            spec = replace(turn.spec, tools=(), servers=())
            turn = replace(turn, spec=spec, must_call=False, ignored=(*turn.ignored, "tools"))
        settled = await generation.settle(
            request,
            turn,
            decoded.uncompiled,
            store=asked.store,
            mode=generation.rules.responses_output_mode,
            effort_param="reasoning.effort",
        )
        return past, decoded, settled

    async def _finish(
        self, socket: SocketRequest | None, past: Past, encoder: ResponseEncoder, run: Run | None = None
    ) -> None:
        """Store a finished response; one that is not stored is remembered by its WebSocket."""
        if past.keep:
            await keep(self._state, past, encoder, {} if run is None else run.linked)
        if socket is not None:
            await socket.remember(past, encoder)

    def _decoded(
        self, asked: ResponsesRequest, unknown: Sequence[str], past: Past, *, needs_input: bool
    ) -> DecodedResponses:
        inputs = past.shown_inputs
        shown = expanded(past.history, inputs, self._seal)
        return decode(asked, unknown, inputs, past.history, shown=shown, needs_input=needs_input)

    async def _compacting(self, past: Past, settled: Settled, encoder: ResponseEncoder, threshold: int) -> Settled:
        """Return a turn whose history is compacted if it has more tokens, and let its encoder tell of it."""
        inputs = past.shown_inputs
        shown = expanded(past.history, inputs, self._seal)
        items = [*past.history, *inputs] if shown is None else [item for _, item in shown]
        plan = partial(planned, items, threshold, self._seal, new_id("cmp_"))
        compaction, encoder.compaction_item = await beside(plan, large=settled.turn.large)
        return replace(settled, turn=replace(settled.turn, compaction=compaction))

    async def retrieve(self, request: Request) -> ASGIApp:
        """Answer with a response, or with its stream after the event that the client saw last."""
        owner, response_id = _asked(request)
        if request.query_params.get("stream") == "true":
            return await self._stream(owner, response_id, _number(request, "starting_after"))
        run = await self._background.find_unkept(owner, response_id)
        if run is not None:
            return json_response(run.response)
        record = await self._record(owner, response_id)
        if record.status in RUNNING and self._background.elsewhere is not None:
            return json_response(await self._background.elsewhere.standing(record))
        if ENCRYPTED_REASONING not in included(request):
            return json_response(record.body)
        thoughts = {item.id: item.body for item in await self._state.store.response_outputs(owner, response_id)}
        return json_response(with_thoughts(record.body, thoughts))

    async def delete(self, request: Request) -> Response:
        """Remove a response; one that still runs is ended first."""
        owner, response_id = _asked(request)
        run = self._background.find(owner, response_id)
        if run is not None:
            await self._background.cancel(run)
        elif self._background.elsewhere is not None:
            record = await self._record(owner, response_id)
            if record.status in RUNNING:
                await self._background.elsewhere.cancel(record)
        if not await self._state.store.delete_response(owner, response_id):
            raise _missing(response_id)
        if run is not None:
            self._background.forget(run)
        return json_response(deleted(response_id, "response"))

    async def cancel(self, request: Request) -> Response:
        """End a background response; one that has ended stays as it is."""
        owner, response_id = _asked(request)
        run = self._background.find(owner, response_id)
        if run is not None:
            return json_response(await self._background.cancel(run))
        record = await self._record(owner, response_id)
        if not record.background:
            raise InvalidRequest(NOT_IN_BACKGROUND.format(what="cancelled"), code="not_in_background")
        if record.status in RUNNING:
            if self._background.elsewhere is not None:
                await self._background.elsewhere.cancel(record)
            else:
                cancelled = dataclasses.replace(record, status=CANCELLED, body={**record.body, "status": CANCELLED})
                await self._state.store.finish_response(cancelled)
            # It may have ended of itself at this very moment.
            record = await self._record(owner, response_id)
        return json_response(record.body)

    async def input_items(self, request: Request) -> Response:
        """List what the model was shown for a response."""
        owner, response_id = _asked(request)
        query = page_query(request.query_params)
        listed = await self._state.store.response_inputs(owner, response_id, query)
        if listed is None:
            raise _missing(response_id)
        return json_response(items_listed(request, query, listed))

    async def _stream(self, owner: str, response_id: str, after: int) -> ASGIApp:
        run = self._background.find(owner, response_id)
        if run is not None:
            return self._background.stream(run.log.read(after=after + 1), {})
        record = await self._record(owner, response_id)
        if not record.background:
            raise InvalidRequest(NOT_IN_BACKGROUND.format(what="streamed again"), code="not_in_background")
        if record.status in RUNNING and self._background.elsewhere is not None:
            return self._background.stream(self._background.elsewhere.read(record, after=after + 1), {})
        if record.status in RUNNING:
            raise InvalidRequest(
                "This response is being made by another gateway on the same store: ask that one for the stream, "
                "or poll without `stream`.",
                code="made_elsewhere",
                param="stream",
            )
        kept = self._streams.find(response_id)
        if kept is None:
            events = await self._state.store.response_events(owner, response_id)
            if events is None:
                return self._background.stream(_at_once(last_frames(record, after + 1)), {})
            kept = self._streams.share(response_id, events)
        return self._background.stream(kept.read(after=after + 1), {})

    async def _record(self, owner: str, response_id: str) -> ResponseRecord:
        record = await self._state.store.response(owner, response_id)
        if record is None:
            raise _missing(response_id)
        return record


def _encoder(kind: type[E], decoded: DecodedResponses, settled: Settled, *, stored: bool) -> E:
    """Return the encoder of a response, which shows the client's own name of the model, and the effort in force."""
    shown = replace(decoded.turn.spec, effort=settled.turn.spec.effort)
    return kind(
        replace(decoded, turn=replace(decoded.turn, spec=shown)),
        settled.choice.model,
        response_id=new_id("resp_"),
        created_at=int(time.time()),
        now=lambda: int(time.time()),
        stored=stored,
    )


async def _warmed_up(encoder: ResponseEncoder, finish: Callable[[], Awaitable[None]]) -> Response:
    """Return the stream of a response that asks nothing of the model, and can be continued."""
    frames = encoder.frames(0, [TurnCompleted(Usage())])
    await finish()
    return Response(frames + encoder.closing(), headers={"content-type": encoder.content_type})


def included(request: Request) -> list[str]:
    """Return what a query wants to see besides the usual; SDKs write lists with and without brackets."""
    return [*request.query_params.getlist("include"), *request.query_params.getlist("include[]")]


def items_listed(request: Request, query: ItemQuery, found: ItemPage) -> JsonObject:
    """Return a page of items as lists show them."""
    if not found.knows_after:
        raise unknown_after(query.after)
    return page(items_shown(request, found.items), has_more=found.has_more)


def items_shown(request: Request, items: Sequence[KeptItem]) -> list[JsonObject]:
    """Return items as lists show them."""
    encrypted = ENCRYPTED_REASONING in included(request)
    return [listed_item(item.id, item.body, encrypted=encrypted) for item in items]


def listed_item(item_id: str, body: JsonObject, *, encrypted: bool) -> JsonObject:
    """Return an item as lists show it: with its id, its type, and text as parts."""
    kind = item_type(body)
    shown: JsonObject = {**body, "type": kind, "id": item_id}
    if kind == "message":
        shown["content"] = _parts(body)
    if kind == "reasoning" and not encrypted:
        shown.pop(ENCRYPTED, None)
    if kind != "reasoning":
        shown.setdefault("status", "completed")
    return shown


def _parts(message: JsonObject) -> list[Json]:
    content = message.get("content")
    text_part: JsonObject = {"type": "input_text"}
    if message.get("role") == "assistant":
        text_part = {"type": "output_text", "annotations": [], "logprobs": []}
    given: list[Json] = content if isinstance(content, list) else [content]
    return [{**text_part, "text": part} if isinstance(part, str) else part for part in given]


def with_thoughts(response: JsonObject, stored: Mapping[str, JsonObject]) -> JsonObject:
    """Return a response whose reasoning items have their encrypted content."""
    output = response["output"]
    if not isinstance(output, list):
        raise AssertionError("A response's output is a list.")
    return {**response, "output": [with_content(item, stored) if isinstance(item, dict) else item for item in output]}


def _asked(request: Request) -> tuple[str, str]:
    return client_of(request.scope), str(request.path_params["response_id"])


def _number(request: Request, name: str) -> int:
    """Return the number of an event, or the one before the first."""
    given = request.query_params.get(name)
    if given is None:
        return -1
    number = query_number(given)
    if number is None:
        raise invalid(name, f"expected a number, but got '{given}'.")
    return number


def _missing(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id}' not found.", param="response_id")


async def _at_once(frames: bytes) -> AsyncGenerator[bytes, None]:
    yield frames
