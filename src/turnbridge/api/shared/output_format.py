"""The format of the answer: the same in both APIs, but Chat Completions nests the schema and its name."""

import re
from typing import assert_never

from msgspec import Struct

from turnbridge.api.shared.parameters import unknown_value
from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.strict_schema import strict_schema_error
from turnbridge.api.shared.validation import check_length, invalid, missing
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import unreadable
from turnbridge.turn.request import AnyJsonObject, JsonOfSchema, OutputFormat, PlainText

NAME_PATTERN = "^[a-zA-Z0-9_-]+$"
MAX_SCHEMA_NAME_CHARS = 64


class FormatObject(Struct):
    """`text.format`, `response_format`, or the `json_schema` in it."""

    type: Json = None
    name: str | None = None
    description: str | None = None
    schema: Json = None
    strict: bool | None = None
    json_schema: "FormatObject | None" = None


def decode_format(
    wanted: FormatObject | None, schemas: SchemaChecker, *, param: str, nested: bool = False
) -> OutputFormat:
    """Return the format; `nested` if the schema and its name are in `json_schema`."""
    kind = "text" if wanted is None else wanted.type
    if wanted is None or kind == "text":
        return PlainText()
    if kind == "json_object":
        return AnyJsonObject()
    if kind != "json_schema":
        raise unknown_value(kind, ("text", "json_object", "json_schema"), param=f"{param}.type")
    if not nested:
        return _of_schema(wanted, schemas, param=param)
    if wanted.json_schema is None:
        raise missing(f"{param}.json_schema")
    return _of_schema(wanted.json_schema, schemas, param=f"{param}.json_schema")


def _of_schema(wanted: FormatObject, schemas: SchemaChecker, *, param: str) -> JsonOfSchema:
    name = check_schema_name(wanted.name, param=f"{param}.name")
    schema, strict, schema_param = wanted.schema, wanted.strict is True, f"{param}.schema"
    if not isinstance(schema, dict):
        raise missing(schema_param)
    schemas.check(schema, strict=strict, param=schema_param, name=name, use="response_format")
    problem = unreadable(schema)
    if strict and problem is not None:
        raise SchemaPlace(schema=schema, param=schema_param, name=name, use="response_format").refused(f"{problem}.")
    # A schema that Codex cannot read is told to the model in words.
    enforced = strict or (problem is None and strict_schema_error(schema) is None)
    return JsonOfSchema(name=name, schema=schema, description=wanted.description, strict=strict, enforced=enforced)


def check_schema_name(name: str | None, *, param: str) -> str:
    """Return the name if OpenAI accepts it for a schema."""
    if name is None:
        raise missing(param)
    if not name:
        expected = "Expected a string with minimum length 1, but got an empty string instead."
        raise invalid(param, f"empty string. {expected}", code="empty_string")
    check_length(name, MAX_SCHEMA_NAME_CHARS, param=param)
    if not re.fullmatch(NAME_PATTERN, name):
        expected = f"Expected a string that matches the pattern '{NAME_PATTERN}'."
        raise invalid(param, f"string does not match pattern. {expected}")
    return name


def encode_format(output: OutputFormat) -> JsonObject:
    """Return the format as the Responses envelope shows it."""
    match output:
        case PlainText():
            return {"type": "text"}
        case AnyJsonObject():
            return {"type": "json_object"}
        case JsonOfSchema(name=name, description=about, schema=schema, strict=strict):
            return {"type": "json_schema", "name": name, "description": about, "schema": schema, "strict": strict}
        case _:
            assert_never(output)
