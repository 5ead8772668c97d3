"""`login`, `logout` and `whoami` with answers of Codex that the real one gives rarely."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from tests.support.stand_in import stand_in
from turnbridge.cli import account
from turnbridge.cli.main import app

JsonObject: TypeAlias = Mapping[str, object]

SCRIPT = str(Path(__file__).parents[1] / "support" / "account_codex.py")

CONFIG: JsonObject = {"result": {"config": {"model_provider": None}}}
NOBODY: JsonObject = {"result": {"account": None, "requiresOpenaiAuth": True}}
CHATGPT: JsonObject = {
    "result": {
        "account": {"type": "chatgpt", "email": "a@b.test", "planType": "edu_plus"},
        "requiresOpenaiAuth": True,
    }
}
DEVICE: JsonObject = {
    "type": "chatgptDeviceCode",
    "loginId": "login-1",
    "verificationUrl": "https://device.test",
    "userCode": "ABC",
}


def completed(**params: object) -> JsonObject:
    return {"method": "account/login/completed", "params": params}


class Codex:
    """The stand-in, and the user whose commands it answers."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = directory / "data" / "codex-home"
        self.user = directory / "user"
        self.home.mkdir(parents=True)
        (directory / "empty.toml").touch()
        monkeypatch.setenv("PROXY_CONFIG", str(directory / "empty.toml"))
        monkeypatch.setenv("PROXY_DATA_DIR", str(directory / "data"))
        monkeypatch.setenv("CODEX_HOME", str(self.user))
        monkeypatch.setenv("PORT", "9")
        monkeypatch.setenv("CODEX_BIN", str(stand_in(directory / "bin", SCRIPT)))
        # The log of this process is the tests'.
        monkeypatch.setattr(account, "configure_logging", lambda _: None)

    def run(self, *words: str, stdin: str = "", **answers: JsonObject) -> Result:
        """Run a command while Codex answers so; `account_read` is `account/read`."""
        named = {name.replace("_", "/"): answer for name, answer in answers.items()}
        (self.home / "answers.json").write_text(json.dumps({"config/read": CONFIG, **named}))
        with capture_logs():
            return CliRunner().invoke(app, [*words], input=stdin)

    def calls(self) -> list[list[object]]:
        return [json.loads(line) for line in (self.home / "calls.jsonl").read_text().splitlines()]


@pytest.fixture
def codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Codex:
    return Codex(tmp_path, monkeypatch)


@pytest.mark.promise("commands.whoami")
def test_every_limit_of_a_plan_is_shown(codex: Codex) -> None:
    main = {
        "limitId": "codex",
        "primary": {"usedPercent": 100, "windowDurationMins": 300, "resetsAt": None},
        "secondary": {"usedPercent": 3, "windowDurationMins": 43_200},
        "credits": {"hasCredits": True, "unlimited": False, "balance": "12.50"},
    }
    other = {"limitId": "codex_other", "limitName": "Other", "primary": {"usedPercent": 1, "windowDurationMins": 45}}
    limits = {"result": {"rateLimits": main, "rateLimitsByLimitId": {"codex": main, "codex_other": other}}}
    shown = codex.run("whoami", account_read=CHATGPT, account_rateLimits_read=limits)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == (
        "a@b.test, ChatGPT Edu Plus\n"
        "  5 hours            100 % used\n"
        "  30 days              3 % used\n"
        "  Other, 45 minutes    1 % used\n"
        "  credits: 12.50\n"
    )


@pytest.mark.promise("commands.whoami")
def test_limits_that_cannot_be_read_are_a_warning(codex: Codex) -> None:
    refused = {"error": {"code": -32603, "message": "no network"}}
    shown = codex.run("whoami", account_read=CHATGPT, account_rateLimits_read=refused)
    assert (shown.exit_code, shown.stdout) == (0, "a@b.test, ChatGPT Edu Plus\n")
    assert shown.stderr.startswith("warning: the plan's limits cannot be read: ")
    assert "no network" in shown.stderr


