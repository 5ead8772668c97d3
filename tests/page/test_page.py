"""The page's data with parts that are scripted: no Codex runs here."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router

from turnbridge.api.openapi.document import document
from turnbridge.api.openapi.gateway import PART as GATEWAY
from turnbridge.cli.page_data import command_data
from turnbridge.codex.account import (
    Account,
    AccountSession,
    Identity,
    LoginCompleted,
    LoginMethod,
    LoginStarted,
    PlanLimit,
)
from turnbridge.codex.protocol.messages import RateLimits, RateLimitWindow
from turnbridge.codex.protocol.plan import Plan
from turnbridge.page.account import AccountDesk, AccountParts
from turnbridge.page.accounts import Accounts
from turnbridge.page.owner import OwnerDesk
from turnbridge.page.recent import MOST_REQUESTS, MOST_UNREAD, RecentRequests
from turnbridge.page.routes import Access, Page, PageView
from turnbridge.page.sessions import Sessions, Visitor
from turnbridge.settings.fields import load_settings
from turnbridge.turn.clients import Client, ClientLimits
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.turn.items import JsonObject
from turnbridge.web.http import PAGE_TOKEN, json_response
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import Metrics, RequestContext

pytestmark = pytest.mark.anyio

KEY = "sk-test-0123456789abcdef"
API = "/turnbridge/api"
MODEL: JsonObject = {"id": "codex-5", "description": "", "context_window": 1000, "max_output_tokens": 100}
WINDOW = RateLimitWindow(used_percent=42, window_duration_mins=300, resets_at=2_000_000_000)


class Session(AccountSession):
    """An account whose calls are answered from values."""

    def __init__(self, house: "House") -> None:
        self._house = house

    async def identity(self) -> Identity:
        self._house.readings += 1
        return Identity(account=self._house.account, login_needed=True, provider="openai")

    async def limits(self) -> tuple[PlanLimit, ...]:
        if self._house.offline:
            raise BackendUnavailable("The account's server is away.")
        return (PlanLimit(limit_id="codex", primary=WINDOW),)

    async def store_api_key(self, key: str) -> None:
        self._house.keys.append(key)

    async def log_out(self) -> None:
        """Nothing is to be revoked."""

    async def start_login(self, method: LoginMethod) -> LoginStarted:
        if self._house.offline:
            raise BackendUnavailable("The issuer is away.")
        return LoginStarted(login_id="1", verification_url="https://issuer.test/device", user_code=method)

    async def login_completed(self, started: LoginStarted) -> LoginCompleted:
        assert started.login_id == "1"
        return self._house.completed


class House:
    """A gateway's page, and what it is told."""

    def __init__(self, data_dir: Path) -> None:
        self.account: Account | None = Account(type="chatgpt", email="a@example.test", plan_type="plus")
        self.offline = False
        self.readings = 0
        self.keys: list[str] = []
        self.completed = LoginCompleted(success=True)
        self.problem = ""
        self.closing = False
        self.recent = RecentRequests()
        self.plan = Plan()
        self.home = data_dir / "codex"
        self.named = ["work"]
        keyring = Keyring(KEY)
        accounts = Accounts(
            named=lambda: self.named,
            problem=self.problem_of,
            plan=lambda account: {} if account else self.plan.windows(0.0),
            desk_of=lambda account: AccountDesk(
                AccountParts(
                    open=self.session,
                    plan=lambda: Plan() if account else self.plan,
                    user_home=self.home / (account or "own"),
                    home=data_dir / "linked",
                )
            ),
        )
        desk = OwnerDesk(
            accounts,
            command_data(load_settings(PROXY_DATA_DIR=data_dir), KEY, port=11435, others={}),
        )
        view = PageView(
            problem=self.problem_of,
            fidelity=lambda _: "exact",
            codex_version=lambda: "0.163.0",
            models=self.models,
            usage=self.models,
            gauges=lambda: {"running": 1},
            closing=lambda: self.closing,
            demo=desk.demo,
            others=desk.others,
            traced=False,
        )
        self.known: dict[str, Client] = {}
        sessions = Sessions(current=lambda client: self.known.get(client.id) or keyring.current(client))
        self.access = Access(sessions=sessions, owner=keyring.first(), own_names=("turn.test",))
        self.page = Page(view, self.access, self.recent, desk.handlers(self.models))
        self.app = wrap(Router(self.page.routes()), keyring=keyring, metrics=Metrics(), page=self.page.side())

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[AccountSession]:
        yield Session(self)

    def problem_of(self, account: str | None) -> str:
        return "It is at work." if account else self.problem

    async def models(self, _: Request) -> Response:
        return json_response({"data": [MODEL]})


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
async def http(house: House) -> AsyncIterator[httpx2.AsyncClient]:
    """Return a client with the owner's key."""
    transport = httpx2.ASGITransport(app=house.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://turn.test") as client:
        client.headers["authorization"] = f"Bearer {KEY}"
        yield client


def ended(number: int) -> RequestContext:
    return RequestContext(
        request_id=f"req_{number}", method="POST", route="/v1/responses", clock=float, started_at=0.0, status=200
    )


@pytest.mark.promise("page.served", "ingress.openapi")
async def test_every_route_of_the_page_is_in_the_document_and_answers_as_described(
    house: House, http: httpx2.AsyncClient
) -> None:
    described = house.page.described()
    served = {
        (method, route.path) for route in house.page.routes() for method in route.methods or () if API in route.path
    }
    assert set(described.operations) == {(method, path) for method, path in served if method != "HEAD"}
    whole: Any = document([GATEWAY, described])
    house.recent.note(ended(1), "ok", 1.0)
    for (method, path), operation in described.operations.items():
        if method != "GET" or operation.streams or operation.answer in ("UsagePage", "ModelList", "PageTimeline"):
            continue
        answered = await http.get(f"{path}?origin=http://turn.test")
        schema = {**whole["components"]["schemas"][operation.answer], "components": whole["components"]}
        jsonschema_rs.validate(schema, answered.json())


@pytest.mark.promise("page.usage", "page.guests")
def test_figures_are_of_the_requests_that_a_visitor_may_see() -> None:
    recent = RecentRequests(now=lambda: 7.0)
    for number in range(1, 101):
        context = ended(number)
        context.client, context.codex_model, context.served_by = Client(id="c", name="one"), "gpt-5.5", "fresh"
        context.first_output_at = number / 1000
        recent.note(context, "ok", number / 100)
    failed = ended(0)
    failed.client, failed.error_code = Client(id="d", name="other"), "model_not_found"
    recent.note(failed, "client_error", 1.0)
    latency = {
        "model": "gpt-5.5",
        "requests": 100,
        "first_output_ms": {"p50": 50.0, "p90": 90.0, "p99": 99.0},
        "total_ms": {"p50": 500.0, "p90": 900.0, "p99": 990.0},
    }
    errors = [{"code": "model_not_found", "count": 1}]
    shown = recent.figures(None)
    assert (shown["since"], shown["requests"], shown["errors"], shown["latencies"]) == (7, 101, errors, [latency])
    assert (recent.figures("one")["errors"], recent.figures("other")["latencies"]) == ([], [])


def test_waits_follow_one_another_and_the_last_lasts_to_the_end() -> None:
    recent = RecentRequests()
    for marks in (
        {},
        {"queued_at": 0.1},
        {"queued_at": 0.1, "admitted_at": 0.3, "served_at": 0.35, "first_output_at": 1.0},
    ):
        context = ended(1)
        for name, at in marks.items():
            setattr(context, name, at)
        recent.note(context, "ok", 2.0)
    assert [entry["waits"] for entry in recent.seen_by(None)] == [
        {"read": 2000.0},
        {"read": 100.0, "queue": 1900.0},
        {"read": 100.0, "queue": 200.0, "thread": 50.0, "provider": 650.0, "stream": 1000.0},
    ]


@pytest.mark.promise("page.state")
async def test_the_plan_is_read_once_a_minute(house: House, http: httpx2.AsyncClient) -> None:
    account = (await http.get(f"{API}/account")).json()
    assert (account["email"], account["limits"][0]["used_percent"]) == ("a@example.test", 42)
    assert (await http.get(f"{API}/account")).json() == account
    assert house.readings == 1
    # What a turn tells meanwhile is shown at once, as in the metrics.
    house.plan.update(RateLimits(primary=RateLimitWindow(used_percent=43)))
    assert (await http.get(f"{API}/account")).json()["limits"][0]["used_percent"] == 43
    # After a login, the pool begins a plan anew, which may be after the reading.
    house.plan = Plan()
    assert (await http.get(f"{API}/accounts")).json()["accounts"][0]["limits"][0]["used_percent"] == 42
    house.plan.update(RateLimits(primary=RateLimitWindow(used_percent=43)))
    assert (await http.get(f"{API}/account")).json()["limits"][0]["used_percent"] == 43


@pytest.mark.promise("page.state")
async def test_the_page_says_why_there_is_no_plan(house: House, http: httpx2.AsyncClient) -> None:
    house.offline = True
    assert (await http.get(f"{API}/account")).json()["limits_problem"] == "The account's server is away."
    house.problem = "Codex is starting."
    state = (await http.get(f"{API}/state")).json()
    assert (state["ready"], state["reason"]) == (False, "Codex is starting.")


@pytest.mark.promise("page.login")
async def test_a_login_succeeds_fails_or_cannot_begin(house: House, http: httpx2.AsyncClient) -> None:
    started = (await http.post(f"{API}/login", json={"method": "device"})).json()
    assert (started["url"], started["code"]) == ("https://issuer.test/device", "chatgptDeviceCode")
    assert (await http.get(f"{API}/login")).json()["state"] == "done"
    house.completed = LoginCompleted(success=False, error="denied")
    await http.post(f"{API}/login", json={"method": "browser"})
    assert (await http.get(f"{API}/login")).json()["problem"] == "The login failed. denied"
    house.offline = True
    assert (await http.post(f"{API}/login", json={"method": "device"})).json()["problem"] == "The issuer is away."
    assert (await http.post(f"{API}/login", json={"method": "magic"})).status_code == 400
    assert (await http.delete(f"{API}/login")).json()["state"] == "none"


@pytest.mark.promise("page.accounts", "page.guests")
async def test_each_account_has_its_own_state_plan_and_login(house: House, http: httpx2.AsyncClient) -> None:
    listed = (await http.get(f"{API}/accounts")).json()["accounts"]
    assert [(each["name"], each["ready"], each["login_at"]) for each in listed] == [
        ("default", True, None),
        ("work", False, None),
    ]
    house.plan.update(RateLimits(primary=RateLimitWindow(used_percent=43, resets_at=2_000_000_000)))
    work = (await http.get(f"{API}/account?account=work")).json()
    assert (work["name"], work["reason"], work["limits"]) == ("work", "It is at work.", [])
    # A login elsewhere is noticed.
    await http.get(f"{API}/account?account=work")
    (house.home / "work").mkdir(parents=True)
    (house.home / "work" / "auth.json").touch()
    assert (await http.get(f"{API}/account?account=work")).json()["login_at"] is not None
    assert house.readings == 2

    begun = (await http.post(f"{API}/login", json={"method": "device", "account": "new"})).json()
    assert begun["code"] == "chatgptDeviceCode"
    logins = [(await http.get(f"{API}/login?account={name}")).json()["state"] for name in ("new", "work")]
    assert logins == ["done", "none"]
    by_key = {"method": "api_key", "account": "work"}
    assert (await http.post(f"{API}/login", json={**by_key, "api_key": " sk-1 "})).json()["state"] == "done"
    assert house.keys == ["sk-1"]
    assert (await http.post(f"{API}/login", json=by_key)).status_code == 400
    for path, wrong in (("account?account=none", "no such account"), ("login?account=../x", "A name has")):
        refused = await http.get(f"{API}/{path}")
        assert (refused.status_code, wrong in refused.text) == (400, True)
    gone = (await http.post(f"{API}/logout", json={"account": "work"})).json()
    assert (gone["logged_out"], gone["email"], (house.home / "work" / "auth.json").exists()) == (
        True,
        "a@example.test",
        False,
    )
    # Nothing is left of a login that came to nothing.
    house.offline = True
    await http.post(f"{API}/login", json={"method": "device", "account": "never"})
    assert not (house.home / "never").exists()


@pytest.mark.promise("page.accounts", "page.guests", "keys.accounts")
async def test_a_guest_of_an_account_sees_its_readiness_and_no_account(house: House, http: httpx2.AsyncClient) -> None:
    guest = Client(id="g", name="guest", limits=ClientLimits(account="work"))
    sessions = house.access.sessions
    opened = sessions.open(Visitor(client=guest, owner=False))
    house.known[guest.id] = guest
    http.headers.clear()
    headers = {"cookie": f"turnbridge_page={opened.cookie}", PAGE_TOKEN.decode(): opened.token}
    state = (await http.get(f"{API}/state", headers=headers)).json()
    assert (state["ready"], state["reason"]) == (False, "Turns cannot be run now.")
    for path in ("accounts", "account", "login", "settings", "key"):
        assert (await http.get(f"{API}/{path}", headers=headers)).status_code == 403, path


@pytest.mark.promise("page.connect", "page.session")
async def test_what_every_visitor_reads(house: House, http: httpx2.AsyncClient) -> None:
    connect = (await http.get(f"{API}/connect?origin=http://turn.test")).json()
    assert "http://turn.test/v1" in next(each["text"] for each in connect["clients"] if each["name"] == "openai-sdk")
    assert (await http.get(f"{API}/models")).json() == {"data": [MODEL]}
    assert (await http.get(f"{API}/usage")).status_code == 200
    assert (await http.get("/", headers={"accept": "text/html"})).headers["content-type"].startswith("text/html")
    assert (await http.get("/")).json()["name"] == "turnbridge"
    opened = await http.post(f"{API}/code", json={"code": house.page.new_code()})
    token = {PAGE_TOKEN.decode(): opened.json()["token"]}
    assert (await http.get(f"{API}/state", headers=token)).json()["owner"] is True
    assert (await http.get(f"{API}/state", headers={**token, "host": "evil.test"})).status_code == 403
    assert (await http.delete(f"{API}/session", headers=token)).json() == {"closed": True}


@pytest.mark.promise("page.keys", "page.state")
async def test_commands_run_for_the_owner(http: httpx2.AsyncClient) -> None:
    made = (await http.post(f"{API}/keys", json={"name": "alice", "rate": "5/minute"})).json()
    assert (made["name"], made["rate"], made["key"][:14]) == ("alice", "5/minute", "sk-turnbridge-")
    refused = await http.post(f"{API}/keys", json={"name": "--help"})
    assert (refused.status_code, "A name has" in refused.json()["error"]["message"]) == (400, True)
    assert (await http.post(f"{API}/keys", json={})).status_code == 400
    astray = await http.post(f"{API}/keys", json={"name": "bob", "account": "nowhere"})
    assert (astray.status_code, "nowhere" in astray.text) == (400, True)
    assert (await http.post(f"{API}/keys/limits", json={"name": "alice", "rate": 5})).status_code == 400
    other = (await http.post(f"{API}/keys/rotate", json={"name": "alice"})).json()
    assert other["key"] != made["key"]
    assert [each["name"] for each in (await http.get(f"{API}/keys")).json()["keys"]] == ["alice"]
    assert (await http.get(f"{API}/timeline?id=req_1")).status_code == 400
    settings = (await http.get(f"{API}/settings")).json()["settings"]
    assert KEY not in str(settings)
    assert (await http.get(f"{API}/key")).json() == {"key": KEY}


@pytest.mark.promise("page.live")
async def test_events_tell_of_requests_and_gauges_until_the_gateway_closes(
    house: House, http: httpx2.AsyncClient
) -> None:
    for number in range(MOST_REQUESTS + 1):
        house.recent.note(ended(number), "ok", 1.0)
    house.closing = True
    text = (await http.get(f"{API}/live")).text
    assert text.startswith("event: requests\n")
    assert '"id":"req_50"' in text
    assert '"id":"req_0"' not in text
    assert house.recent.watchers == 0


@pytest.mark.promise("page.live")
async def test_a_watcher_that_is_far_behind_loses_requests_and_knows_it(house: House) -> None:
    with house.recent.watched() as watcher:
        house.recent.note(ended(1), "ok", 1.0)
        assert [entry["id"] for entry in await watcher.next(1)] == ["req_1"]
        assert await watcher.next(0) == []
        for number in range(MOST_UNREAD + 1):
            house.recent.note(ended(number), "ok", 1.0)
        assert watcher.lost


@pytest.mark.promise("page.live")
async def test_a_guest_sees_the_last_requests_of_its_own_whoever_came_since(house: House) -> None:
    house.recent.note(ended(0), "ok", 1.0)
    own = ended(1)
    own.client, own.model = Client(id="1", name="guest"), "m" * 10_000
    house.recent.note(own, "ok", 1.0)
    for number in range(2, MOST_REQUESTS + 2):
        house.recent.note(ended(number), "ok", 1.0)
    (seen,) = house.recent.seen_by("guest")
    assert seen["id"] == "req_1"
    # The name is the client's own word, and may be megabytes.
    assert seen["model"] == "m" * 128
    assert [entry["id"] for entry in house.recent.seen_by(None)] == [f"req_{n}" for n in range(2, MOST_REQUESTS + 2)]
