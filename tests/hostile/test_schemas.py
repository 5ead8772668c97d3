"""Schemas that take long to compile or to check an answer against: they keep nobody waiting but their own client."""

import json
from collections.abc import Callable

import pytest

from tests.hostile.site import Site
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def obj(properties: JsonObject, **more: Json) -> JsonObject:
    """Return a schema that OpenAI takes as strict, if those of its properties are."""
    required: list[Json] = [*properties]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


def ladder(rungs: int) -> JsonObject:
    """Return definitions each of which refers twice to the next one: a value is compared 2 to the power of them."""
    last: JsonObject = {"type": "string"}
    steps: JsonObject = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(rungs)
    }
    return obj({"a": {"$ref": "#/$defs/d0"}}, **{"$defs": {**steps, f"d{rungs}": last}})


def hidden_ladder(rungs: int) -> JsonObject:
    """Return the same by anchors, whose targets the gateway does not follow."""
    steps: JsonObject = {
        f"d{n}": {"$anchor": f"a{n}", "allOf": [{"$ref": f"#a{n + 1}"}, {"$ref": f"#a{n + 1}"}]} for n in range(rungs)
    }
    last: JsonObject = {"$anchor": f"a{rungs}", "type": "string"}
    return obj({"a": {"$ref": "#a0"}}, **{"$defs": {**steps, "last": last}})


def clique(members: int) -> JsonObject:
    """Return definitions that all refer to one another."""
    refs: JsonObject = {f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in range(members)}
    definitions: JsonObject = {f"d{n}": {"properties": refs} for n in range(members)}
    return obj({"a": {"$ref": "#/$defs/d0"}}, **{"$defs": definitions})


def deep(levels: int) -> JsonObject:
    """Return a schema with schemas inside of one another."""
    schema: JsonObject = {}
    for _ in range(levels // 2):
        schema = {"not": {"items": schema}}
    return schema


# Backtracks by the square of the text's length, and more.
SLOW_PATTERN = r"(?=.*).*(?=.*).*x"
# Compiles to megabytes.
LARGE_PATTERN = r"(\w{50}){40}"

OF_ANSWERS: dict[str, tuple[JsonObject, str]] = {
    "a ladder of references": (ladder(60), '{"a": 1}'),
    "a ladder of anchors": (hidden_ladder(40), '{"a": "text"}'),
    "a clique": (clique(40), '{"a": {}}'),
    "a slow pattern": (obj({"a": {"type": "string", "pattern": SLOW_PATTERN}}), json.dumps({"a": "a" * 200_000})),
    "many patterns": (obj({f"p{n}": {"type": "string", "pattern": LARGE_PATTERN + str(n)} for n in range(2000)}), "{}"),
    "a long pattern": (obj({"a": {"type": "string", "pattern": "(a|b)" * 1_000_000}}), "{}"),
    "many values": ({"enum": [f"value {n}" for n in range(49_000)]}, '"none"'),
    "many alternatives": ({"items": {"anyOf": [obj({f"p{n}": {"const": n}}) for n in range(4000)]}}, "[{},{},{}]"),
    "a long answer": ({"items": {"oneOf": [{"const": n} for n in range(2000)]}}, json.dumps([-1] * 50_000)),
    "much that is wrong": ({"items": {"type": "string"}}, json.dumps(list(range(40_000)))),
    "an answer of braces": ({"type": "object"}, '{"a":' * 100_000),
}


@pytest.mark.promise("limits.schemas")
@pytest.mark.parametrize("name", OF_ANSWERS)
async def test_the_schema_of_an_answer_keeps_nobody_waiting(site: Site, name: str) -> None:
    schema, text = OF_ANSWERS[name]
    body = {
        "model": "gpt-5.5",
        "input": text,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}},
    }

    async def ask() -> None:
        reply = await site.hostile.post("/v1/responses", json=body)
        print(name, reply.status_code, reply.text[:300])
        assert reply.status_code in (200, 400, 422), reply.text[:500]

    await site.assert_undisturbed(ask)


def tools(count: int, parameters: Callable[[int], JsonObject]) -> list[Json]:
    """Return functions with these parameters."""
    return [{"type": "function", "name": f"f{n}", "parameters": parameters(n)} for n in range(count)]


OF_TOOLS: dict[str, list[Json]] = {
    "ladders": tools(100, lambda n: {**ladder(40), "title": str(n)}),
    "cliques": tools(20, lambda n: {**clique(40), "title": str(n)}),
    "patterns": tools(500, lambda n: obj({"a": {"type": "string", "pattern": f"{LARGE_PATTERN}{n}"}})),
    "one with many values": tools(1, lambda _: {"enum": [f"value {n}" for n in range(49_900)]}),
    "values over all": tools(1000, lambda n: {"enum": [f"value {n} {m}" for m in range(1000)]}),
    "properties over all": tools(900, lambda n: obj({f"p{n}{m}": {"type": "string"} for m in range(16)})),
    "references to one": tools(
        1,
        lambda _: {
            "properties": {f"p{n}": {"$ref": "#/$defs/d", "properties": {"a": {}}} for n in range(7000)},
            "$defs": {"d": {"properties": {f"q{n}": {} for n in range(7000)}}},
        },
    ),
    "deep": tools(1, lambda _: deep(240)),
}


@pytest.mark.promise("limits.schemas")
@pytest.mark.parametrize("name", OF_TOOLS)
async def test_the_schemas_of_tools_keep_nobody_waiting(site: Site, name: str) -> None:
    body = {"model": "gpt-5.5", "input": "hi", "tools": OF_TOOLS[name]}

    async def ask() -> None:
        reply = await site.hostile.post("/v1/responses", json=body)
        print(name, reply.status_code, reply.text[:300])
        assert reply.status_code in (200, 400), reply.text[:500]

    await site.assert_undisturbed(ask)
