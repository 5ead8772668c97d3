"""Each check of `turnbridge doctor` by itself."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.support.fake_gateway import NOT_READY, READY, Gateway, fake_gateway
from tests.support.login_server import login_server
from tests.support.ports import free_port
from turnbridge.cli import codex_checks, doctor, host_checks
from turnbridge.cli.codex_checks import CodexChecks
from turnbridge.cli.finding import Finding
from turnbridge.cli.main import app
from turnbridge.codex import self_check
from turnbridge.codex.account import Account, Identity, PlanLimit
from turnbridge.codex.protocol.messages import RateLimitWindow
from turnbridge.codex.self_check import Fidelity
from turnbridge.settings.fields import Settings, load_settings
from turnbridge.store.schema import STORE_FILE
from turnbridge.turn.errors import BackendUnavailable

EXIT_WRONG = 1
CHATGPT = Identity(account=Account(type="chatgpt", email="a@b.test"), login_needed=True, provider="openai")
NOBODY = Identity(account=None, login_needed=True, provider="openai")
OFFLINE = Identity(account=None, login_needed=True, provider="openai", problem="no network", offline=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(PROXY_DATA_DIR=tmp_path / "data", CODEX_HOME=tmp_path / "codex", PORT=free_port())


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    with fake_gateway(tmp_path, monkeypatch) as server:
        yield server


def states(findings: Iterator[Finding]) -> list[tuple[str, str]]:
    found = list(findings)
    assert all(bool(one.remedy) == (one.state != "ok") for one in found), "what is not ok has a remedy"
    return [(one.check, one.state) for one in found]


# --- Codex ---


def test_a_home_that_cannot_be_prepared(settings: Settings) -> None:
    assert states(CodexChecks(settings=settings).check_home()) == [("home", "ok")]
    settings.codex_home.mkdir()
    (settings.codex_home / "config.toml").write_text("model = [")
    assert states(CodexChecks(settings=settings).check_home()) == [("home", "wrong")]
    nowhere = load_settings(PROXY_DATA_DIR="/proc/nowhere", CODEX_HOME=settings.codex_home)
    broken = CodexChecks(settings=nowhere)
    assert states(broken.check_home()) == [("home", "wrong")]
    assert [*broken.check_binary(), *broken.check_login(), *broken.check_provider()] == [], "nothing can be asked"


@pytest.mark.parametrize(
    ("dialect", "seen", "expected"),
    [
        ("v2", Fidelity(), [("binary", "ok"), ("fidelity", "ok")]),
        ("v2", None, [("binary", "ok"), ("fidelity", "warning")]),
        ("v2", Fidelity(extra_tools=("sleep",)), [("binary", "ok"), ("fidelity", "warning")]),
        ("v1", Fidelity(host_tools=("shell",)), [("binary", "warning"), ("fidelity", "wrong")]),
    ],
)
def test_what_is_known_of_a_binary(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    seen: Fidelity | None,
    expected: list[tuple[str, str]],
) -> None:
    async def examine(*_: object, **__: object) -> object:
        return SimpleNamespace(name="b", version="1.2.3", capabilities=SimpleNamespace(dialect=dialect))

    monkeypatch.setattr(codex_checks, "examine", examine)
    monkeypatch.setattr(self_check, "stored_result", lambda *_: seen)
    assert states(CodexChecks(settings=settings, config={}).check_binary()) == expected


def test_a_binary_that_cannot_be_run(settings: Settings) -> None:
    missing = load_settings(PROXY_DATA_DIR=settings.data_dir, CODEX_BIN="/nowhere/codex")
    assert states(CodexChecks(settings=missing, config={}).check_binary()) == [("binary", "wrong")]


@pytest.mark.parametrize(
    ("identity", "problem", "expected"),
    [
        (CHATGPT, None, [("login", "ok")]),
        (CHATGPT, "no network", [("login", "ok"), ("plan", "warning")]),
        (NOBODY, None, [("login", "wrong")]),
        (OFFLINE, None, [("login", "warning")]),
        (None, None, [("login", "wrong")]),
    ],
)
def test_who_is_logged_in(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    identity: Identity | None,
    problem: str | None,
    expected: list[tuple[str, str]],
) -> None:
    def account_of(_: object) -> object:
        if identity is None:
            raise BackendUnavailable("Codex is broken.")
        return identity, (), problem

    monkeypatch.setattr(codex_checks, "account_of", account_of)
    assert states(CodexChecks(settings=settings, config={}).check_login()) == expected


def test_a_plan_that_is_used_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (PlanLimit(primary=RateLimitWindow(used_percent=100)), PlanLimit(primary=RateLimitWindow(used_percent=99)))
    monkeypatch.setattr(codex_checks, "account_of", lambda _: (CHATGPT, limits, None))
    found = states(CodexChecks(settings=settings, config={}).check_login())
    assert found == [("login", "ok"), ("plan", "warning"), ("plan", "ok")]


def test_each_account_is_checked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("away", "broken", "empty", "full"):
        (settings.data_dir / "accounts" / name).mkdir(parents=True)
    spent = (PlanLimit(primary=RateLimitWindow(used_percent=100)),)
    known = {"away": (OFFLINE, (), None), "empty": (NOBODY, (), None), "full": (CHATGPT, spent, None)}

    def account_of(_: object, name: str | None = None) -> object:
        if name == "broken":
            raise BackendUnavailable("Its configuration is broken.")
        return (CHATGPT, (), None) if name is None else known[name]

    monkeypatch.setattr(codex_checks, "account_of", account_of)
    found = [*CodexChecks(settings=settings, config={}).check_login()]
    assert [(each.check, each.state, each.text.partition(":")[0]) for each in found[1:]] == [
        ("account", "warning", "away"),
        ("account", "wrong", "broken"),
        ("account", "warning", "empty"),
        ("account", "ok", "full"),
        ("plan", "warning", "full"),
    ]
    assert found[3].remedy.endswith("login --account empty")


@pytest.mark.parametrize(
    ("provider", "account", "config", "url"),
    [
        ("openai", Account(type="apiKey"), {}, "https://api.openai.com/v1"),
        ("openai", Account(type="chatgpt"), {}, codex_checks.CHATGPT_URL),
        ("openai", Account(type="chatgpt"), {"chatgpt_base_url": "https://a.test"}, "https://a.test"),
        ("openai", Account(type="apiKey"), {"openai_base_url": "https://b.test"}, "https://b.test"),
        ("ollama", None, {}, "http://localhost:11434/v1"),
        ("amazon-bedrock", None, {}, None),
    ],
)
def test_the_address_of_a_provider(
    provider: str, account: Account | None, config: dict[str, object], url: str | None
) -> None:
    identity = Identity(account=account, login_needed=True, provider=provider)
    assert codex_checks.provider_url(provider, {}, config, identity) == url


def own_provider(settings: Settings, **provider: object) -> CodexChecks:
    identity = Identity(account=None, login_needed=False, provider="own")
    return CodexChecks(settings=settings, identity=identity, config={"model_providers": {"own": provider}})


def test_a_provider_without_its_key_and_without_an_answer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OWN_KEY", raising=False)
    settings.codex_home.mkdir()
    checks = own_provider(settings, base_url=f"http://127.0.0.1:{free_port()}/v1", env_key="OWN_KEY")
    assert states(checks.check_provider()) == [("provider", "wrong"), ("provider", "wrong")]
    (settings.codex_home / ".env").write_text("OWN_KEY=sk-x\n")
    assert states(checks.check_provider()) == [("provider", "wrong")]
    assert states(own_provider(settings, base_url="nonsense").check_provider()) == [("provider", "wrong")]
    assert states(own_provider(settings).check_provider()) == [("provider", "ok")]


def test_a_provider_that_answers_tells_its_time_whatever_proxy_is_set(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with login_server(tmp_path) as server:
        refusing = own_provider(settings, base_url=server.url)
        assert states(refusing.check_provider()) == [("provider", "ok")]
        assert states(refusing.check_clock()) == [("clock", "ok")]
        assert refusing.server_time is not None
        encrypted = own_provider(settings, base_url=server.secure_url)
        assert states(encrypted.check_provider()) == [("provider", "ok")], "Codex may trust it where Python does not"


def test_a_clock_that_is_off(settings: Settings) -> None:
    now = datetime.now(UTC)
    for off_s, state in ((0, "ok"), (codex_checks.MOST_CLOCK_SKEW_S + 60, "wrong")):
        checks = CodexChecks(settings=settings, server_time=now - timedelta(seconds=off_s))
        assert states(checks.check_clock()) == [("clock", state)]


def test_a_clock_before_the_installation(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert states(CodexChecks(settings=settings).check_clock()) == [("clock", "ok")]
    (tmp_path / "installed").touch()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).timestamp()
    os.utime(tmp_path / "installed", (tomorrow, tomorrow))
    monkeypatch.setattr(codex_checks, "__file__", str(tmp_path / "installed"))
    assert states(CodexChecks(settings=settings).check_clock()) == [("clock", "wrong")]


# --- This machine ---


@pytest.mark.parametrize(("free_mb", "state"), [(63, "wrong"), (1023, "warning"), (1024, "ok")])
def test_a_disk_that_is_nearly_full(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, free_mb: int, state: str
) -> None:
    usage = SimpleNamespace(free=free_mb * host_checks.BYTES_PER_MB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert states(host_checks.check_disk(settings)) == [("disk", state)]


def test_what_others_may_read(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.data_dir.mkdir(mode=0o700)
    assert states(host_checks.check_permissions(settings)) == [("permissions", "ok")]
    settings.data_dir.chmod(0o750)
    settings.codex_home.mkdir()
    (settings.codex_home / "auth.json").touch()
    (settings.codex_home / "auth.json").chmod(0o644)
    assert states(host_checks.check_permissions(settings)) == [("permissions", "warning")] * 2
    # Also where the tests run as root, who may write everywhere.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert states(host_checks.check_permissions(settings))[-1] == ("permissions", "wrong")


@pytest.mark.promise("replicas.login")
def test_a_login_that_another_machine_may_use(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert states(host_checks.check_shared_login(settings)) == []
    settings.codex_home.mkdir()
    file = settings.codex_home / "auth.json"
    file.touch(mode=0)  # Nobody reads it.
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(host_checks, "MOUNTS", mounts)
    own = "22 1 254:1 / / rw,relatime - ext4 /dev/vda rw\n"
    mounts.write_text(own)
    assert states(host_checks.check_shared_login(settings)) == [("login file", "ok")]
    mounts.write_text(f"{own}40 22 0:50 / {tmp_path} rw shared:7 - nfs4 server:/home rw\n")
    (found,) = host_checks.check_shared_login(settings)
    assert (found.state, "nfs4" in found.text, "turnbridge login" in found.remedy) == ("warning", True, True)
    mounts.write_text(own)
    (tmp_path / "another.json").hardlink_to(file)
    assert states(host_checks.check_shared_login(settings)) == [("login file", "warning")]


def test_a_store_that_is_none(settings: Settings) -> None:
    assert states(host_checks.check_store(settings)) == [("store", "ok")]
    settings.data_dir.mkdir()
    (settings.data_dir / STORE_FILE).touch()
    assert states(host_checks.check_store(settings)) == [("store", "ok")]
    (settings.data_dir / STORE_FILE).write_text("this is no database, but it is long enough to look like one" * 20)
    assert states(host_checks.check_store(settings)) == [("store", "wrong")]
    off = load_settings(PROXY_DATA_DIR=settings.data_dir, PROXY_STORE_TTL_DAYS=0)
    assert states(host_checks.check_store(off)) == [("store", "ok")]


def test_a_host_that_needs_a_chosen_key(settings: Settings) -> None:
    assert states(host_checks.check_port(settings)) == [("port", "ok")]
    for host, expected in (("0.0.0.0", ["wrong", "ok"]), ("localhost", ["ok"])):
        chosen = load_settings(PROXY_DATA_DIR=settings.data_dir, PROXY_HOST=host, PORT=settings.port)
        assert [state for _, state in states(host_checks.check_port(chosen))] == expected


@pytest.mark.parametrize(
    ("readiness", "models", "port", "key"),
    [
        (READY, 200, "ok", "ok"),
        (READY, 401, "ok", "wrong"),
        (NOT_READY, 200, "wrong", "ok"),
        ((200, b"<html>"), 401, "wrong", "ok"),
    ],
)
def test_a_gateway_on_the_port_and_its_key(
    gateway: Gateway, readiness: tuple[int, bytes], models: int, port: str, key: str
) -> None:
    gateway.answers = {"/readyz": readiness, "/v1/models": (models, b"{}")}
    assert states(host_checks.check_port(load_settings())) == [("port", port)]
    assert states(host_checks.check_key(load_settings())) == [("key", key)]


def test_a_key_file_without_a_key(settings: Settings) -> None:
    assert states(host_checks.check_key(settings)) == [("key", "ok")]
    settings.data_dir.mkdir()
    (settings.data_dir / "api-key").touch()
    assert states(host_checks.check_key(settings)) == [("key", "wrong")]
    (settings.data_dir / "api-key").write_text("sk-x")
    assert states(host_checks.check_key(settings)) == [("key", "ok")]


def test_a_proxy_that_is_used_for_this_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert states(host_checks.check_proxy(os.environ)) == [("proxy", "ok")]
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.getsockname()[1]}")
        assert states(host_checks.check_proxy(os.environ)) == [("proxy", "ok"), ("proxy", "warning")]
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert states(host_checks.check_proxy(os.environ)) == [("proxy", "ok")]
    for unusable in (f"http://me:secret@127.0.0.1:{free_port()}", "http://127.0.0.1:many"):
        monkeypatch.setenv("http_proxy", unusable)
        (found,) = host_checks.check_proxy(os.environ)
        assert found.state == "wrong"
        assert "secret" not in found.text


# --- The command ---


def test_a_check_that_is_denied_access_does_not_keep_the_others_from_running(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: object) -> Iterator[Finding]:
        raise PermissionError(13, "Permission denied", "/secret")

    monkeypatch.setenv("PROXY_DATA_DIR", "/proc/nowhere")
    monkeypatch.setenv("PROXY_PROT", "1")
    monkeypatch.setattr(doctor, "check_key", denied)
    checked = gateway.run("doctor")
    lines = checked.stdout.splitlines()
    assert checked.exit_code == EXIT_WRONG
    assert "wrong    key          [Errno 13] Permission denied: '/secret'" in lines
    assert "                      → Give this user access to it, or choose other directories." in lines
    assert lines[0].startswith("warning  settings     PROXY_PROT is set, but there is no such setting.")
    assert any(line.split()[1:2] == ["store"] for line in lines)


def test_settings_that_are_wrong_are_the_only_findings(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "many")
    checked = gateway.run("doctor", "--json")
    assert checked.exit_code == EXIT_WRONG
    assert [(one["check"], one["state"]) for one in json.loads(checked.stdout)["checks"]] == [("settings", "wrong")]


@pytest.mark.parametrize(
    ("status", "answer", "state", "text"),
    [
        (200, {"output": [{"type": "reasoning"}, {"content": [{"text": "ready"}]}]}, "ok", ": ready"),
        (200, {"error": {"message": "No."}, "output": []}, "wrong", "No."),
        (200, [], "wrong", "without a text"),
        (429, {"error": {"message": "Too many."}}, "wrong", "Too many."),
    ],
)
def test_a_turn_through_the_running_gateway(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, status: int, answer: object, state: str, text: str
) -> None:
    monkeypatch.setattr(codex_checks, "account_of", lambda _: (OFFLINE, (), None))
    monkeypatch.setattr(codex_checks, "provider_url", lambda *_: None)
    monkeypatch.setattr(CodexChecks, "check_binary", lambda _: iter(()))
    gateway.answers["/v1/responses"] = status, json.dumps(answer).encode()
    checked = CliRunner().invoke(app, ["doctor", "--turn", "--model", "m", "--json"])
    (turn,) = (one for one in json.loads(checked.stdout)["checks"] if one["check"] == "turn")
    assert (turn["state"], text in turn["text"]) == (state, True), turn
    assert gateway.asked[-1][2] == {"model": "m", "input": doctor.QUESTION, "store": False}
