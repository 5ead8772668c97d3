"""A Responses request → `TurnRequest`."""

from collections.abc import Sequence

from msgspec import Struct

from turnbridge.api.responses import schema
from turnbridge.api.responses.stored_items import item_type
from turnbridge.api.shared import parameters
from turnbridge.api.shared.body_budget import MAX_ITEMS
from turnbridge.api.shared.history_checks import IN_INPUT, check_mentions_json, check_pairs
from turnbridge.api.shared.output_format import decode_format
from turnbridge.api.shared.parts import PartsDecoder
from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.tools import decode_tools
from turnbridge.api.shared.validation import check_length, convert, missing, unknown_fields
from turnbridge.turn.errors import InvalidRequest
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
)
from turnbridge.turn.json_schema import unreadable
from turnbridge.turn.request import ThreadSpec, TurnRequest

ENCRYPTED_REASONING = "reasoning.encrypted_content"
# OpenAI accepts no smaller limit on this route.
LEAST_OUTPUT_TOKENS = 16

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "developer": "developer", "system": "developer"}

# Items that are passed on to Codex unread.
RAW_ITEMS = frozenset({"custom_tool_call", "web_search_call", "image_generation_call"})

SHAPES: dict[str | None, type[Struct]] = {
    "message": schema.MessageItem,
    "reasoning": schema.ReasoningItem,
    "function_call": FunctionCall,
    "function_call_output": schema.FunctionCallOutputItem,
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
    "max_tool_calls": None,
    "truncation": "disabled",
}


class DecodedResponses(Struct, frozen=True, kw_only=True):
    """A decoded request, and the parameters that its answer repeats."""

    turn: TurnRequest
    body: schema.ResponsesRequest
    include_encrypted: bool
    uncompiled: tuple[SchemaPlace, ...]
    """The schemas that must be compiled before the turn runs, which may take long."""


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
) -> DecodedResponses:
    """Return what a request asks for; `turn.spec.model` is still the client's name for it.

    `inputs` is its input with all references resolved, and `history` what that continues.
    """
    if not request.model:
        raise missing("model")
    parameters.refuse(request, UNSUPPORTED)
    parameters.check_stream_options(request.stream_options, stream=request.stream)
    parts, schemas = PartsDecoder(), SchemaChecker()
    items = _conversation(history, inputs, parts)
    ignored = (
        *parameters.ignored(request, IGNORED),
        *unknown,
        *(f"stream_options.{name}" for name, value in (request.stream_options or {}).items() if value),
        *(f"include[{name}]" for name in request.include or [] if name != ENCRYPTED_REASONING),
        *_unknown_item_fields(inputs),
        *parts.ignored,
        *(() if request.service_tier in parameters.CARRIED_TIERS else ("service_tier",)),
    )
    return DecodedResponses(
        turn=_turn(request, request.model, items, ignored, schemas),
        body=request,
        include_encrypted=ENCRYPTED_REASONING in (request.include or []),
        uncompiled=tuple(schemas.uncompiled),
    )


def _turn(
    request: schema.ResponsesRequest,
    model: str,
    items: tuple[Item, ...],
    ignored: tuple[str, ...],
    schemas: SchemaChecker,
) -> TurnRequest:
    text, reasoning = request.text or schema.Text(), request.reasoning or schema.Reasoning()
    output = decode_format(text.format, schemas, param="text.format")
    check_mentions_json(output, items, request.instructions, param="input")
    tools = decode_tools(request.tools, request.tool_choice, schemas)
    if any("logprobs" in name for name in request.include or []):
        raise parameters.unsupported("include", "Codex gives no log probabilities.")
    summary = reasoning.summary or reasoning.generate_summary
    return TurnRequest(
        spec=ThreadSpec(
            model=model,
            instructions=request.instructions,
            tools=tools.tools,
            web_search=tools.web_search,
            effort=reasoning.effort,
            summary=parameters.one_of(summary, parameters.SUMMARIES, param="reasoning.summary"),
            verbosity=parameters.one_of(text.verbosity, parameters.VERBOSITIES, param="text.verbosity"),
            service_tier=parameters.CARRIED_TIERS.get(request.service_tier),
            output=output,
            allow_truncation=parameters.one_of(request.truncation, ("auto", "disabled"), param="truncation") == "auto",
        ),
        items=items,
        must_call=tools.must_call,
        parallel_calls=request.parallel_tool_calls is not False,
        stop=parameters.stop_sequences(request.stop),
        max_output_tokens=parameters.at_least(
            request.max_output_tokens, LEAST_OUTPUT_TOKENS, param="max_output_tokens"
        ),
        metadata=parameters.carried_metadata(request.metadata, request.user, request.safety_identifier),
        streamed=bool(request.stream),
        ignored=ignored,
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


def decode_items(items: Sequence[JsonObject], *, param: str = "history") -> tuple[Item, ...]:
    """Return the items of a history; `param` is their place in errors."""
    return _items(items, param, PartsDecoder())


def _conversation(history: Sequence[JsonObject], inputs: Sequence[JsonObject], parts: PartsDecoder) -> tuple[Item, ...]:
    if not inputs and not history:
        raise missing("input")
    check_length((*history, *inputs), MAX_ITEMS, param="input")
    items = (*_items(history, "history", parts), *_items(inputs, "input", parts))
    check_pairs(items, IN_INPUT)
    return items


def _items(items: Sequence[JsonObject], param: str, parts: PartsDecoder) -> tuple[Item, ...]:
    return tuple(_item(item, f"{param}[{index}]", parts) for index, item in enumerate(items))


def _item(item: JsonObject, param: str, parts: PartsDecoder) -> Item:
    kind = item_type(item)
    match kind:
        case "message":
            return _message(convert(item, schema.MessageItem, param=param), param, parts)
        case "reasoning":
            return _reasoning(convert(item, schema.ReasoningItem, param=param), param, parts)
        case "function_call":
            return convert(item, FunctionCall, param=param)
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
        case str() if kind in RAW_ITEMS:
            if (problem := unreadable(item)) is not None:
                raise InvalidRequest(f"Invalid value for '{param}': {problem}.", code="invalid_value", param=param)
            return RawItem(item=item)
        case _:
            message = f"Items of type '{kind}' cannot be carried to Codex."
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
    parameters.one_of(given.role, tuple(ROLES), param=f"{param}.role")
    parameters.one_of(given.phase, PHASES, param=f"{param}.phase")
    content = parts.decode(given.content, param=f"{param}.content")
    return Message(role=ROLES[given.role], parts=content, phase=given.phase, id=given.id)
