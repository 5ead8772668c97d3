"""Whatever is called and declared: parked and replayed conversations look the same, and no schema loses anything."""

import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.gateway import Bridge
from tests.support.tool_clients import (
    MODEL,
    Api,
    Call,
    converse_both_ways,
)
from turnbridge.api.shared.strict_schema import schema_error
from turnbridge.scripted_model.replies import (
    OutputItem,
    answer,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

# A failure is told as it was found: to shrink it takes minutes, at a tenth of a second for each model call.
FOUND = (Phase.explicit, Phase.reuse, Phase.generate)


class Says(NamedTuple):
    """The model says something."""

    text: str
    phase: str | None


class Thinks(NamedTuple):
    """The model thinks."""

    summaries: list[str]
    encrypted: str


class Calls(NamedTuple):
    """The model calls a function."""

    name: str
    arguments: JsonObject


Act = Says | Thinks | Calls

words = st.text(min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=4,
)
says = st.builds(Says, words, st.sampled_from([None, "commentary"]))
thinks = st.builds(Thinks, st.lists(words, max_size=2), words)
names = st.sampled_from(["weather", "client_mcp__clock__now", "files_read"])
calls = st.builds(Calls, names, st.dictionaries(words, values, max_size=3))
rounds = st.tuples(st.lists(calls, min_size=1, max_size=4), st.lists(says | thinks, max_size=3)).flatmap(
    lambda made: st.permutations([*made[0], *made[1]])
)
outputs = words | st.lists(words, max_size=3)


def output_item(act: Act, call_id: str) -> OutputItem:
    match act:
        case Says():
            return message(act.text, phase=act.phase)
        case Thinks():
            return reasoning(act.summaries, encrypted=act.encrypted)
        case Calls():
            return function_call(act.name, act.arguments, call_id=call_id)


@pytest.mark.promise("tools.replay")
@settings(max_examples=15, deadline=None, phases=FOUND)
@given(
    script=st.lists(rounds, min_size=1, max_size=4),
    ending=says,
    answers=st.lists(outputs, min_size=1, max_size=4),
    api=st.sampled_from(["chat", "responses"]),
    stream=st.booleans(),
)
async def test_parked_and_replayed_conversations_are_the_same_from_both_ends(
    shared: Bridge, script: list[list[Act]], ending: Says, answers: list[str | list[str]], api: Api, stream: bool
) -> None:
    numbers = itertools.count()
    acted: list[list[Act]] = [*script, [ending]]
    replies = [answer(*(output_item(act, f"call_{next(numbers)}") for act in acts)) for acts in acted]

    def serve(made: Sequence[Call]) -> dict[str, object]:
        kind = "text" if api == "chat" else "input_text"
        written = itertools.cycle(
            each if isinstance(each, str) else [{"type": kind, "text": text} for text in each] for each in answers
        )
        return {call_id: next(written) for call_id, _, _ in made}

    await converse_both_ways(shared, replies, api=api, stream=stream, answers=serve)


def tool(schema: Json, name: str) -> JsonObject:
    return {"type": "function", "name": name, "description": f"About {name}.", "parameters": schema}


async def given_for(bridge: Bridge, tools: list[JsonObject]) -> list[JsonObject]:
    """Return what the model is given for these tools."""
    bridge.says("ok")
    response = await bridge.http.post("/v1/responses", json={"model": MODEL, "input": "hi", "tools": tools})
    assert response.status_code == 200, response.text
    received: Any = bridge.seen()["tools"]
    return list(received)


def reference(place: str) -> JsonObject:
    return {"$ref": place}


def object_of(**properties: Json) -> JsonObject:
    return {"type": "object", "properties": properties}


TREE: JsonObject = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}, "required": ["left"]}
IN_CODEX_LANGUAGE: list[JsonObject] = [
    object_of(),
    {**object_of(a={"type": "string", "description": "An a."}), "required": ["a"], "additionalProperties": False},
    object_of(a={"type": "integer", "enum": [1, 2]}, b={"type": ["string", "null"]}, c={"type": "boolean"}, d={}),
    object_of(a={"type": "array", "items": {"type": "array", "items": {"type": "number"}, "minItems": 2}}),
    object_of(a={"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Maybe."}),
    object_of(a={"oneOf": [{"type": "string"}, object_of(b={"type": "null"})]}, b={"allOf": [{"type": "string"}]}),
    object_of(a={"type": "object", "properties": {}, "additionalProperties": {"type": "array", "items": {}}}),
    {**object_of(tree={"$ref": "#/$defs/Tree", "description": "A tree."}), "$defs": {"Tree": TREE}},
    {**object_of(name={"$ref": "#/definitions/N~1a%20me"}), "definitions": {"N/a me": {"type": "string"}}},
    object_of(type={"type": "string"}, properties={"type": "string"}, description={"type": "string"}),
    {**object_of(a={"type": "string", "description": "ä" * 500}), "description": "The arguments.", "required": []},
]


