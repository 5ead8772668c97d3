"""How what stands in the environment or in a file becomes the value of a setting, and what is said if it cannot."""

import math
from pathlib import Path

import msgspec
from msgspec import inspect

# What people write in environments; JSON knows only two of these.
TRUTHS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


def converted(value: object, kind: object) -> object:
    """Return a value as this type; raises `ValueError` that says what is expected, and not what was given."""
    core = _core(inspect.type_info(kind))
    if isinstance(value, str):
        match core:
            case inspect.BoolType():
                value = TRUTHS.get(value.strip().lower(), value)
            case inspect.IntType() | inspect.FloatType():
                value = value.strip()
            case _:
                pass
    wanted = f"expected {_expected(core)}"
    try:
        found: object = msgspec.convert(value, kind, strict=False, dec_hook=_path)
    except msgspec.ValidationError:
        raise ValueError(wanted) from None
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(wanted)
    return found


def _core(kind: inspect.Type) -> inspect.Type:
    """Return a type without `None`."""
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
            return "texts, separated by commas"
        case inspect.DictType():
            return "a table of texts"
        case inspect.CustomType():
            return "a path, of a user who exists if it begins with `~`"
        case _:
            return "a text"


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.gt is not None:
        return f" above {kind.gt}"
    if kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    return f" of at least {kind.ge}"
