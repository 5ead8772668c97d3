"""The history that a Responses request continues, and storing its answer."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from turnbridge.api.responses import schema
from turnbridge.api.responses import stored_items as stored
from turnbridge.api.responses.decode import decode_items
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.engine.history_match import Leg
from turnbridge.engine.kept_threads import ParkedTurns
from turnbridge.engine.records import (
    RUNNING,
    KeptItem,
    ResponseRecord,
    Store,
)
from turnbridge.turn.errors import GatewayError, InvalidRequest, NotFound
from turnbridge.turn.items import FunctionCall, Item, JsonObject
from turnbridge.web.bodies import beside
from turnbridge.web.http import new_id

log = structlog.get_logger(__name__)

# OpenAI adds a response to its conversation when it completes; one that was cut off has an answer, too.
ADDED = frozenset({"completed", "incomplete"})
MANY_ITEMS = 1000

NOTHING_KEPT = (
    "This gateway keeps nothing (PROXY_STORE_TTL_DAYS is 0): send the whole conversation in `input`, "
    "or ask its operator to keep responses."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The history that a request continues, and where its answer is stored."""

    owner: str
    history: tuple[JsonObject, ...] = ()
    inputs: tuple[JsonObject, ...] = ()
    """The request's own input as items, with every reference resolved."""
    segment: int | None = None
    """The last segment of that history."""
    conversation: str | None = None
    keep: bool
    background: bool


class State:
    """Reads and writes the store for the routes that generate."""

    def __init__(self, store: Store | None, calls: ParkedTurns) -> None:
        self._store = store
        self._calls = calls

    @property
    def store(self) -> Store:
        """Return the store; raises `InvalidRequest` if storing is off."""
        if self._store is None:
            raise InvalidRequest(NOTHING_KEPT, code="nothing_is_stored")
        return self._store

    @property
    def on(self) -> bool:
        """Tell whether anything is stored."""
        return self._store is not None

    async def recall(self, client: str, wanted: schema.ResponsesRequest) -> Past:
        """Return the past of a request; raises what OpenAI answers if it refers to something that is not there."""
        conversation = stored.conversation_id(wanted.conversation)
        inputs = stored.input_items(wanted.input)
        if ids := stored.ids_to_look_up(inputs):
            found = await self._store.items(client, ids) if self._store is not None else {}
            inputs = stored.resolve_references(inputs, found)
        history: tuple[JsonObject, ...] = ()
        segment: int | None = None
        if wanted.previous_response_id:
            history, segment = await self._after_response(client, wanted.previous_response_id)
        elif conversation is not None:
            history, segment = await self._in_conversation(client, conversation)
        if wanted.background and self._store is None:
            raise InvalidRequest(NOTHING_KEPT, code="nothing_is_stored", param="background")
        return Past(
            owner=client,
            history=history,
            inputs=tuple(inputs),
            segment=segment,
            conversation=conversation,
            keep=wanted.store is not False and self._store is not None,
            background=bool(wanted.background),
        )

    async def restore_calls(self, client: str, items: Sequence[Item]) -> None:
        """Load the model's own items around calls that were made before the gateway was started.

        The request can be served without them, so a store that fails is only logged.
        """
        if self._store is None:
            return
        # Parallel calls are found by the first of them.
        firsts = [
            item
            for before, item in itertools.pairwise((None, *items))
            if isinstance(item, FunctionCall) and not isinstance(before, FunctionCall)
        ]
        unknown = [call.call_id for call in firsts if not self._calls.knows(client, call.call_id)]
        if not unknown:
            return
        try:
            answers = await self._store.answers_with_calls(client, unknown)
        except GatewayError as error:
            log.warning("calls_not_restored", reason=error.message)
            return
        for answer in answers:
            said = decode_items(answer)
            shown = tuple(item.call_id for item in said if isinstance(item, FunctionCall))
            self._calls.remember(client, Leg(items=said, shown=shown))

    async def keep(self, past: Past, encoder: ResponseEncoder) -> None:
        """Store a finished response; if that fails, the answer says `store: false`."""
        record = record_of(past, encoder)
        # New ids for thousands of items take some ten milliseconds.
        inputs = await beside(lambda: named(past.inputs), large=len(past.inputs) > MANY_ITEMS)
        try:
            # Not cancelled by a client that disconnects at this moment.
            await asyncio.shield(
                self.store.add_response(
                    record,
                    continues=past.segment,
                    inputs=inputs,
                    outputs=named(encoder.said),
                    conversation=grown(past, encoder),
                )
            )
        except GatewayError as error:
            log.error("response_not_kept", response=record.id, reason=error.message)
            encoder.mark_unstored()

    async def _after_response(self, owner: str, response_id: str) -> tuple[tuple[JsonObject, ...], int]:
        history = await self._store.response_history(owner, response_id) if self._store is not None else None
        if history is None:
            raise InvalidRequest(
                self._not_found(f"Previous response with id '{response_id}'"),
                code="previous_response_not_found",
                param="previous_response_id",
            )
        if not history.outputs:
            await self._check_ended(owner, response_id)
        return tuple(item.body for item in (*history.inputs, *history.outputs)), history.segment

    async def _check_ended(self, owner: str, response_id: str) -> None:
        record = await self.store.response(owner, response_id)
        if record is not None and record.status in RUNNING:
            raise InvalidRequest(
                f"The response '{response_id}' is still being made: wait for its end before you continue it.",
                code="previous_response_in_progress",
                param="previous_response_id",
            )

    async def _in_conversation(self, owner: str, conversation: str) -> tuple[tuple[JsonObject, ...], int]:
        history = await self._store.conversation_history(owner, conversation) if self._store is not None else None
        if history is None:
            raise NotFound(self._not_found(f"Conversation with id '{conversation}'"), param="conversation")
        return tuple(item.body for item in history.inputs), history.segment

    def _not_found(self, what: str) -> str:
        return f"{what} not found." if self.on else f"{what} not found. {NOTHING_KEPT}"


def named(items: Sequence[JsonObject]) -> list[KeptItem]:
    """Return items with ids: their own, or new ones."""
    return [KeptItem(id=_id_of(item), body=item) for item in items]


def _id_of(item: JsonObject) -> str:
    given = item.get("id")
    return given if isinstance(given, str) and given else new_id(stored.id_prefix(item))


def grown(past: Past, encoder: ResponseEncoder) -> str | None:
    """Return the conversation that a response is added to: none if it failed or was cancelled."""
    return past.conversation if encoder.status in ADDED else None


def record_of(past: Past, encoder: ResponseEncoder) -> ResponseRecord:
    """Return the record of a response as it stands."""
    body = encoder.response
    created_at = body["created_at"]
    if not isinstance(created_at, int):
        raise AssertionError("A response has the time of its creation.")
    return ResponseRecord(
        id=str(body["id"]),
        owner=past.owner,
        created_at=created_at,
        status=str(body["status"]),
        background=past.background,
        body=body,
    )
