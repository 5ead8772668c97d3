"""What a request of the Messages API asks for."""

import pytest

from tests.api.shared.exact import exact
from tests.support.turn_requests import changed, turn_request
from turnbridge.api.anthropic.decode import CEILING_TOKENS, VERSIONS, Version, decode, version_of
from turnbridge.api.anthropic.history import SEARCH_ID, UNPARSED
from turnbridge.api.anthropic.thinking import sealed
from turnbridge.api.shared.body_budget import MAX_ITEMS, MAX_PARTS
from turnbridge.turn.errors import InvalidRequest
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
from turnbridge.turn.request import JsonOfSchema, Tool, TurnRequest, WebSearch

OLD, NEW = VERSIONS
PNG = "iVBORw0KGgo="
IMAGE: JsonObject = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def text(words: str) -> TextPart:
    return TextPart(text=words)


def block(words: str, **more: Json) -> JsonObject:
    return {"type": "text", "text": words, **more}


def picture(param: str) -> ImagePart:
    return ImagePart(url=f"data:image/png;base64,{PNG}", param=param)


HELLO: JsonObject = {"role": "user", "content": "Hi"}
HI = Message(role="user", parts=(text("Hi"),))
PLAIN = turn_request(model="claude-opus-5", items=(HI,), summary_needed=False, max_output_tokens=100)
CACHED: JsonObject = {"type": "ephemeral"}
TOOL: JsonObject = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
ADD = Tool(name="add", description="Adds.", parameters=SCHEMA)
THOUGHT = Reasoning(id="rs_1", summary=("Hm.", "So."), content=None, encrypted="secret")
SIGNED: JsonObject = {
    "type": "thinking",
    "thinking": "Hm.\n\nSo.",
    "signature": sealed(THOUGHT, [("s", "Hm."), ("s", "So.")]),
}
CALL_BLOCK: JsonObject = {"type": "tool_use", "id": "call_1", "name": "add", "input": {"b": 1, "a": "ä"}}
CALL = FunctionCall(call_id="call_1", name="add", arguments='{"b":1,"a":"ä"}')
SEARCH: JsonObject = {"type": "search", "query": "news"}


def result(content: Json, **more: Json) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": "call_1", "content": content, **more}


def body(**fields: Json) -> JsonObject:
    return {"model": "claude-opus-5", "max_tokens": 100, "messages": [HELLO], **fields}


