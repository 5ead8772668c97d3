"""A Chat Completions request → `TurnRequest`."""

from collections.abc import Iterator

from msgspec import Struct

from turnbridge.api.chat import schema
from turnbridge.api.shared import parameters
from turnbridge.api.shared.body_budget import MAX_ITEMS
from turnbridge.api.shared.history_checks import IN_MESSAGES, check_mentions_json, check_pairs
from turnbridge.api.shared.output_format import decode_format
from turnbridge.api.shared.parts import PartsDecoder
from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.tools import ToolUse, decode_tools, decode_web_search
from turnbridge.api.shared.validation import check_length, convert, invalid, missing, unknown_fields
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, Json, JsonObject, Message, Part, TextPart
from turnbridge.turn.request import ThreadSpec, TurnRequest
from turnbridge.turn.values import replace

# OpenAI's own bound on `n`; each choice is a turn of its own.
MAX_CHOICES = 128

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

UNSUPPORTED = {
    **dict.fromkeys(("logprobs", "top_logprobs"), "Codex gives no log probabilities."),
    "audio": "Codex produces text only.",
}
# Parameters that neither Codex nor the gateway can honour. The default is what happens anyway.
IGNORED: dict[str, Json] = {
    **parameters.SAMPLING,
    "logit_bias": {},
    "seed": None,
    "prediction": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
}
# Of the two forms of tools only one counts; the parameters of the other are ignored.
IGNORED_BESIDE_TOOLS: dict[str, Json] = {"functions": [], "function_call": "auto"}
IGNORED_BESIDE_FUNCTIONS: dict[str, Json] = {"tool_choice": "auto"}


class DecodedChat(Struct, frozen=True, kw_only=True):
    """A decoded request, and the options of its answer."""

    turn: TurnRequest
    choices: int
    include_usage: bool
    legacy_functions: bool
    """Whether the client sent `functions`, and expects `function_call` in the answer."""
    store: bool
    uncompiled: tuple[SchemaPlace, ...]
    """The schemas that must be compiled before the turn runs, which may take long."""


def decode(body: JsonObject) -> DecodedChat:
    """Return what a body of `POST /v1/chat/completions` asks for; `turn.spec.model` is the client's name for it."""
    request = convert(body, schema.ChatRequest)
    unknown = unknown_fields(body, schema.ChatRequest, reasoning=schema.Reasoning, stream_options=schema.StreamOptions)
    # Of the current form of tools and the legacy one, the current one counts if there are any.
    legacy = bool(request.functions and not request.tools)
    schemas = SchemaChecker()
    return DecodedChat(
        turn=_turn(request, unknown, schemas, legacy=legacy),
        choices=_choices(request.n),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        legacy_functions=legacy,
        store=bool(request.store),
        uncompiled=tuple(schemas.uncompiled),
    )


def _turn(request: schema.ChatRequest, unknown: list[str], schemas: SchemaChecker, *, legacy: bool) -> TurnRequest:
    model, messages = _required(request)
    parameters.refuse(request, UNSUPPORTED)
    parameters.check_stream_options(request.stream_options, stream=request.stream)
    if any(modality != "text" for modality in request.modalities or []):
        raise parameters.unsupported("modalities", "Codex produces text only.")
    parts = PartsDecoder()
    items = tuple(_items(messages, parts))
    # A message may have many calls.
    check_length(items, MAX_ITEMS, param="messages")
    check_pairs(items, IN_MESSAGES)
    output = decode_format(request.response_format, schemas, param="response_format", nested=True)
    check_mentions_json(output, items, None, param="messages")
    tools = _tools(request, schemas, legacy=legacy)
    ignored = _ignored(request, unknown, parts, legacy=legacy)
    reasoning = request.reasoning or schema.Reasoning()
    summary = parameters.one_of(reasoning.summary, parameters.SUMMARIES, param="reasoning.summary")
    return TurnRequest(
        spec=ThreadSpec(
            model=model,
            tools=tools.tools,
            web_search=tools.web_search,
            effort=request.reasoning_effort or reasoning.effort,
            # The API has no word for it, but clients show `reasoning_content` when there is some.
            summary=summary or "auto",
            summary_needed=summary is not None,
            verbosity=parameters.one_of(request.verbosity, parameters.VERBOSITIES, param="verbosity"),
            service_tier=parameters.CARRIED_TIERS.get(request.service_tier),
            output=output,
        ),
        items=items,
        must_call=tools.must_call,
        # The legacy form has room for one call only.
        parallel_calls=request.parallel_tool_calls is not False and not legacy,
        stop=parameters.stop_sequences(request.stop),
        max_output_tokens=_token_limit(request),
        metadata=parameters.carried_metadata(request.metadata, request.user, request.safety_identifier),
        streamed=bool(request.stream),
        ignored=ignored,
    )


