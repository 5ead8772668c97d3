"""A Responses request → `TurnRequest`."""

from collections.abc import Sequence

from msgspec import Struct

from turnbridge.api.responses import schema
from turnbridge.api.responses.stored_items import input_items, kind_of
from turnbridge.api.shared import parameters
from turnbridge.api.shared.body_budget import MOST_ITEMS
from turnbridge.api.shared.call_pairing import IN_INPUT, check_pairs
from turnbridge.api.shared.output_format import check_mentions_json, decode_format
from turnbridge.api.shared.parts import PartsDecoder
from turnbridge.api.shared.schema_budget import SchemaPlace, Schemas
from turnbridge.api.shared.tools import decode_tools
from turnbridge.api.shared.validation import (
    check_length,
    convert,
    missing,
    unknown_fields,
)
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
from turnbridge.turn.request import OutputFormat, PlainText, ThreadSpec, TurnRequest

ENCRYPTED_REASONING = "reasoning.encrypted_content"
# OpenAI accepts no smaller limit on this route.
LEAST_OUTPUT_TOKENS = 16

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "developer": "developer", "system": "developer"}

# Items that Codex takes as they are, and whose inside is none of our business.
RAW_ITEMS = frozenset({"custom_tool_call", "web_search_call", "image_generation_call"})

SHAPES: dict[str | None, type[Struct]] = {
    "message": schema.MessageItem,
    "reasoning": schema.ReasoningItem,
    "function_call": schema.FunctionCallItem,
    "function_call_output": schema.FunctionCallOutputItem,
    "custom_tool_call_output": schema.FunctionCallOutputItem,
}
# What answers have and no model is shown.
UNSHOWN = ("type", "status")
# The phases of a message that Codex takes.
PHASES = (NARRATION, "partial_answer", "final_answer")

UNSUPPORTED = {
    "prompt": "Stored prompts live at OpenAI; send the text itself.",
    "top_logprobs": "Codex gives no log probabilities.",
}
# Codex has no such wish on its own request, and the gateway cannot meet it instead. The default is what happens anyway.
UNMET: dict[str, Json] = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "max_tool_calls": None,
    "truncation": "disabled",
}


class DecodedResponses(Struct, frozen=True, kw_only=True):
    """A request, and what only its answer's envelope needs."""

    turn: TurnRequest
    body: schema.ResponsesRequest
    include_encrypted: bool
    uncompiled: tuple[SchemaPlace, ...]
    """The schemas that must be compiled before the turn is run, and may take long."""


def decode(body: JsonObject, history: Sequence[JsonObject] = ()) -> DecodedResponses:
    """Return what a body of `POST /v1/responses` asks for; `turn.spec.model` is the client's name for it.

    `history` is what its input continues.
    """
    request = convert(body, schema.ResponsesRequest)
    schemas = Schemas()
    return DecodedResponses(
        turn=_turn(body, request, history, schemas),
        body=request,
        include_encrypted=ENCRYPTED_REASONING in (request.include or []),
        uncompiled=tuple(schemas.uncompiled),
    )


