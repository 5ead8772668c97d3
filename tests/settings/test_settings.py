"""The operator's choices: where they come from, which one wins, and what is said about mistakes."""

import os
import re
from pathlib import Path

import pytest
from msgspec import structs

from turnbridge.settings.fields import (
    Settings,
    known_names,
    load_settings,
    unknown_settings,
)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return an environment in which nothing of ours is set, with a home of its own."""
    for name in (*known_names(), "PROXY_CONFIG", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


@pytest.fixture
def file(environment: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the path of the TOML file that is looked at; it is empty yet."""
    path = tmp_path / "turnbridge.toml"
    path.touch()
    environment.setenv("PROXY_CONFIG", str(path))
    return path


@pytest.mark.promise("ingress.loopback")
@pytest.mark.usefixtures("environment")
def test_without_any_choice_the_gateway_is_private_and_uses_the_users_codex(tmp_path: Path) -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.api_key) == ("127.0.0.1", 11435, None)
    assert (settings.max_body_mb, settings.stream_hold_ms, settings.strict_params) == (16, 3000, False)
    assert (settings.codex_home, settings.codex_bin, settings.codex_model) == (tmp_path / ".codex", None, None)
    assert tmp_path in settings.data_dir.parents


def changed(settings: Settings) -> dict[str, object]:
    """Return the fields whose values are not the defaults."""
    defaults = Settings()
    return {name: value for name, value in structs.asdict(settings).items() if value != getattr(defaults, name)}


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("PROXY_HOST", "::1", "host", "::1"),
        ("PORT", "8080", "port", 8080),
        ("PROXY_OLLAMA", "1", "ollama", "on"),
        ("PROXY_OLLAMA", "On", "ollama", "on"),
        ("PROXY_OLLAMA", "[::1]:11434", "ollama", "[::1]:11434"),
        ("PROXY_API_KEY", "secret", "api_key", "secret"),
        ("PROXY_DATA_DIR", "~/data", "data_dir", "HOME/data"),
        ("CODEX_HOME", "~/other", "codex_home", "HOME/other"),
        ("CODEX_BIN", "/usr/bin/codex", "codex_bin", Path("/usr/bin/codex")),
        ("CODEX_MODEL", "gpt-5.5-mini", "codex_model", "gpt-5.5-mini"),
        ("PROXY_MODEL_ALIASES", "a=b, c = d,", "model_aliases", {"a": "b", "c": "d"}),
        ("PROXY_STRICT_PARAMS", "true", "strict_params", True),
        ("PROXY_STRICT_PARAMS", "1", "strict_params", True),
        ("PROXY_STRICT_PARAMS", " Yes", "strict_params", True),
        ("PROXY_STRICT_PARAMS", "ON", "strict_params", True),
        ("PORT", " 8080 ", "port", 8080),
        ("PROXY_STREAM_HOLD_MS", "0", "stream_hold_ms", 0),
        ("PROXY_MAX_BODY_MB", "0.5", "max_body_mb", 0.5),
        ("PROXY_CORS_ALLOWED_ORIGINS", "https://a.test, *", "cors_allowed_origins", ("https://a.test", "*")),
        ("PROXY_METRICS_TOKEN", "t", "metrics_token", "t"),
        ("PROXY_LOG_LEVEL", "debug", "log_level", "debug"),
    ],
)
def test_a_variable_sets_its_setting_and_no_other(
    environment: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str, field: str, value: object
) -> None:
    environment.setenv(name, text)
    expected = tmp_path / value.removeprefix("HOME/") if isinstance(value, str) and value[:5] == "HOME/" else value
    assert changed(load_settings()) == {field: expected}


@pytest.mark.promise("start.settings.empty")
def test_an_empty_variable_is_an_unset_one(environment: pytest.MonkeyPatch) -> None:
    before = load_settings()
    for name in (*known_names(), "PROXY_CONFIG", "PROXY_TYPO"):
        environment.setenv(name, "")
    assert load_settings() == before
    assert unknown_settings(os.environ) == []


