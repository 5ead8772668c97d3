"""The routes of Responses: creating them, and those that are stored: read, streamed again, cancelled, deleted."""

import dataclasses
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from turnbridge.api.generation import Generation, now
from turnbridge.api.output_mode import output_mode
from turnbridge.api.responses.background import BackgroundRuns, last_frames
from turnbridge.api.responses.decode import ENCRYPTED_REASONING, decode, parse
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.responses.state import State
from turnbridge.api.responses.stored_items import deleted, listed_item, with_encrypted_content
from turnbridge.api.shared.pagination import (
    page,
    page_query,
    query_number,
    unknown_after,
)
from turnbridge.engine.frame_log import PackedStreams
from turnbridge.engine.records import (
    CANCELLED,
    RUNNING,
    ItemPage,
    ItemQuery,
    KeptItem,
    ResponseRecord,
)
from turnbridge.turn.errors import InvalidRequest, NotFound
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace
from turnbridge.web.answer import FIDELITY_HEADER
from turnbridge.web.bodies import beside
from turnbridge.web.dialect import OPENAI
from turnbridge.web.http import RouteOf, json_response, new_id
from turnbridge.web.middleware.auth import client_of

NOT_IN_BACKGROUND = "Only a response that was created with `background: true` can be {what}."


class Responses:
    """Handlers of `/v1/responses` and what is below it."""

    dialect = OPENAI

    def __init__(self, generation: Generation, state: State, background: BackgroundRuns) -> None:
        self._generation = generation
        self._state = state
        self._background = background
        self._streams = PackedStreams()

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        one = "/responses/{response_id}"
        return [
            RouteOf("POST", "/responses", self.create, generates=True),
            RouteOf("GET", one, self.retrieve),
            RouteOf("DELETE", one, self.delete),
            RouteOf("POST", f"{one}/cancel", self.cancel),
            RouteOf("GET", f"{one}/input_items", self.input_items),
        ]

    async def create(self, request: Request) -> ASGIApp:
        """Answer a Responses request, or begin it in the background."""
        generation, client = self._generation, client_of(request.scope)
        body, large = await generation.body(request)
        asked, unknown = await beside(partial(parse, body), large=large)
        past = await self._state.recall(client, asked)
        large = large or bool(past.history)
        decoded = await beside(partial(decode, asked, unknown, past.inputs, past.history), large=large)
        await generation.check_schemas(decoded.uncompiled)
        turn = self._without_tools(replace(decoded.turn, large=large))
        if asked.store and not self._state.on:
            turn = replace(turn, ignored=(*turn.ignored, "store"))
        mode = output_mode(request.scope, generation.rules.responses_output_mode)
        settled = await generation.settle(request, turn, mode, effort_param="reasoning.effort")
        await self._state.restore_calls(client, settled.turn.items)
        # It shows the client's own name of the model, and the effort that is in force.
        shown = replace(decoded.turn.spec, effort=settled.turn.spec.effort)
        encoder = ResponseEncoder(
            replace(decoded, turn=replace(decoded.turn, spec=shown)),
            settled.choice.model,
            response_id=new_id("resp_"),
            created_at=now(),
            now=now,
            stored=past.keep,
        )
        run = generation.run(request, settled, encoder)
        if past.background:
            response = await self._background.start(run, past, encoder)
            headers = {FIDELITY_HEADER: generation.models.fidelity(), **settled.headers}
            return self._background.answer(response, streamed=settled.turn.streamed, headers=headers)
        finish = partial(self._state.keep, past, encoder) if past.keep else None
        return generation.answer(request, run, settled, finish)

    def _without_tools(self, turn: TurnRequest) -> TurnRequest:
        """Leave the client's tools out, and say so, if the operator wants that."""
        if not self._generation.rules.omit_response_tools or not turn.spec.tools:
            return turn
        spec = replace(turn.spec, tools=())
        return replace(turn, spec=spec, must_call=False, ignored=(*turn.ignored, "tools"))

    async def retrieve(self, request: Request) -> ASGIApp:
        """Answer with a response, or with its stream after the event that the client saw last."""
        owner, response_id = _asked(request)
        if request.query_params.get("stream") == "true":
            return await self._stream(owner, response_id, _number(request, "starting_after"))
        run = await self._background.find_unkept(owner, response_id)
        if run is not None:
            return json_response(run.response)
        record = await self._record(owner, response_id)
        if ENCRYPTED_REASONING not in included(request):
            return json_response(record.body)
        thoughts = {item.id: item.body for item in await self._state.store.response_outputs(owner, response_id)}
        return json_response(with_encrypted_content(record.body, thoughts))

    async def delete(self, request: Request) -> Response:
        """Remove a response; one that still runs is ended first."""
        owner, response_id = _asked(request)
        run = self._background.find(owner, response_id)
        if run is not None:
            await self._background.cancel(run)
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
            await self._state.store.finish_response(
                dataclasses.replace(record, status=CANCELLED, body={**record.body, "status": CANCELLED})
            )
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
                return self._background.stream(_at_once(last_frames(record, after)), {})
            kept = self._streams.share(response_id, events)
        return self._background.stream(kept.read(after=after + 1), {})

    async def _record(self, owner: str, response_id: str) -> ResponseRecord:
        record = await self._state.store.response(owner, response_id)
        if record is None:
            raise _missing(response_id)
        return record


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


def _asked(request: Request) -> tuple[str, str]:
    return client_of(request.scope), str(request.path_params["response_id"])


def _number(request: Request, name: str) -> int:
    """Return the number of an event, or the one before the first."""
    given = request.query_params.get(name)
    if given is None:
        return -1
    number = query_number(given)
    if number is None:
        raise InvalidRequest(
            f"Invalid '{name}': expected a number, but got '{given}'.", code="invalid_value", param=name
        )
    return number


def _missing(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id}' not found.", param="response_id")


async def _at_once(frames: bytes) -> AsyncGenerator[bytes, None]:
    yield frames
