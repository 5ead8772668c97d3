"""`turnbridge config`: the effective settings and their sources."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnbridge.cli.config import MASK, masked
from turnbridge.cli.main import app

EXIT_USAGE = 2


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    file = tmp_path / "config.toml"
    file.write_text(
        'PORT = 9000\nPROXY_HOST = ""\nPROXY_LOG_LEVEL = "debug"\n[PROXY_MODEL_ALIASES]\nfast = "gpt-5.5"\n'
    )
    monkeypatch.setenv("PROXY_CONFIG", str(file))
    monkeypatch.setenv("PROXY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PROXY_LOG_LEVEL", "error")
    return monkeypatch


@pytest.mark.promise("commands.config")
@pytest.mark.usefixtures("environment")
def test_each_setting_is_shown_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    shown = CliRunner().invoke(app, ["config", "--changed"])
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["PORT", "9000", str(file)],
        ["PROXY_DATA_DIR", str(tmp_path / "data"), "environment"],
        ["PROXY_MODEL_ALIASES", "fast=gpt-5.5", str(file)],
        ["PROXY_LOG_LEVEL", "error", "environment"],
        [],
        ["File:", str(file)],
    ]


@pytest.mark.promise("commands.config")
def test_secrets_are_masked(environment: pytest.MonkeyPatch) -> None:
    secrets = {"PROXY_API_KEY": "sk-secret", "PROXY_METRICS_TOKEN": "sk-secret"}
    for name, secret in secrets.items():
        environment.setenv(name, secret)
    shown = json.loads(CliRunner().invoke(app, ["config", "--json", *secrets]).stdout)
    assert shown["settings"] == [{"name": name, "value": MASK, "source": "environment"} for name in secrets]
    assert "sk-secret" not in CliRunner().invoke(app, ["config"]).stdout


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("sk-secret", MASK),
        ("memory", "memory"),
        ("postgresql://me:p@ss/w@db.test/name?password=x", f"postgresql://{MASK}@db.test/name"),
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("sqlite:////dir/file", "sqlite:////dir/file"),
    ],
)
def test_of_a_url_only_the_credentials_are_masked(secret: str, shown: str) -> None:
    assert masked(secret) == shown


@pytest.mark.usefixtures("environment")
def test_a_generated_key_is_named_by_its_file(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["config", "PROXY_API_KEY"])
    assert shown.stdout == f"PROXY_API_KEY  generated, in {tmp_path / 'data' / 'api-key'}  default\n"


def test_unknown_settings_are_told(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PROXY_PROT", "1")
    shown = CliRunner().invoke(app, ["config", "PORT"])
    assert (shown.exit_code, shown.stderr[:50]) == (0, "warning: PROXY_PROT is set, but there is no such s")
    refused = CliRunner().invoke(app, ["config", "PROT"])
    assert (refused.exit_code, refused.stdout) == (EXIT_USAGE, "")
    assert "There is no setting PROT." in refused.stderr
