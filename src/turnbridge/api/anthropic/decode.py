"""A Messages request → `TurnRequest`."""

from typing import Literal, TypeAlias

from msgspec import Struct

from turnbridge.api.anthropic import schema
from turnbridge.api.anthropic.history import IN_BLOCKS, History
from turnbridge.api.anthropic.tools import decode_tool_use
from turnbridge.api.shared import parameters
from turnbridge.api.shared.body_budget import MAX_ITEMS
from turnbridge.api.shared.history import check_pairs
from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.validation import check_length, convert, invalid, missing, one_of, unknown_fields, within
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import BETWEEN_MESSAGES, Item, Json, JsonObject, replace
from turnbridge.turn.request import OutputFormat, ThreadSpec, TurnRequest

Version: TypeAlias = Literal["2023-06-01", "2026-10-21"]
VERSIONS: tuple[Version, ...] = ("2023-06-01", "2026-10-21")
VERSION_HEADER = "anthropic-version"

Shown: TypeAlias = Literal["no", "signature", "text"]
"""Whether the answer has thinking blocks, and whether these have text."""

THINKING = ("adaptive", "enabled", "disabled", "between_tools")
DISPLAYS = ("summarized", "omitted", "updates")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
# Budgets below these many tokens; larger ones are high.
BUDGETS = ((4_000, "low"), (16_000, "medium"))

# Claude Code names the ceiling of the model, of which this is the lowest, and repeats a request that is cut at it three
# times. Smaller limits are what a client wants to read at most.
CEILING_TOKENS = 32_000

# Every delta is searched for the beginning of each sequence, in time by the square of its length.
STOP_SEQUENCES = 16
STOP_CHARACTERS = 1_024
ALL_STOP_CHARACTERS = 4_096

SAMPLING = ("temperature", "top_p", "top_k")
# Parameters that neither Codex nor the gateway can honour. The default is what happens anyway.
IGNORED: dict[str, Json] = {"temperature": 1, "top_p": 1, "top_k": None, "service_tier": "auto", "speed": "standard"}
UNSUPPORTED = {
    "mcp_servers": "Codex is kept from connecting to servers of its own. Let the client call them, as tools.",
    "container": "There are no containers here.",
}

# The first block of Claude Code's system prompt, which is for Anthropic's accounting.
BILLING = "x-anthropic-billing-header:"
FORMAT_NAME = "output"


class DecodedMessages(Struct, frozen=True, kw_only=True):
    """A decoded request, and the options of its answer."""

    turn: TurnRequest
    thinking: Shown
    uncompiled: tuple[SchemaPlace, ...]
    """The schemas that must be compiled before the turn runs, which may take long."""


def decode(body: JsonObject, version: Version, *, counted: bool = False) -> DecodedMessages:
    """Return what a body of `POST /v1/messages` asks for; `turn.spec.model` is the client's name for it.

    A request that is only `counted` has no limit, and may end anywhere.
    """
    request = convert(body, schema.MessagesRequest)
    if not request.model:
        raise missing("model")
    if not request.messages:
        raise missing("messages") if request.messages is None else invalid("messages", "at least one is required.")
    if request.max_tokens is None and not counted:
        raise missing("max_tokens")
    check_length(request.messages, MAX_ITEMS, param="messages")
    parameters.refuse(request, UNSUPPORTED)
    newest = version == VERSIONS[-1]
    if newest:
        _refuse_sampling(request)
    history, schemas = History(strict=newest), SchemaChecker()
    instructions = _instructions(request.system, history)
    items = tuple(history.items(request.messages))
    # A message may have many calls.
    check_length(items, MAX_ITEMS, param="messages")
    if not counted:
        check_pairs(items, IN_BLOCKS)
    turn = _turn(request, ThreadSpec(model=request.model, instructions=instructions), items, schemas)
    ignored = (*_ignored(request, body), *turn.ignored, *history.ignored)
    return DecodedMessages(
        turn=replace(turn, ignored=ignored),
        thinking=_shown(request.thinking),
        uncompiled=tuple(schemas.uncompiled),
    )


