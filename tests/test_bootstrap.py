"""The whole gateway around the user's own Codex: its login, its home, and the key of this installation."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.gateway import API_KEY, listening, settings_for_tests
from tests.support.login import chatgpt_login
from turnbridge.app import REASON_FOR_OTHERS
from turnbridge.bootstrap import running_gateway, seal_secret
from turnbridge.codex.process.pool import Pool
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel, in_order

PATIENCE_S = 40
"""After this a test has failed."""


@asynccontextmanager
async def client_of(data_dir: Path, **chosen: object) -> AsyncIterator[httpx2.AsyncClient]:
    """Run the gateway on the user's Codex, without waiting for it, and return a client that sends the key."""
    headers = {"authorization": f"Bearer {API_KEY}"}
    async with (
        asyncio.timeout(PATIENCE_S),
        running_gateway(settings_for_tests(data_dir, **chosen), api_key=API_KEY) as gateway,
        listening(gateway) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S, trust_env=False) as client,
    ):
        yield client


async def ask(client: httpx2.AsyncClient) -> httpx2.Response:
    return await client.post("/v1/responses", json={"model": "gpt-5.5", "input": "Hello"})


async def readiness(client: httpx2.AsyncClient) -> httpx2.Response:
    """Return what `/readyz` says once Codex has been started, or cannot be."""
    starting = "Codex is starting."
    while (response := await client.get("/readyz")).json().get("reason") == starting:  # noqa: ASYNC110 - as probes do
        await asyncio.sleep(0.02)
    return response


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """Return the Codex home of a user who has much in it, but is not logged in."""
    home = tmp_path / "user-codex"
    (home / "skills" / "rude").mkdir(parents=True)
    (home / "skills" / "rude" / "SKILL.md").write_text("---\nname: rude\ndescription: Be rude.\n---\nBe rude.")
    (home / "AGENTS.md").write_text("Be rude.")
    return home


def configure(user: Path, base_url: str) -> None:
    """Let the user's provider be on this machine, and something start with Codex that leaves a mark."""
    (user / "config.toml").write_text(
        f"""
        model = "gpt-5.5"
        model_provider = "here"
        chatgpt_base_url = "{base_url}"
        [model_providers.here]
        name = "here"
        base_url = "{base_url}"
        wire_api = "responses"
        requires_openai_auth = true
        [mcp_servers.mark]
        command = "touch"
        args = ["{user.parent / "mark"}"]
        """
    )


def tree(directory: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


@pytest.mark.promise("start.no-login")
@pytest.mark.anyio
@pytest.mark.real
async def test_without_a_login_the_gateway_says_which_command_helps(tmp_path: Path, user: Path) -> None:
    configure(user, "http://127.0.0.1:9/v1")
    command = f"`{shlex.quote(sys.executable)} -m turnbridge login`"
    async with client_of(tmp_path) as client:
        not_ready = await readiness(client)
        refused = await ask(client)
        models = await client.get("/v1/models")
        alive = await client.get("/healthz")
    assert (not_ready.status_code, not_ready.json()["status"]) == (503, "not_ready")
    reason = not_ready.json()["reason"]
    assert command in reason
    assert refused.status_code == 401
    assert refused.json() == {
        "error": {"message": reason, "type": "authentication_error", "param": None, "code": "codex_login_required"}
    }
    assert (models.status_code, alive.status_code) == (200, 200)


@pytest.mark.promise("ingress.probes.reason")
@pytest.mark.anyio
@pytest.mark.real
async def test_the_reason_of_readyz_is_for_those_who_have_the_key(tmp_path: Path, user: Path) -> None:
    configure(user, "http://127.0.0.1:9/v1")
    async with client_of(tmp_path) as client:
        assert str(user) in (await readiness(client)).json()["reason"]
        for given in ("", "Bearer wrong"):
            told = await client.get("/readyz", headers={"authorization": given})
            assert (told.status_code, told.json()) == (503, {"status": "not_ready", "reason": REASON_FOR_OTHERS})


@pytest.mark.promise("start.users-home", "start.later-login")
@pytest.mark.anyio
@pytest.mark.real
async def test_a_login_serves_the_next_request_and_nothing_else_of_the_users_comes_along(
    tmp_path: Path, user: Path
) -> None:
    async with ScriptedModel(in_order(answer(message("Hi."))), record=True) as model:
        configure(user, model.base_url)
        async with client_of(tmp_path) as client:
            assert (await ask(client)).status_code == 401
            (user / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "sk-test"}))
            before = tree(user)
            served = await ask(client)
            ready = await client.get("/readyz")
    assert (served.status_code, ready.status_code) == (200, 200)
    assert served.json()["output"][0]["content"][0]["text"] == "Hi."
    (asked,) = model.requests
    assert asked.headers["authorization"] == "Bearer sk-test"
    assert "rude" not in json.dumps(asked.body)
    assert not (tmp_path / "mark").exists()
    assert tree(user) == before


