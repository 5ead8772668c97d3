"""Items and responses that are kept: how they are named, referred to, and shown again."""

from collections.abc import Mapping, Sequence

from turnbridge.api.responses import schema
from turnbridge.api.shared.body_budget import MOST_ITEMS
from turnbridge.api.shared.validation import check_length, convert, missing
from turnbridge.turn.errors import InvalidRequest, NotFound
from turnbridge.turn.items import Json, JsonObject

REFERENCE = "item_reference"
ENCRYPTED = "encrypted_content"

# What OpenAI's ids of these items begin with.
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


def wishes(body: JsonObject) -> schema.StateWishes:
    """Return what a request wants to continue and to keep."""
    wanted = convert(body, schema.StateWishes)
    if isinstance(wanted.input, list):
        check_length(wanted.input, MOST_ITEMS, param="input")
    if wanted.previous_response_id and wanted.conversation:
        raise InvalidRequest(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Send one of them.",
            code="mutually_exclusive_parameters",
            param="conversation",
        )
    if wanted.background and wanted.store is False:
        raise InvalidRequest(
            "A background response must be kept: `background` and `store: false` do not go together.",
            code="invalid_value",
            param="store",
        )
    return wanted


def conversation_id(wanted: str | JsonObject | None) -> str | None:
    """Return the id of the conversation that a request belongs to."""
    if wanted is None or isinstance(wanted, str):
        return wanted or None
    name = wanted.get("id")
    if not isinstance(name, str):
        raise missing("conversation.id")
    return name


def kind_of(item: JsonObject) -> str | None:
    """Return the type of an item; only messages and references may go without."""
    kind = item.get("type")
    if kind is not None:
        return kind if isinstance(kind, str) else None
    if "role" in item:
        return "message"
    return REFERENCE if set(item) <= {"id", "type"} and "id" in item else None


def id_prefix(item: JsonObject) -> str:
    """Return what the id of an item begins with."""
    return PREFIXES.get(kind_of(item) or "", OTHER_PREFIX)


def input_items(given: str | list[JsonObject] | None) -> list[JsonObject]:
    """Return an input as items."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given or []


def ids_to_look_up(items: Sequence[JsonObject]) -> list[str]:
    """Return the ids of what an input only refers to, and of thoughts that came without their encrypted content."""
    return [
        item_id
        for item in items
        if isinstance(item_id := item.get("id"), str) and (kind_of(item) == REFERENCE or _lacks_content(item))
    ]


def resolved(items: Sequence[JsonObject], found: Mapping[str, JsonObject], *, param: str = "input") -> list[JsonObject]:
    """Return items with what was looked up put in its place; `param` is where errors say they are."""
    whole: list[JsonObject] = []
    for index, item in enumerate(items):
        known = found.get(str(item.get("id")))
        if kind_of(item) == REFERENCE:
            if known is None:
                raise NotFound(
                    f"Item with id '{item.get('id')}' not found. Items are not kept when `store` is false: "
                    "send the item itself, or leave it out.",
                    code="item_not_found",
                    param=f"{param}[{index}]",
                )
            whole.append(known)
        elif known is not None and _lacks_content(item) and known.get(ENCRYPTED):
            whole.append({**item, ENCRYPTED: known[ENCRYPTED]})
        else:
            whole.append(item)
    return whole


def shown_item(item_id: str, body: JsonObject, *, encrypted: bool) -> JsonObject:
    """Return an item as lists show it: with its id, its type and its parts spelled out."""
    kind = kind_of(body)
    shown: JsonObject = {**body, "type": kind, "id": item_id}
    if kind == "message":
        shown["content"] = _parts(body)
    if kind == "reasoning" and not encrypted:
        shown.pop(ENCRYPTED, None)
    if kind != "reasoning":
        shown.setdefault("status", "completed")
    return shown


def with_encrypted(response: JsonObject, thoughts: Mapping[str, JsonObject]) -> JsonObject:
    """Return a response whose thoughts have their encrypted content."""
    output = response["output"]
    if not isinstance(output, list):
        raise AssertionError("A response's output is a list.")
    whole: list[Json] = []
    for item in output:
        known = thoughts.get(str(item.get("id"))) if isinstance(item, dict) else None
        if isinstance(item, dict) and known is not None and known.get(ENCRYPTED):
            whole.append({**item, ENCRYPTED: known[ENCRYPTED]})
        else:
            whole.append(item)
    return {**response, "output": whole}


def deleted(object_id: str, kind: str) -> JsonObject:
    """Return what a deletion is answered with."""
    return {"id": object_id, "object": kind, "deleted": True}


def _lacks_content(item: JsonObject) -> bool:
    return kind_of(item) == "reasoning" and not item.get(ENCRYPTED)


def _parts(message: JsonObject) -> list[Json]:
    content = message.get("content")
    mine = message.get("role") == "assistant"
    given: list[Json] = content if isinstance(content, list) else [content]
    return [_text_part(part, mine=mine) if isinstance(part, str) else part for part in given]


def _text_part(text: str, *, mine: bool) -> JsonObject:
    if mine:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}
