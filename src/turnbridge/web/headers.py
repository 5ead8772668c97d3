"""Headers as ASGI has them: pairs of bytes."""

from collections.abc import Mapping

from starlette.types import Scope


def header_value(scope: Scope, name: bytes) -> bytes | None:
    """Return the first value of the request header `name`, which is given in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Return all values of the request header `name`, which is given in lower case."""
    return [value for key, value in scope["headers"] if key == name]


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
