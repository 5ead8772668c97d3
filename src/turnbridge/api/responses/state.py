"""The history that a Responses request continues, and storing its answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import structlog

from turnbridge.api.generation import NOTHING_KEPT, State
from turnbridge.api.responses import schema
from turnbridge.api.responses.decode import REFERENCE, ids_to_look_up, input_items, item_type, resolve_references
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.responses.seen import seen_items
from turnbridge.engine.records import RUNNING, KeptItem, Legs, ResponseRecord
from turnbridge.turn.errors import GatewayError, InvalidRequest, NotFound
from turnbridge.turn.items import JsonObject, Part
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
    "mcp_approval_response": "mcpa_",
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
    seen: Mapping[int, JsonObject] = field(default_factory=dict)
    """Those of the input that refer to a stored item with links, as the model saw them, by their number."""
    stored: tuple[KeptItem, ...] = ()
    """The history as the store has it."""
    segment: int | None = None
    """The last segment of that history."""
    unstored: tuple[JsonObject, ...] = ()
    """The history, if the store does not have it."""
    conversation: str | None = None
    keep: bool
    background: bool

    @property
    def shown_inputs(self) -> list[JsonObject]:
        """Return the input as the model is to see it."""
        return [self.seen.get(index, item) for index, item in enumerate(self.inputs)]

    def inputs_seen(self, linked: Mapping[str, Part]) -> Mapping[int, JsonObject]:
        """Return the inputs with links as the model saw them, by their number."""
        return {**self.seen, **seen_items(self.shown_inputs, "input", linked)} if linked else self.seen

    def history_seen(self, linked: Mapping[str, Part]) -> list[KeptItem]:
        """Return the stored items whose links were loaded for the first time."""
        found = seen_items(self.history, "history", linked) if self.stored and linked else {}
        return [replace(self.stored[index], seen=seen) for index, seen in found.items()]


class Resolved(NamedTuple):
    """Items with their references resolved, and those of them with links as the model saw them, by their number."""

    items: list[JsonObject]
    seen: dict[int, JsonObject]


async def resolved(state: State, owner: str, given: Sequence[JsonObject], *, param: str = "input") -> Resolved:
    """Return items with their references resolved from the store; `param` is their place in errors."""
    ids = ids_to_look_up(given)
    if not ids:
        return Resolved([*given], {})
    found = await state.store.items(owner, ids) if state.on else {}
    items = resolve_references(given, {item_id: item.body for item_id, item in found.items()}, param=param)
    referred = {index: found[str(item["id"])].seen for index, item in enumerate(given) if item_type(item) == REFERENCE}
    return Resolved(items, {index: seen for index, seen in referred.items() if seen is not None})


async def recall(
    state: State,
    client: str,
    wanted: schema.ResponsesRequest,
    remembered: FindRemembered,
) -> Past:
    """Return the past of a request; raises what OpenAI answers if it refers to something that is not there.

    `remembered` has the conversations up to responses that are not stored.
    """
    inputs, seen = await resolved(state, client, input_items(wanted.input))
    stored: tuple[KeptItem, ...] = ()
    segment: int | None = None
    unstored: tuple[JsonObject, ...] = ()
    if wanted.previous_response_id and (known := remembered(wanted.previous_response_id)) is not None:
        unstored = known
    elif wanted.previous_response_id:
        stored, segment = await _after_response(state, client, wanted.previous_response_id)
    elif wanted.conversation_id is not None:
        stored, segment = await _in_conversation(state, client, wanted.conversation_id)
    if wanted.background and not state.on:
        raise InvalidRequest(NOTHING_KEPT, code="nothing_is_stored", param="background")
    return Past(
        owner=client,
        history=unstored or tuple(item.shown for item in stored),
        inputs=tuple(inputs),
        seen=seen,
        stored=stored,
        segment=segment,
        unstored=unstored,
        conversation=wanted.conversation_id,
        keep=wanted.store is not False and state.on,
        background=bool(wanted.background),
    )


async def _after_response(state: State, owner: str, response_id: str) -> tuple[tuple[KeptItem, ...], int]:
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
    return (*history.inputs, *history.outputs), history.segment


async def _in_conversation(state: State, owner: str, conversation: str) -> tuple[tuple[KeptItem, ...], int]:
    history = await state.store.conversation_history(owner, conversation) if state.on else None
    if history is None:
        raise NotFound(_not_found(state, f"Conversation with id '{conversation}'"), param="conversation")
    return history.inputs, history.segment


def _not_found(state: State, what: str) -> str:
    return f"{what} not found." if state.on else f"{what} not found. {NOTHING_KEPT}"


async def keep(state: State, past: Past, encoder: ResponseEncoder, linked: Mapping[str, Part]) -> None:
    """Store a finished response; if that fails, the answer says `store: false`.

    `linked` is what the links of its request have become.
    """
    record = record_of(past, encoder)
    new, before = (*past.unstored, *past.inputs), len(past.unstored)
    seen = {before + index: item for index, item in past.inputs_seen(linked).items()}
    # New ids for thousands of items take some ten milliseconds.
    inputs = await beside(partial(named, new, seen), large=len(new) > MANY_ITEMS)
    try:
        # Not cancelled by a client that disconnects at this moment.
        await asyncio.shield(
            state.store.add_response(
                record,
                continues=past.segment,
                inputs=inputs,
                outputs=named(encoder.said),
                legs=legs_of(state, past, encoder),
                conversation=grown(past, encoder),
            )
        )
        if history := past.history_seen(linked):
            await state.store.keep_seen(past.owner, history)
    except GatewayError as error:
        log.error("response_not_kept", response=record.id, reason=error.message)
        encoder.mark_unstored()


def legs_of(state: State, past: Past, encoder: ResponseEncoder) -> Legs:
    """Return what the output of a response does not tell of the turn that its calls belong to."""
    calls = [str(item["call_id"]) for item in encoder.said if "call_id" in item]
    return state.legs(past.owner, calls, told=True)


def named(items: Sequence[JsonObject], seen: Mapping[int, JsonObject] | None = None) -> list[KeptItem]:
    """Return items with ids: their own, or new ones; `seen` has some as the model saw them, by their number."""
    forms = seen or {}
    return [KeptItem(id=_id_of(item), body=item, seen=forms.get(index)) for index, item in enumerate(items)]


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
