"""A Responses request → `TurnRequest`: its items and the references in it, its parameters."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

from msgspec import Struct

from turnbridge.api.responses import schema
from turnbridge.api.responses.call_items import (
    custom_call,
    function_call,
    is_clients_search,
    search_call,
    search_output,
)
from turnbridge.api.responses.mcp_items import McpHistory, is_of_mcp, was_together
from turnbridge.api.shared import parameters
from turnbridge.api.shared.body_budget import MAX_ITEMS
from turnbridge.api.shared.history import IN_INPUT, PartsDecoder, check_pairs
from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.tools import OF_RESPONSES, decode_tools
from turnbridge.api.shared.validation import check_length, convert, empty_array, missing, one_of, unknown_fields, within
from turnbridge.turn.errors import InvalidRequest, NotFound
from turnbridge.turn.items import (
    NARRATION,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Json,
    JsonObject,
    Message,
    RawItem,
    Reasoning,
    Role,
    TextPart,
    replace,
)
from turnbridge.turn.json_schema import unreadable
from turnbridge.turn.request import ThreadSpec, TurnRequest

REFERENCE = "item_reference"
ENCRYPTED = "encrypted_content"
ENCRYPTED_REASONING = "reasoning.encrypted_content"
# OpenAI accepts no smaller limit on this route.
LEAST_OUTPUT_TOKENS = 16

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "developer": "developer", "system": "developer"}

# Items that are passed on to Codex unread.
RAW_ITEMS = frozenset({"compaction", "image_generation_call", "local_shell_call", "web_search_call"})
# Those of a search for tools that the provider ran, and of one that the client ran itself.
TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT = "tool_search_call", "tool_search_output"
ADDITIONAL_TOOLS = "additional_tools"
# Items that Codex drops, and what to send instead.
INSTEAD = {"local_shell_call_output": " Send a 'function_call_output' with its 'call_id'."}

SHAPES: dict[str | None, type[Struct]] = {
    "message": schema.MessageItem,
    "reasoning": schema.ReasoningItem,
    "function_call": schema.FunctionCallItem,
    "function_call_output": schema.FunctionCallOutputItem,
    "custom_tool_call": schema.CustomCallItem,
    "custom_tool_call_output": schema.FunctionCallOutputItem,
}
# Fields of answers that no model is shown.
UNSHOWN = ("type", "status")
# The phases of a message that Codex accepts.
PHASES = (NARRATION, "partial_answer", "final_answer")

UNSUPPORTED = {
    "prompt": "Stored prompts live at OpenAI; send the text itself.",
    "top_logprobs": "Codex gives no log probabilities.",
}
# Parameters that neither Codex nor the gateway can honour. The default is what happens anyway.
IGNORED: dict[str, Json] = {
    **parameters.SAMPLING,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "truncation": "disabled",
}

Placed: TypeAlias = tuple[str, JsonObject]
"""An item, and its place in the request, for errors."""


class DecodedResponses(Struct, frozen=True, kw_only=True):
    """A decoded request, and the parameters that its answer repeats."""

    turn: TurnRequest
    body: schema.ResponsesRequest
    include_encrypted: bool
    uncompiled: tuple[SchemaPlace, ...]
    """The schemas that must be compiled before the turn runs, which may take long."""


def item_type(item: JsonObject) -> str | None:
    """Return the type of an item; it is optional in messages and references."""
    kind = item.get("type")
    if kind is not None:
        return kind if isinstance(kind, str) else None
    if "role" in item:
        return "message"
    return REFERENCE if set(item) <= {"id", "type"} and "id" in item else None


def parse(body: JsonObject) -> tuple[schema.ResponsesRequest, list[str]]:
    """Return a body of `POST /v1/responses` as it was sent, and the names in it that are unknown."""
    request = convert(body, schema.ResponsesRequest)
    if isinstance(request.input, list):
        check_length(request.input, MAX_ITEMS, param="input")
    if request.previous_response_id and request.conversation:
        raise InvalidRequest(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Send one of them.",
            code="mutually_exclusive_parameters",
            param="conversation",
        )
    if request.background and request.store is False:
        message = "A background response must be kept: `background` and `store: false` do not go together."
        raise InvalidRequest(message, code="invalid_value", param="store")
    return request, unknown_fields(body, schema.ResponsesRequest, reasoning=schema.Reasoning, text=schema.Text)


def decode(
    request: schema.ResponsesRequest,
    unknown: Sequence[str],
    inputs: Sequence[JsonObject],
    history: Sequence[JsonObject],
    *,
    shown: Sequence[Placed] | None = None,
    needs_input: bool = True,
) -> DecodedResponses:
    """Return what a request asks for; `turn.spec.model` is still the client's name for it.

    `inputs` is its input with all references resolved, and `history` what that continues. Both may be empty
    if the request needs no input. `shown` is what the model sees of them, if that is something else.
    """
    # A stored prompt has a model of its own, so that a request with one often names none.
    parameters.refuse(request, UNSUPPORTED)
    if not request.model:
        raise missing("model")
    parameters.check_stream_options(request.stream_options, stream=request.stream)
    parts, schemas = PartsDecoder(), SchemaChecker()
    if needs_input and not inputs and not history:
        raise missing("input") if request.input is None else empty_array("input")
    if shown is None:
        shown = [*placed(history, "history"), *placed(inputs, "input")]
    check_length(shown, MAX_ITEMS, param="input")
    mcp = McpHistory.of(shown)
    items = _decode_placed(shown, parts, mcp)
    check_pairs(items, IN_INPUT)
    ignored = (
        *parameters.ignored(request, IGNORED),
        *unknown,
        *(f"stream_options.{name}" for name, value in (request.stream_options or {}).items() if value),
        *(f"include[{name}]" for name in request.include or [] if name != ENCRYPTED_REASONING),
        *_unknown_item_fields(inputs),
        *parts.ignored,
        *(() if request.service_tier in parameters.CARRIED_TIERS else ("service_tier",)),
    )
    turn = _turn(request, request.model, items, ignored, schemas, _tools_in(history, inputs))
    return DecodedResponses(
        turn=_with_servers(turn, mcp, within(request.max_tool_calls, 1, param="max_tool_calls")),
        body=request,
        include_encrypted=ENCRYPTED_REASONING in (request.include or []),
        uncompiled=tuple(schemas.uncompiled),
    )


def _with_servers(turn: TurnRequest, mcp: McpHistory, most_calls: int | None) -> TurnRequest:
    """Return a turn with what its history says of its servers; only their calls are counted."""
    if not turn.spec.servers and most_calls is not None:
        turn = replace(turn, ignored=(*turn.ignored, "max_tool_calls"))
    labels = {server.label for server in turn.spec.servers}
    for call in mcp.approved:
        if call.label not in labels:
            message = f"The approved call needs the MCP server '{call.label[:64]}' among the tools of this request."
            raise InvalidRequest(message, code="invalid_value", param="tools")
    listed = {label: tools for label, tools in mcp.listed.items() if label in labels}
    most_calls = most_calls if labels else None
    return replace(turn, listed=listed, approved=tuple(mcp.approved), max_tool_calls=most_calls)


def input_items(given: str | list[JsonObject] | None) -> list[JsonObject]:
    """Return an input as items."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given or []


