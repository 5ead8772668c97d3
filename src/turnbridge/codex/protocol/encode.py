"""A `TurnRequest` → the parameters of `thread/start`, `thread/inject_items` and `turn/start`.

The recipe keeps Codex from adding anything of its own and from acting on this machine: no tool of its own is enabled,
and every request for approval or input is declined.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from turnbridge.codex.protocol.images import IMAGE_FEATURE, as_called
from turnbridge.codex.protocol.messages import UNWANTED_NOTIFICATIONS
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.codex.protocol.tools import dynamic_tools
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
    Part,
    RawItem,
    Reasoning,
    TextPart,
    custom_input,
    replace,
)
from turnbridge.turn.request import JsonOfSchema, TurnRequest, tool_key

# Larger than any history, so that Codex neither cuts tool outputs nor compacts: the provider says what is too long.
NO_LIMIT = 10_000_000
NO_WINDOW = 100_000_000

SWITCHED_OFF = (
    "apps",
    "goals",
    "hooks",
    IMAGE_FEATURE,
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

FEATURES: JsonObject = dict.fromkeys(SWITCHED_OFF, False)
THREAD_CONFIG: JsonObject = {
    "features": FEATURES,
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


Sandbox: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
ApprovalPolicy: TypeAlias = Literal["untrusted", "on-request", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRules:
    """What Codex may do on this machine, in Codex's own words."""

    sandbox: Sandbox = "read-only"
    approval_policy: ApprovalPolicy = "never"
    """When Codex asks for approval; every such request is declined."""
    apply_patch: bool = False
    """Whether the v1 dialect asks for the tool that changes files."""
    plain_messages: bool = False
    """Whether the v1 dialect sends messages instead of turns, which carry no settings of their own."""

    @property
    def strict(self) -> bool:
        """Tell whether tools that Codex keeps enabled can change nothing here."""
        return self.sandbox == "read-only" and self.approval_policy == "never" and not self.apply_patch


STRICT = HostRules()

DECLINED = "Nobody can answer here: this model is used through an API."
DECLINES: dict[str, Json] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}},
    "item/tool/requestUserInput": {"answers": {}},
    "item/tool/call": {"contentItems": [{"type": "inputText", "text": DECLINED}], "success": False},
    "mcpServer/elicitation/request": {"action": "decline"},
    "applyPatchApproval": {"decision": {"denied": {"rejection": DECLINED}}},
    "execCommandApproval": {"decision": {"denied": {"rejection": DECLINED}}},
}


def initialize_params(version: str, *, opt_out: bool = True, wanted: Container[str] = ()) -> JsonObject:
    """Return the handshake, with an opt-out of all unused notifications but the `wanted` ones where Codex has one."""
    capabilities: JsonObject = {"experimentalApi": True}
    if opt_out:
        capabilities["optOutNotificationMethods"] = [name for name in UNWANTED_NOTIFICATIONS if name not in wanted]
    return {
        "clientInfo": {"name": "turnbridge", "title": "Turnbridge", "version": version},
        "capabilities": capabilities,
    }


def thread_config(request: TurnRequest) -> JsonObject:
    """Return the settings of a thread: all of Codex's own features are off, except what the client asks for.

    The effort and the summary are those of its turns. Over WebSocket, Codex sends the instructions and tools when the
    thread is started, and refers to them in the first turn only if nothing but the input has changed since.
    """
    reasoning: JsonObject = {
        "model_verbosity": request.spec.verbosity,
        "model_reasoning_effort": request.spec.effort,
        "model_reasoning_summary": request.spec.summary,
    }
    config = {**THREAD_CONFIG, **_present(reasoning)}
    if (wanted := request.spec.web_search) is not None:
        options: JsonObject = {
            "context_size": wanted.context_size,
            "allowed_domains": list(wanted.allowed_domains) or None,
            "location": dict(wanted.location) or None,
        }
        config["web_search"] = "live" if wanted.live else "cached"
        config["tools"] = {**NO_TOOLS, "web_search": _present(options)}
    if request.spec.image_generation:
        config["features"] = {**FEATURES, IMAGE_FEATURE: True}
    return config


def thread_start_params(request: TurnRequest, names: ToolNames, rules: HostRules = STRICT) -> JsonObject:
    """Return a thread with the client's instructions and tools, and nothing else."""
    optional: JsonObject = {"modelProvider": request.spec.provider, "serviceTier": request.spec.service_tier}
    return {
        "model": request.spec.model,
        **_present(optional),
        "baseInstructions": request.spec.instructions or "",
        "ephemeral": True,
        "environments": [],
        "approvalPolicy": rules.approval_policy,
        "sandbox": rules.sandbox,
        "experimentalRawEvents": True,
        "dynamicTools": dynamic_tools(request.spec.tools, names) if request.spec.tools else [],
        "config": thread_config(request),
    }


