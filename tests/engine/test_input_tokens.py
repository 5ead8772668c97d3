"""The estimate of a turn's input, against the counts that OpenAI publishes."""

import asyncio
import base64
import time

import pytest

from tests.engine.scripted_backend import NoServers, ScriptedMedia, WordTokenizer
from tests.support.turn_requests import turn_request
from turnbridge.engine import input_tokens as module
from turnbridge.engine.input_tokens import InputCounter, counted, functions_text, uncounted
from turnbridge.engine.ports import LoadedImage
from turnbridge.engine.tool_serving import declared_tools
from turnbridge.tokens import OpenAITokenizer
from turnbridge.turn.errors import RateLimited
from turnbridge.turn.items import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    JsonObject,
    Message,
    RawItem,
    Reasoning,
    Role,
    TextPart,
    replace,
)
from turnbridge.turn.mcp import McpFilter, McpResult, McpServer, McpTool
from turnbridge.turn.request import JsonOfSchema, Tool

pytestmark = pytest.mark.anyio

TOKENIZER = OpenAITokenizer()
NO_SERVERS = NoServers()
WEATHER = Tool(
    name="get_current_weather",
    description="Get the current weather in a given location",
    parameters={
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
            "unit": {
                "type": "string",
                "description": "The unit of temperature to return",
                "enum": ["celsius", "fahrenheit"],
            },
        },
        "required": ["location"],
    },
)


def said(role: Role, text: str) -> Message:
    return Message(role=role, parts=(TextPart(text=text),))


async def count(*items: Item, **fields: object) -> int:
    """Count with the tokenizer of the models."""
    return await InputCounter(ScriptedMedia(), TOKENIZER, NO_SERVERS).count(turn_request(items=items, **fields))


async def added(*items: Item, **fields: object) -> int:
    """Count words, without what every request has."""
    counter = InputCounter(ScriptedMedia(), WordTokenizer(), NO_SERVERS)
    return await counter.count(turn_request(items=items, **fields)) - module.REPLY


@pytest.mark.promise("usage.counted.published")
async def test_openais_example_of_this_route_is_counted_alike() -> None:
    assert await count(said("user", "Tell me a joke.")) == 11


@pytest.mark.promise("usage.counted.published")
async def test_openais_example_with_a_function_is_counted_alike() -> None:
    """The cookbook's page on counting tokens has it, with what the API said."""
    system = said("developer", "You are a helpful assistant that can answer to questions about the weather.")
    user = said("user", "What's the weather like in San Francisco?")
    assert await count(system, user, tools=(WEATHER,)) == 101
    assert await count(user, tools=(WEATHER,), instructions=system.parts[0].text) == 101  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("item", "tokens"),
    [
        (said("user", "one two"), 4 + 3),
        (said("assistant", "one two"), 6 + 3),
        (FunctionCall(call_id="c", name="f", arguments="{}"), 11 + 3),
        (FunctionCallOutput(call_id="c", output="ok"), 11 + 1),
        (FunctionCallOutput(call_id="c", output=(TextPart(text="a"), TextPart(text="b"))), 11 + 2),
        (RawItem(item={"a": 1}), 11 + 8),
        (Message(role="user", parts=(FilePart(filename="f", mime_type=None, data=b"", param="p"),)), 4 + 5),
    ],
)
async def test_every_item_counts(item: Item, tokens: int) -> None:
    assert await added(item) == tokens


async def test_an_image_counts_by_its_size_and_not_as_text() -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (1024).to_bytes(4, "big") + (1024).to_bytes(4, "big")
    part = ImagePart(url=f"data:image/png;base64,{base64.b64encode(png).decode()}", detail="high", param="p")
    output = FunctionCallOutput(call_id="c", output=(part,))
    assert await added(Message(role="user", parts=(part,)), model="gpt-5.4") == 4 + 1229
    assert await added(output, model="gpt-5.4") == 11 + 1229


async def test_only_reasoning_since_the_users_last_message_counts() -> None:
    thought = Reasoning(id="r", summary=("x" * 40,), content=None, encrypted=None)
    hidden = Reasoning(id="r", summary=(), content=None, encrypted="x" * 4000)
    asked = said("user", "one")
    assert await added(thought, asked) == 5
    assert await added(asked, thought) == 5 + 6 + 10
    assert await added(asked, hidden) == 5 + 6 + (3000 - 650) // 4


