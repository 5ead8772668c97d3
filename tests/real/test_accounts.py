"""Two Codex accounts behind one gateway, chosen by the key, and several providers behind one account."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import openai
import pytest

from tests.support.gateway import API_KEY, Bridge, listening, official_client, plain_client, settings_for_tests
from tests.support.issued_keys import bearer, issued, known, revoked
from tests.support.sockets import connected
from tests.support.waiting import until
from turnbridge.bootstrap import running_gateway
from turnbridge.scripted_model.replies import Reply, answer, function_call, message
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.store.schema import store_url
from turnbridge.turn.clients import ClientLimits
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

HI: JsonObject = {"model": "codex-5", "input": "hi"}
PLAN = "x-turnbridge-plan-primary-used-percent"
LOOK: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
PATIENCE_S = 90


def config(home: Path, model: str, provider: str, *providers: tuple[str, ScriptedModel], profiles: str = "") -> None:
    """Write the Codex configuration of an account."""
    home.mkdir(parents=True)
    tables = [
        f'[model_providers.{name}]\nname = "{name}"\nbase_url = "{each.base_url}"\nwire_api = "responses"'
        for name, each in providers
    ]
    text = "\n".join([f'model = "{model}"', f'model_provider = "{provider}"', *tables, profiles])
    (home / "config.toml").write_text(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """A gateway with two accounts; the default one has two providers."""

    bridge: Bridge
    default: ScriptedModel
    azure: ScriptedModel
    work: ScriptedModel
    key: str
    """An admin's of the account `work`."""
    url: str
    """Of the store."""

    async def post(self, key: str, **fields: object) -> JsonObject:
        answered = await self.bridge.http.post("/v1/responses", json={**HI, **fields}, headers=bearer(key))
        return {**answered.json(), **dict(answered.headers), "http": answered.status_code}

    def seen(self) -> list[list[tuple[object, object]]]:
        """Return the models and last inputs that each provider was asked for since the last look."""
        found: list[list[tuple[object, object]]] = []
        for model in (self.default, self.azure, self.work):
            found.append([(request.body["model"], _text(request.body)) for request in model.requests])
            model.requests.clear()
        return found

    async def listed(self, key: str) -> set[str]:
        client = self.bridge.client.with_options(api_key=key)
        return {model.id async for model in await client.models.list()}


def _text(body: JsonObject) -> object:
    items = body["input"]
    assert isinstance(items, list)
    last = items[-1]
    assert isinstance(last, dict)
    return last.get("output") or json.dumps(last.get("content"))


def told(text: str, used: int) -> Reply:
    """Return an answer of a provider that says how much of its plan is used."""
    headers = {"x-codex-primary-used-percent": str(used), "x-codex-primary-window-minutes": "300"}
    return replace(answer(message(text)), headers=headers)


@pytest.fixture(scope="module")
async def accounts(
    learned: Path, tmp_path_factory: pytest.TempPathFactory, anyio_backend: object
) -> AsyncIterator[Accounts]:
    """Return a gateway whose accounts have one scripted provider each, and one that only a model's name names."""
    del anyio_backend
    directory = tmp_path_factory.mktemp("accounts")
    shutil.copytree(learned, directory / "binaries")
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        default, azure, work = [
            await stack.enter_async_context(ScriptedModel(in_order(), record=True)) for _ in range(3)
        ]
        profiles = (
            '[profiles.az]\nmodel = "my-deployment"\nmodel_provider = "azure"\n[profiles.mine]\nmodel = "local-7b"'
        )
        homes = directory / "user-codex", directory / "accounts" / "work"
        config(homes[0], "gpt-5.5", "mine", ("mine", default), ("azure", azure), profiles=profiles)
        config(homes[1], "work-model", "theirs", ("theirs", work))
        url = store_url(directory)
        settings = settings_for_tests(directory, PROXY_MODEL_ALIASES="cloud=gpt-5.5@azure", PROXY_WARM_THREADS_MAX=8)
        gateway = await stack.enter_async_context(running_gateway(settings, api_key=API_KEY))
        address = await stack.enter_async_context(listening(gateway))
        client = await stack.enter_async_context(official_client(address))
        http = await stack.enter_async_context(plain_client(address))
        bridge = Bridge(url=address, gateway=gateway, model=default, client=client, http=http)
        key = await issued(url, "boss", ClientLimits(account="work"), admin=True)
        await known(bridge, key)
        yield Accounts(bridge=bridge, default=default, azure=azure, work=work, key=key, url=url)


