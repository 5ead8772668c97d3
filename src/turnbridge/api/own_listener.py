"""An API with a listener of its own, beside the shared one: what it declares, how requests find it."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnListener:
    """Where the clients of an API look for it."""

    name: str
    title: str
    setting: str
    """The setting that switches it on, or has its address."""
    host: str
    ports: range
    """The first one that is free is taken, unless the setting has another address."""
    rival: str
    """What is probably there if the first port is taken."""
    note: str
    """What its clients have to know of it."""


class ByPort:
    """Serves the requests of some ports by applications of their own."""

    def __init__(self, main: ASGIApp, others: Mapping[int, ASGIApp]) -> None:
        self._main = main
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request by the application of the port that it came to, whatever its headers say."""
        await self._others.get(scope["server"][1], self._main)(scope, receive, send)