# Conversations, and the items that they mean.
MESSAGES: dict[str, tuple[list[JsonObject], list[Item]]] = {
    "a text as a block": ([{"role": "user", "content": [block("Hi", cache_control=CACHED)]}], [HI]),
    "system in the middle": (
        [HELLO, {"role": "system", "content": "Be kind."}, {"role": "system", "content": [block("a"), block("b")]}],
        [
            HI,
            Message(role="developer", parts=(text("Be kind."),)),
            Message(role="developer", parts=(text("a"), text("b"))),
        ],
    ),
    "images": (
        [
            {
                "role": "user",
                "content": [
                    block("See"),
                    IMAGE,
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                ],
            }
        ],
        [
            Message(
                role="user",
                parts=(
                    text("See"),
                    picture("messages[0].content[1].source"),
                    ImagePart(url="https://example.com/a.png", param="messages[0].content[2].source"),
                ),
            )
        ],
    ),
    "documents": (
        [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "title": "a.pdf",
                        "context": "About it.",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE\nRi0="},
                    },
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "ä"}},
                    {"type": "document", "source": {"type": "url", "url": "https://example.com/b.pdf"}},
                    {"type": "document", "source": {"type": "content", "content": [block("c"), IMAGE]}},
                    {"type": "document", "source": {"type": "content", "content": "d"}},
                ],
            }
        ],
        [
            Message(
                role="user",
                parts=(
                    text("About it."),
                    FilePart(
                        filename="a.pdf",
                        mime_type="application/pdf",
                        data=b"%PDF-",
                        param="messages[0].content[0].source",
                    ),
                    FilePart(
                        filename=None,
                        mime_type="text/plain",
                        data="ä".encode(),
                        param="messages[0].content[1].source",
                    ),
                    FilePart(
                        filename=None,
                        mime_type=None,
                        url="https://example.com/b.pdf",
                        param="messages[0].content[2].source",
                    ),
                    text("c"),
                    picture("messages[0].content[3].source.content[1].source"),
                    text("d"),
                ),
            )
        ],
    ),
    "thinking, calls and results": (
        [
            HELLO,
            {"role": "assistant", "content": [SIGNED, block("I look."), CALL_BLOCK]},
            {"role": "user", "content": [result("42", is_error=True), block("and?")]},
        ],
        [
            HI,
            THOUGHT,
            Message(role="assistant", parts=(text("I look."),)),
            CALL,
            FunctionCallOutput(call_id="call_1", output="[The tool reported an error.]\n42"),
            Message(role="user", parts=(text("and?"),)),
        ],
    ),
    "thinking of others, and text that is empty": (
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"},
                    {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
                    {"type": "redacted_thinking", "data": sealed(THOUGHT, [])},
                    block(""),
                ],
            },
            HELLO,
        ],
        [Reasoning(id="rs_1", summary=(), content=None, encrypted="secret"), HI],
    ),
    "a result with blocks": (
        [
            {"role": "assistant", "content": [CALL_BLOCK]},
            {
                "role": "user",
                "content": [
                    result(
                        [
                            block("See"),
                            IMAGE,
                            {"type": "tool_reference", "tool_name": "read"},
                            {"type": "search_result", "source": "s", "title": "t", "content": [block("c")]},
                        ]
                    )
                ],
            },
        ],
        [
            CALL,
            FunctionCallOutput(
                call_id="call_1",
                output=(
                    text("See"),
                    picture("messages[1].content[0].content[1].source"),
                    text("read"),
                    text("t\ns\nc"),
                ),
            ),
        ],
    ),
    "arguments that were not JSON": (
        [
            {"role": "assistant", "content": [{**CALL_BLOCK, "input": {UNPARSED: "{a"}}]},
            {"role": "user", "content": [result(None)]},
        ],
        [
            FunctionCall(call_id="call_1", name="add", arguments="{a"),
            FunctionCallOutput(call_id="call_1", output=""),
        ],
    ),
    "searches of the provider": (
        [
            HELLO,
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": f"{SEARCH_ID}ws_1", "name": "web_search", "input": SEARCH},
                    {"type": "web_search_tool_result", "tool_use_id": f"{SEARCH_ID}ws_1", "content": []},
                    block("News.", citations=[{"type": "web_search_result_location"}]),
                ],
            },
        ],
        [
            HI,
            RawItem(item={"type": "web_search_call", "id": "ws_1", "status": "completed", "action": SEARCH}),
            Message(role="assistant", parts=(text("News."),)),
        ],
    ),
}


@pytest.mark.promise("anthropic.content", "anthropic.thinking")
@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_become_items(name: str, version: Version) -> None:
    messages, items = MESSAGES[name]
    decoded = decode(body(messages=[*messages]), version)
    assert decoded.turn == changed(PLAIN, items=tuple(items))
    assert exact(decoded.turn.items) == exact(items)


