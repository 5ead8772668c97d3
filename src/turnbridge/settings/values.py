"""Conversion of a value from the environment or a file to the type of its setting."""

import math
from pathlib import Path

import msgspec
from msgspec import inspect

# Spellings of booleans that are common in environments.
BOOLEANS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


def converted(value: object, kind: object) -> object:
    """Return a value as this type; the message of `ValueError` does not contain the value, which may be a secret."""
    expected_type = _without_none(inspect.type_info(kind))
    if isinstance(value, str):
        match expected_type:
            case inspect.BoolType():
                value = BOOLEANS.get(value.strip().lower(), value)
            case inspect.IntType() | inspect.FloatType():
                value = value.strip()
            case _:
                pass
    expected = f"expected {_expected(expected_type)}"
    try:
        found: object = msgspec.convert(value, kind, strict=False, dec_hook=_path)
    except msgspec.ValidationError:
        raise ValueError(expected) from None
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(expected)
    return found


def _without_none(kind: inspect.Type) -> inspect.Type:
    match kind:
        case inspect.UnionType(types=(optional, inspect.NoneType())):
            return optional
        case _:
            return kind


def _path(kind: type, value: object) -> Path:
    if kind is not Path or not isinstance(value, str | Path):
        raise TypeError(f"{type(value)} is no path")
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError("There is no such user.") from error


def _expected(kind: inspect.Type) -> str:
    match kind:
        case inspect.BoolType():
            return "`true` or `false`"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(f"`{value}`" for value in values)
        case inspect.IntType():
            return "a whole number" + _bounds(kind)
        case inspect.FloatType():
            return "a number" + _bounds(kind)
        case inspect.VarTupleType():
            return "a comma-separated list"
        case inspect.DictType():
            return "a table of strings"
        case inspect.CustomType():
            return "a path; the user of a leading `~` must exist"
        case _:
            return "a string"


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.gt is not None:
        return f" above {kind.gt}"
    if kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    return f" of at least {kind.ge}"