@pytest.mark.promise("commands.whoami")
def test_a_login_that_codex_cannot_use_is_no_login(codex: Codex) -> None:
    broken = {"error": {"code": -32600, "message": "the token is broken"}}
    shown = codex.run("whoami", account_read=broken)
    assert shown.exit_code == 1
    assert shown.stdout.startswith("The stored login cannot be used: the token is broken\nLog in: ")


def test_another_kind_of_account_is_named_as_codex_names_it(codex: Codex) -> None:
    bedrock = {"result": {"account": {"type": "amazonBedrock"}, "requiresOpenaiAuth": False}}
    assert codex.run("whoami", account_read=bedrock).stdout == "amazonBedrock\n"


@pytest.mark.promise("commands.login.device")
def test_a_login_that_is_refused_in_the_browser_fails_with_its_reason(codex: Codex) -> None:
    others = completed(loginId="another", success=True)
    answer = {"result": DEVICE, "notify": completed(loginId="login-1", success=False, error="You said no.")}
    refused = codex.run("login", "--device", account_login_start=answer)
    assert (refused.exit_code, refused.stderr) == (1, "The login failed: You said no.\n")
    assert "  ABC\n" in refused.stdout
    died = codex.run("login", "--device", account_login_start={"result": DEVICE, "notify": others, "die": 3})
    assert (died.exit_code, died.stderr) == (1, "Codex ended (exit status 3).\n")


@pytest.mark.promise("commands.login.device")
def test_a_codex_without_device_codes_says_so(codex: Codex) -> None:
    unknown = {"error": {"code": -32600, "message": "unknown variant `chatgptDeviceCode`"}}
    refused = codex.run("login", "--device", account_login_start=unknown)
    assert (refused.exit_code, refused.stderr) == (
        1,
        "Codex refuses this login: unknown variant `chatgptDeviceCode`\n",
    )


@pytest.mark.promise("commands.login.api-key")
def test_the_key_reaches_codex_without_blanks(codex: Codex) -> None:
    read = {"result": {"account": {"type": "apiKey"}, "requiresOpenaiAuth": True}}
    logged_in = codex.run("login", "--api-key", "--json", stdin="  sk-x \n", account_read=read)
    assert json.loads(logged_in.stdout)["event"] == "completed"
    assert ["account/login/start", {"type": "apiKey", "apiKey": "sk-x"}] in codex.calls()
    # Also where Codex keeps the login in the system's keyring, and no file.
    assert codex.user.stat().st_mode & 0o777 == 0o700


@pytest.mark.promise("commands.logout")
def test_a_logout_removes_the_users_file_only_if_codex_has_removed_its_link(codex: Codex) -> None:
    codex.user.mkdir()
    (codex.user / "auth.json").touch()
    told = "Logged out: a@b.test, ChatGPT Edu Plus. "
    assert codex.run("logout", account_read=CHATGPT).stdout.startswith(told)
    assert (codex.user / "auth.json").exists()
    broken = {"error": {"code": -32600, "message": "the token is broken"}}
    assert json.loads(codex.run("logout", "--json", account_read=broken).stdout)["logged_out"] is True
    assert codex.run("logout", account_read=broken).stdout.startswith("Logged out. ")
    assert codex.run("logout", account_read=NOBODY).stdout == "Nobody is logged in.\n"
    assert [method for method, _ in codex.calls()].count("account/logout") == 3


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"result": {"config": {}}, "die": 1}, "Codex ended (exit status 1).\n"),
        ({"result": {"config": 7}}, "Codex answered `config/read` in a way that this version"),
    ],
)
def test_a_codex_that_fails_is_told(codex: Codex, answer: JsonObject, told: str) -> None:
    failed = codex.run("whoami", config_read=answer)
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert failed.stderr.startswith(told)
