"""What clients send in either API, and the items that the model must see of it: in order, whole, and nothing else.

What Codex itself changes is written out in the expected items: system messages become developer messages (Codex would
drop them), `instructions` become the first developer message, missing fields of a reasoning item become null, and
`status`, `annotations` and `logprobs` of items that the client gives back are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnbridge.turn.items import Json, JsonObject

# Far beyond the 48 KB at which Codex cuts tool outputs unless it is told otherwise.
LONG_TEXT = "Äpfel & 🍐, " * 25_000
MANY_ITEMS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One conversation in the words of one API or both, and what the model must see of it."""

    name: str
    responses: JsonObject | None = None
    chat: JsonObject | None = None
    input: Sequence[JsonObject]
    """The items; those without an `id` get one from Codex."""
    reasoning: JsonObject = field(default_factory=lambda: {"effort": "medium"})
    extra: JsonObject = field(default_factory=dict)
    """Top-level fields that are absent in a plain request."""
    metadata: JsonObject = field(default_factory=dict)
    """What goes to the provider beside the conversation."""
    ignored: str | None = None
    answer: str = "ok"


def text(content: str, kind: str = "input_text") -> JsonObject:
    """Return a text part."""
    return {"type": kind, "text": content}


def said(role: str, *content: str | JsonObject, **more: Json) -> JsonObject:
    """Return a message as the model sees it."""
    kind = "output_text" if role == "assistant" else "input_text"
    parts: list[Json] = [text(part, kind) if isinstance(part, str) else part for part in content]
    return {"type": "message", "role": role, "content": parts, **more}


