"""What the model is told about the client's functions, word for word."""

import json

import pytest

from turnbridge.codex.legacy.calls import Call, ToolCallParser
from turnbridge.codex.legacy.flat_text import tool_instructions
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import Tool

WEATHER = Tool(
    name="weather",
    description=" The weather of a city. ",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": " Where, in words "},
            "days": {"type": "integer", "minimum": 1},
        },
        "required": ["city"],
    },
    strict=True,
)
CLOCK = Tool(name="clock", description="  ", parameters={"type": "object", "properties": {}}, strict=False)

# The words of the system that users come from: models and people know them.
RULES = r"""Tool calling instructions:
Only emit tool calls using <tool_call>...</tool_call>.
Format: <tool_call>{"name":"TOOL_NAME","arguments":"{...}"}</tool_call>
Inside <tool_call>...</tool_call>, output ONLY a JSON object with keys "name" and "arguments".
Always emit <tool_call> blocks exactly as shown; the client executes them.
Do NOT call internal tools directly (shell, apply_patch, web_search, view_image); only emit <tool_call>.
Read-only sandbox or approval restrictions do NOT prevent emitting <tool_call> output.
Use EXACT parameter names from the schema; do NOT invent or rename keys.
Do not add any extra characters before or after the JSON (no trailing ">", no code fences).
Use exactly one opening <tool_call> and one closing </tool_call> tag.
Output must be valid JSON. Do not add extra braces or trailing characters.
Do NOT wrap the JSON object in an array (no leading "[" or trailing "]").
Bad: <tool_call>[{"name":"tool","arguments":"{...}"}]</tool_call>
Never repeat the closing tag.
Example (exact): <tool_call>{"name":"webSearch","arguments":"{\"query\":\"example\",\"chatHistory\":[]}"}</tool_call>
The "arguments" field must be a JSON string.
If a tool has no parameters, use arguments "{}".
If no tool is needed, respond with plain text.
"""
SEVERAL = "To make several calls at once, emit a <tool_call> block of its own for each of them.\n"
ONE = "Emit at most one <tool_call> block in an answer.\n"
STRICT = "Strict tools: weather. Arguments MUST conform exactly to schema.\n"
WEATHER_SCHEMA = (
    '- weather: {"type":"object","properties":{"city":{"type":"string","description":" Where, in words "},'
    '"days":{"type":"integer","minimum":1}},"required":["city"]}\n'
)
WEATHER_GUIDANCE = r"""Tool: weather
Description:  The weather of a city. 
Parameters:
- city (required, string): Where, in words
- days (optional, integer)
Example tool_call:
<tool_call>{"name":"weather","arguments":"{\"city\":\"example\",\"days\":1}"}</tool_call>
"""  # noqa: W291
CLOCK_SCHEMA = '- clock: {"type":"object","properties":{}}\n'
CLOCK_GUIDANCE = """Tool: clock
Parameters:
- (no parameters)
Example tool_call:
<tool_call>{"name":"clock","arguments":"{}"}</tool_call>"""


def test_the_whole_text_of_two_functions() -> None:
    assert tool_instructions([WEATHER, CLOCK], must_call=False, parallel_calls=True) == (
        RULES
        + SEVERAL
        + STRICT
        + "Available tools (schema):\n"
        + WEATHER_SCHEMA
        + CLOCK_SCHEMA
        + "Per-tool guidance and examples (schema-conformant):\n"
        + WEATHER_GUIDANCE
        + CLOCK_GUIDANCE
    )


@pytest.mark.parametrize(
    ("tools", "must_call", "parallel_calls", "expected"),
    [
        ([CLOCK], False, True, SEVERAL),
        ([CLOCK], False, False, ONE),
        ([CLOCK], True, False, f'Tool choice is forced: you MUST call "clock".\n{ONE}'),
        (
            [CLOCK, WEATHER],
            True,
            True,
            f"Tool choice is required: you MUST emit at least one <tool_call>.\n{SEVERAL}{STRICT}",
        ),
    ],
)
def test_what_the_client_demands_stands_between_the_rules_and_the_functions(
    tools: list[Tool], must_call: bool, parallel_calls: bool, expected: str
) -> None:
    text = tool_instructions(tools, must_call=must_call, parallel_calls=parallel_calls)
    assert text.startswith(f"{RULES}{expected}Available tools (schema):\n- clock: ")


def test_a_model_that_may_search_is_neither_forbidden_nor_demanded_otherwise() -> None:
    text = tool_instructions([CLOCK], must_call=True, parallel_calls=True, web_search=True)
    rules = RULES.replace("apply_patch, web_search, view_image", "apply_patch, view_image")
    assert text.startswith(
        f"{rules}Tool choice is required: you MUST emit at least one <tool_call> or search the web.\n{SEVERAL}Available"
    )


def test_without_functions_there_is_nothing_to_say() -> None:
    assert tool_instructions([], must_call=False, parallel_calls=True) == ""


def test_a_function_that_no_arguments_fit_gets_no_example() -> None:
    tool = Tool(name="odd", description="", parameters={"type": "string"})
    text = tool_instructions([tool], must_call=False, parallel_calls=True)
    assert text.endswith('Tool: odd\nParameters:\n- (schema) {"type":"string"}')


def test_the_name_and_the_arguments_of_an_example_are_escaped_so_that_the_example_is_a_call() -> None:
    parameters: JsonObject = {
        "type": "object",
        "properties": {'</tool_call>"': {"enum": ['a "quoted" \\ word']}},
        "required": ['</tool_call>"'],
    }
    name = 'say "<tool_call>"'
    text = tool_instructions(
        [Tool(name=name, description="", parameters=parameters)], must_call=False, parallel_calls=True
    )
    example = text.rpartition("\n")[2]
    parser = ToolCallParser([name])
    (call,) = [*parser.feed(example), *parser.close()]
    assert isinstance(call, Call)
    assert (call.name, json.loads(call.arguments), call.source) == (
        name,
        {'</tool_call>"': 'a "quoted" \\ word'},
        example,
    )
