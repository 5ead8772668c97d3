"""All accounts, for the page: which there are, how each stands, login and logout. Only the owner sees them."""

from collections.abc import Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from turnbridge.api.shared.validation import invalid
from turnbridge.codex.account import LoginMethod, identity_as_json
from turnbridge.engine.ports import PlanWindow
from turnbridge.page.account import AccountDesk, windows_as_json
from turnbridge.page.openapi import AccountBody, LoginBody
from turnbridge.page.routes import Entry, small_body
from turnbridge.page.sessions import Visitor
from turnbridge.turn.clients import ACCOUNT_NAME, ACCOUNT_RULE, DEFAULT_ACCOUNT
from turnbridge.turn.items import Json, JsonObject
from turnbridge.web.http import json_response

METHODS: Mapping[str, LoginMethod] = {"browser": "chatgpt", "device": "chatgptDeviceCode"}


class Accounts:
    """The handlers, and a desk for each account that somebody has asked about; None is the default account."""

    def __init__(
        self,
        *,
        named: Callable[[], Sequence[str]],
        problem: Callable[[str | None], str],
        plan: Callable[[str | None], Mapping[str, PlanWindow]],
        desk_of: Callable[[str | None], AccountDesk],
    ) -> None:
        """`named` returns the accounts besides the default one, and `problem` why turns of one cannot run now."""
        self._named = named
        self._problem = problem
        self._plan = plan
        self._new_desk = desk_of
        self._desks: dict[str | None, AccountDesk] = {}

    def overview(self) -> list[Json]:
        """Return how all accounts stand, as far as it is known without asking Codex."""
        return [self._known(account) for account in (None, *self._named())]

    def handlers(self) -> list[Entry]:
        """Return the handlers, by method and path; all are for the owner."""
        return [
            ("GET", "/accounts", self._list),
            ("GET", "/account", self._show),
            ("POST", "/login", self._start_login),
            ("GET", "/login", self._show_login),
            ("DELETE", "/login", self._cancel_login),
            ("POST", "/logout", self._log_out),
        ]

    async def aclose(self) -> None:
        """Cancel logins that are pending."""
        for desk in self._desks.values():
            await desk.cancel_login()

    def _known(self, account: str | None) -> JsonObject:
        reason, desk = self._problem(account), self._desk_of(account)
        desk.tell_plan()
        return {
            "name": account or DEFAULT_ACCOUNT,
            "ready": not reason,
            "reason": reason,
            "login_at": desk.login_at(),
            "limits": windows_as_json(self._plan(account)),
        }

    def _desk(self, name: str, *, new: bool = False) -> AccountDesk:
        """Return the desk of an account, which need not exist if it is `new`."""
        account = None if name == DEFAULT_ACCOUNT else name
        if account is not None and not ACCOUNT_NAME.fullmatch(account):
            raise invalid("account", ACCOUNT_RULE)
        if account is not None and not new and account not in self._named():
            raise invalid("account", "there is no such account.")
        return self._desk_of(account)

    def _desk_of(self, account: str | None) -> AccountDesk:
        if account not in self._desks:
            self._desks[account] = self._new_desk(account)
        return self._desks[account]

    async def _list(self, _: Request, __: Visitor) -> Response:
        return json_response({"accounts": self.overview()})

    async def _show(self, request: Request, _: Visitor) -> Response:
        name = _asked(request)
        state = await self._desk(name).state()
        known = self._known(None if name == DEFAULT_ACCOUNT else name)
        return json_response({**known, **state.as_json(), "login": self._desk(name).login.as_json()})

    async def _start_login(self, request: Request, _: Visitor) -> Response:
        given = await small_body(request, LoginBody)
        key = given.api_key.strip()
        if (given.method == "api_key") != bool(key):
            raise invalid("api_key", "expected an API key with the method `api_key`, and with no other.")
        login = await self._desk(given.account, new=True).start_login(METHODS.get(given.method), key)
        return json_response(login.as_json())

    async def _show_login(self, request: Request, _: Visitor) -> Response:
        return json_response(self._desk(_asked(request), new=True).login.as_json())

    async def _cancel_login(self, request: Request, _: Visitor) -> Response:
        desk = self._desk(_asked(request), new=True)
        await desk.cancel_login()
        return json_response(desk.login.as_json())

    async def _log_out(self, request: Request, _: Visitor) -> Response:
        identity = await self._desk((await small_body(request, AccountBody)).account).log_out()
        return json_response({"logged_out": identity.known, **identity_as_json(identity)})


def _asked(request: Request) -> str:
    return request.query_params.get("account", DEFAULT_ACCOUNT)
