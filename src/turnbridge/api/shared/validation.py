"""A client's JSON → typed values, with every mistake told as OpenAI tells it: what is wrong, and where."""

import codecs
import functools
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
    try:
        # Some programs on Windows begin every text with that mark.
        value: Json = msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            "We could not parse the JSON body of your request: it is not UTF-8. Send it in that encoding.",
            code="invalid_json",
        ) from error
    except msgspec.DecodeError as error:
        raise InvalidRequest(
            f"We could not parse the JSON body of your request: {error}. The API expects a JSON object.",
            code="invalid_json",
        ) from error
    except RecursionError:
        raise InvalidRequest("The JSON body of your request is nested too deeply.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body of the request must be a JSON object.", code="invalid_json")
    return value


def convert(value: Json, shape: type[T], *, param: str = "") -> T:
    """Return `value` as `shape`; `param` is where the value stands in the request."""
    try:
        converted = msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), param) from error
    if isinstance(value, dict) and isinstance(converted, msgspec.Struct):
        _refuse_decimals(value, type(converted), param)
    return converted


@functools.cache
def _integers(shape: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a shape that are integers."""
    fields = msgspec.structs.fields(shape)
    return tuple(field.encode_name for field in fields if field.type in (int, int | None))


def _refuse_decimals(value: JsonObject, shape: type[msgspec.Struct], param: str) -> None:
    """Refuse 100.0 where an integer is wanted, as OpenAI does: msgspec takes it for 100."""
    for name in _integers(shape):
        if isinstance(value.get(name), float):
            where = f"{param}.{name}" if param else name
            raise InvalidRequest(
                f"Invalid type for '{where}': expected an integer, but got a decimal number instead.",
                code="invalid_type",
                param=where,
            )


def unknown_fields(body: JsonObject, shape: type[msgspec.Struct], **inside: type[msgspec.Struct]) -> list[str]:
    """Return the names in `body` that `shape` does not know and that carry a value.

    `inside` are the shapes of objects in it. What is switched off counts, too: it may be on by default.
    """
    known = shape.__struct_encode_fields__
    unknown = [name for name, value in body.items() if name not in known and value is not None]
    for place, inner in inside.items():
        given = body.get(place)
        if isinstance(given, dict):
            unknown += [f"{place}.{name}" for name in unknown_fields(given, inner)]
    return unknown


def check_length(values: Sequence[object], most: int, *, param: str) -> None:
    """Refuse a list that is longer than any honest client's."""
    if len(values) > most:
        raise InvalidRequest(
            f"Invalid '{param}': array too long. Expected an array with maximum length {most}, "
            f"but got an array with length {len(values)} instead.",
            code="array_above_max_length",
            param=param,
        )


def missing(param: str) -> InvalidRequest:
    """Return the refusal of a request that lacks something."""
    return InvalidRequest(f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param)


def _invalid(complaint: str, param: str) -> InvalidRequest:
    what, _, place = complaint.partition(" - at `")
    path = place.removesuffix("`").removeprefix("key in ").removeprefix("$")
    where = f"{param}{path}" if param else path.lstrip(".")
    if lacking := _MISSING.match(what):
        return missing(f"{where}.{lacking['name']}" if where else lacking["name"])
    kind = "invalid_type" if what.startswith("Expected `") and "got" in what else "invalid_value"
    label = "type" if kind == "invalid_type" else "value"
    return InvalidRequest(f"Invalid {label} for '{where}': {what}.", code=kind, param=where or None)
