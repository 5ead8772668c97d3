"""What goes to versions without injection; 0.92.0's own schema takes it."""

import pytest

from tests.support.codex_schema import old_schema, pinned_schema
from tests.support.turn_requests import changed, turn_request
from turnbridge.codex.legacy.flat_text import NO_WORKSPACE, check_tools, flat_config, tool_names
from turnbridge.codex.legacy.v2_early import (
    early_output,
    early_thread_params,
    early_tools,
    early_turn_params,
    is_plain,
)
from turnbridge.codex.protocol.capabilities import Capabilities, RpcCheck, read_capabilities
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn.errors import InternalFault, InvalidRequest
from turnbridge.turn.items import (
    FilePart,
    ImagePart,
    Json,
    JsonObject,
    TextPart,
    replace,
)
from turnbridge.turn.request import Namespace, Tool, WebSearch

OLD = read_capabilities(old_schema())
CURRENT = read_capabilities(pinned_schema())

CITY: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = Tool(name="view_image", description="Shows it.", parameters=CITY)
REQUEST = turn_request(
    model="gpt-5.2",
    items=(),
    instructions="Be brief.",
    effort="low",
    service_tier="fast",
    metadata={"a": "b"},
    tools=(TOOL,),
    web_search=WebSearch(),
)
NAMES = tool_names(REQUEST)
PARTS = (TextPart(text="See:"), ImagePart(url="data:image/png;base64,AA==", param="input[0]"))


def test_a_thread_of_0_92_is_ephemeral_and_declares_functions_under_names_of_their_own() -> None:
    params = early_thread_params(REQUEST, ["Be kind."], NAMES, OLD, logged_in=False)
    assert params == {
        "model": "gpt-5.2",
        "baseInstructions": "Be brief.",
        "developerInstructions": f"{NO_WORKSPACE}\n\nBe kind.",
        "approvalPolicy": "never",
        "sandbox": "read-only",
        "experimentalRawEvents": True,
        "dynamicTools": [{"name": "client_view_image", "description": "Shows it.", "inputSchema": CITY}],
        "config": flat_config(REQUEST, logged_in=False),
        "ephemeral": True,
    }
    assert RpcCheck(old_schema()).request_problem("thread/start", params) is None


def test_a_version_with_environments_gets_none_and_needs_no_warning() -> None:
    params = early_thread_params(changed(REQUEST, tools=()), [], NAMES, CURRENT, logged_in=True)
    assert (params["environments"], params["developerInstructions"]) == ([], None)
    assert RpcCheck(pinned_schema()).request_problem("thread/start", params) is None


@pytest.mark.parametrize(
    ("capabilities", "schema", "later"),
    [
        (OLD, old_schema(), {}),
        (CURRENT, pinned_schema(), {"serviceTier": "fast", "responsesapiClientMetadata": {"a": "b"}}),
    ],
)
def test_a_turn_brings_its_input_and_the_wishes_that_the_version_knows(
    capabilities: Capabilities, schema: JsonObject, later: JsonObject
) -> None:
    params = early_turn_params("t", PARTS, REQUEST, capabilities)
    shown: list[Json] = [
        {"type": "text", "text": "See:", "text_elements": []},
        {"type": "image", "url": "data:image/png;base64,AA=="},
    ]
    assert params == {
        "threadId": "t",
        "input": shown,
        "effort": "low",
        "summary": "none",
        **later,
    }
    assert RpcCheck(schema).request_problem("turn/start", params) is None


@pytest.mark.parametrize("output", ["one\ntwo", (TextPart(text="one"), TextPart(text="two"))])
def test_an_output_has_the_shape_that_the_version_wants(output: str | tuple[TextPart, ...]) -> None:
    assert early_output(output, OLD) == {"output": "one\ntwo", "success": True}
    assert "contentItems" in early_output(output, CURRENT)
    for capabilities, schema in ((OLD, old_schema()), (CURRENT, pinned_schema())):
        assert RpcCheck(schema).reply_problem("item/tool/call", early_output(output, capabilities)) is None


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        (CITY, True),
        (
            {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "number"}}}, "required": ["a"]},
            True,
        ),
        ({"type": "object", "additionalProperties": {"type": "string"}}, True),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, False),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, False),
        ({"type": "object", "properties": {"a": {"enum": ["x"]}}}, False),
        ({"type": "object", "properties": {"a": True}}, False),
        ({"type": "object", "$defs": {}}, False),
        ({}, False),
    ],
)
def test_a_schema_that_would_be_bent_is_told_in_the_description(schema: JsonObject, plain: bool) -> None:
    assert is_plain(schema) is plain
    (tool,) = early_tools([Tool(name="f", description="D.", parameters=schema)], ToolNames(["f"]), typed=False)
    assert isinstance(tool, dict)
    assert (tool["description"] == "D.") is plain
    declared: Json = tool["inputSchema"]
    assert isinstance(declared, dict)
    assert declared["type"] == "object"


def test_a_file_never_gets_so_far() -> None:
    with pytest.raises(InternalFault):
        early_turn_params("t", [FilePart(filename="a", mime_type=None, data=b"", param="input[0]")], REQUEST, OLD)


def test_models_are_looked_up_at_openai_only_with_a_login() -> None:
    for logged_in in (True, False):
        features = flat_config(REQUEST, logged_in=logged_in)["features"]
        assert isinstance(features, dict)
        assert features["remote_models"] is logged_in
        assert {name for name, on in features.items() if on} == ({"remote_models"} if logged_in else set())


def test_namespaces_are_refused_and_custom_tools_are_functions() -> None:
    crm = Namespace(name="crm", description="")
    custom = Tool(name="sql", description="SQL.", parameters=CITY, kind="custom", strict=True)
    check_tools(changed(REQUEST, tools=(custom,)))
    (declared,) = early_tools([custom], ToolNames.of([custom]), typed=True)
    assert declared == {"type": "function", "name": "sql", "description": "SQL.", "inputSchema": CITY}
    with pytest.raises(InvalidRequest) as raised:
        check_tools(changed(REQUEST, tools=(custom, replace(custom, namespace=crm))))
    assert (raised.value.error_code, raised.value.param) == ("unsupported_tool", "tools")
    assert "'crm'" in raised.value.message