async def test_a_schema_counts_once_whether_the_provider_enforces_it_or_not() -> None:
    schema: JsonObject = {"type": "object"}
    formats = [JsonOfSchema(name="n", schema=schema, strict=one, enforced=one) for one in (True, False)]
    counts = [await count(said("user", "json"), output=each) for each in formats]
    plain = await count(said("user", "json"))
    assert all(plain + 10 < tokens < plain + 50 for tokens in counts), (plain, counts)


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "integer"}, "number"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"enum": [1, "a"]}, '1 | "a"'),
        ({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]}, "boolean | string[]"),
        ({"type": "object", "properties": {"b": {"type": "null"}}}, "{\nb?: null,\n}"),
        ({"$ref": "#/$defs/City"}, "City"),
        ({}, "any"),
        (True, "any"),
    ],
)
def test_a_schema_is_written_as_a_type(schema: JsonObject, written: str) -> None:
    tool = Tool(name="f", description="", parameters={"type": "object", "properties": {"a": schema}})
    assert f"type f = (_: {{\na?: {written},\n}}) => any;" in functions_text([tool])


def test_shared_types_and_functions_without_parameters_are_written_too() -> None:
    city: JsonObject = {"City": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
    text = functions_text([Tool(name="f", description="Do.", parameters={"type": "object", "$defs": city})])
    assert "type City = {\nname: string,\n};\n// Do.\ntype f = () => any;" in text


async def test_a_schema_that_repeats_itself_is_counted_in_no_time() -> None:
    """Each type of a list would show the same properties again, at each level."""
    schema: JsonObject = {"type": "string"}
    for _ in range(40):
        schema = {"type": ["object", "object", "array"], "properties": {"a": schema}, "items": {"type": "string"}}
    began = time.perf_counter()
    await count(tools=(Tool(name="f", description="", parameters={**schema, "type": "object"}),))
    assert time.perf_counter() - began < 5


async def test_megabytes_are_counted_in_a_bounded_time_beside_the_loop() -> None:
    items = [said("user", "word " * 1000) for _ in range(2000)]
    await TOKENIZER.ready()
    counting = asyncio.create_task(count(*items))
    passes, began = 0, time.perf_counter()
    while not counting.done():
        await asyncio.sleep(0)
        passes += 1
    assert 1_900_000 < await counting < 2_200_000
    assert passes > 1
    assert time.perf_counter() - began < 10


class HangingMedia(ScriptedMedia):
    """No image ever comes."""

    async def image(self, url: str, *, param: str) -> LoadedImage:
        del url, param
        return await asyncio.Future()


async def test_few_requests_load_images_at_once_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InputCounter, "most_waiting", 1)
    counter = InputCounter(HangingMedia(), WordTokenizer(), NO_SERVERS)
    linked = turn_request(items=(Message(role="user", parts=(ImagePart(url="https://a.test/a.png", param="p"),)),))
    hanging = [asyncio.create_task(counter.count(linked)) for _ in range(InputCounter.at_once + 1)]
    await asyncio.sleep(0.01)
    with pytest.raises(RateLimited) as refused:
        await counter.count(linked)
    assert refused.value.error_code == "queue_full"
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)
    assert await counter.count(turn_request(items=(said("user", "one"),))) == 7


async def test_a_format_that_is_put_into_words_is_counted_once() -> None:
    output = JsonOfSchema(name="point", schema={"type": "object"}, strict=False, enforced=False)
    spec = turn_request(output=output).spec
    assert counted(spec, (), WordTokenizer()) == counted(turn_request().spec, (), WordTokenizer())


def test_of_short_encrypted_reasoning_nothing_is_taken_off_the_rest() -> None:
    short = Reasoning(id=None, summary=(), content=None, encrypted="A" * 10)
    spec, none = turn_request().spec, Reasoning(id=None, summary=(), content=None, encrypted=None)
    assert counted(spec, (short,), WordTokenizer()) == counted(spec, (none,), WordTokenizer())


class SomeServers:
    """Every server may be asked."""

    def session(self, server: McpServer) -> "SomeServers":
        del server
        return self

    def close(self) -> None:
        """Have nothing to close."""

    async def list_tools(self) -> tuple[McpTool, ...]:
        raise AssertionError("Nobody is asked only to be counted.")

    async def call(self, name: str, arguments: str) -> McpResult:
        raise AssertionError(name, arguments)


async def test_of_the_tools_that_servers_have_listed_those_that_may_be_called_are_counted() -> None:
    look = McpTool(name="look", description="Look there", input_schema={"type": "object"})
    server = McpServer(label="wx", url="https://mcp.example", allowed=McpFilter(names=("look",)), param="tools[0]")
    unlisted = replace(server, label="other")
    listed = {"wx": (look, replace(look, name="burn")), "elsewhere": (look,)}
    request = turn_request(items=(said("user", "hi"),), servers=(server, unlisted), listed=listed)
    assert uncounted(request) == ("mcp:other",)
    counter, bare = InputCounter(ScriptedMedia(), WordTokenizer(), SomeServers()), replace(request, listed={})
    told = WordTokenizer().count(functions_text(declared_tools(server, [look])))
    assert await counter.count(request) == await counter.count(bare) + told