def ids_to_look_up(items: Sequence[JsonObject]) -> list[str]:
    """Return the ids of references, and of reasoning items without their encrypted content."""
    return [
        item_id
        for item in items
        if isinstance(item_id := item.get("id"), str) and (item_type(item) == REFERENCE or _lacks_content(item))
    ]


def resolve_references(
    items: Sequence[JsonObject], found: Mapping[str, JsonObject], *, param: str = "input"
) -> list[JsonObject]:
    """Return items with their references resolved from what was found; `param` is their place in errors."""
    whole: list[JsonObject] = []
    for index, item in enumerate(items):
        if item_type(item) != REFERENCE:
            whole.append(with_content(item, found) if _lacks_content(item) else item)
        elif (known := found.get(str(item.get("id")))) is not None:
            whole.append(known)
        else:
            raise NotFound(
                f"Item with id '{item.get('id')}' not found. Items are not kept when `store` is false: "
                "send the item itself, or leave it out.",
                code="item_not_found",
                param=f"{param}[{index}]",
            )
    return whole


def _lacks_content(item: JsonObject) -> bool:
    return item_type(item) == "reasoning" and not item.get(ENCRYPTED)


def with_content(item: JsonObject, stored: Mapping[str, JsonObject]) -> JsonObject:
    """Return an item with the encrypted content that was stored for it, if any."""
    content = stored.get(str(item.get("id")), {}).get(ENCRYPTED)
    return {**item, ENCRYPTED: content} if content else item


