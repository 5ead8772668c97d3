"""What Codex is asked: the recipe that keeps it bare, and every item and wish of the client's in Codex's words."""

import json
from collections.abc import Callable

import pytest

from tests.codex.protocol.protocol import Protocol
from tests.support.turn_requests import changed, turn_request
from turnbridge.codex.protocol.catalog import bare_catalog
from turnbridge.codex.protocol.encode import (
    PROCESS_OVERRIDES,
    SWITCHED_OFF,
    initialize_params,
    inject_items_params,
    thread_start_params,
    turn_start_params,
)
from turnbridge.codex.protocol.images import as_called
from turnbridge.codex.protocol.messages import UNWANTED_NOTIFICATIONS
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn.errors import InternalFault
from turnbridge.turn.items import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Json,
    JsonObject,
    Message,
    RawItem,
    Reasoning,
    TextPart,
)
from turnbridge.turn.request import AnyJsonObject, JsonOfSchema, Namespace, Tool, WebSearch

NO_TOOLS = ToolNames(())
IMAGE = "data:image/png;base64,iVBORw0KGgo="
SCHEMA: JsonObject = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
PLAIN = turn_request(model="gpt-5.5", items=(Message(role="user", parts=(TextPart(text="Hi"),)),))
FULL = changed(
    PLAIN,
    instructions="Be kind.",
    effort="high",
    summary="auto",
    verbosity="low",
    service_tier="flex",
    output=JsonOfSchema(name="x", schema=SCHEMA, strict=True, enforced=True),
    metadata={"team": "a"},
)

# Every line of this was needed to keep Codex from adding or doing something of its own (see app-server.md).
RECIPE: JsonObject = {
    "model": "gpt-5.5",
    "baseInstructions": "",
    "ephemeral": True,
    "environments": [],
    "approvalPolicy": "never",
    "sandbox": "read-only",
    "experimentalRawEvents": True,
    "dynamicTools": [],
    "config": {
        "features": {
            "apps": False,
            "goals": False,
            "hooks": False,
            "image_generation": False,
            "memories": False,
            "multi_agent": False,
            "plugins": False,
            "shell_tool": False,
            "skill_search": False,
            "sleep_tool": False,
            "unbounded_connection_retries": False,
            "unified_image_budget": False,
            "view_image": False,
        },
        "web_search": "disabled",
        "include_environment_context": False,
        "include_permissions_instructions": False,
        "include_apps_instructions": False,
        "include_collaboration_mode_instructions": False,
        "skills": {"include_instructions": False, "bundled": {"enabled": False}},
        "tools": {"experimental_request_user_input": {"enabled": False}},
        "project_doc_max_bytes": 0,
        "tool_output_token_limit": 10_000_000,
    },
}

# Each item, and how it must reach Codex.
ITEMS: list[tuple[Item, JsonObject]] = [
    (
        Message(role="developer", parts=(TextPart(text="Be kind."),)),
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
    ),
    (
        Message(
            role="user",
            parts=(TextPart(text="See"), ImagePart(url=IMAGE, detail="high", param=""), ImagePart(url=IMAGE, param="")),
            id="msg_0",
        ),
        {
            "type": "message",
            "id": "msg_0",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "See"},
                {"type": "input_image", "image_url": IMAGE, "detail": "high"},
                {"type": "input_image", "image_url": IMAGE},
            ],
        },
    ),
    (
        Message(role="assistant", parts=(TextPart(text="I look."),), phase="commentary", id="msg_1"),
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "I look."}],
        },
    ),
    (
        Reasoning(id="rs_1", summary=("First.", "Second."), content=("All.",), encrypted="secret"),
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Second."}],
            "content": [{"type": "reasoning_text", "text": "All."}],
            "encrypted_content": "secret",
        },
    ),
    (Reasoning(id=None, summary=(), content=None, encrypted=None), {"type": "reasoning", "summary": []}),
    (
        FunctionCall(call_id="call_1", name="add", arguments='{"a": 1}', id="fc_1"),
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a": 1}'},
    ),
    (
        FunctionCall(call_id="call_1", name="mcp__a.b", arguments="{}", namespace="crm"),
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "mcp__a.b",
            "namespace": "crm",
            "arguments": "{}",
        },
    ),
    (
        FunctionCall(call_id="call_1", name="a.b", arguments="{}", namespace="functions"),
        {"type": "function_call", "call_id": "call_1", "name": "a_b", "namespace": "functions", "arguments": "{}"},
    ),
    (
        FunctionCallOutput(call_id="call_1", output="42"),
        {"type": "function_call_output", "call_id": "call_1", "output": "42"},
    ),
    (
        FunctionCallOutput(call_id="call_1", output="42", name="a.b"),
        {"type": "function_call_output", "call_id": "call_1", "output": "42", "name": "a_b"},
    ),
    (
        FunctionCallOutput(call_id="call_1", output="42", name="a.b", namespace="crm"),
        {"type": "function_call_output", "call_id": "call_1", "output": "42", "name": "a.b", "namespace": "crm"},
    ),
    (
        FunctionCallOutput(call_id="call_2", output=(TextPart(text="See"), ImagePart(url=IMAGE, param="")), id="fco_2"),
        {
            "type": "function_call_output",
            "id": "fco_2",
            "call_id": "call_2",
            "output": [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": IMAGE}],
        },
    ),
    (
        FunctionCall(call_id="call_3", name="a.b", arguments='{"input": "x"}', custom=True, id="ctc_3"),
        {"type": "custom_tool_call", "call_id": "call_3", "name": "a.b", "input": "x", "id": "ctc_3"},
    ),
    (
        FunctionCall(call_id="call_3", name="a", arguments='{"input":""}', namespace="crm", custom=True, id="fc_3"),
        {"type": "custom_tool_call", "call_id": "call_3", "name": "a", "namespace": "crm", "input": ""},
    ),
    (RawItem(item={"type": "compaction", "encrypted_content": "x"}), {"type": "compaction", "encrypted_content": "x"}),
]


