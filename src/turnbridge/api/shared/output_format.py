"""The format that a client wants its answer in: the same in both APIs but for where its fields stand."""

from collections.abc import Sequence
from typing import assert_never

from turnbridge.api.shared.schema_budget import Schemas
from turnbridge.api.shared.strict_schema import check_schema_name, is_strict
from turnbridge.api.shared.validation import missing
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    Item,
    JsonObject,
    Message,
    TextPart,
)
from turnbridge.turn.json_schema import unreadable
from turnbridge.turn.request import (
    AnyJsonObject,
    JsonOfSchema,
    OutputFormat,
    PlainText,
)


def decode_format(wanted: JsonObject, schemas: Schemas, *, param: str, schema_param: str) -> OutputFormat:
    """Return the format of a flat `{type, name, schema, strict, description}`."""
    kind = wanted.get("type")
    if kind == "text":
        return PlainText()
    if kind == "json_object":
        return AnyJsonObject()
    if kind == "json_schema":
        return _of_schema(wanted, schemas, param=param, schema_param=schema_param)
    raise InvalidRequest(
        f"Invalid value: '{kind}'. Supported values are: 'text', 'json_object', and 'json_schema'.",
        code="invalid_value",
        param=f"{param}.type",
    )


def _of_schema(wanted: JsonObject, schemas: Schemas, *, param: str, schema_param: str) -> JsonOfSchema:
    given_name = wanted.get("name")
    name = check_schema_name(given_name if isinstance(given_name, str) else None, param=f"{param}.name")
    schema = wanted.get("schema")
    if not isinstance(schema, dict):
        raise missing(schema_param)
    strict = wanted.get("strict") is True
    schemas.check(schema, strict=strict, param=schema_param, name=name, use="response_format")
    problem = unreadable(schema)
    if strict and problem is not None:
        raise InvalidRequest(
            f"Invalid schema for response_format '{name}': {problem}.", code="invalid_json_schema", param=schema_param
        )
    description = wanted.get("description")
    return JsonOfSchema(
        name=name,
        schema=schema,
        description=description if isinstance(description, str) else None,
        strict=strict,
        # What Codex cannot read as a schema, the model is told in words.
        enforced=strict or (problem is None and is_strict(schema)),
    )


def check_mentions_json(output: OutputFormat, items: Sequence[Item], instructions: str | None, *, param: str) -> None:
    """Refuse `json_object` for a conversation that never speaks of JSON, as OpenAI does: the model would not know."""
    if not isinstance(output, AnyJsonObject):
        return
    said = [instructions or ""]
    said += [
        part.text for item in items if isinstance(item, Message) for part in item.parts if isinstance(part, TextPart)
    ]
    if not any("json" in text.lower() for text in said):
        raise InvalidRequest(
            f"'{param}' must contain the word 'json' in some form, to use a format of type 'json_object'.",
            param=param,
        )


def encode_format(output: OutputFormat) -> JsonObject:
    """Return the format as the Responses envelope shows it."""
    match output:
        case PlainText():
            return {"type": "text"}
        case AnyJsonObject():
            return {"type": "json_object"}
        case JsonOfSchema():
            return {
                "type": "json_schema",
                "name": output.name,
                "description": output.description,
                "schema": output.schema,
                "strict": output.strict,
            }
        case _:
            assert_never(output)
