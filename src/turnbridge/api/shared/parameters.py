"""Parameters that both APIs have: their bounds, and which of them are ignored."""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from turnbridge.api.shared.validation import invalid, invalid_type
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json

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


def ignored(request: Struct, defaults: dict[str, Json]) -> list[str]:
    """Return the parameters that cannot be honoured and differ from their default.

    They have to be within their bounds all the same.
    """
    given = {name: getattr(request, name) for name in defaults}
    names = [name for name, value in given.items() if value not in (None, defaults[name])]
    for name in names:
        _check_bounds(name, given[name])
    return names


def _check_bounds(name: str, value: Json) -> None:
    least, most = DECIMAL_BOUNDS.get(name, (-math.inf, math.inf))
    if not isinstance(value, int | float) or least <= value <= most:
        return
    extreme, sign, bound = ("below min", ">=", least) if value < least else ("above max", "<=", most)
    what = f"decimal {extreme}imum value. Expected a value {sign} {bound}, but got {value} instead."
    raise invalid(name, what, code=f"decimal_{extreme.replace(' ', '_')}_value")


def refuse(request: Struct, reasons: dict[str, str]) -> None:
    """Refuse the first parameter that is set and cannot be served; `reasons` says why."""
    for name, reason in reasons.items():
        if getattr(request, name) not in (None, False, 0, [], {}):
            raise unsupported(name, reason)


def unsupported(name: str, reason: str) -> InvalidRequest:
    """Return the refusal of a parameter that cannot be served."""
    return InvalidRequest(f"Unsupported parameter: '{name}'. {reason}", code="unsupported_parameter", param=name)


def one_of(value: object, known: Sequence[str], *, param: str) -> str | None:
    """Return a value that must be one of `known`, if given."""
    if value is None or (isinstance(value, str) and value in known):
        return value
    raise unknown_value(value, known, param=param)


def unknown_value(value: object, known: Sequence[str], *, param: str) -> InvalidRequest:
    """Return the refusal of a value that is not one of those supported."""
    *names, last = [f"'{name}'" for name in known]
    supported = f"{', '.join(names)}{',' if len(names) > 1 else ''} and {last}"
    message = f"Invalid value: '{value}'. Supported values are: {supported}."
    return InvalidRequest(message, code="invalid_value", param=param)


def at_least(value: int | None, least: int, *, param: str) -> int | None:
    """Return a number that must not be smaller than `least`, if given."""
    if value is not None and value < least:
        what = f"integer below minimum value. Expected a value >= {least}, but got {value} instead."
        raise invalid(param, what, code="integer_below_min_value")
    return value


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


def carried_metadata(
    metadata: Mapping[str, Json] | None, user: str | None, safety_identifier: str | None
) -> dict[str, str]:
    """Return what goes to the provider beside the request: the client's metadata, and the ids of its user."""
    identity = {"user": user, "safety_identifier": safety_identifier}
    return check_metadata(metadata) | {name: value for name, value in identity.items() if value is not None}


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