@pytest.mark.promise("keys.accounts", "plan.shown", "keys.revoked.running")
async def test_two_keys_of_two_accounts_share_nothing(accounts: Accounts) -> None:
    gateway, key = accounts.bridge.gateway, accounts.key
    await gateway.pool.worker()
    assert [*gateway.backend.accounts] == [None], "an account costs nothing before somebody asks"
    ready = (await accounts.bridge.http.get("/readyz")).json()
    assert ready["accounts"] == {"default": "ready", "work": "ready"}

    accounts.default.respond = lambda _: told("from the default account", 11)
    accounts.work.respond = lambda _: told("from work", 92)
    mine, theirs = await asyncio.gather(accounts.post(API_KEY), accounts.post(key))
    assert accounts.seen() == [[("gpt-5.5", '[{"type": "input_text", "text": "hi"}]')], [], [("work-model", _HI)]]
    assert (mine["x-turnbridge-model"], theirs["x-turnbridge-model"]) == ("gpt-5.5", "work-model")
    assert (mine[PLAN], theirs[PLAN]) == ("11", "92")
    metrics = (await accounts.bridge.http.get("/metrics")).text
    for account, used in (("default", 0.11), ("work", 0.92)):
        assert f'turnbridge_plan_used_ratio{{account="{account}",window="primary"}} {used}' in metrics
    assert "turnbridge_app_servers 2.0" in metrics

    own, other = await accounts.listed(API_KEY), await accounts.listed(key)
    assert ("work-model" in own, "work-model" in other) == (False, True)
    assert (own - other) == {"local-7b", "my-deployment@azure", "cloud"}
    # What one has stored, the other does not find.
    for asker, response in ((API_KEY, theirs), (key, mine)):
        found = await accounts.bridge.http.get(f"/v1/responses/{response['id']}", headers=bearer(asker))
        assert found.status_code == 404
    # Each goes on where it was, in a thread of its own account.
    for asker, response in ((API_KEY, mine), (key, theirs)):
        more = await accounts.post(asker, previous_response_id=response["id"], input="more")
        assert more["x-turnbridge-thread"] == "warm"
    assert [len(each) for each in accounts.seen()] == [1, 0, 1]

    # A key that is revoked stops within a second, its open WebSocket too; the other account is served on.
    async with connected(accounts.bridge.url, key=key) as socket, connected(accounts.bridge.url, key=API_KEY) as stays:
        await socket.ask("hi", model="codex-5")
        await revoked(accounts.url, "boss")
        async with asyncio.timeout(1):
            assert await socket.closed() == 1008
        refused = await accounts.post(key)
        assert (refused["http"], _code(refused)) == (401, "invalid_api_key")
        assert (await stays.ask("hi", model="codex-5"))[-1]["type"] == "response.completed"
    assert [len(each) for each in accounts.seen()] == [1, 0, 1]


_HI = '[{"type": "input_text", "text": "hi"}]'


def _code(answered: JsonObject) -> object:
    error = answered["error"]
    assert isinstance(error, dict)
    return error["code"]