REQUESTS: dict[str, tuple[JsonObject, TurnRequest]] = {
    "plain": ({}, PLAIN),
    "streamed": ({"stream": True}, changed(PLAIN, streamed=True)),
    "system": ({"system": "Be kind."}, changed(PLAIN, instructions="Be kind.")),
    "system in blocks": (
        {"system": [block("x-anthropic-billing-header: cc_version=1;"), block("a", cache_control=CACHED), block("b")]},
        changed(PLAIN, instructions="a\n\nb"),
    ),
    "a billing header that is not alone": (
        {"system": [block("x-anthropic-billing-header: a\nBe kind.")]},
        changed(PLAIN, instructions="x-anthropic-billing-header: a\nBe kind."),
    ),
    "no system": ({"system": []}, PLAIN),
    "a ceiling": ({"max_tokens": CEILING_TOKENS}, changed(PLAIN, max_output_tokens=None)),
    "a limit": ({"max_tokens": CEILING_TOKENS - 1}, changed(PLAIN, max_output_tokens=CEILING_TOKENS - 1)),
    "stop sequences": ({"stop_sequences": ["a", "b"]}, changed(PLAIN, stop=("a", "b"))),
    "metadata": ({"metadata": {"user_id": "u"}}, changed(PLAIN, metadata={"user_id": "u"})),
    "adaptive thinking": ({"thinking": {"type": "adaptive"}}, changed(PLAIN, summary="auto")),
    "thinking that is not shown": ({"thinking": {"type": "adaptive", "display": "omitted"}}, PLAIN),
    "no thinking": ({"thinking": {"type": "disabled"}}, PLAIN),
    "a small budget": (
        {"thinking": {"type": "enabled", "budget_tokens": 3999}},
        changed(PLAIN, summary="auto", effort="low"),
    ),
    "a budget": (
        {"thinking": {"type": "enabled", "budget_tokens": 4000}},
        changed(PLAIN, summary="auto", effort="medium"),
    ),
    "a large budget": (
        {"thinking": {"type": "enabled", "budget_tokens": 16000}},
        changed(PLAIN, summary="auto", effort="high"),
    ),
    "an effort wins over a budget": (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "max"}},
        changed(PLAIN, summary="auto", effort="max"),
    ),
    "a format": (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        changed(PLAIN, output=JsonOfSchema(name="output", schema=SCHEMA, strict=False, enforced=True)),
    ),
    "a format in both places": (
        {
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            "output_format": {"type": "json_schema", "schema": {"type": "object"}},
        },
        changed(PLAIN, output=JsonOfSchema(name="output", schema=SCHEMA, strict=False, enforced=True)),
    ),
    "a format in its earlier place": (
        {"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
        changed(PLAIN, output=JsonOfSchema(name="output", schema={"type": "object"}, strict=False, enforced=False)),
    ),
    "tools": (
        {"tools": [TOOL, {**TOOL, "type": "custom", "name": "sub", "cache_control": CACHED}]},
        changed(PLAIN, tools=(ADD, Tool(name="sub", description="Adds.", parameters=SCHEMA))),
    ),
    "a strict tool with an optional parameter": (
        {"tools": [{"name": "add", "input_schema": {"type": "object", "properties": {"a": {}}}, "strict": True}]},
        changed(
            PLAIN,
            tools=(
                Tool(name="add", description="", parameters={"type": "object", "properties": {"a": {}}}, strict=True),
            ),
        ),
    ),
    "any tool, one at a time": (
        {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        changed(PLAIN, tools=(ADD,), must_call=True, parallel_calls=False),
    ),
    "auto": (
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
        changed(PLAIN, tools=(ADD,)),
    ),
    "one tool": (
        {"tools": [{**TOOL, "name": "sub"}, TOOL], "tool_choice": {"type": "tool", "name": "add"}},
        changed(PLAIN, tools=(ADD,), must_call=True),
    ),
    "no tool": ({"tools": [TOOL], "tool_choice": {"type": "none"}}, PLAIN),
    "web search": (
        {
            "tools": [
                {
                    "type": "web_search_20250305",
                    "name": "web_search",
                    "allowed_domains": ["example.com"],
                    "user_location": {"type": "approximate", "city": "Paris"},
                    "max_uses": 3,
                }
            ]
        },
        changed(
            PLAIN,
            web_search=WebSearch(allowed_domains=("example.com",), location={"city": "Paris"}),
            ignored=("tools[].max_uses",),
        ),
    ),
    "web search at once": (
        {"tools": [TOOL, {"type": "web_search_20260209"}], "tool_choice": {"type": "tool", "name": "web_search"}},
        changed(PLAIN, web_search=WebSearch(), must_call=True),
    ),
    "what has no effect": (
        {
            "context_management": {"edits": []},
            "safeguards": {"a": 1},
            "service_tier": "standard_only",
            "speed": "fast",
            "cache_control": CACHED,
            "tools": [{**TOOL, "defer_loading": True, "input_examples": []}],
            "output_config": {"task_budget": 1},
            "never_seen": False,
            "diagnostics": None,
        },
        changed(
            PLAIN,
            tools=(ADD,),
            ignored=(
                "service_tier",
                "speed",
                "context_management",
                "safeguards",
                "never_seen",
                "output_config.task_budget",
                "tools[].defer_loading",
                "tools[].input_examples",
            ),
        ),
    ),
    "what is so anyway": (
        {"service_tier": "auto", "speed": "standard", "mcp_servers": [], "container": None, "tool_choice": None},
        PLAIN,
    ),
}


@pytest.mark.promise("anthropic.parameters", "anthropic.ignored", "anthropic.system", "anthropic.tools")
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_becomes_a_turn(name: str, version: Version) -> None:
    fields, turn = REQUESTS[name]
    assert decode(body(**fields), version).turn == turn


@pytest.mark.promise("anthropic.thinking")
@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        (None, "no"),
        ({"type": "disabled"}, "no"),
        ({"type": "adaptive"}, "text"),
        ({"type": "between_tools"}, "text"),
        ({"type": "adaptive", "display": "updates"}, "text"),
        ({"type": "enabled", "budget_tokens": 2000, "display": "omitted"}, "signature"),
    ],
)
def test_thinking_is_shown_to_whom_asks_for_it(thinking: Json, shown: str) -> None:
    assert decode(body(thinking=thinking), NEW).thinking == shown


