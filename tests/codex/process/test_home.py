"""The gateway's own Codex home: what of the user's comes along, and that nothing goes back."""

import os
import tomllib
from pathlib import Path

import pytest

from turnbridge.codex.process import home as home_module
from turnbridge.codex.process.home import RETRY_CONFIG, login_state, prepare_bare_home, prepare_home
from turnbridge.turn.errors import BackendUnavailable

USERS_CONFIG = """
model = "gpt-5.5"
model_provider = "azure"
model_reasoning_effort = "high"
openai_base_url = "https://example.test/v1"
cli_auth_credentials_store = "file"
approval_policy = "never"
sandbox_mode = "danger-full-access"
notify = ["rm"]

[model_providers.azure]
name = "Azure"
http_headers = { key = "secret" }

[mcp_servers.files]
command = "files"

[projects."/work"]
trust_level = "trusted"

[hooks]
"""


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """Return a user's home with everything in it that must not come along."""
    directory = tmp_path / "user"
    for name in ("sessions", "skills", "prompts"):
        (directory / name).mkdir(parents=True)
    for name, text in {"config.toml": USERS_CONFIG, "AGENTS.md": "Be rude.", "auth.json": "{}"}.items():
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "data" / "home"


def tree(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything that a write would change."""
    found = {}
    for path in directory.rglob("*"):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.promise("start.own-home")
def test_only_models_providers_and_login_come_along(home: Path, user: Path) -> None:
    prepare_home(home, user)
    assert tomllib.loads((home / "config.toml").read_text()) == {
        "model": "gpt-5.5",
        "model_provider": "azure",
        "model_reasoning_effort": "high",
        "openai_base_url": "https://example.test/v1",
        "cli_auth_credentials_store": "file",
        "model_providers": {"azure": {"name": "Azure", "http_headers": {"key": "secret"}, **RETRY_CONFIG}},
    }


def test_a_provider_is_retried_as_the_users_configuration_says(home: Path, user: Path) -> None:
    (user / "config.toml").write_text(
        "[model_providers.mine]\nrequest_max_retries = 7\n[model_providers.amazon-bedrock.aws]\nregion = 'eu'\n"
    )
    prepare_home(home, user)
    assert tomllib.loads((home / "config.toml").read_text())["model_providers"] == {
        "mine": {**RETRY_CONFIG, "request_max_retries": 7},
        "amazon-bedrock": {"aws": {"region": "eu"}},
    }
    assert sorted(path.name for path in home.iterdir()) == [".env", "auth.json", "config.toml"]


@pytest.mark.promise("start.users-home")
def test_nothing_is_written_to_the_users_home(home: Path, user: Path) -> None:
    before = tree(user)
    prepare_home(home, user)
    prepare_home(home, user)
    assert tree(user) == before


def test_a_user_without_a_home_has_none_afterwards(home: Path, tmp_path: Path) -> None:
    prepare_home(home, tmp_path / "nobody")
    assert not (tmp_path / "nobody").exists()
    assert (home / "config.toml").read_text() == ""
    assert login_state(home) is None


def test_the_home_and_what_may_hold_keys_are_private(home: Path, user: Path) -> None:
    previous = os.umask(0)
    try:
        prepare_home(home, user)
    finally:
        os.umask(previous)
    assert (mode(home), mode(home / "config.toml")) == (0o700, 0o600)


@pytest.mark.promise("start.users-home")
def test_the_login_is_a_link_that_is_written_through(home: Path, user: Path) -> None:
    prepare_home(home, user)
    prepare_home(home, user)
    assert (home / "auth.json").readlink() == user / "auth.json"
    (home / "auth.json").write_text("refreshed")
    assert (user / "auth.json").read_text() == "refreshed"


@pytest.mark.parametrize("stale", ["file", "link"])
def test_a_login_that_is_not_the_users_is_replaced_by_the_link(home: Path, user: Path, stale: str) -> None:
    home.mkdir(parents=True)
    if stale == "file":
        (home / "auth.json").write_text("old")
    else:
        (home / "auth.json").symlink_to(home / "elsewhere")
    prepare_home(home, user)
    assert (home / "auth.json").readlink() == user / "auth.json"


def test_a_change_of_the_users_configuration_is_taken_over(home: Path, user: Path) -> None:
    prepare_home(home, user)
    (user / "config.toml").write_text('model = "gpt-6"')
    prepare_home(home, user)
    assert (home / "config.toml").read_text() == 'model = "gpt-6"\n'
    (user / "config.toml").unlink()
    prepare_home(home, user)
    assert (home / "config.toml").read_text() == ""


@pytest.mark.parametrize("content", [b"model = ", b"model = '\xff'"], ids=["syntax", "encoding"])
def test_a_configuration_that_cannot_be_read_is_named(home: Path, user: Path, content: bytes) -> None:
    (user / "config.toml").write_bytes(content)
    with pytest.raises(BackendUnavailable, match=str(user / "config.toml")):
        prepare_home(home, user)


def test_the_login_state_changes_with_the_login(home: Path, user: Path) -> None:
    (user / "auth.json").unlink()
    prepare_home(home, user)
    states = [login_state(home)]
    (user / "auth.json").write_text("first")
    states.append(login_state(home))
    os.utime(user / "auth.json", ns=(1, 1))
    states.append(login_state(home))
    replacement = user / "auth.json.tmp"
    replacement.write_text("other")
    os.utime(replacement, ns=(1, 1))
    replacement.replace(user / "auth.json")
    states.append(login_state(home))
    assert states[0] is None
    assert len(set(states)) == 4


@pytest.mark.promise("start.small-home")
@pytest.mark.parametrize("bare", [True, False])
def test_an_empty_sessions_folder_is_removed(home: Path, user: Path, bare: bool) -> None:
    (home / "sessions").mkdir(parents=True)
    if bare:
        prepare_bare_home(home)
    else:
        prepare_home(home, user)
    assert not (home / "sessions").exists()


@pytest.mark.promise("start.small-home")
def test_the_log_database_is_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "LOG_DATABASE_LIMIT", 10)
    home.mkdir(parents=True)
    for name in ("logs_1.sqlite", "logs_2.sqlite", "logs_2.sqlite-wal", "logs_2.sqlite-shm", "state_5.sqlite"):
        (home / name).write_bytes(b"x" * (11 if name != "logs_1.sqlite" else 10))
    prepare_bare_home(home)
    assert sorted(path.name for path in home.iterdir()) == ["logs_1.sqlite", "state_5.sqlite"]


def test_a_codex_that_is_just_reading_the_configuration_sees_it_whole(home: Path, user: Path) -> None:
    """Codex reads it for every thread, also while another app-server is started in the same home."""
    prepare_home(home, user)
    written = (home / "config.toml").read_text()
    (user / "config.toml").write_text('model = "gpt-6"')
    with (home / "config.toml").open() as reading:
        prepare_home(home, user)
        assert reading.read() == written
