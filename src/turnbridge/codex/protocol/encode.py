"""A `TurnRequest` → the parameters of `thread/start`, `thread/inject_items` and `turn/start`.

The recipe below is what keeps Codex from adding anything of its own, and from acting on this machine.
"""

from collections.abc import Container, Iterable
from typing import assert_never

from turnbridge.codex.protocol.messages import UNWANTED_NOTIFICATIONS
from turnbridge.codex.protocol.permissions import STRICT, HostRules
from turnbridge.codex.protocol.tools import NO_NAMESPACE, ToolNames, dynamic_tools
from turnbridge.turn.errors import BackendUnavailable, InternalFault
from turnbridge.turn.items import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Json,
    JsonObject,
    Message,
    Part,
    RawItem,
    Reasoning,
    TextPart,
)
from turnbridge.turn.request import JsonOfSchema, TurnRequest, WebSearch

# Larger than any history, so that Codex neither cuts tool outputs nor compacts: the provider says what is too long.
NO_LIMIT = 10_000_000
NO_WINDOW = 100_000_000

# What each model of the catalogue must not bring along: tools of Codex's own, and its ways of shortening.
CATALOG_OVERRIDES: JsonObject = {
    "multi_agent_version": None,
    "experimental_supported_tools": [],
    "supports_search_tool": False,
    "apply_patch_tool_type": None,
    "default_verbosity": None,
    "truncation_policy": {"mode": "tokens", "limit": NO_LIMIT},
    "context_window": NO_WINDOW,
    "max_context_window": NO_WINDOW,
}

# With these, the newest models call functions one by one like all others, and not from scripts of their own.
DIRECT_TOOLS: JsonObject = {"tool_mode": None, "use_responses_lite": False}

SWITCHED_OFF = (
    "apps",
    "goals",
    "hooks",
    "image_generation",
    "memories",
    "multi_agent",
    "plugins",
    "shell_tool",
    "skill_search",
    "sleep_tool",
    # With it, Codex waits for a network that is down for as long as it takes.
    "unbounded_connection_retries",
    "unified_image_budget",
    "view_image",
)

NO_TOOLS: JsonObject = {"experimental_request_user_input": {"enabled": False}}

THREAD_CONFIG: JsonObject = {
    "features": dict.fromkeys(SWITCHED_OFF, False),
    "web_search": "disabled",
    "include_environment_context": False,
    "include_permissions_instructions": False,
    "include_apps_instructions": False,
    "include_collaboration_mode_instructions": False,
    "skills": {"include_instructions": False, "bundled": {"enabled": False}},
    "tools": NO_TOOLS,
    "project_doc_max_bytes": 0,
    "tool_output_token_limit": NO_LIMIT,
}


# At process start, since Codex does these things before there is a thread: it looks for plugins with git and on three
# hosts, opens a connection to the user's apps, and reports each thread.
PROCESS_OVERRIDES = (*(f"features.{name}=false" for name in SWITCHED_OFF), "analytics.enabled=false")


def initialize_params(version: str, *, opt_out: bool = True, wanted: Container[str] = ()) -> JsonObject:
    """Return the handshake: who we are, and which notifications we do not want, if Codex can be told so.

    Those that are `wanted` are not among them: older versions tell there what others tell better elsewhere.
    """
    capabilities: JsonObject = {"experimentalApi": True}
    if opt_out:
        capabilities["optOutNotificationMethods"] = [name for name in UNWANTED_NOTIFICATIONS if name not in wanted]
    return {
        "clientInfo": {"name": "turnbridge", "title": "Turnbridge", "version": version},
        "capabilities": capabilities,
    }


def bare_catalog(catalog: JsonObject, *, direct_tools: bool) -> JsonObject:
    """Return Codex's model catalogue without the extras that each model brings along."""
    overrides = {**CATALOG_OVERRIDES, **(DIRECT_TOOLS if direct_tools else {})}
    models = catalog.get("models")
    if not isinstance(models, list):
        raise BackendUnavailable("`codex debug models` printed no list of models.")
    return {**catalog, "models": [{**model, **overrides} for model in models if isinstance(model, dict)]}


def thread_config(request: TurnRequest) -> JsonObject:
    """Return the settings of a thread: everything of Codex's own is off, except what the client asks for."""
    config = dict(THREAD_CONFIG)
    if request.spec.verbosity is not None:
        config["model_verbosity"] = request.spec.verbosity
    if request.spec.web_search is not None:
        config["web_search"] = "live" if request.spec.web_search.live else "cached"
        config["tools"] = {**NO_TOOLS, "web_search": _web_search(request.spec.web_search)}
    return config


