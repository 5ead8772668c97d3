"""A Responses request → `TurnRequest`."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
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
)
from turnbridge.turn.request import OutputFormat, PlainText, TurnRequest
from turnbridge.wire import parameters
from turnbridge.wire.codex_json import unreadable
from turnbridge.wire.output_format import check_mentions_json, decode_format
from turnbridge.wire.pairing import IN_INPUT, check_pairs
from turnbridge.wire.parts import PartsDecoder
from turnbridge.wire.responses import schema
from turnbridge.wire.responses.stored import kind_of
from turnbridge.wire.tools import decode_tools
from turnbridge.wire.validation import convert, missing, unknown_fields

ENCRYPTED_REASONING = "reasoning.encrypted_content"
# OpenAI accepts no smaller limit on this route.
LEAST_OUTPUT_TOKENS = 16

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "developer": "developer", "system": "developer"}

# Items that Codex takes as they are, and whose inside is none of our business.
RAW_ITEMS = frozenset({"custom_tool_call", "web_search_call", "image_generation_call"})

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


def decode(body: JsonObject, history: Sequence[JsonObject] = ()) -> DecodedResponses:
    """Return what a body of `POST /v1/responses` asks for; `turn.model` is still the client's name for it.

    `history` is what its input continues.
    """
    request = convert(body, schema.ResponsesRequest)
    if not request.model:
        raise missing("model")
    parameters.refuse(body, UNSUPPORTED)
    parts = PartsDecoder()
    items = (*_decoded(history, "history", parts), *_items(request.input, parts, needed=not history))
    check_pairs(items, IN_INPUT)
    output = _format(request)
    check_mentions_json(output, items, request.instructions, param="input")
    tools = decode_tools(request.tools or [], request.tool_choice)
    include = request.include or []
    if any("logprobs" in name for name in include):
        parameters.refuse({"include": True}, {"include": "Codex gives no log probabilities."})
    tier, tier_met = parameters.carried_tier(request.service_tier)
    reasoning = request.reasoning or schema.Reasoning()
    summary = parameters.one_of(
        reasoning.summary or reasoning.generate_summary, parameters.SUMMARIES, param="reasoning.summary"
    )
    turn = TurnRequest(
        model=request.model,
        items=items,
        instructions=request.instructions,
        effort=reasoning.effort,
        summary=summary,
        verbosity=parameters.one_of(
            request.text.verbosity if request.text else None, parameters.VERBOSITIES, param="text.verbosity"
        ),
        service_tier=tier,
        output=output,
        tools=tools.tools,
        must_call=tools.must_call,
        parallel_calls=request.parallel_tool_calls is not False,
        web_search=tools.web_search,
        stop=parameters.stop_sequences(request.stop),
        max_output_tokens=parameters.at_least(
            request.max_output_tokens, LEAST_OUTPUT_TOKENS, param="max_output_tokens"
        ),
        allow_truncation=parameters.one_of(request.truncation, ("auto", "disabled"), param="truncation") == "auto",
        metadata=parameters.carried_metadata(
            parameters.check_metadata(request.metadata),
            user=request.user,
            safety_identifier=request.safety_identifier,
        ),
        streamed=bool(request.stream),
        ignored=_ignored(body, request, parts, tier_met=tier_met),
    )
    return DecodedResponses(turn=turn, body=request, include_encrypted=ENCRYPTED_REASONING in include)


def _ignored(
    body: JsonObject, request: schema.ResponsesRequest, parts: PartsDecoder, *, tier_met: bool
) -> tuple[str, ...]:
    """Return what of the request nobody can meet."""
    return (
        *parameters.unmet(body, UNMET),
        *unknown_fields(body, schema.ResponsesRequest, reasoning=schema.Reasoning, text=schema.Text),
        *(f"stream_options.{name}" for name, wish in (request.stream_options or {}).items() if wish),
        *(f"include[{name}]" for name in request.include or [] if name != ENCRYPTED_REASONING),
        *parts.ignored,
        *(() if tier_met else ("service_tier",)),
    )


def _format(request: schema.ResponsesRequest) -> OutputFormat:
    if request.text is None or request.text.format is None:
        return PlainText()
    return decode_format(request.text.format, param="text.format", schema_param="text.format.schema")


def decode_items(items: Sequence[JsonObject], *, param: str = "history") -> tuple[Item, ...]:
    """Return items that stand, or are to stand, in a history; `param` is where errors say they are."""
    return tuple(_decoded(items, param, PartsDecoder()))


def _decoded(items: Sequence[JsonObject], param: str, parts: PartsDecoder) -> Iterator[Item]:
    for index, item in enumerate(items):
        yield _item(item, f"{param}[{index}]", parts)


def _items(given: str | list[JsonObject] | None, parts: PartsDecoder, *, needed: bool) -> tuple[Item, ...]:
    if isinstance(given, str):
        return (Message(role="user", parts=(TextPart(text=given),)),)
    if not given and not needed:
        return ()
    if not given:
        raise missing("input")
    return tuple(_decoded(given, "input", parts))


def _item(item: JsonObject, param: str, parts: PartsDecoder) -> Item:
    kind = kind_of(item)
    match kind:
        case "message":
            return _message(convert(item, schema.MessageItem, param=param), param, parts)
        case "reasoning":
            thought = convert(item, schema.ReasoningItem, param=param)
            return Reasoning(
                id=thought.id,
                summary=tuple(piece.text for piece in thought.summary),
                content=tuple(piece.text for piece in thought.content) if thought.content else None,
                encrypted=thought.encrypted_content,
            )
        case "function_call":
            call = convert(item, schema.FunctionCallItem, param=param)
            return FunctionCall(call_id=call.call_id, name=call.name, arguments=call.arguments, id=call.id)
        case "function_call_output" | "custom_tool_call_output":
            answer = convert(item, schema.FunctionCallOutputItem, param=param)
            output = (
                answer.output
                if isinstance(answer.output, str)
                else parts.decode(answer.output, param=f"{param}.output")
            )
            custom = kind == "custom_tool_call_output"
            return FunctionCallOutput(call_id=answer.call_id, output=output, custom=custom, id=answer.id)
        case str() if kind in RAW_ITEMS:
            return _raw(item, param)
        case _:
            raise InvalidRequest(
                f"Items of type '{kind}' cannot be carried to Codex.", code="unsupported_item", param=f"{param}.type"
            )


def _raw(item: JsonObject, param: str) -> RawItem:
    problem = unreadable(item)
    if problem is not None:
        raise InvalidRequest(f"Invalid value for '{param}': {problem}.", code="invalid_value", param=param)
    return RawItem(item=item)


def _message(message: schema.MessageItem, param: str, parts: PartsDecoder) -> Message:
    role = ROLES.get(message.role)
    if role is None:
        supported = ", ".join(f"'{name}'" for name in ROLES)
        raise InvalidRequest(
            f"Invalid value: '{message.role}'. Supported values are: {supported}.",
            code="invalid_value",
            param=f"{param}.role",
        )
    content = parts.decode(message.content, param=f"{param}.content")
    return Message(role=role, parts=content, phase=message.phase, id=message.id)
