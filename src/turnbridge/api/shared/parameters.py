"""Parameters that both APIs know: what they may be, and which of them nobody can meet."""

import math
from collections.abc import Mapping

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject

# OpenAI's own bounds on metadata.
METADATA_PAIRS = 16
METADATA_KEY_LENGTH = 64
METADATA_VALUE_LENGTH = 512

# OpenAI's bound on `stop`.
STOP_SEQUENCES = 4
# Ours: how much of an answer could be the beginning of one is looked for at every delta, with the square of its length.
STOP_CHARACTERS = 1_024

# OpenAI's bounds on how a model samples.
DECIMAL_BOUNDS = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}

SUMMARIES = ("auto", "concise", "detailed", "none")
VERBOSITIES = ("low", "medium", "high")

# The service tiers that can be had, as Codex names them on its own request; `fast` is what it calls the priority tier
# where people see it.
CARRIED_TIERS: dict[str | None, str | None] = {
    None: None,
    "auto": None,
    "default": None,
    "flex": "flex",
    "priority": "priority",
    "fast": "priority",
}


def unmet(body: JsonObject, defaults: dict[str, Json]) -> list[str]:
    """Return which of the parameters that nobody can meet the client set to something else than their default.

    They have to be within their bounds all the same.
    """
    names = [name for name, default in defaults.items() if body.get(name) not in (None, default)]
    for name in names:
        _check_bounds(name, body[name])
    return names


def _check_bounds(name: str, value: Json) -> None:
    least, most = DECIMAL_BOUNDS.get(name, (-math.inf, math.inf))
    if not isinstance(value, int | float) or least <= value <= most:
        return
    below = value < least
    raise InvalidRequest(
        f"Invalid '{name}': decimal {'below minimum' if below else 'above maximum'} value. "
        f"Expected a value {'>=' if below else '<='} {least if below else most}, but got {value} instead.",
        code="decimal_below_min_value" if below else "decimal_above_max_value",
        param=name,
    )


def refuse(body: JsonObject, reasons: dict[str, str]) -> None:
    """Refuse the first parameter that is set and cannot be served; `reasons` says why."""
    for name, reason in reasons.items():
        if body.get(name) not in (None, False, 0, [], {}):
            raise unsupported(name, reason)


def unsupported(name: str, reason: str) -> InvalidRequest:
    """Return the refusal of a parameter that cannot be served."""
    return InvalidRequest(f"Unsupported parameter: '{name}'. {reason}", code="unsupported_parameter", param=name)


def one_of(value: str | None, known: tuple[str, ...], *, param: str) -> str | None:
    """Return a value that must be one of `known`, if given."""
    if value is not None and value not in known:
        supported = ", ".join(f"'{name}'" for name in known)
        raise InvalidRequest(
            f"Invalid value: '{value}'. Supported values are: {supported}.", code="invalid_value", param=param
        )
    return value


def at_least(value: int | None, least: int, *, param: str) -> int | None:
    """Return a number that must not be smaller than `least`, if given."""
    if value is not None and value < least:
        raise InvalidRequest(
            f"Invalid '{param}': integer below minimum value. Expected a value >= {least}, but got {value} instead.",
            code="integer_below_min_value",
            param=param,
        )
    return value


def check_metadata(metadata: Mapping[str, Json] | None) -> dict[str, str]:
    """Return the client's metadata within OpenAI's bounds."""
    if not metadata:
        return {}
    if len(metadata) > METADATA_PAIRS:
        raise InvalidRequest(
            f"Invalid 'metadata': too many properties. Expected at most {METADATA_PAIRS}, but got {len(metadata)}.",
            code="object_above_max_properties",
            param="metadata",
        )
    checked: dict[str, str] = {}
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise InvalidRequest(
                f"Invalid type for 'metadata.{key}': expected a string.", code="invalid_type", param=f"metadata.{key}"
            )
        checked[key] = value
        if len(key) > METADATA_KEY_LENGTH or len(value) > METADATA_VALUE_LENGTH:
            raise InvalidRequest(
                f"Invalid 'metadata.{key[:METADATA_KEY_LENGTH]}': a key has at most {METADATA_KEY_LENGTH} characters, "
                f"a value at most {METADATA_VALUE_LENGTH}.",
                code="string_above_max_length",
                param="metadata",
            )
    return checked


def carried_metadata(
    metadata: Mapping[str, Json] | None, user: str | None, safety_identifier: str | None
) -> dict[str, str]:
    """Return what goes to the provider beside the request: the client's metadata, and who it says the user is."""
    identity = {"user": user, "safety_identifier": safety_identifier}
    return check_metadata(metadata) | {name: value for name, value in identity.items() if value is not None}


def check_stream_options(options: object, *, stream: bool | None) -> None:
    """Refuse options of a stream for an answer that is none, in OpenAI's words, which have no code."""
    if options is not None and not stream:
        raise InvalidRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )


def stop_sequences(stop: str | list[str] | None) -> tuple[str, ...]:
    """Return up to four sequences that end the answer."""
    sequences = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(sequences) > STOP_SEQUENCES:
        raise InvalidRequest(
            f"Invalid 'stop': array too long. Expected at most {STOP_SEQUENCES} sequences, but got {len(sequences)}.",
            code="array_above_max_length",
            param="stop",
        )
    if "" in sequences:
        raise InvalidRequest("Invalid 'stop': a sequence must not be empty.", code="invalid_value", param="stop")
    longest = max(map(len, sequences), default=0)
    if longest > STOP_CHARACTERS:
        raise InvalidRequest(
            f"Invalid 'stop': string too long. Expected at most {STOP_CHARACTERS} characters, but got {longest}.",
            code="string_above_max_length",
            param="stop",
        )
    return sequences