@pytest.mark.promise("safety.switched-off")
def test_a_thread_starts_with_the_whole_recipe() -> None:
    assert thread_start_params(PLAIN, NO_TOOLS) == RECIPE


@pytest.mark.promise("items.instructions")
def test_a_thread_starts_with_the_clients_instructions_and_settings() -> None:
    config = RECIPE["config"]
    assert isinstance(config, dict)
    assert thread_start_params(FULL, NO_TOOLS) == {
        **RECIPE,
        "baseInstructions": "Be kind.",
        "serviceTier": "flex",
        "config": {
            **config,
            "model_verbosity": "low",
            "model_reasoning_effort": "high",
            "model_reasoning_summary": "auto",
        },
    }


def test_a_plain_turn_only_continues_what_was_injected() -> None:
    assert turn_start_params("thread-1", PLAIN) == {"threadId": "thread-1", "input": []}


@pytest.mark.promise("structured.enforced")
def test_a_turn_carries_every_wish_of_the_clients() -> None:
    assert turn_start_params("thread-1", FULL) == {
        "threadId": "thread-1",
        "input": [],
        "effort": "high",
        "summary": "auto",
        "serviceTier": "flex",
        "outputSchema": SCHEMA,
        "responsesapiClientMetadata": {"team": "a"},
    }


@pytest.mark.parametrize(
    "output", [AnyJsonObject(), JsonOfSchema(name="x", schema={"type": "array"}, strict=False, enforced=False)]
)
def test_a_format_that_the_provider_would_refuse_is_not_asked_of_it(output: AnyJsonObject | JsonOfSchema) -> None:
    assert "outputSchema" not in turn_start_params("thread-1", changed(PLAIN, output=output))


@pytest.mark.promise("items.history")
@pytest.mark.parametrize(("item", "expected"), ITEMS)
def test_every_item_is_injected_as_the_model_would_see_it(item: Item, expected: JsonObject) -> None:
    assert inject_items_params("thread-1", [item], NO_TOOLS) == {"threadId": "thread-1", "items": [expected]}


def test_a_file_that_was_not_turned_into_text_is_our_own_fault() -> None:
    part = FilePart(filename="a.txt", mime_type=None, data=b"a", param="input[0].content[0]")
    with pytest.raises(InternalFault, match="turned into text"):
        inject_items_params("thread-1", [Message(role="user", parts=(part,))], NO_TOOLS)


@pytest.mark.promise("faults.other-versions")
@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("InitializeParams", initialize_params("1.0")),
        ("ThreadStartParams", thread_start_params(PLAIN, NO_TOOLS)),
        ("ThreadStartParams", thread_start_params(FULL, NO_TOOLS)),
        ("TurnStartParams", turn_start_params("thread-1", PLAIN)),
        ("TurnStartParams", turn_start_params("thread-1", FULL)),
        ("ThreadInjectItemsParams", inject_items_params("thread-1", [item for item, _ in ITEMS], NO_TOOLS)),
        *(("ResponseItem", raw) for _, raw in ITEMS),
    ],
)
def test_the_binary_knows_everything_that_it_is_sent(protocol: Protocol, name: str, params: JsonObject) -> None:
    assert protocol.problems(name, params) == []


@pytest.mark.promise("safety.switched-off")
@pytest.mark.real
def test_the_binary_has_every_feature_that_is_switched_off(codex: Callable[..., str]) -> None:
    features = {line.split()[0] for line in codex("features", "list").splitlines()}
    assert set(SWITCHED_OFF) - features == set()


