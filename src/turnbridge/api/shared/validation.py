"""A client's JSON → typed values, and the errors that OpenAI answers invalid ones with: what is wrong, and where."""

import codecs
import math
import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject

T = TypeVar("T")

_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`")


def parse_body(body: bytes) -> JsonObject:
    """Return the request's JSON object."""
    problem = "We could not parse the JSON body of your request"
    try:
        # Some programs on Windows begin every text with a byte order mark.
        value: Json = msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))
    except UnicodeDecodeError as error:
        message = f"{problem}: it is not UTF-8. Send it in that encoding."
        raise InvalidRequest(message, code="invalid_json") from error
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{problem}: {error}. The API expects a JSON object.", code="invalid_json") from error
    except RecursionError:
        raise InvalidRequest("The JSON body of your request is nested too deeply.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body of the request must be a JSON object.", code="invalid_json")
    return value


def convert(value: Json, shape: type[T], *, param: str = "") -> T:
    """Return `value` as `shape`; `param` is its place in the request."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _conversion_error(str(error), param) from error


def unknown_fields(body: JsonObject, shape: type[msgspec.Struct], **inside: type[msgspec.Struct]) -> list[str]:
    """Return the names in `body` that `shape` does not have and whose value is not null.

    `inside` are the shapes of objects in it. False counts as a value: the default may be true.
    """
    known = shape.__struct_encode_fields__
    unknown = [name for name, value in body.items() if name not in known and value is not None]
    for place, inner in inside.items():
        given = body.get(place)
        if isinstance(given, dict):
            unknown += [f"{place}.{name}" for name in unknown_fields(given, inner)]
    return unknown


def check_length(value: Sequence[object], most: int, *, param: str) -> None:
    """Refuse a list or a string that is too long."""
    if len(value) > most:
        kind, one = ("string", "a string") if isinstance(value, str) else ("array", "an array")
        expected = f"Expected {one} with maximum length {most}, but got {one} with length {len(value)} instead."
        raise invalid(param, f"{kind} too long. {expected}", code=f"{kind}_above_max_length")


def missing(param: str) -> InvalidRequest:
    """Return the refusal of a request without a required parameter."""
    return InvalidRequest(f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param)


def empty_array(param: str) -> InvalidRequest:
    """Return the refusal of a list that must not be empty."""
    expected = "Expected an array with minimum length 1, but got an empty array instead."
    return invalid(param, f"empty array. {expected}", code="empty_array")


def invalid(param: str, what: str, *, code: str = "invalid_value") -> InvalidRequest:
    """Return the refusal of a parameter's value."""
    return InvalidRequest(f"Invalid '{param}': {what}", code=code, param=param)


def invalid_type(param: str, expected: str) -> InvalidRequest:
    """Return the refusal of a value of the wrong type."""
    return InvalidRequest(f"Invalid type for '{param}': expected {expected}.", code="invalid_type", param=param)


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


def within(value: int | None, least: float, most: float = math.inf, *, param: str, kind: str = "integer") -> int | None:
    """Return a number that must not be smaller than `least`, nor larger than `most`, if given."""
    if value is not None and not least <= value <= most:
        extreme, sign, bound = ("below min", ">=", least) if value < least else ("above max", "<=", most)
        what = f"{kind} {extreme}imum value. Expected a value {sign} {bound}, but got {value} instead."
        raise invalid(param, what, code=f"{kind}_{extreme.replace(' ', '_')}_value")
    return value


def cut(text: str, most: int) -> str:
    """Return a text that an error repeats, cut after so many characters."""
    return text if len(text) <= most else f"{text[:most]}..."


def _conversion_error(complaint: str, param: str) -> InvalidRequest:
    """Return msgspec's error in OpenAI's words."""
    what, _, place = complaint.partition(" - at `")
    path = place.removesuffix("`").removeprefix("key in ").removeprefix("$")
    where = f"{param}{path}" if param else path.lstrip(".")
    if lacking := _MISSING.match(what):
        return missing(f"{where}.{lacking['name']}" if where else lacking["name"])
    label = "type" if what.startswith("Expected `") and "got" in what else "value"
    return InvalidRequest(f"Invalid {label} for '{where}': {what}.", code=f"invalid_{label}", param=where or None)
