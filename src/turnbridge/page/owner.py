"""What only the owner may see and do on the page: accounts, settings, commands, the key."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnbridge.page.accounts import Accounts
from turnbridge.page.commands import Commands
from turnbridge.page.routes import Entry, Handler
from turnbridge.page.sessions import Visitor
from turnbridge.turn.errors import Forbidden, InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.web.http import json_response

FOR_THE_OWNER = "Only the owner of this gateway may see this: open the link of `serve`, or use the owner's key."
ORIGIN = re.compile(r"https?://[\w.:\[\]-]{1,200}")
ListModels = Callable[[Request], Awaitable[Response]]
"""Lists the models, as the API does."""


class _Listed(msgspec.Struct):
    """A list of models."""

    data: list[JsonObject]


class ListClients(Protocol):
    """Tells how each client is connected to a gateway."""

    def __call__(self, base_url: str, models: Sequence[JsonObject], *, owner: bool) -> list[Json]:
        """Return the settings of each client, with one of the models; paths of files are for the owner only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandData:
    """What the commands know and the page shows, too."""

    settings: Callable[[], Json]
    """Returns the effective settings and their sources; secrets are masked."""
    clients: ListClients
    environment: Mapping[str, str]
    """What commands have to know besides the environment, to be about this gateway."""
    key: str
    """The owner's."""
    hidden_key: str
    """What stands for a key in the settings of clients."""
    others: Mapping[str, str]
    """The URLs of the APIs that have a listener of their own, by their names."""


class OwnerDesk:
    """The handlers."""

    def __init__(self, accounts: Accounts | None, data: CommandData | None) -> None:
        """Without accounts, this is the demo; without data, it runs inside a command or a test."""
        self._accounts = accounts
        self._data = data

    @property
    def demo(self) -> bool:
        """Tell whether there are no accounts."""
        return self._accounts is None

    @property
    def others(self) -> Mapping[str, str]:
        """Return the URLs of the APIs that have a listener of their own."""
        return {} if self._data is None else self._data.others

    def accounts(self) -> list[Json]:
        """Return how all accounts stand."""
        return [] if self._accounts is None else self._accounts.overview()

    async def aclose(self) -> None:
        """Cancel logins that are pending."""
        if self._accounts is not None:
            await self._accounts.aclose()

    def handlers(self, models: ListModels) -> list[Entry]:
        """Return the handlers, by method and path."""
        found: list[Entry] = [] if self._accounts is None else self._accounts.handlers()
        if self._data is not None:
            found += [
                ("GET", "/settings", self._settings),
                ("GET", "/key", self._key),
                *Commands(self._data.environment).handlers(),
            ]
        found = [(method, path, _owners(handler)) for method, path, handler in found]
        if self._data is not None:
            found.append(("GET", "/connect", partial(self._connect, models)))
        return found

    async def _connect(self, models: ListModels, request: Request, visitor: Visitor) -> Response:
        """Tell every visitor how clients are connected, to the address under which the page was opened."""
        assert self._data is not None
        origin = request.query_params.get("origin", "")
        if not ORIGIN.fullmatch(origin):
            raise InvalidRequest("Give the `origin` of the page.", param="origin")
        listed = msgspec.json.decode(bytes((await models(request)).body), type=_Listed)
        shown = self._data.clients(f"{origin}/v1", listed.data, owner=visitor.owner)
        return json_response({"clients": shown, "hidden_key": self._data.hidden_key})

    async def _settings(self, _: Request, __: Visitor) -> Response:
        assert self._data is not None
        return json_response({"settings": await asyncio.to_thread(self._data.settings)})

    async def _key(self, _: Request, __: Visitor) -> Response:
        assert self._data is not None
        return json_response({"key": self._data.key})


def _owners(handler: Handler) -> Handler:
    async def checked(request: Request, visitor: Visitor) -> Response:
        if not visitor.owner:
            raise Forbidden(FOR_THE_OWNER)
        return await handler(request, visitor)

    return checked
