"""The format that a client wants its answer in."""

import pytest

from turnbridge.api.responses.schema import shown_format
from turnbridge.api.shared.parameters import FormatObject, check_mentions_json, decode_format
from turnbridge.api.shared.schema_budget import SchemaChecker
from turnbridge.api.shared.validation import convert
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    FunctionCallOutput,
    Item,
    Json,
    JsonObject,
    Message,
    TextPart,
)
from turnbridge.turn.request import (
    AnyJsonObject,
    JsonOfSchema,
    OutputFormat,
    PlainText,
)

STRICT: JsonObject = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
LOOSE: JsonObject = {"type": "object", "properties": {"a": {"type": "string"}}}


def nested(levels: int) -> JsonObject:
    schema: JsonObject = {"type": "string"}
    for _ in range(levels):
        schema = {"anyOf": [schema]}
    return schema


DEEP: JsonObject = {**STRICT, "properties": {"a": nested(70)}}
LARGE: JsonObject = {**STRICT, "properties": {"a": {"type": "integer", "maximum": 2**70}}}


def decoded(wanted: JsonObject) -> OutputFormat:
    return decode_format(convert(wanted, FormatObject, param="text.format"), SchemaChecker(), param="text.format")


@pytest.mark.parametrize(
    ("wanted", "output"),
    [
        ({"type": "text"}, PlainText()),
        ({"type": "json_object"}, AnyJsonObject()),
        (
            {"type": "json_schema", "name": "x", "description": "An x.", "schema": STRICT, "strict": True},
            JsonOfSchema(name="x", description="An x.", schema=STRICT, strict=True, enforced=True),
        ),
        (
            {"type": "json_schema", "name": "x", "schema": STRICT},
            JsonOfSchema(name="x", schema=STRICT, strict=False, enforced=True),
        ),
        (
            {"type": "json_schema", "name": "x", "schema": LOOSE, "strict": False},
            JsonOfSchema(name="x", schema=LOOSE, strict=False, enforced=False),
        ),
        (
            {"type": "json_schema", "name": "x", "schema": LOOSE, "strict": None, "description": None},
            JsonOfSchema(name="x", schema=LOOSE, strict=False, enforced=False),
        ),
        # Codex can read neither, so the provider cannot be given them.
        *(
            (
                {"type": "json_schema", "name": "x", "schema": schema},
                JsonOfSchema(name="x", schema=schema, strict=False, enforced=False),
            )
            for schema in (DEEP, LARGE)
        ),
    ],
)
def test_each_format_is_understood(wanted: JsonObject, output: OutputFormat) -> None:
    assert decoded(wanted) == output


@pytest.mark.parametrize(
    ("wanted", "code", "param"),
    [
        ({}, "invalid_value", "text.format.type"),
        ({"type": "xml"}, "invalid_value", "text.format.type"),
        ({"type": ["text"]}, "invalid_value", "text.format.type"),
        ({"type": "json_schema", "schema": STRICT}, "missing_required_parameter", "text.format.name"),
        ({"type": "json_schema", "name": "x"}, "missing_required_parameter", "text.format.schema"),
        ({"type": "json_schema", "name": "x", "schema": "{}"}, "missing_required_parameter", "text.format.schema"),
        (
            {"type": "json_schema", "name": "x", "schema": LOOSE, "strict": True},
            "invalid_json_schema",
            "text.format.schema",
        ),
        *(
            (
                {"type": "json_schema", "name": "x", "schema": schema, "strict": True},
                "invalid_json_schema",
                "text.format.schema",
            )
            for schema in (DEEP, LARGE)
        ),
    ],
)
def test_a_format_that_openai_refuses_is_refused(wanted: JsonObject, code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoded(wanted)
    assert (caught.value.error_code, caught.value.param) == (code, param)


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "name": "x", "description": "An x.", "schema": STRICT, "strict": True},
    ],
)
def test_the_envelope_shows_the_format_as_it_was_asked_for(wanted: Json) -> None:
    assert isinstance(wanted, dict)
    assert shown_format(decoded(wanted)) == wanted


def says(text: str) -> Item:
    return Message(role="user", parts=(TextPart(text=text),))


@pytest.mark.parametrize(
    ("output", "items", "instructions"),
    [
        (PlainText(), [says("Hi")], None),
        (AnyJsonObject(), [says("Hi"), says("Give me JSON.")], None),
        (AnyJsonObject(), [says("Hi")], "Answer in json."),
    ],
)
def test_a_conversation_that_speaks_of_json_may_ask_for_any_object(
    output: OutputFormat, items: list[Item], instructions: str | None
) -> None:
    check_mentions_json(output, items, instructions, param="input")


@pytest.mark.promise("structured.json-object")
def test_json_that_nobody_speaks_of_is_refused_as_openai_does() -> None:
    output = FunctionCallOutput(call_id="a", output="json")
    with pytest.raises(InvalidRequest, match=r"'input' must contain the word 'json' in some form") as caught:
        check_mentions_json(AnyJsonObject(), [says("Hi"), output], "Be kind.", param="input")
    assert caught.value.param == "input"