@pytest.mark.promise("anthropic.versions")
def test_the_older_version_names_what_the_newer_one_refuses() -> None:
    sampling: JsonObject = {"temperature": 0.5, "top_p": 0.9, "top_k": 3}
    assert decode(body(**sampling), OLD).turn == changed(PLAIN, ignored=("temperature", "top_p", "top_k"))
    for name, value in {**sampling, "temperature": 1}.items():
        with pytest.raises(InvalidRequest, match=f"'{name}'"):
            decode(body(**{name: value}), NEW)


DOCUMENT: JsonObject = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}


@pytest.mark.promise("anthropic.versions")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": [DOCUMENT]},
        {"role": "user", "content": [block("a", citations=[{"type": "char_location"}])]},
    ],
)
def test_only_the_older_version_takes_documents_of_the_model_and_citations_of_the_user(message: JsonObject) -> None:
    assert len(decode(body(messages=[message]), OLD).turn.items) == 1
    with pytest.raises(InvalidRequest):
        decode(body(messages=[message]), NEW)


@pytest.mark.promise("anthropic.versions")
def test_a_version_is_one_of_two() -> None:
    assert [version_of(given) for given in (None, OLD, f" {NEW} ")] == [OLD, OLD, NEW]
    with pytest.raises(InvalidRequest, match="'2024-01-01' is not a version") as caught:
        version_of("2024-01-01")
    assert caught.value.param == "anthropic-version"


