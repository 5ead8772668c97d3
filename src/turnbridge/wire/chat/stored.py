"""Messages of chat completions that are kept, as lists show them."""

from turnbridge.turn.items import JsonObject


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