def thread_start_params(request: TurnRequest, names: ToolNames, rules: HostRules = STRICT) -> JsonObject:
    """Return a thread that holds nothing but the client's instructions and tools."""
    return {
        "model": request.spec.model,
        "baseInstructions": request.spec.instructions or "",
        "ephemeral": True,
        "environments": [],
        "approvalPolicy": rules.approval_policy,
        "sandbox": rules.sandbox,
        "experimentalRawEvents": True,
        "dynamicTools": dynamic_tools(request.spec.tools, names),
        "config": thread_config(request),
    }


def turn_start_params(thread_id: str, request: TurnRequest) -> JsonObject:
    """Return a turn that continues from the injected items."""
    params: JsonObject = {"threadId": thread_id, "input": []}
    if request.spec.effort is not None:
        params["effort"] = request.spec.effort
    if request.spec.summary is not None:
        params["summary"] = request.spec.summary
    if request.spec.service_tier is not None:
        params["serviceTier"] = request.spec.service_tier
    if isinstance(request.spec.output, JsonOfSchema) and request.spec.output.enforced:
        params["outputSchema"] = request.spec.output.schema
    if request.metadata:
        params["responsesapiClientMetadata"] = dict(request.metadata)
    return params


def tool_output(output: str | tuple[Part, ...]) -> JsonObject:
    """Return the answer to `item/tool/call`."""
    parts: tuple[Part, ...] = (TextPart(text=output),) if isinstance(output, str) else output
    content: list[Json] = []
    for part in parts:
        match part:
            case TextPart():
                content.append({"type": "inputText", "text": part.text})
            case ImagePart():
                content.append({"type": "inputImage", "imageUrl": part.url})
            case FilePart():
                raise InternalFault("A file reached Codex without having been turned into text.")
            case _:
                assert_never(part)
    return {"contentItems": content, "success": True}


def inject_items_params(thread_id: str, items: Iterable[Item], names: ToolNames) -> JsonObject:
    """Return the history as raw Responses items."""
    return {"threadId": thread_id, "items": [raw_item(item, names) for item in items]}


def raw_item(item: Item, names: ToolNames) -> Json:
    """Return one item as the Responses API writes it."""
    match item:
        case Message():
            text_type = "output_text" if item.role == "assistant" else "input_text"
            content: list[Json] = [_raw_part(part, text_type=text_type) for part in item.parts]
            return _with_id(item.id, {"type": "message", "role": item.role, "content": content}, phase=item.phase)
        case Reasoning():
            summary: list[Json] = [{"type": "summary_text", "text": text} for text in item.summary]
            raw: JsonObject = {"type": "reasoning", "summary": summary}
            if item.content is not None:
                raw["content"] = [{"type": "reasoning_text", "text": text} for text in item.content]
            return _with_id(item.id, raw, encrypted_content=item.encrypted)
        case FunctionCall():
            call: JsonObject = {"type": "function_call", "call_id": item.call_id, "arguments": item.arguments}
            return _with_id(item.id, call, **_function(item.name, item.namespace, names))
        case FunctionCallOutput():
            output: Json = (
                item.output
                if isinstance(item.output, str)
                else [_raw_part(part, text_type="input_text") for part in item.output]
            )
            kind = "custom_tool_call_output" if item.custom else "function_call_output"
            made: JsonObject = {"type": kind, "call_id": item.call_id, "output": output}
            return _with_id(item.id, made, **_function(item.name, item.namespace, names))
        case RawItem():
            return item.item
        case _:
            assert_never(item)


def _web_search(wanted: WebSearch) -> JsonObject:
    search: JsonObject = {}
    if wanted.context_size is not None:
        search["context_size"] = wanted.context_size
    if wanted.allowed_domains:
        search["allowed_domains"] = list(wanted.allowed_domains)
    if wanted.location:
        search["location"] = dict(wanted.location)
    return search


def _raw_part(part: Part, *, text_type: str) -> Json:
    match part:
        case TextPart():
            return {"type": text_type, "text": part.text}
        case ImagePart():
            image: JsonObject = {"type": "input_image", "image_url": part.url}
            return image if part.detail is None else {**image, "detail": part.detail}
        case FilePart():
            raise InternalFault("A file reached Codex without having been turned into text.")
        case _:
            assert_never(part)


def _function(name: str | None, namespace: str | None, names: ToolNames) -> dict[str, str | None]:
    """Return which function an item is about; those in a namespace are not among the ones renamed for Codex."""
    renamed = names.to_codex(name) if name is not None and namespace in NO_NAMESPACE else name
    return {"name": renamed, "namespace": namespace}


def _with_id(item_id: str | None, item: JsonObject, **optional: str | None) -> JsonObject:
    present: JsonObject = {key: value for key, value in optional.items() if value is not None}
    return {**item, **present} if item_id is None else {**item, "id": item_id, **present}
