"""Stored items and responses: their ids, references to them, and how they are listed."""

from collections.abc import Mapping, Sequence

from turnbridge.api.responses import schema
from turnbridge.turn.errors import NotFound
from turnbridge.turn.items import Json, JsonObject

REFERENCE = "item_reference"
ENCRYPTED = "encrypted_content"

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


def conversation_id(conversation: str | schema.ConversationRef | None) -> str | None:
    """Return the id of the conversation that a request belongs to."""
    return (conversation.id if isinstance(conversation, schema.ConversationRef) else conversation) or None


def item_type(item: JsonObject) -> str | None:
    """Return the type of an item; it is optional in messages and references."""
    kind = item.get("type")
    if kind is not None:
        return kind if isinstance(kind, str) else None
    if "role" in item:
        return "message"
    return REFERENCE if set(item) <= {"id", "type"} and "id" in item else None


def id_prefix(item: JsonObject) -> str:
    """Return the prefix of an item's id."""
    return PREFIXES.get(item_type(item) or "", OTHER_PREFIX)


def input_items(given: str | list[JsonObject] | None) -> list[JsonObject]:
    """Return an input as items."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given or []


def ids_to_look_up(items: Sequence[JsonObject]) -> list[str]:
    """Return the ids of references, and of reasoning items without their encrypted content."""
    return [
        item_id
        for item in items
        if isinstance(item_id := item.get("id"), str) and (item_type(item) == REFERENCE or _lacks_content(item))
    ]


def resolve_references(
    items: Sequence[JsonObject], found: Mapping[str, JsonObject], *, param: str = "input"
) -> list[JsonObject]:
    """Return items with their references resolved from what was found; `param` is their place in errors."""
    whole: list[JsonObject] = []
    for index, item in enumerate(items):
        if item_type(item) != REFERENCE:
            whole.append(_with_content(item, found) if _lacks_content(item) else item)
        elif (known := found.get(str(item.get("id")))) is not None:
            whole.append(known)
        else:
            raise NotFound(
                f"Item with id '{item.get('id')}' not found. Items are not kept when `store` is false: "
                "send the item itself, or leave it out.",
                code="item_not_found",
                param=f"{param}[{index}]",
            )
    return whole


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


def with_encrypted_content(response: JsonObject, stored: Mapping[str, JsonObject]) -> JsonObject:
    """Return a response whose reasoning items have their encrypted content."""
    output = response["output"]
    if not isinstance(output, list):
        raise AssertionError("A response's output is a list.")
    return {**response, "output": [_with_content(item, stored) if isinstance(item, dict) else item for item in output]}


def deleted(object_id: str, kind: str) -> JsonObject:
    """Return the answer to a deletion."""
    return {"id": object_id, "object": kind, "deleted": True}


def _lacks_content(item: JsonObject) -> bool:
    return item_type(item) == "reasoning" and not item.get(ENCRYPTED)


def _with_content(item: JsonObject, stored: Mapping[str, JsonObject]) -> JsonObject:
    """Return an item with the encrypted content that was stored for it, if any."""
    content = stored.get(str(item.get("id")), {}).get(ENCRYPTED)
    return {**item, ENCRYPTED: content} if content else item


def _parts(message: JsonObject) -> list[Json]:
    content = message.get("content")
    text_part: JsonObject = {"type": "input_text"}
    if message.get("role") == "assistant":
        text_part = {"type": "output_text", "annotations": [], "logprobs": []}
    given: list[Json] = content if isinstance(content, list) else [content]
    return [{**text_part, "text": part} if isinstance(part, str) else part for part in given]
