"""A Chat Completions request → `TurnRequest`."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from turnbridge.api.chat import schema
from turnbridge.api.chat.flat_names import chosen, flat_names, in_namespaces
from turnbridge.api.shared import parameters
from turnbridge.api.shared.body_budget import MAX_ITEMS
from turnbridge.api.shared.history import IN_MESSAGES, PartsDecoder, check_pairs
from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.tool_choice import ToolUse
from turnbridge.api.shared.tools import NAMESPACE, decode_tools, decode_web_search
from turnbridge.api.shared.validation import (
    check_length,
    convert,
    empty_array,
    missing,
    one_of,
    unknown_fields,
    unknown_value,
    within,
)
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Json,
    JsonObject,
    Message,
    Part,
    TextPart,
    custom_arguments,
)
from turnbridge.turn.request import ThreadSpec, ToolKey, TurnRequest

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
    if not request.model:
        raise missing("model")
    if request.messages is None:
        raise missing("messages")
    if not request.messages:
        raise empty_array("messages")
    check_length(request.messages, MAX_ITEMS, param="messages")
    parameters.refuse(request, UNSUPPORTED)
    parameters.check_stream_options(request.stream_options, stream=request.stream)
    if any(modality != "text" for modality in request.modalities or []):
        raise parameters.unsupported("modalities", "Codex produces text only.")
    unknown = unknown_fields(body, schema.ChatRequest, reasoning=schema.Reasoning, stream_options=schema.StreamOptions)
    # Of the current form of tools and the legacy one, the current one counts if there are any.
    legacy = bool(request.functions and not request.tools)
    parts, schemas = PartsDecoder(), SchemaChecker()
    items = tuple(_items(request.messages, parts))
    if (names := flat_names(request.tools)) and not legacy:
        items = in_namespaces(items, names)
    # A message may have many calls.
    check_length(items, MAX_ITEMS, param="messages")
    check_pairs(items, IN_MESSAGES)
    ignored = _ignored(request, unknown, parts, legacy=legacy)
    return DecodedChat(
        turn=_turn(request, request.model, items, ignored, schemas, legacy=legacy, names=names),
        choices=within(request.n, 1, MAX_CHOICES, param="n") or 1,
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        legacy_functions=legacy,
        store=bool(request.store),
        uncompiled=tuple(schemas.uncompiled),
    )


def _turn(
    request: schema.ChatRequest,
    model: str,
    items: tuple[Item, ...],
    ignored: tuple[str, ...],
    schemas: SchemaChecker,
    *,
    legacy: bool,
    names: Mapping[str, ToolKey],
) -> TurnRequest:
    output = parameters.decode_format(request.response_format, schemas, param="response_format", nested=True)
    parameters.check_mentions_json(output, items, None, param="messages")
    tools, search = _tools(request, schemas, names, legacy=legacy), request.web_search_options
    reasoning = request.reasoning or schema.Reasoning()
    summary = one_of(reasoning.summary, parameters.SUMMARIES, param="reasoning.summary")
    limit = within(request.max_tokens, 1, param="max_tokens")
    return TurnRequest(
        spec=ThreadSpec(
            model=model,
            tools=tools.tools,
            web_search=tools.web_search if search is None else decode_web_search(search, param="web_search_options"),
            effort=request.reasoning_effort or reasoning.effort,
            # The API has no word for it, but clients show `reasoning_content` when there is some.
            summary=summary or "auto",
            summary_needed=summary is not None,
            verbosity=one_of(request.verbosity, parameters.VERBOSITIES, param="verbosity"),
            service_tier=parameters.CARRIED_TIERS.get(request.service_tier),
            output=output,
        ),
        items=items,
        must_call=tools.must_call,
        # The legacy form has room for one call only.
        parallel_calls=request.parallel_tool_calls is not False and not legacy,
        stop=parameters.stop_sequences(request.stop),
        max_output_tokens=within(request.max_completion_tokens, 1, param="max_completion_tokens") or limit,
        metadata=parameters.carried_metadata(request),
        streamed=bool(request.stream),
        ignored=(*ignored, *tools.ignored),
    )


def _tools(
    request: schema.ChatRequest, schemas: SchemaChecker, names: Mapping[str, ToolKey], *, legacy: bool
) -> ToolUse:
    if legacy:
        return decode_tools(request.functions, request.function_call, schemas, legacy=True)
    choice = chosen(request.tool_choice, names) if names else request.tool_choice
    return decode_tools(request.tools, choice, schemas, also=(NAMESPACE,))


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
    custom: set[str] = set()
    """The calls of custom tools, whose outputs look like any other here."""
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        match message.role:
            case "system" | "developer":
                yield Message(role="developer", parts=_content(message, param, parts))
            case "user":
                yield Message(role="user", parts=_content(message, param, parts))
            case "assistant":
                legacy_call = f"call_{index}" if message.function_call else None
                custom |= {call.id for call in message.tool_calls or [] if call.custom is not None}
                yield from _assistant(message, param, parts, legacy_call)
            case "tool":
                if message.tool_call_id is None:
                    raise missing(f"{param}.tool_call_id")
                is_custom = message.tool_call_id in custom
                yield _output(message, message.tool_call_id, param, parts, custom=is_custom)
            case "function":
                if legacy_call is None:
                    problem = "A message of role 'function' must follow the 'function_call' that it answers."
                    raise InvalidRequest(problem, param=param)
                yield _output(message, legacy_call, param, parts)
            case _:
                raise unknown_value(message.role, ROLES, param=f"{param}.role")


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
        if (function := tool_call.function) is not None:
            yield FunctionCall(call_id=tool_call.id, name=function.name, arguments=function.arguments)
        elif (tool := tool_call.custom) is not None:
            arguments = custom_arguments(tool.input)
            yield FunctionCall(call_id=tool_call.id, name=tool.name, arguments=arguments, custom=True)
        else:
            raise InvalidRequest(
                f"Calls of type '{tool_call.type}' cannot be carried to Codex.",
                code="unsupported_item",
                param=f"{param}.tool_calls[{index}].type",
            )


def _output(
    message: schema.ChatMessage, call_id: str, param: str, parts: PartsDecoder, *, custom: bool = False
) -> FunctionCallOutput:
    content = message.content
    output = content if isinstance(content, str) else _content(message, param, parts)
    return FunctionCallOutput(call_id=call_id, output=output, custom=custom)


def _content(message: schema.ChatMessage, param: str, parts: PartsDecoder) -> tuple[Part, ...]:
    if message.content is None:
        raise missing(f"{param}.content")
    return parts.decode(message.content, param=f"{param}.content")