def test_the_file_has_the_same_names_and_may_use_tables(file: Path) -> None:
    file.write_text(
        """
        PORT = 8080
        PROXY_STRICT_PARAMS = true
        PROXY_CORS_ALLOWED_ORIGINS = ["https://a.test"]
        [PROXY_MODEL_ALIASES]
        fast = "gpt-5.5-low"
        """
    )
    assert changed(load_settings()) == {
        "port": 8080,
        "strict_params": True,
        "cors_allowed_origins": ("https://a.test",),
        "model_aliases": {"fast": "gpt-5.5-low"},
    }
    assert unknown_settings(os.environ) == []


@pytest.mark.promise("start.settings.empty")
def test_an_empty_text_in_the_file_is_unset_too(file: Path) -> None:
    """A key that is empty would otherwise count as one that the operator chose."""
    file.write_text('PROXY_API_KEY = ""\nPROXY_METRICS_TOKEN = ""\nCODEX_MODEL = ""\n')
    assert changed(load_settings()) == {}


@pytest.mark.usefixtures("environment")
def test_the_file_is_looked_for_in_the_users_configuration_directory(tmp_path: Path) -> None:
    directory = tmp_path / ".config" / "turnbridge"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text("PORT = 8080")
    assert load_settings().port == 8080


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    environment: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text('PORT = 1\nPROXY_HOST = "1.1.1.1"\nCODEX_MODEL = "file"')
    environment.setenv("PORT", "2")
    environment.setenv("PROXY_HOST", "2.2.2.2")
    settings = load_settings(PORT=3, PROXY_HOST=None)
    assert (settings.port, settings.host, settings.codex_model) == (3, "2.2.2.2", "file")


@pytest.mark.promise("start.settings.bad")
@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("PORT", "no number", "a whole number from 0 to 65535"),
        ("PORT", "65536", "a whole number from 0 to 65535"),
        ("PORT", "80.5", "a whole number from 0 to 65535"),
        ("PROXY_MAX_BODY_MB", "0", "a number above 0"),
        ("PROXY_MAX_BODY_MB", "nan", "a number above 0"),
        ("PROXY_DRAIN_S", "inf", "a number of at least 0"),
        ("PROXY_STREAM_HOLD_MS", "-1", "a whole number of at least 0"),
        ("PROXY_KEY_MAX_TURNS", "0", "a whole number of at least 1"),
        ("PROXY_STRICT_PARAMS", "perhaps", "`true` or `false`"),
        ("PROXY_MODEL_ALIASES", "fast", "`name=model,name=model`"),
        ("PROXY_MODEL_ALIASES", "fast=", "`name=model,name=model`"),
        ("PROXY_LOG_LEVEL", "loud", "one of `critical`, `debug`, `error`, `info`, `warning`"),
    ],
)
@pytest.mark.parametrize("source", ["variable", "file"])
def test_a_bad_value_is_refused_with_the_name_of_its_setting_and_what_it_expects(
    environment: pytest.MonkeyPatch, file: Path, name: str, text: str, expected: str, source: str
) -> None:
    if source == "variable":
        environment.setenv(name, text)
    else:
        file.write_text(f'{name} = "{text}"')
    with pytest.raises(ValueError, match=f"^{re.escape(f'{name}: expected {expected}')}$"):
        load_settings()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("PROXY_API_KEY = 12345", "a string"),
        ("PROXY_DATA_DIR = 1", "a path; the user of a leading `~` must exist"),
        ("PROXY_DATA_DIR = '~nobody-of-this-name/x'", "a path; the user of a leading `~` must exist"),
        ("PORT = true", "a whole number from 0 to 65535"),
        ("PROXY_DRAIN_S = inf", "a number of at least 0"),
        ("PROXY_CORS_ALLOWED_ORIGINS = [1]", "a comma-separated list"),
        ("PROXY_MODEL_ALIASES = { fast = 1 }", "a table of strings"),
    ],
)
def test_a_value_of_another_kind_in_the_file_is_refused(file: Path, line: str, expected: str) -> None:
    file.write_text(line)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{line.split(maxsplit=1)[0]}: expected {expected}')}$"):
        load_settings()