@pytest.mark.promise("anthropic.ignored")
def test_blocks_of_tools_that_ran_elsewhere_are_left_out_and_named() -> None:
    foreign: list[Json] = [
        {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01", "content": []},
        block("a"),
    ]
    turn = decode(body(messages=[{"role": "assistant", "content": foreign}, HELLO]), NEW).turn
    assert turn.items == (Message(role="assistant", parts=(text("a"),)), HI)
    assert turn.ignored == ("messages[].content[].server_tool_use", "messages[].content[].web_search_tool_result")


REFUSED: dict[str, tuple[JsonObject, str, str]] = {
    "no model": ({"model": None}, "model", "Missing"),
    "no messages": ({"messages": None}, "messages", "Missing"),
    "empty messages": ({"messages": []}, "messages", "at least one"),
    "no limit": ({"max_tokens": None}, "max_tokens", "Missing"),
    "a limit of nothing": ({"max_tokens": 0}, "max_tokens", ">= 1"),
    "a limit that is no number": ({"max_tokens": "a"}, "max_tokens", "Expected"),
    "an unknown role": ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role", "'tool'"),
    "no content": ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "non-empty"),
    "an unknown block": (
        {"messages": [{"role": "user", "content": [{"type": "audio"}]}]},
        "messages[0].content[0]",
        "Input tag 'audio'",
    ),
    "an image of the model": (
        {"messages": [{"role": "assistant", "content": [IMAGE]}]},
        "messages[0].content[0]",
        "Input tag 'image'",
    ),
    "a call that nobody answers": (
        {"messages": [{"role": "assistant", "content": [CALL_BLOCK]}]},
        "messages",
        "without `tool_result`",
    ),
    "a result of no call": ({"messages": [{"role": "user", "content": [result("a")]}]}, "messages", "call_1"),
    "an uploaded file without its id": (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
        "messages[0].content[0].source.file_id",
        "Missing",
    ),
    "an image without data": (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}]}]},
        "messages[0].content[0].source.data",
        "Missing",
    ),
    "data that are no image": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "aGVsbG8="}}]}
            ]
        },
        "messages[0].content[0].source",
        "not an image",
    ),
    "a document that is not base64": (
        {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "data": "ä"}}]}]},
        "messages[0].content[0].source.data",
        "base64",
    ),
    "a document in a document": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "document", "source": {"type": "content", "content": [DOCUMENT]}}],
                }
            ]
        },
        "messages[0].content[0].source.content[0]",
        "Input tag 'document'",
    ),
    "a tool of Anthropic's": ({"tools": [{"type": "advisor_20260301"}]}, "tools[0].type", "Input tag 'advisor_"),
    "an unknown tool": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "sub"}},
        "tool_choice",
        "'sub' not found",
    ),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, "tools", "Two tools"),
    "an unknown choice": ({"tool_choice": {"type": "some"}}, "tool_choice.type", "'some'"),
    "a choice without a name": ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name", "Missing"),
    "servers": ({"mcp_servers": [{"url": "https://example.com"}]}, "mcp_servers", "Let the client call them"),
    "a container": ({"container": "c"}, "container", "no containers"),
    "an unknown effort": ({"output_config": {"effort": "huge"}}, "output_config.effort", "'huge'"),
    "unknown thinking": ({"thinking": {"type": "much"}}, "thinking.type", "'much'"),
    "an unknown format": ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type", "'xml'"),
    "a format without a schema": (
        {"output_config": {"format": {"type": "json_schema"}}},
        "output_config.format.schema",
        "Missing",
    ),
    "an empty stop sequence": ({"stop_sequences": [""]}, "stop_sequences", "empty"),
    "many stop sequences": ({"stop_sequences": ["a"] * 17}, "stop_sequences", "maximum length 16"),
    "a long stop sequence": ({"stop_sequences": ["a" * 1025]}, "stop_sequences[0]", "maximum length 1024"),
    "stop sequences that are long together": ({"stop_sequences": ["a" * 1000] * 5}, "stop_sequences", "together"),
    "a long user": ({"metadata": {"user_id": "a" * 513}}, "metadata", "at most 512"),
    "arguments that are not Unicode": (
        {"messages": [{"role": "assistant", "content": [{**CALL_BLOCK, "input": {"a": "\ud800"}}]}]},
        "messages[0].content[0].input",
        "not Unicode",
    ),
}


@pytest.mark.promise("anthropic.errors")
@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(name: str) -> None:
    fields, param, words = REFUSED[name]
    with pytest.raises(InvalidRequest) as caught:
        decode(body(**fields), NEW)
    assert (caught.value.param, words in caught.value.message) == (param, True), caught.value.message


@pytest.mark.promise("anthropic.bounds")
def test_a_request_has_a_budget_of_messages_blocks_and_items() -> None:
    blocks: list[Json] = [block("a")] * (MAX_PARTS // 2 + 1)
    calls: list[Json] = [{**CALL_BLOCK, "id": f"call_{number}"} for number in range(MAX_ITEMS + 1)]
    too_many: list[JsonObject] = [
        {"messages": [HELLO] * (MAX_ITEMS + 1)},
        {"messages": [{"role": "user", "content": blocks}] * 2},
        {"system": blocks * 2},
        {"messages": [{"role": "assistant", "content": calls}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "document", "source": {"type": "content", "content": blocks}}] * 2,
                }
            ]
        },
        {"tools": [TOOL] * 1025},
    ]
    for fields in too_many:
        with pytest.raises(InvalidRequest) as caught:
            decode(body(**fields), NEW)
        assert caught.value.error_code == "array_above_max_length"


def test_a_request_that_is_only_counted_may_end_in_a_call() -> None:
    sent = body(messages=[{"role": "assistant", "content": [CALL_BLOCK]}])
    del sent["max_tokens"]
    assert decode(sent, NEW, counted=True).turn == changed(PLAIN, items=(CALL,), max_output_tokens=None)
