"""Parameters that both APIs have: their bounds, which of them are ignored, and the format of the answer."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.strict_schema import strict_schema_error
from turnbridge.api.shared.validation import check_length, invalid, invalid_type, missing, unknown_value, within
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Item, Json, JsonObject, Message, TextPart
from turnbridge.turn.json_schema import unreadable
from turnbridge.turn.request import AnyJsonObject, JsonOfSchema, OutputFormat, PlainText

# OpenAI's own bounds on metadata.
METADATA_PAIRS = 16
METADATA_KEY_LENGTH = 64
METADATA_VALUE_LENGTH = 512

# OpenAI's bound on `stop`.
STOP_SEQUENCES = 4
# Ours: every delta is searched for the beginning of a sequence, in time by the square of its length.
STOP_CHARACTERS = 1_024

# OpenAI's bounds on sampling.
DECIMAL_BOUNDS = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}

# Sampling parameters that neither Codex nor the gateway can honour, with what happens anyway.
SAMPLING: dict[str, Json] = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}

SUMMARIES = ("auto", "concise", "detailed", "none")
VERBOSITIES = ("low", "medium", "high")

NAME_PATTERN = "^[a-zA-Z0-9_-]+$"
MAX_SCHEMA_NAME_CHARS = 64

# The service tiers that are available, as Codex names them on its own request; its user interface calls the priority
# tier `fast`.
CARRIED_TIERS: dict[str | None, str | None] = {
    None: None,
    "auto": None,
    "default": None,
    "flex": "flex",
    "priority": "priority",
    "fast": "priority",
}


class Parameters(Struct):
    """The parameters that requests of both APIs have."""

    model: str | None = None
    stream: bool | None = None
    stop: str | list[str] | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    service_tier: str | None = None
    store: bool | None = None
    metadata: JsonObject | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    presence_penalty: int | float | None = None
    frequency_penalty: int | float | None = None
    top_logprobs: int | None = None


class FormatObject(Struct):
    """The format of the answer: `text.format`, `response_format`, or the `json_schema` in it.

    Chat Completions nests the schema and its name.
    """

    type: Json = None
    name: str | None = None
    description: str | None = None
    schema: Json = None
    strict: bool | None = None
    json_schema: "FormatObject | None" = None


def ignored(request: Struct, defaults: dict[str, Json]) -> list[str]:
    """Return the parameters that cannot be honoured and differ from their default.

    They have to be within their bounds all the same.
    """
    given = {name: getattr(request, name) for name in defaults}
    names = [name for name, value in given.items() if value not in (None, defaults[name])]
    for name in names:
        if name in DECIMAL_BOUNDS:
            within(given[name], *DECIMAL_BOUNDS[name], param=name, kind="decimal")
    return names


def refuse(request: Struct, reasons: dict[str, str]) -> None:
    """Refuse the first parameter that is set and cannot be served; `reasons` says why."""
    for name, reason in reasons.items():
        if getattr(request, name) not in (None, False, 0, [], {}):
            raise unsupported(name, reason)


def unsupported(name: str, reason: str) -> InvalidRequest:
    """Return the refusal of a parameter that cannot be served."""
    return InvalidRequest(f"Unsupported parameter: '{name}'. {reason}", code="unsupported_parameter", param=name)


def check_metadata(metadata: Mapping[str, Json] | None) -> dict[str, str]:
    """Return the client's metadata within OpenAI's bounds."""
    checked: dict[str, str] = {}
    if metadata and len(metadata) > METADATA_PAIRS:
        what = f"too many properties. Expected at most {METADATA_PAIRS}, but got {len(metadata)}."
        raise invalid("metadata", what, code="object_above_max_properties")
    for key, value in (metadata or {}).items():
        if not isinstance(value, str):
            raise invalid_type(f"metadata.{key}", "a string")
        if len(key) > METADATA_KEY_LENGTH or len(value) > METADATA_VALUE_LENGTH:
            most = f"a key has at most {METADATA_KEY_LENGTH} characters, a value at most {METADATA_VALUE_LENGTH}."
            message = f"Invalid 'metadata.{key[:METADATA_KEY_LENGTH]}': {most}"
            raise InvalidRequest(message, code="string_above_max_length", param="metadata")
        checked[key] = value
    return checked


def carried_metadata(request: Parameters) -> dict[str, str]:
    """Return what goes to the provider beside the request: the client's metadata, and the ids of its user."""
    identity = {"user": request.user, "safety_identifier": request.safety_identifier}
    return check_metadata(request.metadata) | {name: value for name, value in identity.items() if value is not None}


