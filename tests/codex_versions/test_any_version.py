"""What a client may rely on with every Codex, in every dialect that it speaks.

Without `TURNBRIDGE_TEST_CODEX` (programs, separated by colons) these are the Codex that comes with Turnbridge and the
oldest that is supported. `make codex-matrix` runs this with many, and writes down the properties that are recorded.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import codex_cli_bin
import openai
import pydantic
import pytest

from tests.codex_versions.installed import OLDEST, installed_codex
from tests.codex_versions.seen import LATE, unhurried
from tests.codex_versions.test_host import attempts
from tests.real.fidelity_cases import PNG
from tests.support.gateway import Bridge, running_bridge
from turnbridge.codex.legacy.flat_text import example_call
from turnbridge.codex.process.binary import examine
from turnbridge.codex.protocol.capabilities import Dialect
from turnbridge.scripted_model.replies import (
    OutputItem,
    Wait,
    answer,
    custom_tool_call,
    error_reply,
    function_call,
    message,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PATIENCE_S = 25
"""Far longer than anything here takes."""

CITY: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "name": "weather", "description": "Tell it.", "parameters": CITY, "strict": False}
CLOCK: Any = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}, "strict": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A program to test, in one dialect; no program, if it is not installed."""

    name: str
    binary: Path | None
    dialect: Dialect