@pytest.mark.promise("tools.schemas")
async def test_a_schema_that_codex_can_express_reaches_the_model_as_it_is(bridge: Bridge) -> None:
    tools = [tool(schema, f"tool_{number}") for number, schema in enumerate(IN_CODEX_LANGUAGE)]
    assert await given_for(bridge, tools) == [{**each, "strict": False} for each in tools]


ANY: JsonObject = {"type": ["string", "number", "boolean", "object", "array", "null"], "properties": {}, "items": {}}
BEYOND: dict[str, tuple[Json, Json]] = {
    "const": ({"const": "x"}, {"type": "string", "enum": ["x"]}),
    "const beside a type": ({"type": "boolean", "const": True}, {"type": "boolean", "enum": [True]}),
    "const and enum": (
        {"const": 1, "enum": [1, 2]},
        {"type": "integer", "enum": [1, 2], "description": 'JSON Schema: {"const": 1}'},
    ),
    "enum without a type": (
        {"enum": ["x", 1, None, [2]]},
        {"type": ["string", "integer", "null", "array"], "enum": ["x", 1, None, [2]], "items": {}},
    ),
    "numbers beyond 64 bits": (
        {"type": "integer", "enum": [10**30]},
        {"type": "integer", "description": f'JSON Schema: {{"enum": [{10**30}]}}'},
    ),
    "array without items": ({"type": "array"}, {"type": "array", "items": {}}),
    "description without a type": ({"description": "Any."}, {**ANY, "description": "Any."}),
    "true": (True, {}),
    "false": (False, {**ANY, "description": 'JSON Schema: {"not": {}}'}),
    "default": (
        {"type": "string", "description": "A.", "default": "x"},
        {"type": "string", "description": 'A. (JSON Schema: {"default": "x"})'},
    ),
    "constraints without a type": (
        {"minLength": 2, "format": "date"},
        {**ANY, "description": 'JSON Schema: {"minLength": 2, "format": "date"}'},
    ),
    "patternProperties": (
        {"patternProperties": {"^x": True}, "type": "object"},
        {"type": "object", "properties": {}, "description": 'JSON Schema: {"patternProperties": {"^x": true}}'},
    ),
    "prefixItems": (
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}},
        {
            "type": "array",
            "items": {"type": "null"},
            "description": 'JSON Schema: {"prefixItems": [{"type": "string"}]}',
        },
    ),
    "if and then": (
        {"type": "object", "properties": {}, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {
            "type": "object",
            "properties": {},
            "description": 'JSON Schema: {"if": {"required": ["a"]}, "then": {"required": ["b"]}}',
        },
    ),
    "inside of others": (
        {"anyOf": [{"type": "array", "items": {"allOf": [{"minimum": 1}]}}]},
        {"anyOf": [{"type": "array", "items": {"allOf": [{**ANY, "description": 'JSON Schema: {"minimum": 1}'}]}}]},
    ),
}