def test_every_feature_is_off_from_the_start_of_the_process_and_so_are_analytics() -> None:
    assert set(PROCESS_OVERRIDES) == {"analytics.enabled=false", *(f"features.{name}=false" for name in SWITCHED_OFF)}


@pytest.mark.promise("safety.switched-off")
@pytest.mark.real
def test_every_model_of_the_binary_loses_its_extras_and_nothing_else(codex: Callable[..., str]) -> None:
    catalog = json.loads(codex("debug", "models", "--bundled"))
    extras: JsonObject = {
        "tool_mode": None,
        "use_responses_lite": False,
        "multi_agent_version": None,
        "experimental_supported_tools": [],
        "supports_search_tool": False,
        "apply_patch_tool_type": None,
        "default_verbosity": None,
        "truncation_policy": {"mode": "tokens", "limit": 10_000_000},
        "context_window": 100_000_000,
        "max_context_window": 100_000_000,
        "base_instructions": "",
        "model_messages": None,
    }
    known = {name for model in catalog["models"] for name in model}
    assert extras.keys() - known == set()
    assert bare_catalog(catalog, direct_tools=True) == {
        **catalog,
        "models": [{**model, **extras} for model in catalog["models"]],
    }


def test_codex_is_told_who_we_are_and_what_we_do_not_want_to_hear() -> None:
    assert initialize_params("1.0") == {
        "clientInfo": {"name": "turnbridge", "title": "Turnbridge", "version": "1.0"},
        "capabilities": {"experimentalApi": True, "optOutNotificationMethods": list(UNWANTED_NOTIFICATIONS)},
    }


@pytest.mark.parametrize(
    ("wanted", "mode", "options"),
    [
        (WebSearch(), "live", {}),
        (WebSearch(live=False, context_size="low"), "cached", {"context_size": "low"}),
        (
            WebSearch(allowed_domains=("a.example", "b.example"), location={"city": "Rome"}),
            "live",
            {"allowed_domains": ["a.example", "b.example"], "location": {"city": "Rome"}},
        ),
    ],
    ids=["plain", "from the index", "bounded"],
)
def test_a_web_search_has_the_options_that_the_client_gives(wanted: WebSearch, mode: str, options: JsonObject) -> None:
    config = thread_start_params(turn_request(model="m", web_search=wanted), ToolNames(()))["config"]
    assert isinstance(config, dict)
    assert config["web_search"] == mode
    assert config["tools"] == {"experimental_request_user_input": {"enabled": False}, "web_search": options}


@pytest.mark.promise("tools.custom", "tools.namespaces")
def test_calls_of_declared_tools_are_shown_as_they_are_declared() -> None:
    crm = Namespace(name="mcp__crm", description="")
    names = ToolNames.of(
        [
            Tool(name="sql", description="", parameters={}, kind="custom"),
            Tool(name="a.b", description="", parameters={}, kind="custom", namespace=crm),
        ]
    )
    items: list[Item] = [
        FunctionCall(call_id="1", name="sql", arguments='{"input":"x"}', custom=True, id="fc_1"),
        FunctionCall(call_id="2", name="a.b", arguments='{"input":"y"}', custom=True, namespace="mcp__crm", id="ctc_2"),
        # As the model made it.
        FunctionCall(call_id="3", name="sql", arguments='{"input": "z"}', id="fc_3"),
        FunctionCall(call_id="4", name="other", arguments='{"input":"x"}', custom=True),
        *(FunctionCallOutput(call_id=call_id, output="done", custom=True, id=f"ctco_{call_id}") for call_id in "1234"),
    ]
    assert inject_items_params("t", items, names)["items"] == [
        {"type": "function_call", "call_id": "1", "name": "sql", "arguments": '{"input":"x"}', "id": "fc_1"},
        {
            "type": "function_call",
            "call_id": "2",
            "name": "a_b",
            "namespace": "client_mcp__crm",
            "arguments": '{"input":"y"}',
        },
        {"type": "function_call", "call_id": "3", "name": "sql", "arguments": '{"input": "z"}', "id": "fc_3"},
        {"type": "custom_tool_call", "call_id": "4", "name": "other", "input": "x"},
        *({"type": "function_call_output", "call_id": call_id, "output": "done"} for call_id in "123"),
        {"type": "custom_tool_call_output", "call_id": "4", "output": "done", "id": "ctco_4"},
    ]


@pytest.mark.parametrize("result", [None, ""])
def test_an_image_that_could_not_be_made_is_no_image_to_the_model(result: Json) -> None:
    failed: JsonObject = {"type": "image_generation_call", "id": "ig_1", "status": "failed", "result": result}
    assert as_called(failed) == [failed]