def check_stream_options(options: object, *, stream: bool | None) -> None:
    """Refuse stream options for an answer that is not streamed, in OpenAI's words, which have no code."""
    if options is not None and not stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise InvalidRequest(message, param="stream_options")


def stop_sequences(stop: str | list[str] | None) -> tuple[str, ...]:
    """Return up to four sequences that end the answer."""
    sequences = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(sequences) > STOP_SEQUENCES:
        what = f"array too long. Expected at most {STOP_SEQUENCES} sequences, but got {len(sequences)}."
        raise invalid("stop", what, code="array_above_max_length")
    if "" in sequences:
        raise invalid("stop", "a sequence must not be empty.")
    longest = max(map(len, sequences), default=0)
    if longest > STOP_CHARACTERS:
        what = f"string too long. Expected at most {STOP_CHARACTERS} characters, but got {longest}."
        raise invalid("stop", what, code="string_above_max_length")
    return sequences


def decode_format(
    wanted: FormatObject | None, schemas: SchemaChecker, *, param: str, nested: bool = False
) -> OutputFormat:
    """Return the format; `nested` if the schema and its name are in `json_schema`."""
    kind = "text" if wanted is None else wanted.type
    if wanted is None or kind == "text":
        return PlainText()
    if kind == "json_object":
        return AnyJsonObject()
    if kind != "json_schema":
        raise unknown_value(kind, ("text", "json_object", "json_schema"), param=f"{param}.type")
    if not nested:
        return _of_schema(wanted, schemas, param=param)
    if wanted.json_schema is None:
        raise missing(f"{param}.json_schema")
    return _of_schema(wanted.json_schema, schemas, param=f"{param}.json_schema")


def _of_schema(wanted: FormatObject, schemas: SchemaChecker, *, param: str) -> JsonOfSchema:
    name = check_schema_name(wanted.name, param=f"{param}.name")
    schema, strict, schema_param = wanted.schema, wanted.strict is True, f"{param}.schema"
    if not isinstance(schema, dict):
        raise missing(schema_param)
    schemas.check(schema, strict=strict, param=schema_param, name=name, use="response_format")
    problem = unreadable(schema)
    if strict and problem is not None:
        raise SchemaPlace(schema=schema, param=schema_param, name=name, use="response_format").refused(f"{problem}.")
    # A schema that Codex cannot read is told to the model in words.
    enforced = strict or (problem is None and strict_schema_error(schema) is None)
    return JsonOfSchema(name=name, schema=schema, description=wanted.description, strict=strict, enforced=enforced)


def check_schema_name(name: str | None, *, param: str) -> str:
    """Return the name if OpenAI accepts it for a schema."""
    if name is None:
        raise missing(param)
    if not name:
        expected = "Expected a string with minimum length 1, but got an empty string instead."
        raise invalid(param, f"empty string. {expected}", code="empty_string")
    check_length(name, MAX_SCHEMA_NAME_CHARS, param=param)
    if not re.fullmatch(NAME_PATTERN, name):
        expected = f"Expected a string that matches the pattern '{NAME_PATTERN}'."
        raise invalid(param, f"string does not match pattern. {expected}")
    return name


def check_mentions_json(output: OutputFormat, items: Sequence[Item], instructions: str | None, *, param: str) -> None:
    """Refuse `json_object` for a conversation that never mentions JSON, as OpenAI does: the model would not know."""
    if not isinstance(output, AnyJsonObject):
        return
    parts = [part for item in items if isinstance(item, Message) for part in item.parts]
    texts = [instructions or "", *(part.text for part in parts if isinstance(part, TextPart))]
    if not any("json" in text.lower() for text in texts):
        message = f"'{param}' must contain the word 'json' in some form, to use a format of type 'json_object'."
        raise InvalidRequest(message, param=param)