@pytest.mark.promise("tools.schemas")
async def test_what_codex_cannot_express_stands_in_a_description(bridge: Bridge) -> None:
    tools = [tool(object_of(it=declared), f"tool_{n}") for n, (declared, _) in enumerate(BEYOND.values())]
    received: list[Any] = await given_for(bridge, tools)
    shown = {name: each["parameters"]["properties"]["it"] for name, each in zip(BEYOND, received, strict=True)}
    assert shown == {name: expected for name, (_, expected) in BEYOND.items()}


@pytest.mark.promise("tools.schemas")
async def test_definitions_that_codex_would_drop_stand_in_a_description(bridge: Bridge) -> None:
    tuple_of_points: JsonObject = {"type": "array", "prefixItems": [{"$ref": "#/$defs/Point"}], "items": {}}
    definitions: JsonObject = {"Point": {"type": "string"}}
    (received,) = await given_for(bridge, [tool({**object_of(a=tuple_of_points), "$defs": definitions}, "t")])
    note = 'JSON Schema: {"prefixItems": [{"$ref": "#/$defs/Point"}]}'
    assert received["parameters"] == {
        **object_of(a={"type": "array", "items": {}, "description": note}),
        "description": 'JSON Schema: {"$defs": {"Point": {"type": "string"}}}',
    }


@pytest.mark.promise("tools.schemas")
async def test_a_schema_that_codex_cuts_down_stands_whole_in_the_description_of_the_function(bridge: Bridge) -> None:
    item: JsonObject = object_of(q={"type": "string", "description": "ö" * 100})
    names = [f"item_{number}" for number in range(60)]
    large: JsonObject = {
        **object_of(**{name: reference(f"#/$defs/{name}") for name in names}),
        "$defs": dict.fromkeys(names, item),
    }
    (received,) = await given_for(bridge, [tool(large, "large")])
    about, _, whole = str(received["description"]).partition("\n\nThe arguments conform to this JSON Schema: ")
    assert (about, json.loads(whole)) == ("About large.", large)
    assert received["parameters"] == object_of(**{name: {} for name in names})


plain = st.text("abc ", min_size=1, max_size=6)
names_of_properties = st.text("abc-.$", min_size=1, max_size=3)
TYPES = ["string", "number", "integer", "boolean", "object", "array", "null"]
KEYWORDS: dict[str, st.SearchStrategy[Json]] = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
    "description": plain,
    "title": plain,
    "enum": st.lists(values, min_size=1, max_size=3),
    "const": values,
    "default": values,
    "examples": st.lists(values, max_size=2),
    "format": st.sampled_from(["date", "email"]),
    "pattern": st.sampled_from(["^a", "[0-9]+"]),
    "minLength": st.integers(0, 9),
    "maximum": st.integers(0, 9) | st.floats(0, 9),
    "multipleOf": st.sampled_from([0.5, 2]),
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(3, 9),
    "uniqueItems": st.booleans(),
    "maxProperties": st.integers(0, 9),
    "required": st.lists(names_of_properties, max_size=2, unique=True),
    "$ref": st.sampled_from(["#/$defs/A", "#/$defs/B", "#/definitions/C", "#/$defs/A/properties/a", "#"]),
    "$comment": plain,
    "nullable": st.booleans(),
}


def nested(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    table = st.dictionaries(names_of_properties, inner, max_size=2)
    several = st.lists(inner, min_size=1, max_size=2)
    keywords: dict[str, st.SearchStrategy[Json]] = {
        **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), table),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), several),
        **dict.fromkeys(("items", "additionalProperties", "not", "if", "then", "contains", "propertyNames"), inner),
    }
    return some_of({**KEYWORDS, **keywords})


def some_of(keywords: dict[str, st.SearchStrategy[Json]]) -> st.SearchStrategy[Json]:
    """Return schemas of a few keywords."""
    chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


schemas = st.recursive(some_of(KEYWORDS) | st.booleans(), nested, max_leaves=6)


def is_accepted(schema: Json) -> bool:
    """Tell whether this is a JSON Schema at all."""
    return isinstance(schema, dict) and schema_error(schema) is None