def _required(request: schema.ChatRequest) -> tuple[str, list[schema.ChatMessage]]:
    if not request.model:
        raise missing("model")
    if request.messages is None:
        raise missing("messages")
    if not request.messages:
        expected = "Expected an array with minimum length 1, but got an empty array instead."
        raise invalid("messages", f"empty array. {expected}", code="empty_array")
    check_length(request.messages, MAX_ITEMS, param="messages")
    return request.model, request.messages


def _ignored(request: schema.ChatRequest, unknown: list[str], parts: PartsDecoder, *, legacy: bool) -> tuple[str, ...]:
    """Return the parameters that are not honoured."""
    # The name of a function is in its call, too.
    named = [i for i, said in enumerate(request.messages or []) if said.name and said.role not in ("tool", "function")]
    padded = request.stream_options is not None and request.stream_options.include_obfuscation
    return (
        *parameters.ignored(request, IGNORED | (IGNORED_BESIDE_FUNCTIONS if legacy else IGNORED_BESIDE_TOOLS)),
        *unknown,
        *(("stream_options.include_obfuscation",) if padded else ()),
        *parts.ignored,
        *(f"messages[{index}].name" for index in named),
        *(() if request.service_tier in parameters.CARRIED_TIERS else ("service_tier",)),
    )


def _items(messages: list[schema.ChatMessage], parts: PartsDecoder) -> Iterator[Item]:
    legacy_call: str | None = None
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        match message.role:
            case "system" | "developer":
                yield Message(role="developer", parts=_content(message, param, parts))
            case "user":
                yield Message(role="user", parts=_content(message, param, parts))
            case "assistant":
                legacy_call = f"call_{index}" if message.function_call else None
                yield from _assistant(message, param, parts, legacy_call)
            case "tool":
                if message.tool_call_id is None:
                    raise missing(f"{param}.tool_call_id")
                yield _output(message, message.tool_call_id, param, parts)
            case "function":
                if legacy_call is None:
                    problem = "A message of role 'function' must follow the 'function_call' that it answers."
                    raise InvalidRequest(problem, param=param)
                yield _output(message, legacy_call, param, parts)
            case _:
                raise parameters.unknown_value(message.role, ROLES, param=f"{param}.role")


def _assistant(message: schema.ChatMessage, param: str, parts: PartsDecoder, legacy_call: str | None) -> Iterator[Item]:
    says_more = message.tool_calls or message.function_call or message.refusal
    if message.content is not None and not (message.content == "" and says_more):
        yield Message(role="assistant", parts=parts.decode(message.content, param=f"{param}.content"))
    elif message.refusal:
        yield Message(role="assistant", parts=(TextPart(text=message.refusal),))
    elif not message.tool_calls and message.function_call is None:
        raise missing(f"{param}.content")
    if message.function_call is not None and legacy_call is not None:
        call = message.function_call
        yield FunctionCall(call_id=legacy_call, name=call.name, arguments=call.arguments)
    for index, tool_call in enumerate(message.tool_calls or []):
        if tool_call.function is None:
            raise InvalidRequest(
                f"Calls of type '{tool_call.type}' cannot be carried to Codex.",
                code="unsupported_item",
                param=f"{param}.tool_calls[{index}].type",
            )
        function = tool_call.function
        yield FunctionCall(call_id=tool_call.id, name=function.name, arguments=function.arguments)


def _output(message: schema.ChatMessage, call_id: str, param: str, parts: PartsDecoder) -> FunctionCallOutput:
    if isinstance(message.content, str):
        return FunctionCallOutput(call_id=call_id, output=message.content)
    return FunctionCallOutput(call_id=call_id, output=_content(message, param, parts))


def _content(message: schema.ChatMessage, param: str, parts: PartsDecoder) -> tuple[Part, ...]:
    if message.content is None:
        raise missing(f"{param}.content")
    return parts.decode(message.content, param=f"{param}.content")


def _tools(request: schema.ChatRequest, schemas: SchemaChecker, *, legacy: bool) -> ToolUse:
    if legacy:
        tools = decode_tools(request.functions, request.function_call, schemas, legacy=True)
    else:
        tools = decode_tools(request.tools, request.tool_choice, schemas)
    if request.web_search_options is not None:
        tools = replace(tools, web_search=decode_web_search(request.web_search_options, param="web_search_options"))
    return tools


def _token_limit(request: schema.ChatRequest) -> int | None:
    parameters.at_least(request.max_tokens, 1, param="max_tokens")
    limit = parameters.at_least(request.max_completion_tokens, 1, param="max_completion_tokens")
    return limit if limit is not None else request.max_tokens


def _choices(n: int | None) -> int:
    if n is not None and n > MAX_CHOICES:
        what = f"integer above maximum value. Expected a value <= {MAX_CHOICES}, but got {n} instead."
        raise invalid("n", what, code="integer_above_max_value")
    return parameters.at_least(n, 1, param="n") or 1
