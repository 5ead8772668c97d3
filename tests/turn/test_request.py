"""What of a request decides whether it may continue in a thread."""

import pytest
from msgspec.structs import asdict

from turnbridge.turn.items import Json, canonical_json, replace
from turnbridge.turn.mcp import McpServer
from turnbridge.turn.request import AnyJsonObject, JsonOfSchema, PlainText, ThreadSpec, Tool, WebSearch


def of_schema(constant: Json) -> JsonOfSchema:
    return JsonOfSchema(name="n", schema={"const": constant}, strict=True, enforced=True)


PLAIN = ThreadSpec(model="m")
OTHER = ThreadSpec(
    client="other",
    account="other",
    provider="other",
    image_generation=True,
    model="other",
    instructions="Be kind.",
    tools=(Tool(name="f", description="", parameters={}),),
    servers=(McpServer(label="s", url="https://mcp.example", param="tools[0]"),),
    web_search=WebSearch(),
    effort="low",
    summary="auto",
    summary_needed=False,
    verbosity="low",
    service_tier="flex",
    output=of_schema(1),
    allow_truncation=True,
)


@pytest.mark.parametrize("name", asdict(PLAIN))
def test_a_spec_with_one_other_field_is_another_spec(name: str) -> None:
    changed = replace(PLAIN, **{name: getattr(OTHER, name)})
    assert changed != PLAIN
    assert canonical_json(changed) != canonical_json(PLAIN)


def test_no_two_output_formats_are_the_same() -> None:
    formats = [PlainText(), AnyJsonObject(), *(of_schema(constant) for constant in (1, True, 1.0, "1"))]
    assert len({canonical_json(replace(PLAIN, output=output)) for output in formats}) == len(formats)


def test_the_order_of_a_schemas_keys_does_not_matter() -> None:
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    tools = [(Tool(name="f", description="", parameters=dict(schema)),) for schema in (one, other)]
    assert len({canonical_json(replace(PLAIN, tools=tool)) for tool in tools}) == 1
