"""The routes of Chat Completions: creating them, and those that their clients asked to store."""

import dataclasses
import time
from collections.abc import Mapping
from functools import partial

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from turnbridge.api.chat.decode import decode
from turnbridge.api.chat.encode import ChatEncoder
from turnbridge.api.generation import Generation
from turnbridge.api.shared.pagination import deleted, page, page_of, page_query
from turnbridge.api.shared.parameters import check_metadata
from turnbridge.api.shared.validation import convert
from turnbridge.engine.records import ChatQuery, ChatRecord
from turnbridge.turn.errors import GatewayError, NotFound
from turnbridge.turn.items import Json, JsonObject, Message, replace
from turnbridge.turn.request import TurnRequest
from turnbridge.web.bodies import beside, parsed
from turnbridge.web.http import OPENAI, RouteOf, json_response, new_id
from turnbridge.web.middleware.auth import client_of

log = structlog.get_logger(__name__)

# How OpenAI's SDKs write a filter by metadata: `metadata[key]=value`.
METADATA_FILTER = "metadata["


class ChatUpdate(msgspec.Struct):
    """The one thing that may change."""

    metadata: JsonObject | None = None


class ChatCompletions:
    """Handlers of `/v1/chat/completions` and what is below it."""

    dialect = OPENAI

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._state = generation.state

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        path, one = "/chat/completions", "/chat/completions/{completion_id}"
        return [
            RouteOf("POST", path, self.create, generates=True),
            RouteOf("GET", path, self.list),
            RouteOf("GET", one, self.retrieve),
            RouteOf("POST", one, self.update),
            RouteOf("DELETE", one, self.delete),
            RouteOf("GET", f"{one}/messages", self.messages),
        ]

    async def create(self, request: Request) -> ASGIApp:
        """Answer a Chat Completions request."""
        generation = self._generation
        body, large = await generation.body(request)
        decoded = await beside(partial(decode, body), large=large)
        turn = replace(decoded.turn, large=large)
        if generation.rules.ignore_system_prompt:
            turn = _without_system_prompt(turn)
        settled = await generation.settle(
            request,
            turn,
            decoded.uncompiled,
            store=decoded.store,
            mode="openai-json",
            effort_param="reasoning_effort",
        )
        encoder = ChatEncoder(decoded, completion_id=new_id("chatcmpl-"), created=int(time.time()))
        run = generation.run(request, settled, encoder, choices=decoded.choices)
        keep = decoded.store and self._state.on
        finish = partial(self._keep, settled.turn.spec.client, body, encoder) if keep else None
        return generation.answer(request, run, settled, finish)

    async def _keep(self, client: str, body: JsonObject, encoder: ChatEncoder) -> None:
        """Store a finished completion, unless it failed; the client has its answer in any case."""
        if encoder.failure is not None:
            return
        record = _record(client, body, encoder.whole())
        legs = self._state.legs(client, encoder.first_calls)
        try:
            await self._state.store.add_chat(record, legs)
        except GatewayError as error:
            log.error("chat_not_kept", completion=record.id, reason=error.message)

    async def list(self, request: Request) -> Response:
        """List completions, filtered by model and metadata."""
        query = page_query(request.query_params, default_order="asc")
        chats, has_more = await self._state.store.chats(
            client_of(request.scope),
            ChatQuery(
                model=request.query_params.get("model"),
                metadata=_metadata_filter(request.query_params),
                after=query.after,
                limit=query.limit,
                newest_first=query.newest_first,
            ),
        )
        return json_response(page([chat.body for chat in chats], has_more=has_more))

    async def retrieve(self, request: Request) -> Response:
        """Answer with a completion."""
        return json_response((await self._found(request)).body)

    async def update(self, request: Request) -> Response:
        """Replace a completion's metadata."""
        given = await self._generation.bodies.read(request.scope, request.receive)
        metadata = check_metadata(convert(await parsed(given), ChatUpdate).metadata)
        chat = await self._found(request)
        changed = dataclasses.replace(chat, metadata=metadata, body={**chat.body, "metadata": {**metadata}})
        if not await self._state.store.update_chat(changed):
            raise _missing(chat.id)
        return json_response(changed.body)

    async def delete(self, request: Request) -> Response:
        """Remove a completion."""
        chat_id = str(request.path_params["completion_id"])
        if not await self._state.store.delete_chat(client_of(request.scope), chat_id):
            raise _missing(chat_id)
        return json_response(deleted(chat_id, "chat.completion.deleted"))

    async def messages(self, request: Request) -> Response:
        """List the messages that a completion answered."""
        chat = await self._found(request)
        shown = [shown_message(f"{chat.id}-{number}", message) for number, message in enumerate(chat.messages)]
        return json_response(page_of(shown, page_query(request.query_params, default_order="asc")))

    async def _found(self, request: Request) -> ChatRecord:
        chat_id = str(request.path_params["completion_id"])
        chat = await self._state.store.chat(client_of(request.scope), chat_id)
        if chat is None:
            raise _missing(chat_id)
        return chat


def _without_system_prompt(turn: TurnRequest) -> TurnRequest:
    """Leave the client's system prompt out, and say so."""
    kept = tuple(item for item in turn.items if not isinstance(item, Message) or item.role != "developer")
    if kept == turn.items:
        return turn
    return replace(turn, items=kept, ignored=(*turn.ignored, "messages (system)"))


def _record(client: str, body: JsonObject, completion: JsonObject) -> ChatRecord:
    given, messages, created = body.get("metadata"), body.get("messages"), completion["created"]
    if not isinstance(messages, list) or not isinstance(created, int):
        raise AssertionError("A completion that was answered has messages and a time.")
    metadata = check_metadata(given if isinstance(given, dict) else None)
    kept: dict[str, Json] = {**completion, "metadata": {**metadata}}
    return ChatRecord(
        id=str(completion["id"]),
        owner=client,
        created_at=created,
        model=str(completion["model"]),
        metadata=metadata,
        body=kept,
        messages=tuple(message for message in messages if isinstance(message, dict)),
    )


def _metadata_filter(parameters: Mapping[str, str]) -> dict[str, str]:
    return check_metadata(
        {
            name.removeprefix(METADATA_FILTER).removesuffix("]"): value
            for name, value in parameters.items()
            if name.startswith(METADATA_FILTER) and name.endswith("]")
        }
    )


def _missing(chat_id: str) -> NotFound:
    return NotFound(f"Chat completion with id '{chat_id}' not found.", param="completion_id")


def shown_message(message_id: str, message: JsonObject) -> JsonObject:
    """Return a message with an id; a content of parts stands apart from a content that is a text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    return {
        **message,
        "id": message_id,
        "content": None if parts is not None else content,
        "content_parts": parts,
        "refusal": message.get("refusal"),
    }