def _turn(
    request: schema.ResponsesRequest,
    model: str,
    items: tuple[Item, ...],
    ignored: tuple[str, ...],
    schemas: SchemaChecker,
    found: Mapping[str, Sequence[JsonObject]],
) -> TurnRequest:
    text, reasoning = request.text or schema.Text(), request.reasoning or schema.Reasoning()
    output = parameters.decode_format(text.format, schemas, param="text.format")
    parameters.check_mentions_json(output, items, request.instructions, param="input")
    tools = decode_tools(request.tools, request.tool_choice, schemas, also=OF_RESPONSES, strict=True, found=found)
    if any("logprobs" in name for name in request.include or []):
        raise parameters.unsupported("include", "Codex gives no log probabilities.")
    summary = reasoning.summary or reasoning.generate_summary
    return TurnRequest(
        spec=ThreadSpec(
            model=model,
            instructions=request.instructions,
            tools=tools.tools,
            web_search=tools.web_search,
            image_generation=tools.image_generation,
            servers=tools.servers,
            effort=reasoning.effort,
            summary=one_of(summary, parameters.SUMMARIES, param="reasoning.summary"),
            verbosity=one_of(text.verbosity, parameters.VERBOSITIES, param="text.verbosity"),
            service_tier=parameters.CARRIED_TIERS.get(request.service_tier),
            output=output,
            allow_truncation=one_of(request.truncation, ("auto", "disabled"), param="truncation") == "auto",
        ),
        items=items,
        must_call=tools.must_call,
        parallel_calls=request.parallel_tool_calls is not False,
        stop=parameters.stop_sequences(request.stop),
        max_output_tokens=within(request.max_output_tokens, LEAST_OUTPUT_TOKENS, param="max_output_tokens"),
        metadata=parameters.carried_metadata(request),
        streamed=bool(request.stream),
        ignored=(*ignored, *tools.ignored),
    )


def _unknown_item_fields(items: Sequence[JsonObject]) -> dict[str, None]:
    """Return the fields of items that Codex does not carry, each once."""
    return {
        f"input[].{name}": None
        for item in items
        if (shape := SHAPES.get(item_type(item))) is not None
        for name in unknown_fields(item, shape)
        if name not in UNSHOWN
    }


def placed(items: Sequence[JsonObject], param: str) -> list[Placed]:
    """Return items with their places in a request."""
    return [(f"{param}[{index}]", item) for index, item in enumerate(items)]


def decode_items(items: Sequence[JsonObject], *, param: str = "history") -> tuple[Item, ...]:
    """Return the items of a history; `param` is their place in errors."""
    given = placed(items, param)
    return _decode_placed(given, PartsDecoder(), McpHistory.of(given))


def _decode_placed(given: Sequence[Placed], parts: PartsDecoder, mcp: McpHistory) -> tuple[Item, ...]:
    """Return the items of a history; `mcp` is what the whole of it says of MCP servers."""
    decoded: list[Item] = []
    outputs: list[Item] = []
    for place, item in given:
        kind = item_type(item)
        if outputs and not was_together(item):
            decoded += outputs
            outputs = []
        if is_of_mcp(kind):
            call, output = mcp.items(item, place)
            decoded += [call] if call is not None else []
            outputs += [parts.counted(output, place)] if output is not None else []
        elif kind != ADDITIONAL_TOOLS:
            # Additional tools are declared like any other.
            decoded.append(_item(item, place, parts))
    return (*decoded, *outputs)


