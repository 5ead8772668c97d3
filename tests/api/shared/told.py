"""Errors as values: exceptions do not compare, and a test wants all that a client is told."""

from typing import NamedTuple

from turnbridge.turn.errors import GatewayError


class Told(NamedTuple):
    """What an error says."""

    kind: type[GatewayError]
    message: str
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None


def told(error: GatewayError) -> Told:
    """Return what an error says."""
    return Told(type(error), error.message, error.error_code, error.param, error.retry_after)