def _turn(
    body: JsonObject, request: schema.ResponsesRequest, history: Sequence[JsonObject], schemas: Schemas
) -> TurnRequest:
    if not request.model:
        raise missing("model")
    parameters.refuse(body, UNSUPPORTED)
    parameters.check_stream_options(request.stream_options, stream=request.stream)
    parts = PartsDecoder()
    items = _conversation(history, request.input, parts)
    text, reasoning = request.text or schema.Text(), request.reasoning or schema.Reasoning()
    output = _format(text.format, schemas)
    check_mentions_json(output, items, request.instructions, param="input")
    tools = decode_tools(request.tools or [], request.tool_choice, schemas)
    if any("logprobs" in name for name in request.include or []):
        raise parameters.unsupported("include", "Codex gives no log probabilities.")
    summary = reasoning.summary or reasoning.generate_summary
    return TurnRequest(
        spec=ThreadSpec(
            model=request.model,
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
        ignored=_ignored(body, request, parts),
    )


def _ignored(body: JsonObject, request: schema.ResponsesRequest, parts: PartsDecoder) -> tuple[str, ...]:
    """Return what of the request nobody can meet."""
    return (
        *parameters.unmet(body, UNMET),
        *unknown_fields(body, schema.ResponsesRequest, reasoning=schema.Reasoning, text=schema.Text),
        *(f"stream_options.{name}" for name, wish in (request.stream_options or {}).items() if wish),
        *(f"include[{name}]" for name in request.include or [] if name != ENCRYPTED_REASONING),
        *_unmet_fields(request.input),
        *parts.ignored,
        *(() if request.service_tier in parameters.CARRIED_TIERS else ("service_tier",)),
    )


def _unmet_fields(given: str | list[JsonObject] | None) -> list[str]:
    """Return the fields of items that Codex does not carry, each once."""
    names = {
        f"input[].{name}": None
        for item in input_items(given)
        if (shape := SHAPES.get(kind_of(item))) is not None
        for name in unknown_fields(item, shape)
        if name not in UNSHOWN
    }
    return list(names)


def _format(wanted: JsonObject | None, schemas: Schemas) -> OutputFormat:
    if wanted is None:
        return PlainText()
    return decode_format(wanted, schemas, param="text.format", schema_param="text.format.schema")


def decode_items(items: Sequence[JsonObject], *, param: str = "history") -> tuple[Item, ...]:
    """Return items that stand, or are to stand, in a history; `param` is where errors say they are."""
    return _items(items, param, PartsDecoder())


def _conversation(
    history: Sequence[JsonObject], given: str | list[JsonObject] | None, parts: PartsDecoder
) -> tuple[Item, ...]:
    inputs = input_items(given)
    if not inputs and not history:
        raise missing("input")
    check_length((*history, *inputs), MOST_ITEMS, param="input")
    items = (*_items(history, "history", parts), *_items(inputs, "input", parts))
    check_pairs(items, IN_INPUT)
    return items


def _items(items: Sequence[JsonObject], param: str, parts: PartsDecoder) -> tuple[Item, ...]:
    return tuple(_item(item, f"{param}[{index}]", parts) for index, item in enumerate(items))


def _item(item: JsonObject, param: str, parts: PartsDecoder) -> Item:
    kind = kind_of(item)
    match kind:
        case "message":
            return _message(convert(item, schema.MessageItem, param=param), param, parts)
        case "reasoning":
            return _reasoning(convert(item, schema.ReasoningItem, param=param), param, parts)
        case "function_call":
            call = convert(item, schema.FunctionCallItem, param=param)
            return FunctionCall(
                call_id=call.call_id,
                name=call.name,
                arguments=call.arguments,
                namespace=call.namespace,
                id=call.id,
            )
        case "function_call_output" | "custom_tool_call_output":
            answer = convert(item, schema.FunctionCallOutputItem, param=param)
            given = answer.output
            output = given if isinstance(given, str) else parts.decode(given, param=f"{param}.output")
            return FunctionCallOutput(
                call_id=answer.call_id,
                output=output,
                custom=kind == "custom_tool_call_output",
                name=answer.name,
                namespace=answer.namespace,
                id=answer.id,
            )
        case str() if kind in RAW_ITEMS:
            return _raw(item, param)
        case _:
            raise InvalidRequest(
                f"Items of type '{kind}' cannot be carried to Codex.", code="unsupported_item", param=f"{param}.type"
            )


def _reasoning(thought: schema.ReasoningItem, param: str, parts: PartsDecoder) -> Reasoning:
    parts.count(len(thought.summary) + len(thought.content or ()), param=param)
    return Reasoning(
        id=thought.id,
        summary=tuple(piece.text for piece in thought.summary),
        content=tuple(piece.text for piece in thought.content) if thought.content else None,
        encrypted=thought.encrypted_content,
    )


def _raw(item: JsonObject, param: str) -> RawItem:
    problem = unreadable(item)
    if problem is not None:
        raise InvalidRequest(f"Invalid value for '{param}': {problem}.", code="invalid_value", param=param)
    return RawItem(item=item)


def _message(message: schema.MessageItem, param: str, parts: PartsDecoder) -> Message:
    parameters.one_of(message.role, tuple(ROLES), param=f"{param}.role")
    parameters.one_of(message.phase, PHASES, param=f"{param}.phase")
    content = parts.decode(message.content, param=f"{param}.content")
    return Message(role=ROLES[message.role], parts=content, phase=message.phase, id=message.id)
