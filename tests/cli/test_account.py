"""`login`, `logout` and `whoami` with the real Codex, and a scripted authorization server on loopback."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.support.command import PATIENCE_S, Finished, end_by_force, run, serving, start
from tests.support.login_server import EMAIL, RESETS_LATER, RESETS_SOON, USER_CODE, LoginServer, login_server
from turnbridge.cli.console import EXIT_CONFIG, EXIT_UNAVAILABLE
from turnbridge.cli.main import EXIT_INTERRUPTED

pytestmark = [pytest.mark.anyio, pytest.mark.real]

EXIT_USAGE = 2
EXIT_NOBODY = 1
DEAD_PROXY = dict.fromkeys(("http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
NOBODY = {
    "usable": False,
    "login_needed": True,
    "provider": "openai",
    "kind": None,
    "email": None,
    "plan": None,
    "problem": None,
}
CHATGPT = {**NOBODY, "usable": True, "kind": "chatgpt", "email": EMAIL, "plan": "plus"}
API_KEY = {**NOBODY, "usable": True, "kind": "apiKey"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "my home"
    directory.mkdir()
    return directory


@pytest.fixture
def issuer(tmp_path: Path, home: Path) -> Iterator[LoginServer]:
    with login_server(tmp_path) as server:
        server.write_config(home / ".codex")
        yield server


async def first_line(process: asyncio.subprocess.Process) -> dict[str, str]:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return dict(json.loads(await process.stdout.readline()))


@pytest.mark.promise("commands.login.api-key")
@pytest.mark.parametrize("variables", [{}, DEAD_PROXY], ids=["direct", "behind a proxy"])
async def test_an_api_key_is_read_from_a_pipe_where_codex_was_never_used(home: Path, variables: dict[str, str]) -> None:
    assert await run(home, "whoami", **variables) == Finished(EXIT_NOBODY, _nobody(home), "")
    assert not (home / ".codex").exists(), "nothing is written to a user's home unasked"
    logged_in = await run(home, "login", "--api-key", stdin="sk-secret\n", **variables)
    assert logged_in == Finished(0, "Logged in: OpenAI API key.\n", "")
    assert json.loads((home / ".codex" / "auth.json").read_text())["OPENAI_API_KEY"] == "sk-secret"
    assert await run(home, "whoami", **variables) == Finished(0, "OpenAI API key\n", "")
    shown = await run(home, "whoami", "--json", **variables)
    assert json.loads(shown.out) == {**API_KEY, "limits": [], "limits_problem": None}


@pytest.mark.promise("commands.accounts")
async def test_a_named_account_has_a_login_of_its_own(home: Path) -> None:
    login = await run(home, "login", "--api-key", "--account", "work", stdin="sk-work\n")
    assert (login.status, login.err) == (0, "")
    assert login.out.startswith("Logged in: OpenAI API key.\nMake a key for it: ")
    assert login.out.endswith("keys create NAME --account work\n")
    file = home / "data" / "accounts" / "work" / "auth.json"
    assert json.loads(file.read_text())["OPENAI_API_KEY"] == "sk-work"
    status = json.loads((await run(home, "status", "--json")).out)
    assert (status["account"]["usable"], status["accounts"]) == (False, {"work": API_KEY})
    logout = await run(home, "logout", "--account", "work", "--json")
    assert (json.loads(logout.out)["logged_out"], file.exists()) == (True, False)
    missing = await run(home, "whoami", "--account", "home")
    assert (missing.status, "There is no account `home`, only: default, work." in missing.err) == (EXIT_CONFIG, True)


def _nobody(home: Path) -> str:
    command = f"PROXY_DATA_DIR='{home / 'data'}' {quote(sys.executable)} -m turnbridge login"
    return f"Nobody is logged in.\nLog in: {command}\n"


@pytest.mark.promise("commands.login.api-key")
@pytest.mark.parametrize(
    ("words", "status"),
    [(["--api-key", "sk-x"], EXIT_USAGE), (["--api-key=sk-x"], EXIT_USAGE), (["--api-key"], EXIT_CONFIG)],
)
async def test_an_api_key_is_not_taken_from_the_arguments(home: Path, words: list[str], status: int) -> None:
    refused = await run(home, "login", *words)
    assert (refused.status, refused.out) == (status, "")
    assert not (home / ".codex").exists()


async def test_two_ways_to_log_in_at_once_are_refused(home: Path) -> None:
    refused = await run(home, "login", "--api-key", "--device")
    assert (refused.status, refused.out) == (EXIT_USAGE, "")
    assert "Choose one of --device, --api-key and --access-token." in refused.err


@pytest.mark.promise("commands.login.access-token")
async def test_an_access_token_logs_in_by_codex_itself(home: Path, issuer: LoginServer) -> None:
    logged_in = await run(home, "login", "--access-token", stdin="at-secret-0123456789\n", **issuer.variables())
    assert logged_in == Finished(0, f"Logged in: {EMAIL}, ChatGPT Plus.\n", "")
    assert "at-secret" in (home / ".codex" / "auth.json").read_text()
    shown = await run(home, "whoami", "--json", **issuer.variables())
    assert {name: json.loads(shown.out)[name] for name in CHATGPT} == CHATGPT
    refused = await run(home, "login", "--access-token", "--account", "work", stdin="wrong\n", **issuer.variables())
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith("Codex refuses this access token: Error logging in with access token")
    assert not (home / "data" / "accounts" / "work").exists()


@pytest.mark.promise("commands.login.device", "commands.whoami", "commands.logout")
async def test_a_device_code_logs_in_and_logout_revokes_it(home: Path, issuer: LoginServer) -> None:
    issuer.approved.set()
    logged_in = await run(home, "login", "--device", **issuer.variables())
    assert (logged_in.status, logged_in.err) == (0, "")
    assert f"  {issuer.url}/codex/device\n" in logged_in.out
    assert f"  {USER_CODE}\n" in logged_in.out
    assert logged_in.out.endswith(f"Logged in: {EMAIL}, ChatGPT Plus.\n")

    shown = await run(home, "whoami", TZ="UTC", **issuer.variables())
    assert shown == Finished(
        0,
        f"{EMAIL}, ChatGPT Plus\n"
        "  5 hours   42 % used, resets on Wed 18 May 2033, 03:33\n"
        "  week       7 % used, resets on Mon 23 May 2033, 22:26\n",
        "",
    )
    as_json = await run(home, "whoami", "--json", **issuer.variables())
    windows = [
        {"limit": "codex", "window_minutes": 300, "used_percent": 42, "resets_at": RESETS_SOON},
        {"limit": "codex", "window_minutes": 10080, "used_percent": 7, "resets_at": RESETS_LATER},
    ]
    assert json.loads(as_json.out) == {**CHATGPT, "limits": windows, "limits_problem": None}

    logged_out = await run(home, "logout", **issuer.variables())
    told = f"Logged out: {EMAIL}, ChatGPT Plus. Every Codex that uses {home / '.codex'} is logged out, too.\n"
    assert logged_out == Finished(0, told, "")
    assert [json.loads(body)["token"] for body in issuer.revoked] == ["refresh-1"]
    assert not (home / ".codex" / "auth.json").exists()
    assert await run(home, "logout", **issuer.variables()) == Finished(0, "Nobody is logged in.\n", "")
    assert (await run(home, "whoami", **issuer.variables())).status == EXIT_NOBODY


@pytest.mark.promise("commands.accounts", "commands.login.device")
async def test_a_named_account_logs_in_to_chatgpt_by_a_code(home: Path, issuer: LoginServer) -> None:
    issuer.approved.set()
    issuer.write_config(home / "data" / "accounts" / "work")
    logged_in = await run(home, "login", "--device", "--account", "work", **issuer.variables())
    assert (logged_in.status, logged_in.err) == (0, "")
    assert f"Logged in: {EMAIL}, ChatGPT Plus.\nMake a key for it: " in logged_in.out
    shown = json.loads((await run(home, "whoami", "--account", "work", "--json", **issuer.variables())).out)
    assert ({name: shown[name] for name in CHATGPT}, len(shown["limits"])) == (CHATGPT, 2)
    # The default account has none of it.
    assert not (home / ".codex" / "auth.json").exists()


@pytest.mark.promise("commands.login.browser")
async def test_a_browser_logs_in(home: Path, issuer: LoginServer) -> None:
    process = await start(home, "login", "--json", **issuer.variables())
    try:
        started = await first_line(process)
        query = parse_qs(urlsplit(started["url"]).query)
        (redirect,), (state,) = query["redirect_uri"], query["state"]
        async with httpx2.AsyncClient(trust_env=False, follow_redirects=True) as browser:
            assert (await browser.get(redirect, params={"code": "code-1", "state": state})).status_code == 200
        out, err = await process.communicate()
    finally:
        await end_by_force(process, home)
    assert (process.returncode, err.decode()) == (0, "")
    assert json.loads(out) == {"event": "completed", **CHATGPT}


@pytest.mark.promise("commands.login.cancel")
async def test_ctrl_c_cancels_a_login_and_leaves_nothing(home: Path, issuer: LoginServer) -> None:
    process = await start(home, "login", "--device", "--json", **issuer.variables())
    try:
        assert await first_line(process) == {
            "event": "started",
            "url": f"{issuer.url}/codex/device",
            "code": USER_CODE,
        }
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
    finally:
        await end_by_force(process, home)
    assert (process.returncode, out, err) == (EXIT_INTERRUPTED, b"", b"")
    issuer.approved.set()
    assert not (home / ".codex" / "auth.json").exists()
    assert "/oauth/token" not in issuer.paths


@pytest.mark.promise("commands.login.device")
async def test_an_issuer_that_is_out_of_order_is_named(home: Path, issuer: LoginServer) -> None:
    issuer.refuses = True
    refused = await run(home, "login", "--device", **issuer.variables())
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith("The login could not be started. ")
    assert refused.err.endswith("Check the network, and HTTPS_PROXY if there is a proxy.\n")


@pytest.mark.promise("commands.whoami")
async def test_a_login_whose_server_is_away_is_still_a_login(home: Path, issuer: LoginServer) -> None:
    issuer.approved.set()
    assert (await run(home, "login", "--device", **issuer.variables())).status == 0
    issuer.refuses = True
    shown = await run(home, "whoami", **issuer.variables())
    assert shown.status == 0
    assert shown.out.startswith("Somebody is logged in, but Codex cannot reach the account's server: ")


@pytest.mark.promise("commands.whoami")
async def test_a_provider_of_ones_own_needs_no_login(home: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(
        'model_provider = "own"\n[model_providers.own]\nname = "own"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    told = "No login is needed: the configured provider is `own`.\n"
    assert await run(home, "whoami") == Finished(0, told, "")
    warning = "warning: the configured provider `own` does not use this login.\n"
    assert await run(home, "login", "--api-key", stdin="sk-x") == Finished(0, "Logged in.\n", warning)


@pytest.mark.promise("commands.login.noticed")
async def test_a_running_gateway_notices_a_login(home: Path) -> None:
    async with serving(home) as gateway:
        await gateway.read_until("print(")
        assert (await gateway.readiness()).status_code == 503
        logged_in = await run(home, "login", "--api-key", stdin="sk-x", PORT=gateway.url.rpartition(":")[2])
        told = f"Logged in: OpenAI API key.\nThe gateway on {gateway.url}/v1 is ready.\n"
        assert logged_in == Finished(0, told, "")
        assert (await gateway.readiness()).status_code == 200


async def test_paths_that_cannot_be_used_are_named(home: Path) -> None:
    nowhere = await run(home, "whoami", PROXY_DATA_DIR="/proc/nowhere")
    assert nowhere == Finished(EXIT_UNAVAILABLE, "", "Cannot use /proc/nowhere: No such file or directory.\n")
    blocked = await run(home, "login", "--api-key", stdin="sk-x", CODEX_HOME="/dev/null/codex")
    words = "Cannot create /dev/null/codex: Not a directory. Choose another directory in CODEX_HOME.\n"
    assert blocked == Finished(EXIT_CONFIG, "", words)


async def test_over_ssh_the_browser_login_tells_of_the_port_and_of_device_codes(
    home: Path, issuer: LoginServer
) -> None:
    process = await start(home, "login", SSH_CONNECTION="192.0.2.1 1 192.0.2.2 22", **issuer.variables())
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            printed = (await process.stdout.readuntil(b"Waiting for the login.")).decode()
    finally:
        await end_by_force(process, home)
    assert re.search(r"-m turnbridge login --device`, or connect with `ssh -L (\d+):127.0.0.1:\1 ...`", printed)
