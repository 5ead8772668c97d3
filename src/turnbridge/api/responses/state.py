"""The history that a Responses request continues, and storing its answer."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import structlog

from turnbridge.api.generation import NOTHING_KEPT, State
from turnbridge.api.responses import schema
from turnbridge.api.responses.decode import ids_to_look_up, input_items, item_type, resolve_references
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.engine.records import RUNNING, KeptItem, ResponseRecord
from turnbridge.turn.errors import GatewayError, InvalidRequest, NotFound
from turnbridge.turn.items import JsonObject
from turnbridge.web.bodies import beside
from turnbridge.web.http import new_id

log = structlog.get_logger(__name__)

# OpenAI adds a response to its conversation when it completes; one that was cut off has an answer, too.
ADDED = frozenset({"completed", "incomplete"})
MANY_ITEMS = 1000

# The prefixes of OpenAI's item ids.
PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "web_search_call": "ws_",
    "image_generation_call": "ig_",
}
OTHER_PREFIX = "item_"

FindRemembered: TypeAlias = Callable[[str], tuple[JsonObject, ...] | None]
"""Returns the conversation up to a response that is not stored, if it is remembered."""


def remember_nothing(_: str) -> None:
    """Remember no response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The history that a request continues, and where its answer is stored."""

    owner: str
    history: tuple[JsonObject, ...] = ()
    inputs: tuple[JsonObject, ...] = ()
    """The request's own input as items, with every reference resolved."""
    segment: int | None = None
    """The last segment of that history."""
    unstored: tuple[JsonObject, ...] = ()
    """The history, if the store does not have it."""
    conversation: str | None = None
    keep: bool
    background: bool


async def recall(
    state: State,
    client: str,
    wanted: schema.ResponsesRequest,
    remembered: FindRemembered,
) -> Past:
    """Return the past of a request; raises what OpenAI answers if it refers to something that is not there.

    `remembered` has the conversations up to responses that are not stored.
    """
    inputs = input_items(wanted.input)
    if ids := ids_to_look_up(inputs):
        inputs = resolve_references(inputs, await state.store.items(client, ids) if state.on else {})
    history: tuple[JsonObject, ...] = ()
    segment: int | None = None
    unstored: tuple[JsonObject, ...] = ()
    if wanted.previous_response_id and (known := remembered(wanted.previous_response_id)) is not None:
        history = unstored = known
    elif wanted.previous_response_id:
        history, segment = await _after_response(state, client, wanted.previous_response_id)
    elif wanted.conversation_id is not None:
        history, segment = await _in_conversation(state, client, wanted.conversation_id)
    if wanted.background and not state.on:
        raise InvalidRequest(NOTHING_KEPT, code="nothing_is_stored", param="background")
    return Past(
        owner=client,
        history=history,
        inputs=tuple(inputs),
        segment=segment,
        unstored=unstored,
        conversation=wanted.conversation_id,
        keep=wanted.store is not False and state.on,
        background=bool(wanted.background),
    )


async def _after_response(state: State, owner: str, response_id: str) -> tuple[tuple[JsonObject, ...], int]:
    history = await state.store.response_history(owner, response_id) if state.on else None
    if history is None:
        raise InvalidRequest(
            _not_found(state, f"Previous response with id '{response_id}'"),
            code="previous_response_not_found",
            param="previous_response_id",
        )
    if not history.outputs:
        record = await state.store.response(owner, response_id)
        if record is not None and record.status in RUNNING:
            raise InvalidRequest(
                f"The response '{response_id}' is still being made: wait for its end before you continue it.",
                code="previous_response_in_progress",
                param="previous_response_id",
            )
    return tuple(item.body for item in (*history.inputs, *history.outputs)), history.segment


async def _in_conversation(state: State, owner: str, conversation: str) -> tuple[tuple[JsonObject, ...], int]:
    history = await state.store.conversation_history(owner, conversation) if state.on else None
    if history is None:
        raise NotFound(_not_found(state, f"Conversation with id '{conversation}'"), param="conversation")
    return tuple(item.body for item in history.inputs), history.segment


def _not_found(state: State, what: str) -> str:
    return f"{what} not found." if state.on else f"{what} not found. {NOTHING_KEPT}"


async def keep(state: State, past: Past, encoder: ResponseEncoder) -> None:
    """Store a finished response; if that fails, the answer says `store: false`."""
    record = record_of(past, encoder)
    # New ids for thousands of items take some ten milliseconds.
    new = (*past.unstored, *past.inputs)
    inputs = await beside(partial(named, new), large=len(new) > MANY_ITEMS)
    try:
        # Not cancelled by a client that disconnects at this moment.
        await asyncio.shield(
            state.store.add_response(
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


def named(items: Sequence[JsonObject]) -> list[KeptItem]:
    """Return items with ids: their own, or new ones."""
    return [KeptItem(id=_id_of(item), body=item) for item in items]


def _id_of(item: JsonObject) -> str:
    given = item.get("id")
    return given if isinstance(given, str) and given else new_id(PREFIXES.get(item_type(item) or "", OTHER_PREFIX))


def grown(past: Past, encoder: ResponseEncoder) -> str | None:
    """Return the conversation that a response is added to: none if it failed or was cancelled."""
    return past.conversation if encoder.status in ADDED else None


def record_of(past: Past, encoder: ResponseEncoder) -> ResponseRecord:
    """Return the record of a response as it stands."""
    body = encoder.whole()
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
