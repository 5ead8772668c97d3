"""Schemas are compiled and answers are checked, in place or in a helper process, with the same result."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from turnbridge.engine.structured_output import Conformance
from turnbridge.offload.schemas import LIMITS, SchemaJudge
from turnbridge.turn.errors import BackendUnavailable, OutputRejected
from turnbridge.turn.items import Json, JsonObject

pytestmark = pytest.mark.anyio

SIMPLE: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}
REFERRING: JsonObject = {**SIMPLE, "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
NO_SCHEMA: JsonObject = {"$ref": "#/$defs/none"}
SLOW: JsonObject = {"type": "string", "pattern": r"(?=.*).*(?=.*).*x"}


@pytest.fixture
async def judge() -> AsyncIterator[SchemaJudge]:
    judge = SchemaJudge(replace(LIMITS, seconds=20))
    yield judge
    await judge.aclose()


@pytest.mark.parametrize("schema", [SIMPLE, REFERRING], ids=["simple", "referring"])
@pytest.mark.parametrize("value", [{"n": 1}, {"n": "one"}, [], {"n": list(range(100_000))}], ids=str)
async def test_an_answer_is_judged_alike_wherever_that_is_done(
    judge: SchemaJudge, schema: JsonObject, value: Json
) -> None:
    text = json.dumps(value)
    assert await judge.problem(schema, text) == Conformance.for_schema(schema).problem(text)


async def test_what_is_no_json_is_told(judge: SchemaJudge) -> None:
    for schema in (SIMPLE, REFERRING):
        assert await judge.problem(schema, "{") == Conformance.for_schema(schema).problem("{")


async def test_an_ordinary_call_needs_no_helper(judge: SchemaJudge) -> None:
    assert await judge.problem(SIMPLE, '{"n": 1}') is None
    assert judge._helpers.pids == []


async def test_the_first_flaw_is_told(judge: SchemaJudge) -> None:
    assert await judge.first_flaw([SIMPLE, REFERRING]) is None
    why = "In context=(), Pointer '/$defs/none' does not exist."
    for _ in range(2):
        assert await judge.first_flaw([REFERRING, NO_SCHEMA, NO_SCHEMA]) == (1, why)


async def test_a_schema_is_compiled_once() -> None:
    judge = SchemaJudge(LIMITS)
    assert await judge.first_flaw([REFERRING]) is None
    await judge.aclose()
    # There is no helper any more.
    assert await judge.first_flaw([REFERRING]) is None


@pytest.mark.promise("limits.schemas")
async def test_what_takes_too_long_is_the_schemas_fault() -> None:
    judge = SchemaJudge(replace(LIMITS, seconds=0.3))
    with pytest.raises(OutputRejected) as caught:
        await judge.problem(SLOW, json.dumps("a" * 200_000))
    assert caught.value.error_code == "output_not_checked"
    heavy: list[JsonObject] = [{"pattern": rf"(\w{{50}}){{40}}{number}"} for number in range(3000)]
    together = await judge.first_flaw(heavy)
    assert together is not None
    assert together.which is None
    alone = await judge.first_flaw([SIMPLE, {"anyOf": [*heavy]}])
    assert alone is not None
    assert alone.why == together.why
    await judge.aclose()


async def test_too_many_at_once_may_try_again() -> None:
    judge = SchemaJudge(replace(LIMITS, waiting=0))
    with pytest.raises(BackendUnavailable) as caught:
        await judge.first_flaw([REFERRING])
    assert caught.value.retry_after
    await judge.aclose()
