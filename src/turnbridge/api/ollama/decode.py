"""A request of `/api/chat` or `/api/generate` → `TurnRequest`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from turnbridge.api.ollama import schema
from turnbridge.api.ollama.history import IN_MESSAGES, CallPlace, CallPlaces, History
from turnbridge.api.shared import parameters
from turnbridge.api.shared.body_budget import MAX_ITEMS
from turnbridge.api.shared.history import check_pairs
from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.tool_choice import ToolUse
from turnbridge.api.shared.tools import decode_tools
from turnbridge.api.shared.validation import check_length, convert, invalid, missing, one_of, unknown_fields
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Item, JsonObject, Message, TextPart
from turnbridge.turn.request import JsonOfSchema, OutputFormat, ThreadSpec, TurnRequest

Kind: TypeAlias = Literal["chat", "generate"]
KnownId: TypeAlias = Callable[[CallPlace], str | None]

UNSUPPORTED = {**dict.fromkeys(("logprobs", "top_logprobs"), "Codex gives no log probabilities.")}
UNSUPPORTED_IN_GENERATE = {
    **UNSUPPORTED,
    "raw": "Codex's models have no prompt template to go without. Send the prompt as it is, or messages to /api/chat.",
    "suffix": "Codex's models do not fill in the middle. Ask for it in the prompt.",
}
# What has no effect, and would change the answer; a client that says how long a model stays loaded loses nothing.
IGNORED_IN_GENERATE = ("template", "context")

THINK = ("low", "medium", "high", "max")
LEAST, MOST = "least", "max"
"""The efforts that are not a model's own words: the least that it has, and the most."""

# As many as Anthropic's clients may send. Each is bounded as for the other APIs.
STOP_SEQUENCES = 16

FORMAT_NAME = "output"
ANY_OBJECT: JsonObject = {"type": "object"}
LATEST = "latest"
# No model's name is longer.
LONGEST_NAME = 200


class Decoded(Struct, frozen=True, kw_only=True):
    """A decoded request, and the options of its answer."""

    kind: Kind
    turn: TurnRequest
    """`spec.model` is the client's name for it, and `spec.effort` may be `LEAST` or `MOST`."""
    shows_thinking: bool
    loads: str | None
    """Why there is nothing to answer: the client only loads or unloads a model."""
    places: CallPlaces
    uncompiled: tuple[SchemaPlace, ...]
    """The schemas that must be compiled before the turn runs, which may take long."""


def decode_chat(body: JsonObject, known_id: KnownId) -> Decoded:
    """Return what a body of `POST /api/chat` asks for; `known_id` finds the ids of calls that come without them."""
    request = convert(body, schema.ChatRequest)
    parameters.refuse(request, UNSUPPORTED)
    messages = request.messages or []
    check_length(messages, MAX_ITEMS, param="messages")
    history, schemas = History(known_id), SchemaChecker()
    items = history.items(messages)
    # A message may have many calls.
    check_length(items, MAX_ITEMS, param="messages")
    check_pairs(items, IN_MESSAGES)
    tools = decode_tools([_typed(tool) for tool in request.tools or ()], None, schemas)
    ignored = (*unknown_fields(body, schema.ChatRequest, options=schema.Options), *history.parts.ignored)
    return _decoded("chat", request, items, tools, schemas, ignored)


def decode_generate(body: JsonObject) -> Decoded:
    """Return what a body of `POST /api/generate` asks for."""
    request = convert(body, schema.GenerateRequest)
    parameters.refuse(request, UNSUPPORTED_IN_GENERATE)
    history, schemas = History(lambda _: None), SchemaChecker()
    items: list[Item] = []
    if request.prompt or request.images:
        if request.system:
            items.append(Message(role="developer", parts=(TextPart(text=request.system),)))
        items.append(Message(role="user", parts=history.content(request.prompt, request.images, "")))
    unknown = unknown_fields(body, schema.GenerateRequest, options=schema.Options)
    ignored = (*(name for name in IGNORED_IN_GENERATE if getattr(request, name)), *unknown)
    return _decoded("generate", request, items, ToolUse(), schemas, ignored)


def _decoded(
    kind: Kind,
    request: schema.Parameters,
    items: Sequence[Item],
    tools: ToolUse,
    schemas: SchemaChecker,
    ignored: tuple[str, ...],
) -> Decoded:
    if not request.model:
        raise missing("model")
    options = request.options or schema.Options()
    effort = None if isinstance(request.think, bool) else one_of(request.think or None, THINK, param="think")
    shows = request.think is not False
    turn = TurnRequest(
        spec=ThreadSpec(
            model=request.model,
            tools=tools.tools,
            web_search=tools.web_search,
            effort=LEAST if not shows else effort,
            summary="auto" if shows else None,
            summary_needed=False,
            output=_output(request.format, items, schemas),
        ),
        items=tuple(items),
        stop=_stop(options.stop),
        max_output_tokens=_limit(options.num_predict if options.num_predict is not None else request.num_predict),
        streamed=request.stream is not False,
        ignored=(*ignored, *tools.ignored),
    )
    return Decoded(
        kind=kind,
        turn=turn,
        shows_thinking=shows,
        loads=None if items else "unload" if request.keep_alive in (0, "0", "0s", "0m", "0h") else "load",
        places=CallPlaces(items),
        uncompiled=tuple(schemas.uncompiled),
    )


def codex_name(name: str, aliases: Mapping[str, str]) -> str:
    """Return a model's name without a tag: `latest` is dropped, and any other tag is taken for an effort."""
    if len(name) > LONGEST_NAME:
        return name
    stem, colon, tag = name.strip().rpartition(":")
    if not colon or name.strip().lower() in {alias.lower() for alias in aliases}:
        return name
    return stem if tag.lower() in (LATEST, "") else f"{stem}-{tag}"


def _typed(tool: JsonObject) -> JsonObject:
    """Return a tool with its type, which Ollama does not ask for."""
    return tool if tool.get("type") is not None else {**tool, "type": "function"}


def _output(wanted: str | JsonObject | None, items: Sequence[Item], schemas: SchemaChecker) -> OutputFormat:
    if wanted is None or wanted == "":
        return parameters.decode_format(None, schemas, param="format")
    if isinstance(wanted, dict):
        asked = parameters.FormatObject(type="json_schema", name=FORMAT_NAME, schema=wanted)
        return parameters.decode_format(asked, schemas, param="format")
    if wanted != "json":
        raise invalid("format", "expected 'json' or a JSON schema.")
    output = parameters.decode_format(parameters.FormatObject(type="json_object"), schemas, param="format")
    try:
        parameters.check_mentions_json(output, items, None, param="messages")
    except InvalidRequest:
        # Ollama forces the model's hand; here it is told, unless the client has done so, as a schema is.
        return JsonOfSchema(name=FORMAT_NAME, schema=ANY_OBJECT, strict=False, enforced=False)
    return output


def _stop(given: str | list[str] | None) -> tuple[str, ...]:
    sequences = [given] if isinstance(given, str) else given or []
    check_length(sequences, STOP_SEQUENCES, param="options.stop")
    return tuple(each for sequence in sequences for each in parameters.stop_sequences([sequence]))


def _limit(num_predict: int | None) -> int | None:
    """Return the most tokens of an answer; -1 and -2 are Ollama's words for no limit."""
    return None if num_predict is None or num_predict < 1 else num_predict