@pytest.mark.promise("models.provider")
async def test_a_models_name_may_name_a_provider(accounts: Accounts) -> None:
    def script(*replies: Sequence[Reply]) -> None:
        for model, wanted in zip((accounts.default, accounts.azure), replies, strict=True):
            model.respond = in_order(*wanted)

    script([], [answer(message(str(number))) for number in range(4)])
    for name, model in (
        ("gpt-5.5@azure", "gpt-5.5"),
        ("cloud", "gpt-5.5"),
        ("My-Deployment@Azure", "my-deployment"),
        ("gpt-5.5-high@azure", "gpt-5.5"),
    ):
        answered = await accounts.post(API_KEY, model=name, store=False)
        assert (answered["http"], answered["model"]) == (200, name)
        assert answered["x-turnbridge-model"] == f"{model}@azure"
        assert accounts.seen() == [[], [(model, _HI)], []]

    # The default provider has a name, too; and a model that the configuration names is served by it.
    script([answer(message("hi")), answer(message("hi"))], [])
    for name in ("gpt-5.5@mine", "local-7b"):
        assert (await accounts.post(API_KEY, model=name))["x-turnbridge-model"] == name.removesuffix("@mine")
    assert [len(each) for each in accounts.seen()] == [2, 0, 0]

    for name, hint in (
        ("gpt-5.5@nope", "provider `nope`, which the Codex configuration does not describe. It has: mine, azure."),
        ("gpt-5.5@openai", "provider `openai`"),
        ("my-deployment", "my-deployment@azure"),
        ("nothing@azure", "does not exist"),
    ):
        refused = await accounts.post(API_KEY, model=name)
        assert (refused["http"], _code(refused)) == (404, "model_not_found")
        assert hint in json.dumps(refused)
    assert accounts.seen() == [[], [], []]


@pytest.mark.promise("models.provider")
async def test_threads_of_two_providers_are_never_mixed(accounts: Accounts) -> None:
    call = answer(function_call("look", "{}", call_id="call_1"))
    accounts.azure.respond = in_order(call, answer(message("Azure saw it.")))
    accounts.default.respond = in_order(answer(message("The default provider did.")))
    asked: JsonObject = {"model": "gpt-5.5@azure", "tools": [LOOK], "input": "Look!"}
    first = await accounts.post(API_KEY, **asked)
    items = [{"role": "user", "content": "Look!"}, *_items(first)]
    items.append({"type": "function_call_output", "call_id": "call_1", "output": "a dot"})
    # The same conversation with the default provider does not resume the turn that waits at the other one.
    elsewhere = await accounts.post(API_KEY, **{**asked, "model": "gpt-5.5", "input": items})
    resumed = await accounts.post(API_KEY, **{**asked, "input": items})
    assert (elsewhere["x-turnbridge-thread"], resumed["x-turnbridge-thread"]) == ("replayed", "parked")
    assert accounts.seen() == [
        [("gpt-5.5", "a dot")],
        [("gpt-5.5", '[{"type": "input_text", "text": "Look!"}]'), ("gpt-5.5", "a dot")],
        [],
    ]
    # A key with a model has it of its own provider only.
    key = await issued(accounts.url, "dora", ClientLimits(models=("gpt-5.5",)))
    await known(accounts.bridge, key)
    assert (await accounts.post(key, model="gpt-5.5@azure"))["http"] == 404
    assert await accounts.listed(key) == {"gpt-5.5", "codex-5"}


def _items(answered: JsonObject) -> list[JsonObject]:
    output = answered["output"]
    assert isinstance(output, list)
    return [item for item in output if isinstance(item, dict)]


@pytest.mark.promise("keys.account-gone")
async def test_a_key_of_an_account_that_is_gone_or_logged_out_says_what_helps(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(accounts.url.removeprefix("sqlite:///")).parent / "accounts" / "fresh"
    key = await issued(accounts.url, "eve", ClientLimits(account="fresh"))
    await known(accounts.bridge, key)
    client = accounts.bridge.client.with_options(api_key=key)
    with pytest.raises(openai.InternalServerError) as gone:
        await client.models.list()
    assert (gone.value.status_code, gone.value.code) == (503, "account_not_found")
    assert "turnbridge login --account fresh" in gone.value.message
    unready = await accounts.bridge.http.get("/readyz", headers=bearer(key))
    assert (unready.status_code, "accounts" in unready.json()) == (503, False)
    assert "--account fresh" in unready.json()["reason"]

    home.mkdir()
    with pytest.raises(openai.AuthenticationError) as out:
        await client.responses.create(model="codex-5", input="hi")
    assert out.value.code == "codex_login_required"
    assert "login --account fresh" in out.value.message
    # The default account is none the worse for it.
    accounts.default.respond = in_order(answer(message("fine")))
    assert (await accounts.post(API_KEY))["http"] == 200
    accounts.seen()
    # At rest, its app-server ends.
    pool = accounts.bridge.gateway.backend.of("fresh").pool
    monkeypatch.setattr(pool, "idle_s", 0.0)
    pool._check.set()
    await until(lambda: not pool.workers)