parameters = st.builds(
    lambda root, properties, a, b, c: {
        **(root if isinstance(root, dict) else {}),
        **object_of(**properties),
        "$defs": {"A": {**object_of(a=a)}, "B": b},
        "definitions": {"C": c},
    },
    nested(schemas),
    st.dictionaries(names_of_properties, schemas, max_size=3),
    schemas,
    schemas,
    schemas,
)

# What tells the type of a value.
HINTS = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems"}
TABLES = ("properties", "$defs", "definitions")


def notes_of(received: JsonObject) -> JsonObject:
    """Return what the description of a place says about its schema."""
    told: JsonObject = {}
    for note in str(received.get("description", "")).split("JSON Schema: ")[1:]:
        told |= json.JSONDecoder().raw_decode(note)[0]
    return told


def same(one: Json, other: Json) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def lost(declared: Json, received: Json, where: str) -> list[str]:
    """Return the places of a schema that the model was not given, or was given otherwise."""
    if not isinstance(declared, dict) or not isinstance(received, dict):
        return [] if same(received, {} if declared else {**ANY, "description": 'JSON Schema: {"not": {}}'}) else [where]
    told = notes_of(received)
    gone = [
        place for key in declared if key != "$comment" for place in lost_keyword(key, declared, received, told, where)
    ]
    added = received.keys() - declared.keys() - {"description", "type"}
    harmless = all(received[key] == {} or (key == "enum" and "const" in declared) for key in added)
    narrowed = not declared.keys() & HINTS and received.get("type", ANY["type"]) != ANY["type"]
    return gone if harmless and not narrowed else [*gone, f"{where} {added}"]


def lost_keyword(key: str, declared: JsonObject, received: JsonObject, told: JsonObject, where: str) -> list[str]:
    """Return what is missing of one keyword."""
    value, given_value, here = declared[key], received.get(key), f"{where}/{key}"
    noted = told.get(key)
    if key in TABLES and isinstance(value, dict):
        kept, dropped = (each if isinstance(each, dict) else {} for each in (given_value, noted))
        return [
            place
            for name, inner in value.items()
            if name not in dropped or not same(dropped[name], inner)
            for place in (lost(inner, kept[name], f"{here}/{name}") if name in kept else [f"{here}/{name}"])
        ]
    if key in told:
        return [] if same(noted, value) else [here]
    if key in ("anyOf", "oneOf", "allOf") and isinstance(value, list) and isinstance(given_value, list):
        return [place for inner in zip(value, given_value, strict=True) for place in lost(*inner, here)]
    if key == "items" or (key == "additionalProperties" and not isinstance(value, bool)):
        return lost(value, given_value, here)
    if key == "description":
        return [] if str(given_value).startswith(str(value)) else [here]
    if key == "const":
        return [] if same(received.get("enum"), [value]) else [here]
    return [] if same(given_value, value) or (key == "type" and same([given_value], value)) else [here]


def takes_objects(schema: JsonObject) -> bool:
    """Tell whether an object is among the values that a schema names, if it names any."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [{}])
    return isinstance(values, list) and any(isinstance(value, dict) for value in values)


@pytest.mark.promise("tools.schemas")
@settings(max_examples=15, deadline=None, phases=FOUND, suppress_health_check=list(HealthCheck))
@given(declared=st.lists(parameters.filter(is_accepted).filter(takes_objects), min_size=10, max_size=10))
async def test_nothing_of_any_schema_is_lost(shared: Bridge, declared: list[JsonObject]) -> None:
    tools = [tool(schema, f"tool_{number}") for number, schema in enumerate(declared)]
    for schema, received in zip(declared, await given_for(shared, tools), strict=True):
        _, _, whole = str(received["description"]).partition("The arguments conform to this JSON Schema: ")
        if whole:
            assert same(json.loads(whole), schema)
        else:
            assert lost(schema, received["parameters"], "#") == [], (schema, received["parameters"])
