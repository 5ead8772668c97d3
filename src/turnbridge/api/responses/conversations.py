"""The Conversations API: stored histories with an id, which responses are added to."""

import time
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnbridge.api.generation import Generation
from turnbridge.api.responses.decode import decode_items
from turnbridge.api.responses.routes import items_listed, items_shown
from turnbridge.api.responses.state import named, resolved
from turnbridge.api.shared.pagination import deleted, page, page_query
from turnbridge.api.shared.parameters import check_metadata
from turnbridge.api.shared.validation import convert, empty_array, invalid, missing
from turnbridge.engine.records import ConversationRecord, KeptItem
from turnbridge.turn.errors import NotFound
from turnbridge.turn.items import JsonObject
from turnbridge.web.bodies import beside, parsed
from turnbridge.web.http import OPENAI, RouteOf, json_response, new_id
from turnbridge.web.middleware.auth import client_of

# OpenAI's own bound.
MAX_ITEMS_AT_ONCE = 20


class ConversationBody(msgspec.Struct):
    """The body that creates or updates a conversation, or adds items to it."""

    metadata: JsonObject | None = None
    items: list[JsonObject] | None = None


class Conversations:
    """Handlers of `/v1/conversations` and the routes below it."""

    dialect = OPENAI

    def __init__(self, generation: Generation) -> None:
        self._state = generation.state
        self._bodies = generation.bodies

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        path, one = "/conversations", "/conversations/{conversation_id}"
        return [
            RouteOf("POST", path, self.create),
            RouteOf("GET", one, self.retrieve),
            RouteOf("POST", one, self.update),
            RouteOf("DELETE", one, self.delete),
            RouteOf("GET", f"{one}/items", self.list_items),
            RouteOf("POST", f"{one}/items", self.create_items),
            RouteOf("GET", f"{one}/items/{{item_id}}", self.retrieve_item),
            RouteOf("DELETE", f"{one}/items/{{item_id}}", self.delete_item),
        ]

    async def create(self, request: Request) -> Response:
        """Create a conversation, with items if there are any."""
        body = await self._body(request)
        record = ConversationRecord(
            id=new_id("conv_"),
            owner=client_of(request.scope),
            created_at=int(time.time()),
            metadata={**check_metadata(body.metadata)},
        )
        await self._state.store.add_conversation(record, await self._items(record.owner, body.items or []))
        return json_response(_shown(record))

    async def retrieve(self, request: Request) -> Response:
        """Return a conversation."""
        return json_response(_shown(await self._record(request)))

    async def update(self, request: Request) -> Response:
        """Replace a conversation's metadata."""
        body = await self._body(request)
        owner, conversation_id = _asked(request)
        if not await self._state.store.update_conversation(owner, conversation_id, {**check_metadata(body.metadata)}):
            raise _missing(conversation_id)
        return json_response(_shown(await self._record(request)))

    async def delete(self, request: Request) -> Response:
        """Delete a conversation; its responses keep the items that they need."""
        owner, conversation_id = _asked(request)
        if not await self._state.store.delete_conversation(owner, conversation_id):
            raise _missing(conversation_id)
        return json_response(deleted(conversation_id, "conversation.deleted"))

    async def list_items(self, request: Request) -> Response:
        """List a conversation's items."""
        owner, conversation_id = _asked(request)
        query = page_query(request.query_params)
        listed = await self._state.store.conversation_items(owner, conversation_id, query)
        if listed is None:
            raise _missing(conversation_id)
        return json_response(items_listed(request, query, listed))

    async def create_items(self, request: Request) -> Response:
        """Add items at the end of a conversation."""
        body = await self._body(request)
        owner, conversation_id = _asked(request)
        if body.items is None:
            raise missing("items")
        if not body.items:
            raise empty_array("items")
        items = await self._items(owner, body.items)
        if not await self._state.store.append_items(owner, conversation_id, items):
            raise _missing(conversation_id)
        return json_response(page(items_shown(request, items), has_more=False))

    async def retrieve_item(self, request: Request) -> Response:
        """Return one item of a conversation."""
        owner, conversation_id = _asked(request)
        item_id = str(request.path_params["item_id"])
        found = await self._state.store.conversation_item(owner, conversation_id, item_id)
        if found is None:
            await self._record(request)
            raise _missing_item(item_id)
        (shown,) = items_shown(request, [found])
        return json_response(shown)

    async def delete_item(self, request: Request) -> Response:
        """Delete an item of a conversation."""
        owner, conversation_id = _asked(request)
        record = await self._record(request)
        item_id = str(request.path_params["item_id"])
        if not await self._state.store.delete_item(owner, conversation_id, item_id):
            raise _missing_item(item_id)
        return json_response(_shown(record))

    async def _body(self, request: Request) -> ConversationBody:
        body = await self._bodies.read(request.scope, request.receive)
        return convert(await parsed(body or b"{}"), ConversationBody)

    async def _items(self, owner: str, given: list[JsonObject]) -> list[KeptItem]:
        """Return items with ids and with their references resolved."""
        if len(given) > MAX_ITEMS_AT_ONCE:
            what = f"array too long. Expected at most {MAX_ITEMS_AT_ONCE} items, but got {len(given)}."
            raise invalid("items", what, code="array_above_max_length")
        items, seen = await resolved(self._state, owner, given, param="items")
        await beside(partial(decode_items, items, param="items"), large=True)
        return named(items, seen)

    async def _record(self, request: Request) -> ConversationRecord:
        owner, conversation_id = _asked(request)
        record = await self._state.store.conversation(owner, conversation_id)
        if record is None:
            raise _missing(conversation_id)
        return record


def _asked(request: Request) -> tuple[str, str]:
    return client_of(request.scope), str(request.path_params["conversation_id"])


def _shown(record: ConversationRecord) -> JsonObject:
    head: JsonObject = {"id": record.id, "object": "conversation", "created_at": record.created_at}
    return {**head, "metadata": record.metadata}


def _missing(conversation_id: str) -> NotFound:
    return NotFound(f"Conversation with id '{conversation_id}' not found.", param="conversation_id")


def _missing_item(item_id: str) -> NotFound:
    return NotFound(f"Item with id '{item_id}' not found.", param="item_id")
