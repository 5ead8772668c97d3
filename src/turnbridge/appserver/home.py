"""A Codex home of the gateway's own: the user's login and models, and nothing else of theirs.

`CODEX_HOME/sessions` makes every `thread/start` slow, and AGENTS.md, skills, hooks and MCP servers would change what
the model sees. So Codex runs in a home that has none of them, and the user's home is never written to, except by Codex
itself when it refreshes the login through the link.
"""

import contextlib
import shutil
import tomllib
from pathlib import Path

import tomli_w

from turnbridge.appserver.files import write_private
from turnbridge.turn.errors import BackendUnavailable

# What of the user's config.toml concerns models, providers and login.
KEPT_CONFIG_KEYS = (
    "model",
    "model_provider",
    "model_providers",
    "model_reasoning_effort",
    "openai_base_url",
    "chatgpt_base_url",
    "cli_auth_credentials_store",
    "forced_login_method",
    "forced_chatgpt_workspace_id",
    "preferred_auth_method",
)

# How Codex retries a provider, unless the user's configuration says it. One attempt is one request: by default it is
# five, over three silent seconds, in which nobody can tell a failing provider from a model that thinks.
RETRY_CONFIG = {"request_max_retries": 0, "websocket_connect_timeout_ms": 5000}
# Codex allows nothing but a profile and a region to be set for its own providers.
BUILT_IN_PROVIDERS = "amazon-bedrock"

# The login, and the variables that providers take their keys from. A link may point at nothing until the user logs in.
LINKED_FILES = ("auth.json", ".env")

# Codex's own log database grows by about 20 KB a turn and is of no use to anybody here.
LOG_DATABASE_LIMIT = 64 * 1024 * 1024


def prepare_home(home: Path, user_home: Path) -> None:
    """Create or refresh the gateway's home from the user's."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(home / "config.toml", tomli_w.dumps(_kept(_config(user_home))))
    for name in LINKED_FILES:
        _link(home / name, user_home / name)
    _tidy(home)


def prepare_bare_home(home: Path) -> None:
    """Create or refresh a home that knows no user; providers come on the command line."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tidy(home)


def provider_overrides(base_url: str) -> tuple[str, ...]:
    """Return what puts a Responses API without a login behind Codex, on its command line.

    A `ws://` URL is spoken to over WebSocket, as Codex speaks to OpenAI; Codex itself wants the URL with `http`.
    """
    websockets = base_url.startswith("ws")
    http_url = f"http{base_url.removeprefix('ws')}" if websockets else base_url
    provider = {"name": "demo", "base_url": http_url, "wire_api": "responses"}
    words = [f'model_providers.demo.{key}="{value}"' for key, value in provider.items()]
    retries = [f"model_providers.demo.{kind}_max_retries=0" for kind in ("request", "stream")]
    transport = [f"model_providers.demo.supports_websockets={str(websockets).lower()}"]
    return ('model_provider="demo"', *words, *retries, *transport)


def bar_skills(home: Path) -> None:
    """Keep Codex from unpacking its skills: older versions tell the model of them, and no setting prevents it."""
    skills = home / "skills"
    if skills.is_dir():
        shutil.rmtree(skills)
    skills.touch(mode=0o600)


def login_state(home: Path) -> tuple[int, int] | None:
    """Return something that changes when the login file does; None if there is none."""
    try:
        status = (home / "auth.json").stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def configured_model(home: Path) -> str | None:
    """Return the model that the configuration in a home names."""
    model = _config(home).get("model")
    return model if isinstance(model, str) else None


def _config(home: Path) -> dict[str, object]:
    path = home / "config.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BackendUnavailable(f"The Codex configuration {path} is not valid TOML: {error}") from error


def _kept(config: dict[str, object]) -> dict[str, object]:
    """Return what of a user's configuration counts here."""
    providers = config.get("model_providers")
    for name, provider in providers.items() if isinstance(providers, dict) else ():
        if isinstance(provider, dict) and not name.startswith(BUILT_IN_PROVIDERS):
            provider.update({**RETRY_CONFIG, **provider})
    return {key: config[key] for key in KEPT_CONFIG_KEYS if key in config}


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _tidy(home: Path) -> None:
    with contextlib.suppress(OSError):  # Absent, or not empty: then Codex is slower, and still right.
        (home / "sessions").rmdir()
    for database in home.glob("logs_*.sqlite"):
        if database.stat().st_size > LOG_DATABASE_LIMIT:
            for path in home.glob(f"{database.name}*"):
                path.unlink()