def call(call_id: str, name: str = "f", arguments: str = "{}", **more: Json) -> JsonObject:
    """Return a function call as the model sees it."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def result(call_id: str, output: Json, **more: Json) -> JsonObject:
    """Return the output of a function call as the model sees it."""
    return {"type": "function_call_output", "call_id": call_id, "output": output, **more}


def talk(name: str, *messages: tuple[str, str]) -> Case:
    """Return a conversation of plain messages, which both APIs write alike."""
    sent: list[Json] = [{"role": role, "content": words} for role, words in messages]
    seen = [said("developer" if role == "system" else role, words) for role, words in messages]
    return Case(name=name, responses={"input": sent}, chat={"messages": sent}, input=seen)


def items(name: str, *seen: JsonObject) -> Case:
    """Return a conversation that the Responses API writes as the model sees it, and the chat API as messages."""
    messages: list[JsonObject] = []
    for item in seen:
        match item:
            case {"type": "function_call"}:
                function: JsonObject = {"name": item["name"], "arguments": item["arguments"]}
                calls: list[Json] = [{"id": item["call_id"], "type": "function", "function": function}]
                # One message holds what the assistant says and all calls that follow.
                if messages and messages[-1]["role"] == "assistant":
                    last = messages.pop()
                    earlier = last.get("tool_calls", [])
                    messages.append({**last, "tool_calls": [*earlier, *calls] if isinstance(earlier, list) else calls})
                else:
                    messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            case {"type": "function_call_output", "output": output}:
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": in_chat_words(output)})
            case _:
                messages.append({"role": item["role"], "content": in_chat_words(item["content"])})
    return Case(name=name, responses={"input": [*seen]}, chat={"messages": [*messages]}, input=seen)


def in_chat_words(content: Json) -> Json:
    """Return content as the chat API writes it."""
    match content:
        case list():
            return [in_chat_words(part) for part in content]
        case {"image_url": url}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"text": str(words)}:
            return text(words, "text")
        case _:
            return content


def asked(name: str, *, before: Sequence[JsonObject] = (), **case: object) -> Case:
    """Return a case whose conversation is one short question, so that only its parameters matter."""
    question: dict[str, JsonObject] = {
        "responses": {"input": "JSON, please"},
        "chat": {"messages": [{"role": "user", "content": "JSON, please"}]},
    }
    bodies = {
        route: {**question[route], **parameters}
        for route in question
        if isinstance(parameters := case.pop(route, None), dict)
    }
    return Case(name=name, input=[*before, said("user", "JSON, please")], **bodies, **case)  # type: ignore[arg-type]


def schema_asked(name: str, schema: JsonObject, *, strict: bool | None, seen: JsonObject, **case: object) -> Case:
    """Return a question whose answer shall be JSON of this schema, in few words; `seen` is what `text` says of it."""
    wanted: JsonObject = {"name": "thing", "description": "A thing", "schema": schema, "strict": strict}
    flat: JsonObject = {"type": "json_schema", **wanted}
    nested: JsonObject = {"type": "json_schema", "json_schema": wanted}
    bodies: dict[str, object] = {
        "responses": {"text": {"format": flat, "verbosity": "low"}},
        "chat": {"response_format": nested, "verbosity": "low"},
    }
    return asked(name, answer='{"a": "b"}', extra={"text": {"verbosity": "low", **seen}}, **bodies, **case)  # type: ignore[arg-type]


PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGMQUDAAIgYIBQAKDgGBVjPu8wAAAAB"
    "JRU5ErkJggg=="
)
IMAGE: JsonObject = {"type": "input_image", "image_url": PNG}
USER: JsonObject = {"role": "user", "content": "a"}
THOUGHT: JsonObject = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [text("First.", "summary_text"), text("Then.", "summary_text")],
    "encrypted_content": "gAAAAAB+/=",
}
OPEN_THOUGHT: JsonObject = {"type": "reasoning", "summary": [], "content": [text("Hm.", "reasoning_text")]}
SEARCH: JsonObject = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
CUSTOM_CALL: JsonObject = {"type": "custom_tool_call", "call_id": "c1", "name": "grep", "input": "a\n  b"}
CUSTOM_RESULT: JsonObject = {"type": "custom_tool_call_output", "call_id": "c1", "output": LONG_TEXT}
SHELL_CALL: JsonObject = {
    "type": "local_shell_call",
    "id": "lsh_1",
    "call_id": "c1",
    "status": "completed",
    "action": {
        "type": "exec",
        "command": ["ls", "-l"],
        "env": {"A": "b"},
        "timeout_ms": 100,
        "user": "me",
        "working_directory": "/",
    },
}
COMPACTION: JsonObject = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAB+/="}
FOUND_BY_PROVIDER: tuple[JsonObject, JsonObject] = (
    {
        "type": "tool_search_call",
        "id": "tsc_1",
        "call_id": "c1",
        "execution": "server",
        "status": "completed",
        "arguments": {"paths": ["crm"], "deep": {"a": [1, None]}},
    },
    {
        "type": "tool_search_output",
        "id": "tso_1",
        "call_id": "c1",
        "execution": "server",
        "status": "completed",
        "tools": [
            {"type": "namespace", "name": "crm", "description": "", "tools": [{"type": "function", "name": "f"}]}
        ],
    },
)
CITATION: JsonObject = {"type": "url_citation", "url": "https://a.example", "start_index": 0, "end_index": 3}

STRICT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
LOOSE_SCHEMA: JsonObject = {"type": "object", "properties": {"a": {"type": "string"}}}
# Codex gives an enforced schema a name of its own.
ENFORCED: JsonObject = {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": STRICT_SCHEMA}
ASKED_FOR = said(
    "developer",
    "Answer only with JSON named `thing` (A thing) that conforms to this JSON Schema:\n"
    '{"type": "object", "properties": {"a": {"type": "string"}}}',
)

MESSAGES = [
    Case(
        name="a string",
        responses={"input": "hi"},
        chat={"messages": [{"role": "user", "content": "hi"}]},
        input=[said("user", "hi")],
    ),
    talk("nothing but an empty string", ("user", "")),
    talk("white space around", ("system", "\n\n a \n"), ("user", "  b\r\n"), ("assistant", "\tc "), ("user", "\n")),
    talk("system first", ("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")),
    talk("system in the middle", ("user", "a"), ("system", "s"), ("assistant", "b"), ("developer", "t"), ("user", "c")),
    talk("system last", ("user", "a"), ("system", "s")),
    talk("nothing but a system message", ("system", "s")),
    talk("several system messages", ("system", "s"), ("system", "s"), ("developer", "t"), ("user", "a")),
    talk("several user messages", ("user", "a"), ("user", "a"), ("user", "b")),
    talk("several assistant messages", ("user", "a"), ("assistant", "b"), ("assistant", "b"), ("user", "c")),
    talk("assistant first", ("assistant", "b"), ("user", "a")),
    talk("assistant last", ("user", "Finish: al"), ("assistant", "pha")),
    talk("an empty system message", ("system", ""), ("user", "a")),
    talk("an empty assistant message", ("user", "a"), ("assistant", ""), ("user", "b")),
    talk("many items", *(("user" if n % 2 else "assistant", f"item {n}") for n in range(MANY_ITEMS))),
    talk("a long text", ("system", LONG_TEXT), ("assistant", LONG_TEXT), ("user", LONG_TEXT)),
    items("several parts", said("developer", "s", ""), said("user", "a", "a"), said("assistant", "b", " c")),
    Case(
        name="the other API's words for parts",
        responses={"input": [{"role": "user", "content": [text("a", "text")]}]},
        chat={"messages": [{"role": "user", "content": [text("a")]}]},
        input=[said("user", "a")],
    ),
    Case(
        name="a refusal",
        responses={"input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, USER]},
        chat={"messages": [{"role": "assistant", "content": None, "refusal": "No."}, USER]},
        input=[said("assistant", "No."), said("user", "a")],
    ),
    Case(
        name="ids, status, annotations",
        responses={
            "input": [
                said("user", "a", id="msg_1", status="completed"),
                said(
                    "assistant",
                    {**text("See there.", "output_text"), "annotations": [CITATION], "logprobs": []},
                    id="msg_2",
                    status="completed",
                ),
            ]
        },
        input=[said("user", "a", id="msg_1"), said("assistant", "See there.", id="msg_2")],
    ),
    Case(
        name="phases",
        responses={
            "input": [
                {"role": "assistant", "content": "a", "phase": "commentary"},
                {"role": "assistant", "content": "b", "phase": "final_answer"},
                {"role": "assistant", "content": "c", "phase": None},
            ]
        },
        input=[
            said("assistant", "a", phase="commentary"),
            said("assistant", "b", phase="final_answer"),
            said("assistant", "c"),
        ],
    ),
    Case(
        name="names of speakers",
        chat={"messages": [{**USER, "name": "ann"}, USER]},
        input=[said("user", "a"), said("user", "a")],
        ignored="messages[0].name",
    ),
]

TEXTS = [
    talk(name, ("system", words), ("user", words), ("assistant", words), ("user", words))
    for name, words in {
        "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪",
        "right to left": "שלום\u200f مرحبا \u202eabc\u202c",
        "combining marks": "Z̸̡͎a̷l̶g̵o̴ e\u0301 é \ufeff\u200b\u00a0",
        "rare planes and noncharacters": "\U0001d518 \U0010ffff \ufffe \uffff \u2028\u2029",
        "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f",
        "escapes": 'a "quote" \\ \\n \\u0041 %00 &amp; \\ud83d',
        "JSON": '{"role": "system", "content": [{"type": "input_text", "text": "x"}]}',
        "server-sent events": "event: response.completed\ndata: [DONE]\n\n",
        "XML": '<?xml version="1.0"?><a b="c"><![CDATA[d]]></a><!-- e -->',
        "role markers": "System: x\n\nHuman: y\n\nAssistant: z\n<|im_start|>system<|im_end|><|endoftext|>",
        "mentions": "$skill @README.md /compact !ls #file [$app](app://x) ~/.codex/AGENTS.md",
        "Codex's environment": "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>",
        "Codex's project instructions": "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\ny\n</INSTRUCTIONS>",
        "Codex's permissions": "<permissions instructions>x</permissions instructions>",
        "Codex's modes": "<collaboration_mode>x</collaboration_mode><model_switch>y</model_switch>",
        "Codex's notices": "<turn_aborted>\nx\n</turn_aborted><subagent_notification>y</subagent_notification>",
        "Codex's shell": "<user_shell_command>\n<command>ls</command>\n</user_shell_command>",
        "Codex's skills": "<skill>\n<name>x</name>\n</skill>",
        "Codex's images": "<image name=[Image #1]></image>",
        "Codex's plans and citations": "<proposed_plan>x</proposed_plan><oai-mem-citation>y</oai-mem-citation>",
    }.items()
]

INSTRUCTIONS = [
    Case(name=name, responses={"instructions": instructions, "input": [{"role": "system", "content": "s"}]}, input=seen)
    for name, instructions, seen in (
        ("instructions", " Be\n\nbrief. ", [said("developer", " Be\n\nbrief. "), said("developer", "s")]),
        ("instructions said twice", "s", [said("developer", "s"), said("developer", "s")]),
        ("long instructions", LONG_TEXT, [said("developer", LONG_TEXT), said("developer", "s")]),
        ("empty instructions", "", [said("developer", "s")]),
    )
]

HISTORY = [
    Case(
        name="reasoning",
        responses={"input": [USER, THOUGHT, {"role": "assistant", "content": "b"}, OPEN_THOUGHT, USER]},
        input=[
            said("user", "a"),
            {**THOUGHT, "content": None},
            said("assistant", "b"),
            {**OPEN_THOUGHT, "encrypted_content": None},
            said("user", "a"),
        ],
    ),
    items("a function call", said("user", "a"), call("c1", "f", '{"x": 1}'), result("c1", "42")),
    items("words around a call", said("assistant", "I look."), call("c1"), result("c1", ""), said("user", "b")),
    items("parallel calls", call("c1"), call("c2", "g", ""), result("c2", "2"), result("c1", "1")),
    items("calls one after another", call("c1"), result("c1", "1"), call("c1"), result("c1", "2")),
    items("odd ids and arguments", call("ü 1", "f-2_G", "not JSON"), result("ü 1", '{"a": [1]}')),
    items("a long output", call("c1"), result("c1", LONG_TEXT)),
    items("an output of parts", call("c1"), result("c1", [text("t"), IMAGE, text("u")])),
    items("images among texts", said("user", "a", IMAGE, IMAGE, "b"), said("assistant", "c"), said("user", IMAGE)),
    Case(
        name="ids of calls",
        responses={
            "input": [call("c1", id="fc_1", status="completed"), result("c1", "42", id="fco_1", status="completed")]
        },
        input=[call("c1", id="fc_1"), result("c1", "42", id="fco_1")],
    ),
    Case(
        name="namespaces of calls",
        responses={
            "input": [
                call("c1", "mcp__a.b", namespace="crm"),
                result("c1", "1", name="mcp__a.b", namespace="crm"),
                call("c2", namespace="functions"),
                result("c2", "2"),
            ]
        },
        input=[
            call("c1", "mcp__a.b", namespace="crm"),
            result("c1", "1", name="mcp__a.b", namespace="crm"),
            call("c2", namespace="functions"),
            result("c2", "2"),
        ],
    ),
    Case(
        name="fields of calls that Codex does not carry",
        responses={"input": [call("c1", caller={"type": "direct"}), result("c1", "1", caller={"type": "direct"})]},
        input=[call("c1"), result("c1", "1")],
        ignored="input[].caller",
    ),
    Case(
        name="words between a call and its output",
        responses={"input": [call("c1"), said("assistant", "wait"), result("c1", "1")]},
        input=[call("c1"), said("assistant", "wait"), result("c1", "1")],
    ),
    Case(
        name="a function call in the chat API's first form",
        chat={
            "messages": [
                USER,
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "42"},
            ]
        },
        input=[said("user", "a"), call("call_1"), result("call_1", "42")],
    ),
    Case(
        name="a call of a tool that takes text",
        responses={"input": [USER, CUSTOM_CALL, CUSTOM_RESULT]},
        chat={
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "grep", "input": "a\n  b"}}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": LONG_TEXT},
            ]
        },
        input=[said("user", "a"), CUSTOM_CALL, CUSTOM_RESULT],
    ),
    Case(
        name="a call in a namespace that is not declared",
        responses={"input": [{**CUSTOM_CALL, "id": "ctc_1", "namespace": "mcp__crm"}, CUSTOM_RESULT]},
        input=[{**CUSTOM_CALL, "id": "ctc_1", "namespace": "mcp__crm"}, CUSTOM_RESULT],
    ),
    Case(
        name="a shell call",
        responses={"input": [USER, SHELL_CALL, result("c1", "files")]},
        input=[said("user", "a"), SHELL_CALL, result("c1", "files")],
    ),
    Case(
        name="a compacted history",
        responses={"input": [COMPACTION, USER]},
        input=[COMPACTION, said("user", "a")],
    ),
    Case(
        name="tools that the provider found",
        responses={"input": [USER, *FOUND_BY_PROVIDER]},
        input=[said("user", "a"), *FOUND_BY_PROVIDER],
    ),
    Case(
        name="tools that the provider found, without the id of a call",
        responses={"input": [USER, *({**item, "call_id": None} for item in FOUND_BY_PROVIDER)]},
        input=[said("user", "a"), *({**item, "call_id": None} for item in FOUND_BY_PROVIDER)],
    ),
    Case(
        name="a web search",
        responses={"input": [USER, SEARCH, {"role": "assistant", "content": "b"}, USER]},
        input=[said("user", "a"), SEARCH, said("assistant", "b"), said("user", "a")],
    ),
]

PARAMETERS = [
    *(
        asked(
            f"effort {effort}",
            responses={"reasoning": {"effort": effort}},
            chat={"reasoning_effort": effort},
            reasoning={"effort": effort},
        )
        for effort in ("none", "minimal", "low", "medium", "high", "xhigh")
    ),
    *(
        asked(
            f"summary {summary}",
            responses={"reasoning": {"summary": summary}},
            chat={"reasoning": {"summary": summary}},
            reasoning={"effort": "medium"} | ({} if summary == "none" else {"summary": summary}),
        )
        for summary in ("auto", "concise", "detailed", "none")
    ),
    *(
        asked(
            f"verbosity {verbosity}",
            responses={"text": {"verbosity": verbosity}},
            chat={"verbosity": verbosity},
            extra={"text": {"verbosity": verbosity}},
        )
        for verbosity in ("low", "medium", "high")
    ),
    *(
        asked(f"tier {tier}", responses={"service_tier": tier}, chat={"service_tier": tier}, extra=seen)
        for tier, seen in (
            ("auto", {}),
            ("default", {}),
            ("flex", {"service_tier": "flex"}),
            ("priority", {"service_tier": "priority"}),
            ("fast", {"service_tier": "priority"}),
        )
    ),
    *(
        asked(", ".join(unmet), responses=unmet, chat=unmet, ignored=", ".join(unmet))
        for unmet in ({"service_tier": "scale"}, {"temperature": 0.2, "top_p": 0.9})
    ),
    asked(
        "metadata and user",
        responses={"metadata": {"a": "ü\n🍐", "b c": ""}, "user": "u-1", "safety_identifier": "s-1"},
        chat={"metadata": {"a": "ü\n🍐", "b c": ""}, "user": "u-1", "safety_identifier": "s-1"},
        metadata={"a": "ü\n🍐", "b c": "", "user": "u-1", "safety_identifier": "s-1"},
    ),
    asked(
        "limits that the gateway keeps",
        responses={"max_output_tokens": 100, "stop": ["never said"]},
        chat={"max_completion_tokens": 100, "stop": ["never said"]},
    ),
    asked("encrypted reasoning, not stored", responses={"include": ["reasoning.encrypted_content"], "store": False}),
    asked("plain text", responses={"text": {"format": {"type": "text"}}}, chat={"response_format": {"type": "text"}}),
    asked(
        "any JSON object",
        responses={"text": {"format": {"type": "json_object"}}},
        chat={"response_format": {"type": "json_object"}},
        answer="{}",
    ),
    *(
        schema_asked(f"schema to enforce, strict {strict}", STRICT_SCHEMA, strict=strict, seen={"format": ENFORCED})
        for strict in (True, False, None)
    ),
    *(
        schema_asked(f"schema to ask for, strict {strict}", LOOSE_SCHEMA, strict=strict, seen={}, before=[ASKED_FOR])
        for strict in (False, None)
    ),
]

CASES = [*MESSAGES, *TEXTS, *INSTRUCTIONS, *HISTORY, *PARAMETERS]