@pytest.mark.promise("start.later-login")
@pytest.mark.anyio
@pytest.mark.real
async def test_a_login_makes_the_gateway_ready_although_nobody_asks(
    tmp_path: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends requests only to gateways that are ready would otherwise never send one."""
    # The file is to be noticed, not the time.
    monkeypatch.setattr(Pool, "login_recheck_s", 10 * PATIENCE_S)
    configure(user, "http://127.0.0.1:9/v1")
    async with client_of(tmp_path) as client:
        assert (await readiness(client)).status_code == 503
        (user / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "sk-test"}))
        while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - as probes do
            await asyncio.sleep(0.02)


@pytest.mark.promise("faults.start")
@pytest.mark.anyio
async def test_a_codex_that_cannot_be_started_is_named_by_readiness_and_to_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "start_timeout_s", 0.01)
    async with client_of(tmp_path, CODEX_BIN="/nowhere/codex") as client:
        not_ready = await readiness(client)
        refused = await ask(client)
    assert (not_ready.status_code, refused.status_code) == (503, 503)
    assert "/nowhere/codex" in not_ready.json()["reason"]
    assert refused.json()["error"]["code"] == "backend_unavailable"
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.promise("start.reasons")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"CODEX_BIN": "/nowhere/codex"}, "/nowhere/codex cannot be run: there is no such program."),
        (
            {"CODEX_FORCE_PROVIDER": "nonsense"},
            "Codex ended (exit status 1): Model provider `nonsense` not found",
        ),
    ],
)
@pytest.mark.real
async def test_the_reason_of_a_start_that_fails_is_told_once(
    tmp_path: Path, user: Path, chosen: dict[str, str], reason: str
) -> None:
    configure(user, "http://127.0.0.1:9/v1")
    async with client_of(tmp_path, **chosen) as client:
        assert (await readiness(client)).json()["reason"] == f"Codex could not be started: {reason}"


@pytest.mark.promise("start.no-login")
@pytest.mark.anyio
@pytest.mark.real
async def test_a_login_that_cannot_be_checked_now_is_not_called_missing(tmp_path: Path, user: Path) -> None:
    """Its owner would log in again, in vain, when only the network is away."""
    configure(user, "http://127.0.0.1:9/v1")
    (user / "auth.json").write_text(chatgpt_login())
    async with client_of(tmp_path) as client:
        assert (await readiness(client)).json()["status"] == "ready"


@pytest.mark.anyio
async def test_a_data_directory_that_cannot_be_used_is_named_by_readiness(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "codex-home").write_text("a file where a directory should be")
    async with client_of(tmp_path / "data") as client:
        assert "codex-home" in (await readiness(client)).json()["reason"]


def test_gateways_that_share_a_store_and_a_key_read_each_others_compacted_histories(tmp_path: Path) -> None:
    shared = {"PROXY_DATABASE_URL": "postgresql://db.example/t"}
    one, other, changed, alone, again = (
        seal_secret(settings_for_tests(tmp_path / name, **chosen))
        for name, chosen in (
            ("one", {**shared, "PROXY_API_KEY": "sk-0123456789abcdef"}),
            ("other", {**shared, "PROXY_API_KEY": "sk-0123456789abcdef"}),
            ("one", {**shared, "PROXY_API_KEY": "sk-fedcba9876543210"}),
            ("one", {"PROXY_API_KEY": "sk-0123456789abcdef"}),
            ("one", {}),
        )
    )
    assert one == other != changed
    assert alone == again != one
