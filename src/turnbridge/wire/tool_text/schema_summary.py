"""The parameters of a function in a few lines for the model."""

from turnbridge.turn.items import Json, JsonObject
from turnbridge.wire.tool_text.blocks import compact_json
from turnbridge.wire.tool_text.plain_schema import plain_schema, required_names, types_of

NO_PARAMETERS = "- (no parameters)"


def summary_lines(parameters: JsonObject) -> list[str]:
    """Return a line for each parameter: its name, whether it is required, its type and what it is for."""
    said = plain_schema(parameters, parameters).said
    properties = said.get("properties")
    if said.get("type") != "object" and not isinstance(properties, dict):
        return [f"- (schema) {compact_json(said)}"]
    if not isinstance(properties, dict) or not properties:
        return [NO_PARAMETERS]
    required = required_names(said)
    return [_line(name, schema, parameters, required=name in required) for name, schema in properties.items()]


def _line(name: str, schema: Json, root: JsonObject, *, required: bool) -> str:
    said = plain_schema(schema, root).said
    line = f"- {name} ({'required' if required else 'optional'}, {_type_name(said)})"
    description = said.get("description")
    about = description.strip() if isinstance(description, str) else ""
    return f"{line}: {about}" if about else line


def _type_name(said: JsonObject) -> str:
    if types := types_of(said):
        return "|".join(types)
    if "properties" in said:
        return "object"
    return "array" if "items" in said else "unknown"
