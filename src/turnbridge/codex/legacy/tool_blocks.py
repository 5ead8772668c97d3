"""How a call and its output are written in text.

A block is a pair of tags with JSON between them. `<` and `>` are escaped inside the JSON, so that no name, argument or
output can contain a tag, and a block ends where it seems to end.
"""

import json

from turnbridge.turn.items import Json, JsonObject

OPEN_CALL = "<tool_call>"
CLOSE_CALL = "</tool_call>"
OPEN_OUTPUT = "<tool_output>"
CLOSE_OUTPUT = "</tool_output>"


def example_call(name: str, arguments: Json) -> str:
    """Return a call as the model is asked to write it."""
    return _call({"name": name, "arguments": compact_json(arguments)})


def render_call(call_id: str, name: str, arguments: str, namespace: str | None = None) -> str:
    """Return an earlier call of the model's; `arguments` is JSON text."""
    place: JsonObject = {} if namespace is None else {"namespace": namespace}
    return _call({"call_id": call_id, **place, "name": name, "arguments": arguments})


def render_output(call_id: str, name: str, output_text: str) -> str:
    """Return what the client's function answered to an earlier call."""
    output = tagless_json({"call_id": call_id, "name": name, "output": output_text})
    return f"{OPEN_OUTPUT}{output}{CLOSE_OUTPUT}"


def compact_json(value: Json) -> str:
    """Return JSON without spaces, in readable characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tagless_json(value: JsonObject) -> str:
    """Return JSON in which nothing looks like a tag: outside of strings it has neither of the two characters."""
    return compact_json(value).replace("<", "\\u003c").replace(">", "\\u003e")


def _call(call: JsonObject) -> str:
    return f"{OPEN_CALL}{tagless_json(call)}{CLOSE_CALL}"
