"""The Codex home of the gateway: the user's login and model settings, and nothing else of theirs; and the environment.

Other files of the user's home (sessions, MCP servers, skills, hooks, AGENTS.md) are not visible to Codex here.
"""

import contextlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import tomli_w

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


# The gateway's own secrets are none of Codex's business.
WITHHELD_VARIABLES = ("PROXY_API_KEY", "PROXY_DATABASE_URL", "PROXY_METRICS_TOKEN", "PROXY_RATE_LIMIT_STORAGE")

# The scripted models of the demo and of the self-check listen here, and so may a provider of the user's. No proxy
# reaches them: it would look for them on its own machine.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Programs read one spelling or the other, and some only the first that is set.
NO_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")


def codex_environment(home: Path) -> dict[str, str]:
    """Return the variables that a Codex in this home gets."""
    environment = {key: value for key, value in os.environ.items() if key not in WITHHELD_VARIABLES}
    direct = hosts_without_proxy(environment)
    return {**environment, **dict.fromkeys(NO_PROXY_VARIABLES, direct), "CODEX_HOME": str(home)}


def hosts_without_proxy(environment: Mapping[str, str]) -> str:
    """Return the hosts that are reached without a proxy: those that the user lists, and loopback."""
    listed = (host.strip() for name in NO_PROXY_VARIABLES for host in environment.get(name, "").split(","))
    return ",".join(dict.fromkeys((*filter(None, listed), *LOOPBACK)))


def write_private(path: Path, text: str) -> None:
    """Replace a file at once, so that no reader meets half of it; only we can read it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