def test_all_that_is_wrong_is_told_at_once_and_no_value_is_repeated(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PORT", "hunter2")
    environment.setenv("PROXY_RATE_LIMIT", "often")
    with pytest.raises(ValueError, match=r"^PORT: expected .*\nPROXY_RATE_LIMIT: expected `60/minute`") as refused:
        load_settings()
    assert "hunter2" not in str(refused.value)


def test_an_empty_variable_leaves_the_choice_to_the_file(environment: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text("PORT = 8080")
    environment.setenv("PORT", "")
    assert load_settings().port == 8080


def test_a_file_that_is_no_toml_is_refused_with_its_name(file: Path) -> None:
    file.write_text("PORT 8080")
    with pytest.raises(ValueError, match=re.escape(str(file))):
        load_settings()


@pytest.mark.promise("start.settings.unknown")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("PROXY_HOTS", "PROXY_HOTS is set, but there is no such setting. Did you mean PROXY_HOST?"),
        (
            "PROXY_STRICT_PARAM",
            "PROXY_STRICT_PARAM is set, but there is no such setting. Did you mean PROXY_STRICT_PARAMS?",
        ),
        ("WORKER_ZZZZZZZZZZZZZZZ", "WORKER_ZZZZZZZZZZZZZZZ is set, but there is no such setting."),
    ],
)
@pytest.mark.parametrize("source", ["variable", "file"])
def test_a_name_that_is_no_setting_is_reported_with_the_nearest_one(
    environment: pytest.MonkeyPatch, file: Path, name: str, complaint: str, source: str
) -> None:
    if source == "variable":
        environment.setenv(name, "1")
    else:
        file.write_text(f"{name} = 1")
    assert unknown_settings(os.environ) == [complaint]


@pytest.mark.usefixtures("environment")
def test_names_of_others_are_nobodys_business() -> None:
    assert unknown_settings({"PATH": "/bin", "CODEX_SANDBOX": "1", "HTTPS_PROXY": "http://p", "PROXY_HOST": "x"}) == []


def test_a_missing_file_that_was_named_is_reported(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("PROXY_CONFIG", str(tmp_path / "nowhere.toml"))
    with pytest.raises(ValueError, match="nowhere"):
        load_settings()


@pytest.mark.promise("start.settings.bad")
@pytest.mark.usefixtures("environment")
def test_a_program_without_a_slash_is_looked_for_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-codex").touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert load_settings(CODEX_BIN="my-codex").codex_bin == tmp_path / "my-codex"
    assert load_settings(CODEX_BIN="./my-codex").codex_bin == Path.cwd() / "my-codex"
    with pytest.raises(ValueError, match=r"^CODEX_BIN: there is no program `other` on PATH; give its path$"):
        load_settings(CODEX_BIN="other")


@pytest.mark.promise("start.settings.bad")
@pytest.mark.usefixtures("environment")
def test_a_user_without_a_home_directory_is_told_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a user id that no file of it knows."""

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    words = r"^This user has no home directory\. Set HOME, or PROXY_DATA_DIR and CODEX_HOME\.$"
    for chosen in ({}, {"PROXY_DATA_DIR": tmp_path}, {"CODEX_HOME": tmp_path}):
        with pytest.raises(ValueError, match=words):
            load_settings(**chosen)
    settings = load_settings(PROXY_DATA_DIR=tmp_path / "data", CODEX_HOME=tmp_path / "codex")
    assert (settings.data_dir, settings.codex_home) == (tmp_path / "data", tmp_path / "codex")