def _turn(
    request: schema.MessagesRequest, spec: ThreadSpec, items: tuple[Item, ...], schemas: SchemaChecker
) -> TurnRequest:
    tools, unused = decode_tool_use(request.tools, request.tool_choice, schemas)
    choice = request.tool_choice
    return TurnRequest(
        spec=replace(
            spec,
            tools=tools.tools,
            web_search=tools.web_search,
            effort=_effort(request),
            summary="auto" if _shown(request.thinking) == "text" else None,
            summary_needed=False,
            output=_output(request, schemas),
        ),
        items=items,
        must_call=tools.must_call,
        parallel_calls=choice is None or choice.disable_parallel_tool_use is not True,
        stop=_stop(request.stop_sequences),
        max_output_tokens=_limit(request.max_tokens),
        metadata=_metadata(request.metadata),
        streamed=bool(request.stream),
        ignored=tuple(unused),
    )


def version_of(given: str | None) -> Version:
    """Return the version that a request's header asks for."""
    if given is None:
        return VERSIONS[0]
    for version in VERSIONS:
        if version == given.strip():
            return version
    supported = " and ".join(f"'{version}'" for version in VERSIONS)
    message = f"{VERSION_HEADER}: '{given[:100]}' is not a version that is served here. Supported are {supported}."
    raise InvalidRequest(message, code="invalid_value", param=VERSION_HEADER)


def _refuse_sampling(request: schema.MessagesRequest) -> None:
    for name in SAMPLING:
        if getattr(request, name) is not None:
            raise parameters.unsupported(name, f"Version {VERSIONS[-1]} of the API has no such parameter.")


def _ignored(request: schema.MessagesRequest, body: JsonObject) -> list[str]:
    unknown = unknown_fields(
        body,
        schema.MessagesRequest,
        output_config=schema.OutputConfig,
        thinking=schema.Thinking,
        metadata=schema.Metadata,
        tool_choice=schema.ToolChoice,
    )
    return [*parameters.ignored(request, IGNORED), *unknown]


def _instructions(system: schema.Content | None, history: History) -> str | None:
    texts = [] if system is None else history.system(system)
    if isinstance(system, list) and texts and texts[0].startswith(BILLING) and "\n" not in texts[0].strip():
        texts = texts[1:]
    return BETWEEN_MESSAGES.join(texts) or None


def _shown(thinking: schema.Thinking | None) -> Shown:
    """Return how thinking is shown: to a client that does not ask for it, a block of it first would be a surprise."""
    if thinking is None or one_of(thinking.type, THINKING, param="thinking.type") == "disabled":
        return "no"
    return "signature" if one_of(thinking.display, DISPLAYS, param="thinking.display") == "omitted" else "text"


def _effort(request: schema.MessagesRequest) -> str | None:
    """Return the effort in this API's words, of which a model may not have all."""
    config, thinking = request.output_config, request.thinking
    if config is not None and config.effort is not None:
        return one_of(config.effort, EFFORTS, param="output_config.effort")
    if thinking is None or thinking.type != "enabled" or thinking.budget_tokens is None:
        return None
    budget = within(thinking.budget_tokens, 1, param="thinking.budget_tokens") or 0
    return next((effort for most, effort in BUDGETS if budget < most), "high")


def _output(request: schema.MessagesRequest, schemas: SchemaChecker) -> OutputFormat:
    given, param = request.output_format, "output_format"
    if request.output_config is not None and request.output_config.format is not None:
        given, param = request.output_config.format, "output_config.format"
    if given is None:
        return parameters.decode_format(None, schemas, param=param)
    one_of(given.type or "", ("json_schema",), param=f"{param}.type")
    wanted = parameters.FormatObject(type="json_schema", name=FORMAT_NAME, schema=given.schema)
    return parameters.decode_format(wanted, schemas, param=param)


def _stop(sequences: list[str] | None) -> tuple[str, ...]:
    given = tuple(sequences or ())
    check_length(given, STOP_SEQUENCES, param="stop_sequences")
    if "" in given:
        raise invalid("stop_sequences", "a sequence must not be empty.")
    for index, sequence in enumerate(given):
        check_length(sequence, STOP_CHARACTERS, param=f"stop_sequences[{index}]")
    if sum(map(len, given)) > ALL_STOP_CHARACTERS:
        raise invalid("stop_sequences", f"together they may have at most {ALL_STOP_CHARACTERS} characters.")
    return given


def _limit(max_tokens: int | None) -> int | None:
    limit = within(max_tokens, 1, param="max_tokens")
    return None if limit is None or limit >= CEILING_TOKENS else limit


def _metadata(metadata: schema.Metadata | None) -> dict[str, str]:
    if metadata is None or metadata.user_id is None:
        return {}
    return parameters.check_metadata({"user_id": metadata.user_id})