def turn_start_params(thread_id: str, request: TurnRequest) -> JsonObject:
    """Return a turn that continues from the injected items."""
    optional: JsonObject = {
        "effort": request.spec.effort,
        "summary": request.spec.summary,
        "serviceTier": request.spec.service_tier,
        "outputSchema": output_schema(request),
        "responsesapiClientMetadata": dict(request.metadata) or None,
    }
    return {"threadId": thread_id, "input": [], **_present(optional)}


def output_schema(request: TurnRequest) -> JsonObject | None:
    """Return the schema of the answer, if the provider can enforce it."""
    output = request.spec.output
    return output.schema if isinstance(output, JsonOfSchema) and output.enforced else None


def tool_output(output: str | tuple[Part, ...]) -> JsonObject:
    """Return the answer to `item/tool/call`."""
    parts: tuple[Part, ...] = (TextPart(text=output),) if isinstance(output, str) else output
    content: list[Json] = [
        {"type": "inputText", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "inputImage", "imageUrl": image_of(part).url}
        for part in parts
    ]
    return {"contentItems": content, "success": True}


def image_of(part: ImagePart | FilePart) -> ImagePart:
    """Return a part that is no text: an image, since files have become text before a turn starts."""
    match part:
        case ImagePart():
            return part
        case FilePart():
            raise InternalFault("A file reached Codex without having been turned into text.")
        case _:
            assert_never(part)


def inject_items_params(thread_id: str, items: Iterable[Item], names: ToolNames) -> JsonObject:
    """Return the history as raw Responses items."""
    shown = list(items)
    functions = {item.call_id for item in shown if isinstance(item, FunctionCall) and not _is_free_form(item, names)}
    raw = [each for item in shown for each in as_called(raw_item(_like_its_call(item, functions), names))]
    return {"threadId": thread_id, "items": raw}


def _like_its_call(item: Item, functions: Container[str]) -> Item:
    """Return an item, or the output of a custom tool as that of the function as which its call is shown."""
    if isinstance(item, FunctionCallOutput) and item.custom and item.call_id in functions:
        return replace(item, custom=False, id=_id_of("fco", item))
    return item


def _is_free_form(call: FunctionCall, names: ToolNames) -> bool:
    """Tell whether a call is shown as one of a custom tool: those that are declared now are functions to the model."""
    return call.custom and not names.is_custom(tool_key(call.name, call.namespace))


def raw_item(item: Item, names: ToolNames) -> Json:
    """Return one item as the Responses API writes it."""
    raw: JsonObject
    match item:
        case Message():
            text_type = "output_text" if item.role == "assistant" else "input_text"
            content: list[Json] = [_raw_part(part, text_type=text_type) for part in item.parts]
            raw = {"type": "message", "role": item.role, "content": content, "id": item.id, "phase": item.phase}
        case Reasoning():
            summary: list[Json] = [{"type": "summary_text", "text": text} for text in item.summary]
            raw = {"type": "reasoning", "summary": summary, "id": item.id, "encrypted_content": item.encrypted}
            if item.content is not None:
                raw["content"] = [{"type": "reasoning_text", "text": text} for text in item.content]
        case FunctionCall():
            if _is_free_form(item, names):
                raw = {"type": "custom_tool_call", "call_id": item.call_id, "input": custom_input(item.arguments)}
                raw |= {"name": item.name, "namespace": item.namespace, "id": _id_of("ctc", item)}
            else:
                raw = {"type": "function_call", "call_id": item.call_id, "arguments": item.arguments}
                raw["id"] = _id_of("fc", item) if item.custom else item.id
                raw |= _function(item.name, item.namespace, names)
        case FunctionCallOutput():
            parts = item.output
            output: Json = (
                parts if isinstance(parts, str) else [_raw_part(part, text_type="input_text") for part in parts]
            )
            kind = "custom_tool_call_output" if item.custom else "function_call_output"
            raw = {"type": kind, "call_id": item.call_id, "output": output, "id": item.id}
            raw |= _function(item.name, item.namespace, names)
        case RawItem():
            return item.item
        case _:
            assert_never(item)
    return _present(raw)


def _raw_part(part: Part, *, text_type: str) -> Json:
    if isinstance(part, TextPart):
        return {"type": text_type, "text": part.text}
    image = image_of(part)
    return _present({"type": "input_image", "image_url": image.url, "detail": image.detail})


def _id_of(prefix: str, item: Item) -> str | None:
    """Return an item's id, if it is of the kind as which the item is shown: the provider refuses another one's."""
    return item.id if item.id is not None and item.id.startswith(prefix) else None


def _function(name: str | None, namespace: str | None, names: ToolNames) -> JsonObject:
    """Return the function that an item is about, by the names that the model knows."""
    if name is None:
        return {"namespace": namespace}
    renamed, renamed_namespace = names.call_to_codex(name, namespace)
    return {"name": renamed, "namespace": renamed_namespace}


def _present(fields: JsonObject) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not None}
