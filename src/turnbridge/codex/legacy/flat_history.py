"""Histories as one user input of text and images, for versions of Codex that cannot inject items."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from turnbridge.codex.legacy.tool_blocks import render_call, render_output, tagless_json
from turnbridge.codex.protocol.encode import NO_WINDOW, SWITCHED_OFF, thread_config
from turnbridge.codex.protocol.tools import RESERVED_NAMES, ToolNames
from turnbridge.turn.errors import InternalFault
from turnbridge.turn.items import (
    BETWEEN_MESSAGES,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    JsonObject,
    Message,
    Part,
    RawItem,
    Reasoning,
    TextPart,
)
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace

PREAMBLE = (
    "Below is a conversation, oldest first: each message is a <turn> with its role; calls of tools and their outputs "
    'stand between the turns. Where a message itself has such a tag, the tag has a backslash after its "<". '
    "Go on as the assistant: write only its next message, without a <turn> around it."
)

# What could be taken for a tag of ours, also by a reader who is less exact than a parser.
TAG = re.compile(r"<(?=\\*\s*/?\s*(?:turn|raw_item|tool_call|tool_output)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatHistory:
    """A history in two pieces."""

    developer: tuple[str, ...]
    """What the developer said, one text for each message."""
    parts: tuple[Part, ...]
    """What is sent as the user's: texts and images."""


def flatten(items: Sequence[Item]) -> FlatHistory:
    """Return a history as the texts and images of one user input."""
    developer = tuple(_text(item) for item in items if _is_instruction(item))
    said = [item for item in items if not _is_instruction(item) and not isinstance(item, Reasoning)]
    match said:
        case []:
            # Codex would not ask the model anything.
            return FlatHistory(developer=(), parts=_transcript(items))
        case [Message(role="user") as only] if not _text(only).startswith(PREAMBLE):
            return FlatHistory(developer=developer, parts=only.parts or (TextPart(text=""),))
        case _:
            return FlatHistory(developer=developer, parts=_transcript(said))


def flatten_outputs(outputs: Sequence[FunctionCallOutput], names: dict[str, str]) -> tuple[Part, ...]:
    """Return outputs alone, for a conversation that holds their calls; `names` has the function of each call."""
    return _joined([part for output in outputs for part in _output(output, names)])


def _is_instruction(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "developer" and not any(map(_is_image, item.parts))


def _transcript(items: Sequence[Item]) -> tuple[Part, ...]:
    return _joined([TextPart(text=PREAMBLE), *_blocks(items)])


def _blocks(items: Sequence[Item]) -> Iterable[Part]:
    names: dict[str, str] = {}
    for item in items:
        match item:
            case Message():
                yield from _turn(item)
            case FunctionCall():
                names[item.call_id] = item.name
                yield TextPart(text=render_call(item.call_id, item.name, item.arguments, item.namespace))
            case FunctionCallOutput():
                yield from _output(item, names)
            case RawItem():
                yield TextPart(text=f"<raw_item>{tagless_json(item.item)}</raw_item>")
            case Reasoning():
                pass
            case _:
                assert_never(item)


def _turn(message: Message) -> Iterable[Part]:
    yield TextPart(text=f'<turn role="{message.role}">')
    # Joined first: a tag may be cut in two by where one text ends and the next begins.
    for part in _joined(message.parts):
        yield TextPart(text=TAG.sub(r"<\\", part.text)) if isinstance(part, TextPart) else part
    yield TextPart(text="</turn>")


def _output(output: FunctionCallOutput, names: dict[str, str]) -> Iterable[Part]:
    """Yield an output; its images follow it."""
    parts: tuple[Part, ...] = (TextPart(text=output.output),) if isinstance(output.output, str) else output.output
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    yield TextPart(text=render_output(output.call_id, names.get(output.call_id, ""), text))
    yield from filter(_is_image, parts)


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Put texts that follow one another into one, each on its own lines."""
    joined: list[Part] = []
    for part in parts:
        match part:
            case TextPart():
                last = joined[-1] if joined else None
                if isinstance(last, TextPart):
                    joined[-1] = TextPart(text=f"{last.text}\n{part.text}")
                else:
                    joined.append(part)
            case ImagePart():
                joined.append(part)
            case FilePart():
                raise InternalFault("A file reached Codex without having been turned into text.")
            case _:
                assert_never(part)
    return tuple(joined)


def _is_image(part: Part) -> bool:
    return isinstance(part, ImagePart)


def _text(message: Item) -> str:
    parts = message.parts if isinstance(message, Message) else ()
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


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
    return ToolNames((tool.name for tool in request.spec.tools), reserved=RESERVED_NAMES | frozenset(BUILT_IN))


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
