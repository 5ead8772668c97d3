"""The Codex home of the gateway, with only the login and model settings of the user's; and Codex's environment.

Other files of the user's home (sessions, MCP servers, skills, hooks, AGENTS.md) are not visible to Codex here.
"""

import contextlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import tomli_w

from turnbridge.turn.errors import BackendUnavailable

T = TypeVar("T")

# The keys of the user's config.toml about models, providers and login.
KEPT_CONFIG_KEYS = (
    *("model", "model_provider", "model_providers", "model_reasoning_effort", "openai_base_url", "chatgpt_base_url"),
    *("cli_auth_credentials_store", "forced_login_method", "forced_chatgpt_workspace_id", "preferred_auth_method"),
)

# What is kept of a profile: which model of which provider it names.
PROFILE_KEYS = ("model", "model_provider")

# How Codex retries a provider, unless the user's configuration says it. One attempt is one request. Codex's default is
# five over three silent seconds, in which a failing provider looks like a model that thinks.
RETRY_CONFIG = {"request_max_retries": 0, "websocket_connect_timeout_ms": 5000}
# Codex refuses other settings than a profile and a region for its own providers.
BUILT_IN_PROVIDERS = "amazon-bedrock"

# The login, and the variables with providers' keys. A link may dangle until the user logs in.
LINKED_FILES = ("auth.json", ".env")

# Codex's own log database, which nobody reads here. It grows only where its rows are not ignored (`log_database.py`).
LOG_DATABASES = "logs_*.sqlite"
LOG_DATABASE_LIMIT = 64 * 1024 * 1024


def prepare_home(home: Path, user_home: Path) -> None:
    """Create or refresh the gateway's home from the user's."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(home / "config.toml", tomli_w.dumps(_kept(_config(user_home))))
    for name in LINKED_FILES:
        _link(home / name, user_home / name)
    _tidy(home)


def prepare_bare_home(home: Path) -> None:
    """Create or refresh a home without a user; providers come on the command line."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tidy(home)


def provider_overrides(base_url: str) -> tuple[str, ...]:
    """Return the command-line settings of a Responses API without a login as Codex's provider.

    A `ws://` URL is used over WebSocket, as Codex uses OpenAI; Codex itself expects the URL with `http`.
    """
    websockets = base_url.startswith("ws")
    http_url = f"http{base_url.removeprefix('ws')}" if websockets else base_url
    provider = {"name": "demo", "base_url": http_url, "wire_api": "responses"}
    words = [f'model_providers.demo.{key}="{value}"' for key, value in provider.items()]
    retries = [f"model_providers.demo.{kind}_max_retries=0" for kind in ("request", "stream")]
    transport = [f"model_providers.demo.supports_websockets={str(websockets).lower()}"]
    return ('model_provider="demo"', *words, *retries, *transport)


def bar_skills(home: Path) -> None:
    """Keep Codex from unpacking its skills: older versions describe them to the model, and no setting prevents it."""
    skills = home / "skills"
    if skills.is_dir():
        shutil.rmtree(skills)
    skills.touch(mode=0o600)


def login_state(home: Path) -> tuple[int, int] | None:
    """Return a value that changes with the login file; None if there is none."""
    try:
        status = (home / "auth.json").stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def configuration(home: Path, overrides: Sequence[str]) -> dict[str, object]:
    """Return the configuration in a home, some of whose tables and values are replaced on the command line."""
    return {**_config(home), **tomllib.loads("\n".join(overrides))}


def configured_models(home: Path) -> tuple[str, ...]:
    """Return the models that the configuration in a home names: the default one first, then those of profiles."""
    config = _config(home)
    named = (table.get("model") for table in (config, *_profiles(config).values()))
    return tuple(dict.fromkeys(model for model in named if isinstance(model, str)))


def _config(home: Path) -> dict[str, object]:
    path = home / "config.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BackendUnavailable(f"The Codex configuration {path} is not valid TOML: {error}") from error


def _kept(config: dict[str, object]) -> dict[str, object]:
    """Return the part of a user's configuration that is used here."""
    providers = config.get("model_providers")
    for name, provider in providers.items() if isinstance(providers, dict) else ():
        if isinstance(provider, dict) and not name.startswith(BUILT_IN_PROVIDERS):
            provider.update({**RETRY_CONFIG, **provider})
    kept = {key: config[key] for key in KEPT_CONFIG_KEYS if key in config}
    named = {
        name: {key: table[key] for key in PROFILE_KEYS if key in table} for name, table in _profiles(config).items()
    }
    return {**kept, "profiles": named} if named else kept


def _profiles(config: dict[str, object]) -> dict[str, dict[str, object]]:
    """Return the profiles of a configuration: each may name a model, and a provider for it."""
    profiles = config.get("profiles")
    tables = profiles.items() if isinstance(profiles, dict) else ()
    return {name: table for name, table in tables if isinstance(table, dict)}


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _tidy(home: Path) -> None:
    with contextlib.suppress(OSError):  # Missing, or not empty: then Codex is only slower.
        (home / "sessions").rmdir()
    for database in home.glob(LOG_DATABASES):
        if database.stat().st_size > LOG_DATABASE_LIMIT:
            for path in home.glob(f"{database.name}*"):
                path.unlink()


# The gateway's own secrets.
WITHHELD_VARIABLES = ("PROXY_API_KEY", "PROXY_DATABASE_URL", "PROXY_METRICS_TOKEN", "PROXY_RATE_LIMIT_STORAGE")

# The scripted models of the demo and the self-check listen here, and so may a provider of the user's. No proxy can
# reach them.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Programs read one spelling or the other.
NO_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")


def codex_environment(home: Path) -> dict[str, str]:
    """Return the environment variables of a Codex in this home."""
    environment = {key: value for key, value in os.environ.items() if key not in WITHHELD_VARIABLES}
    direct = hosts_without_proxy(environment)
    # The second one moves Codex's databases elsewhere.
    own = dict.fromkeys(("CODEX_HOME", "CODEX_SQLITE_HOME"), str(home))
    return {**environment, **dict.fromkeys(NO_PROXY_VARIABLES, direct), **own}


def hosts_without_proxy(environment: Mapping[str, str]) -> str:
    """Return the hosts that are reached without a proxy: those that the user lists, and loopback."""
    listed = (host.strip() for name in NO_PROXY_VARIABLES for host in environment.get(name, "").split(","))
    return ",".join(dict.fromkeys((*filter(None, listed), *LOOPBACK)))


def read_cached(file: Path, shape: type[T]) -> T | None:
    """Return the JSON in a file; None if it is missing or broken."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=shape)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically; only its owner can read it. One that has this text stays: the disk may be full."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.stat().st_mode & 0o077 == 0 and path.read_text(encoding="utf-8") == text:
            return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
