"""What of a request lasts in a thread."""

import pytest
from msgspec.structs import asdict

from turnbridge.turn.items import Json, Message, TextPart
from turnbridge.turn.request import (
    AnyJsonObject,
    JsonOfSchema,
    PlainText,
    Tool,
    TurnRequest,
    WebSearch,
)
from turnbridge.turn.values import replace


def of_schema(constant: Json) -> JsonOfSchema:
    return JsonOfSchema(name="n", schema={"const": constant}, strict=True, enforced=True)


PLAIN = TurnRequest(model="m", items=())
OTHERWISE = TurnRequest(
    model="other",
    items=(Message(role="user", parts=(TextPart(text="hi"),)),),
    client="other",
    instructions="Be kind.",
    effort="low",
    summary="auto",
    summary_needed=False,
    verbosity="low",
    service_tier="flex",
    output=of_schema(1),
    tools=(Tool(name="f", description="", parameters={}),),
    must_call=True,
    parallel_calls=False,
    awaits_outputs=False,
    web_search=WebSearch(),
    stop=("end",),
    max_output_tokens=1,
    allow_truncation=True,
    metadata={"a": "b"},
    large=True,
    streamed=True,
    ignored=("seed",),
)
ANEW = {
    *("items", "must_call", "parallel_calls", "awaits_outputs", "stop"),
    *("max_output_tokens", "metadata", "large", "streamed", "ignored"),
}


@pytest.mark.parametrize("name", asdict(PLAIN))
def test_all_lasts_but_what_every_request_says_anew(name: str) -> None:
    changed = replace(PLAIN, **{name: getattr(OTHERWISE, name)})
    assert changed != PLAIN
    assert (changed.lasting() == PLAIN.lasting()) is (name in ANEW)


def test_no_two_output_formats_are_the_same() -> None:
    formats = [PlainText(), AnyJsonObject(), *(of_schema(constant) for constant in (1, True, 1.0, "1"))]
    assert len({replace(PLAIN, output=output).lasting() for output in formats}) == len(formats)


def test_the_order_of_a_schemas_keys_does_not_matter() -> None:
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    tools = [(Tool(name="f", description="", parameters=dict(schema)),) for schema in (one, other)]
    assert len({replace(PLAIN, tools=tool).lasting() for tool in tools}) == 1