def targets() -> list[Target]:
    """Return what to test; of programs that are named it is not known yet what they speak."""
    if named := os.environ.get("TURNBRIDGE_TEST_CODEX"):
        dialects: tuple[Dialect, ...] = ("v2", "v2-early", "v1")
        paths = dict(enumerate(map(Path, named.split(":"))))
        return [Target(name=f"codex{n}", binary=path, dialect=each) for n, path in paths.items() for each in dialects]
    pinned, oldest = codex_cli_bin.bundled_codex_path(), installed_codex(OLDEST)
    return [
        Target(name="pinned", binary=pinned, dialect="v2"),
        Target(name="pinned", binary=pinned, dialect="v2-early"),
        Target(name=OLDEST, binary=oldest, dialect="v2-early"),
        Target(name=OLDEST, binary=oldest, dialect="v1"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codex:
    """A gateway in front of one program."""

    bridge: Bridge
    binary: Path
    dialect: Dialect
    model: str

    def calls(self, *calls: tuple[str, JsonObject]) -> list[OutputItem]:
        """Return calls of functions as the model makes them: by themselves, or in words where it must."""
        if self.dialect == "v1":
            return [message("\n".join(example_call(name, arguments) for name, arguments in calls))]
        return [function_call(name, arguments) for name, arguments in calls]

    def shown(self) -> str:
        """Return all texts that the model was shown at last, in their order."""
        request = self.bridge.model.requests[-1].body
        return "\n".join([str(request.get("instructions") or ""), *texts(request["input"])])


@pytest.fixture(scope="session", params=targets(), ids=lambda target: f"{target.name}-{target.dialect}")
async def codex(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, offline: None
) -> AsyncIterator[Codex]:
    """Return a gateway for each program and each of its dialects in turn."""
    del offline
    target: Target = request.param
    if target.binary is None:
        pytest.skip(f"Codex {target.name} is not installed: run `make codex-old`, which needs node and npm.")
    home = tmp_path_factory.mktemp("codex")
    known = await examine(target.binary, home=home, cwd=home, cache=home / "notes")
    if target.dialect not in known.capabilities.dialects:
        pytest.skip(f"Codex {known.version} does not speak {target.dialect}.")
    async with running_bridge(home, CODEX_BIN=target.binary, PROXY_APP_SERVER_DIALECT=target.dialect) as bridge:
        offered = await bridge.client.models.list()
        yield Codex(bridge=bridge, binary=target.binary, dialect=target.dialect, model=offered.data[0].id)


def texts(value: Json) -> list[str]:
    """Return the texts of items, in their order."""
    match value:
        case list():
            return [text for each in value for text in texts(each)]
        case {"text": str(text)}:
            return [text]
        case {"type": "function_call", "arguments": str(arguments)}:
            return [arguments]
        case {"output": str(output)}:
            return [output]
        case {"output": list(parts)} | {"content": list(parts)}:
            return texts(parts)
        case _:
            return []


def assert_once_and_in_order(whole: str, *words: str) -> None:
    """Fail unless each of these stands in a text once, and after the one before."""
    assert {word: whole.count(word) for word in words} == dict.fromkeys(words, 1)
    places = [whole.index(word) for word in words]
    assert places == sorted(places)


@pytest.mark.promise("versions.both-routes")
async def test_responses_answers_and_counts(codex: Codex) -> None:
    codex.bridge.says("Hello!")
    response = await codex.bridge.client.responses.create(model=codex.model, input="hi")
    assert (response.status, response.output_text) == ("completed", "Hello!")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (10, 5, 15)


@pytest.mark.promise("versions.both-routes")
async def test_chat_answers_and_counts(codex: Codex) -> None:
    codex.bridge.says("Hello!")
    completion = await codex.bridge.client.chat.completions.create(
        model=codex.model, messages=[{"role": "user", "content": "hi"}]
    )
    (choice,) = completion.choices
    assert (choice.finish_reason, choice.message.content) == ("stop", "Hello!")
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (10, 5)


@pytest.mark.promise("versions.both-routes")
async def test_responses_streams_each_piece_once(codex: Codex) -> None:
    codex.bridge.script(answer(message("Hello, you!", pieces=["Hel", "lo,", " you!"])))
    async with codex.bridge.client.responses.stream(model=codex.model, input="hi") as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        response = await stream.get_final_response()
    assert (deltas, response.output_text) == (["Hel", "lo,", " you!"], "Hello, you!")


@pytest.mark.promise("versions.both-routes")
async def test_chat_streams_each_piece_once(codex: Codex) -> None:
    codex.bridge.script(answer(message("Hello, you!", pieces=["Hel", "lo,", " you!"])))
    stream = await codex.bridge.client.chat.completions.create(
        model=codex.model,
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    deltas = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert deltas == ["Hel", "lo,", " you!"]
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage is not None] == [15]


@pytest.mark.promise("versions.history")
async def test_a_history_reaches_the_model_once_and_in_order(codex: Codex) -> None:
    codex.bridge.says("Fine.")
    await codex.bridge.client.chat.completions.create(
        model=codex.model,
        messages=[
            {"role": "system", "content": "Be-kind."},
            {"role": "user", "content": "First-question."},
            {"role": "assistant", "content": "First-answer."},
            {"role": "user", "content": "Second-question."},
        ],
    )
    assert_once_and_in_order(codex.shown(), "Be-kind.", "First-question.", "First-answer.", "Second-question.")


@pytest.mark.promise("versions.instructions")
async def test_instructions_stand_before_the_question_and_are_not_the_users(codex: Codex) -> None:
    codex.bridge.says("Fine.")
    await codex.bridge.client.responses.create(
        model=codex.model, instructions="Be-brief.", input=[{"role": "user", "content": "Any-question."}]
    )
    assert_once_and_in_order(codex.shown(), "Be-brief.", "Any-question.")
    items = codex.bridge.seen()["input"]
    assert isinstance(items, list)
    asked = [item for item in items if isinstance(item, dict) and item.get("role") == "user"]
    assert "Be-brief." not in json.dumps(asked)


@pytest.mark.promise("versions.images")
async def test_an_image_stays_an_image_between_its_texts(codex: Codex) -> None:
    codex.bridge.says("A pixel.")
    await codex.bridge.client.chat.completions.create(
        model=codex.model,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Before-it."},
                    {"type": "image_url", "image_url": {"url": PNG}},
                    {"type": "text", "text": "After-it."},
                ],
            }
        ],
    )
    sent = json.dumps(codex.bridge.seen()["input"])
    assert_once_and_in_order(sent, "Before-it.", f'"image_url": "{PNG}"', "After-it.")


