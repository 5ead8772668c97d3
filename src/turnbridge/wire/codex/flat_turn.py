"""What all dialects without injection share: the settings of a thread, and the texts that go with a flat history.

They cannot all be kept from adding something of their own: 0.92 tells the model about a sandbox and a working
directory, and offers it a plan, a patch tool, an image viewer and MCP resources.
"""

from collections.abc import Iterable, Sequence

from turnbridge.turn.items import BETWEEN_MESSAGES, FunctionCall, FunctionCallOutput, Item, JsonObject, Part
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace
from turnbridge.wire.codex.encode import NO_WINDOW, SWITCHED_OFF, thread_config
from turnbridge.wire.codex.tools import RESERVED_NAMES, ToolNames
from turnbridge.wire.flat_history import FlatHistory, flatten, flatten_outputs

# What the switches were called, or what had to be switched off, before.
SWITCHED_OFF_EARLIER = (
    "apply_patch_freeform",
    "child_agents_md",
    "collab",
    "collaboration_modes",
    "connectors",
    "shell_snapshot",
    "unified_exec",
)

# Without a catalogue of ours, a model has the verbosity that Codex's own names; this is the provider's.
USUAL_VERBOSITY = "medium"

# Tools that stay whatever one does. A client's function of the same name would be a second one to the provider.
BUILT_IN = (
    "apply_patch",
    "list_mcp_resource_templates",
    "list_mcp_resources",
    "read_mcp_resource",
    "request_user_input",
    "update_plan",
    "view_image",
)

NO_WORKSPACE = (
    "You are used through an API, by a program on another machine. There is no project, file or shell here: never "
    f"call {', '.join(BUILT_IN[:-1])} or {BUILT_IN[-1]}, and pay no attention to notes about a sandbox, approvals "
    "or a working directory."
)


def tool_names(request: TurnRequest) -> ToolNames:
    """Return names for the client's functions that no tool of Codex's has."""
    return ToolNames((tool.name for tool in request.tools), reserved=RESERVED_NAMES | frozenset(BUILT_IN))


def flat_config(request: TurnRequest, *, logged_in: bool) -> JsonObject:
    """Return the settings of a thread, in the words of every version; each passes over those that it does not know."""
    features: JsonObject = dict.fromkeys((*SWITCHED_OFF, *SWITCHED_OFF_EARLIER), False)
    # Before each thread the oldest ask OpenAI for its models, and try for seconds; without a login it is in vain.
    features["remote_models"] = logged_in
    return {
        "model_verbosity": USUAL_VERBOSITY,
        **thread_config(request),
        "features": features,
        "model_context_window": NO_WINDOW,
        "model_auto_compact_token_limit": NO_WINDOW,
    }


def flat_history(items: Sequence[Item], names: ToolNames | None = None) -> FlatHistory:
    """Return a history in which functions have the names that the model knows."""
    return flatten(items if names is None else [_renamed(item, names) for item in items])


def flat_outputs(outputs: Sequence[FunctionCallOutput], called: dict[str, str]) -> tuple[Part, ...]:
    """Return outputs for a conversation that holds their calls; `called` has the function of each."""
    return flatten_outputs(outputs, called)


def developer_instructions(texts: Iterable[str]) -> str:
    """Return what the developer says, as one text."""
    return BETWEEN_MESSAGES.join(filter(None, texts))


def _renamed(item: Item, names: ToolNames) -> Item:
    return replace(item, name=names.to_codex(item.name)) if isinstance(item, FunctionCall) else item