def _tools_in(history: Sequence[JsonObject], inputs: Sequence[JsonObject]) -> dict[str, list[JsonObject]]:
    """Return the tools that items bring, by their place: those that a client adds, and those that it found."""
    return {
        f"{place}[{index}].tools": convert(item, schema.AdditionalToolsItem, param=f"{place}[{index}]").tools
        for place, items in (("history", history), ("input", inputs))
        for index, item in enumerate(items)
        if (kind := item_type(item)) == ADDITIONAL_TOOLS or (kind == TOOL_SEARCH_OUTPUT and is_clients_search(item))
    }


def encode_items(items: Sequence[Item]) -> list[JsonObject]:
    """Return what was said in a turn, by the model and by the gateway, as `decode_items` reads it."""
    return [_object(item) for item in items]


def _object(item: Item) -> JsonObject:
    match item:
        case Message():
            parts: list[Json] = [
                {"type": "output_text", "text": part.text} for part in item.parts if isinstance(part, TextPart)
            ]
            return {"type": "message", "role": item.role, "content": parts, "phase": item.phase, "id": item.id}
        case Reasoning():
            summary: list[Json] = [{"type": "summary_text", "text": text} for text in item.summary]
            content: list[Json] = [{"type": "reasoning_text", "text": text} for text in item.content or ()]
            shown: JsonObject = {"type": "reasoning", "id": item.id, "summary": summary, ENCRYPTED: item.encrypted}
            return {**shown, "content": content} if content else shown
        case FunctionCall():
            named: JsonObject = {"type": "function_call", "id": item.id, "call_id": item.call_id, "name": item.name}
            return {**named, "namespace": item.namespace, "arguments": item.arguments}
        case RawItem():
            return item.item
        case FunctionCallOutput(call_id=call_id, output=str(output)):
            return {"type": "function_call_output", "call_id": call_id, "output": output}
        case FunctionCallOutput():
            raise AssertionError("The gateway's own outputs are texts.")
        case _:
            assert_never(item)


def _item(item: JsonObject, param: str, parts: PartsDecoder) -> Item:
    kind = item_type(item)
    match kind:
        case "message":
            return _message(convert(item, schema.MessageItem, param=param), param, parts)
        case "reasoning":
            return _reasoning(convert(item, schema.ReasoningItem, param=param), param, parts)
        case "function_call":
            return function_call(convert(item, schema.FunctionCallItem, param=param))
        case "custom_tool_call":
            return custom_call(convert(item, schema.CustomCallItem, param=param))
        case "tool_search_call" if is_clients_search(item):
            return search_call(convert(item, schema.ToolSearchCallItem, param=param))
        case "tool_search_output" if is_clients_search(item):
            return search_output(convert(item, schema.ToolSearchOutputItem, param=param))
        case "function_call_output" | "custom_tool_call_output":
            given = convert(item, schema.FunctionCallOutputItem, param=param)
            output = given.output
            return FunctionCallOutput(
                call_id=given.call_id,
                output=output if isinstance(output, str) else parts.decode(output, param=f"{param}.output"),
                custom=kind == "custom_tool_call_output",
                name=given.name,
                namespace=given.namespace,
                id=given.id,
            )
        case str() if kind in RAW_ITEMS or kind in (TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT):
            if (problem := unreadable(item)) is not None:
                raise InvalidRequest(f"Invalid value for '{param}': {problem}.", code="invalid_value", param=param)
            return RawItem(item=item)
        case _:
            message = f"Items of type '{kind}' cannot be carried to Codex.{INSTEAD.get(kind or '', '')}"
            raise InvalidRequest(message, code="unsupported_item", param=f"{param}.type")


def _reasoning(given: schema.ReasoningItem, param: str, parts: PartsDecoder) -> Reasoning:
    parts.count(len(given.summary) + len(given.content or ()), param=param)
    return Reasoning(
        id=given.id,
        summary=tuple(part.text for part in given.summary),
        content=tuple(part.text for part in given.content) if given.content else None,
        encrypted=given.encrypted_content,
    )


def _message(given: schema.MessageItem, param: str, parts: PartsDecoder) -> Message:
    one_of(given.role, tuple(ROLES), param=f"{param}.role")
    one_of(given.phase, PHASES, param=f"{param}.phase")
    content = parts.decode(given.content, param=f"{param}.content")
    return Message(role=ROLES[given.role], parts=content, phase=given.phase, id=given.id)