@pytest.mark.promise("versions.tools")
async def test_calls_go_to_the_client_and_their_outputs_to_the_model(
    codex: Codex, record_testsuite_property: Callable[[str, object], None]
) -> None:
    calls = codex.calls(("weather", {"city": "Rome-city"}), ("clock", {}))
    codex.bridge.script(answer(*calls), answer(message("Sunny, noon.")))
    asked: Any = {"role": "user", "content": "Weather-and-time?"}
    client, tools = codex.bridge.client, [WEATHER, CLOCK]
    first = await client.responses.create(model=codex.model, input=[asked], tools=tools)
    made = [item for item in first.output if item.type == "function_call"]
    assert [(item.name, json.loads(item.arguments)) for item in made] == [
        ("weather", {"city": "Rome-city"}),
        ("clock", {}),
    ]
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": said}
        for call, said in zip(made, ("It-is-sunny.", "It-is-noon."), strict=True)
    ]
    history: Any = [asked, *(item.to_dict() for item in first.output), *outputs]
    second = await client.responses.with_raw_response.create(model=codex.model, input=history, tools=tools)
    assert second.parse().output_text == "Sunny, noon."
    record_testsuite_property(f"outputs {codex.dialect}", second.headers["x-turnbridge-thread"])
    assert_once_and_in_order(codex.shown(), "Weather-and-time?", "Rome-city", "It-is-sunny.", "It-is-noon.")


SCRIPT = """
const cities = ["Rome-city", "Oslo-city", "Bern-city"];
text(JSON.stringify(await Promise.all(cities.map(city => tools.weather({city})))));
"""


@pytest.mark.promise("versions.tools")
async def test_the_calls_of_a_script_go_to_the_client_and_their_outputs_to_the_script(
    codex: Codex, tmp_path: Path
) -> None:
    async with running_bridge(
        tmp_path, CODEX_BIN=codex.binary, PROXY_APP_SERVER_DIALECT=codex.dialect, PROXY_TOOL_MODE="native"
    ) as bridge:
        worker = await bridge.gateway.pool.worker()
        model = next((known.id for known in worker.models if known.scripts_tools), None)
        if model is None:
            pytest.skip("No model of this Codex calls functions from scripts.")
        bridge.script(answer(custom_tool_call("exec", SCRIPT)), answer(message("All sunny.")))
        history: Any = [{"role": "user", "content": "Weather?"}]
        async with asyncio.timeout(PATIENCE_S):
            # Some versions ask for one call after another, and some for all at once.
            while True:
                raw = await bridge.client.responses.with_raw_response.create(
                    model=model, input=history, tools=[WEATHER]
                )
                if raw.headers["x-turnbridge-thread"] == "replayed":
                    pytest.skip("This Codex keeps no turn waiting for outputs, and a script cannot be replayed.")
                response = raw.parse()
                made = [item for item in response.output if item.type == "function_call"]
                if not made:
                    break
                history += [call.to_dict() for call in made]
                history += [
                    {"type": "function_call_output", "call_id": call.call_id, "output": f"Sunny in {call.arguments}"}
                    for call in made
                ]
        assert response.output_text == "All sunny."
        _, after_it = bridge.model.requests
        assert_once_and_in_order("\n".join(texts(after_it.body["input"])), "Rome-city", "Oslo-city", "Bern-city")


@pytest.mark.promise("versions.history")
async def test_a_conversation_goes_on_from_its_last_response(codex: Codex) -> None:
    codex.bridge.script(answer(message("First-answer.")), answer(message("Second-answer.")))
    client = codex.bridge.client
    first = await client.responses.create(model=codex.model, input="First-question.")
    second = await client.responses.create(model=codex.model, input="Second-question.", previous_response_id=first.id)
    assert second.output_text == "Second-answer."
    assert_once_and_in_order(codex.shown(), "First-question.", "First-answer.", "Second-question.")


class Point(pydantic.BaseModel):
    """A place on a map."""

    x: int
    y: int


@pytest.mark.promise("versions.structured")
async def test_an_answer_has_the_shape_that_was_asked_for(codex: Codex) -> None:
    codex.bridge.says('{"x":1,"y":2}')
    response = await codex.bridge.client.responses.parse(model=codex.model, input="Where?", text_format=Point)
    assert response.output_parsed == Point(x=1, y=2)
    match codex.bridge.seen()["text"]:
        case {"format": {"type": "json_schema", "schema": {"properties": dict(properties)}}}:
            assert set(properties) == {"x", "y"}
        case other:
            raise AssertionError(other)


@pytest.mark.promise("versions.errors")
@pytest.mark.parametrize(("status", "told"), [(429, openai.RateLimitError), (500, openai.InternalServerError)])
async def test_a_failure_of_the_provider_is_told(codex: Codex, status: int, told: type[openai.APIStatusError]) -> None:
    codex.bridge.script(error_reply(status, "Not now."))
    with pytest.raises(told):
        await codex.bridge.client.responses.create(model=codex.model, input="hi")


@pytest.mark.promise("versions.disconnect")
async def test_a_client_that_leaves_ends_its_turn(codex: Codex) -> None:
    bridge, gate = codex.bridge, asyncio.Event()
    before = bridge.model.dropped
    endless = message(f"begun{LATE}", pieces=["begun", Wait(gate=gate), *unhurried(LATE)])
    bridge.script(answer(endless))
    stream = await bridge.client.responses.create(model=codex.model, input="hi", stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    # Some versions let go of a stream only when they hear from it; another turn shows that the interrupt is there.
    bridge.model.respond = lambda _: answer(message("next"))
    assert (await bridge.client.responses.create(model=codex.model, input="hi")).output_text == "next"
    gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await bridge.model.until(lambda model: model.dropped == before + 1 and model.active == 0)


@pytest.mark.promise("versions.host")
async def test_no_file_is_made_whatever_the_model_calls(codex: Codex, tmp_path: Path) -> None:
    file = tmp_path / "made.txt"
    for attempt, _ in attempts(file):
        codex.bridge.script(answer(attempt), answer(message("I could not.")))
        # A turn in which Codex acts by itself is ended.
        with contextlib.suppress(openai.APIStatusError):
            await codex.bridge.client.responses.create(model=codex.model, input="Make a file.")
        assert codex.bridge.model.requests
    assert not file.exists()


@pytest.mark.promise("versions.fidelity")
async def test_the_header_tells_which_tools_any_model_is_shown_besides(
    codex: Codex, record_testsuite_property: Callable[[str, object], None]
) -> None:
    shown: set[str] = set()
    for model in (await codex.bridge.client.models.list()).data:
        codex.bridge.says("Hello!")
        raw = await codex.bridge.client.responses.with_raw_response.create(model=model.id, input="hi")
        shown.update(tool_names(codex.bridge.seen()["tools"]))
    fidelity = raw.headers["x-turnbridge-fidelity"]
    record_testsuite_property(f"fidelity {codex.dialect}", fidelity)
    flattened = fidelity.partition(";")[0] == "flattened"
    assert flattened == (codex.dialect != "v2")
    assert shown <= set(fidelity.partition("extra=")[2].split(","))


def tool_names(tools: Json) -> Iterator[str]:
    """Yield the names of tools, and of those inside others; a tool without a name goes by its type."""
    for tool in tools if isinstance(tools, list) else []:
        assert isinstance(tool, dict)
        if "tools" in tool:
            yield from tool_names(tool["tools"])
        else:
            yield str(tool.get("name", tool["type"]))
