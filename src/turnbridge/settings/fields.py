"""Every knob, in one place: from the environment, or from a TOML file under the same names."""

import difflib
import importlib.util
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import limits
import platformdirs
from msgspec import Meta, Struct, field, structs

from turnbridge.settings.former import MEANT_FOR_A_GATEWAY, advice_on
from turnbridge.settings.values import converted

# Whoever sets a variable with such a name means us; a typo in it must not pass unnoticed.
OUR_PREFIXES = ("PROXY_", "WORKER_")
CONFIG_VARIABLE = "PROXY_CONFIG"
# Where the counts of rate limits may be kept, besides this process.
REDIS_SCHEMES = ("redis://", "rediss://", "redis+unix://")
# Where answers may be kept.
SQLITE_SCHEME = "sqlite:///"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")
# More app-servers than this gain nothing for one plan, and each takes 130 MB.
MOST_DEFAULT_WORKERS = 4

PortNumber = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Amount = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


class Settings(Struct, frozen=True, kw_only=True):
    """The operator's choices; `docs/configuration.md` lists them with the texts below them."""

    host: str = field(default="127.0.0.1", name="PROXY_HOST")
    """Address to listen on."""
    port: PortNumber = field(default=11435, name="PORT")
    """Port to listen on; 0 picks a free one."""
    api_key: str | None = field(default=None, name="PROXY_API_KEY")
    """The key that clients send, or several with commas. Default: one made at the first start."""
    data_dir: Path = field(
        default_factory=lambda: Path(platformdirs.user_data_dir("turnbridge", appauthor=False)), name="PROXY_DATA_DIR"
    )
    """Where the gateway keeps its key and its own Codex home. Default: the user's data directory."""
    codex_bin: Path | None = field(default=None, name="CODEX_BIN")
    """The `codex` program, by its path or by its name on PATH. Default: the one installed with Turnbridge."""
    codex_home: Path = field(default_factory=lambda: Path.home() / ".codex", name="CODEX_HOME")
    """The user's Codex home, for its login and models; nothing is written there. Default: `~/.codex`."""
    codex_model: str | None = field(default=None, name="CODEX_MODEL")
    """The default model; it need not be in Codex's catalogue. Default: the one in the user's Codex configuration."""
    codex_force_provider: str | None = field(default=None, name="CODEX_FORCE_PROVIDER")
    """The provider to use, of those in the Codex configuration. Default: the one chosen there."""
    codex_workdir: Path | None = field(default=None, name="PROXY_CODEX_WORKDIR")
    """Where Codex runs; it has no tool that looks around there. Default: an empty folder of its own."""
    sandbox_mode: Literal["read-only", "workspace-write", "danger-full-access"] = field(
        default="read-only", name="PROXY_SANDBOX_MODE"
    )
    """The sandbox that Codex is told; it is given no tool that could use it."""
    approval_policy: Literal["untrusted", "on-request", "never"] = field(default="never", name="PROXY_APPROVAL_POLICY")
    """When Codex is told to ask for approval; whatever it asks for is declined."""
    include_apply_patch_tool: bool = field(default=False, name="PROXY_INCLUDE_APPLY_PATCH_TOOL")
    """Whether the v1 dialect asks for the patch tool; the gateway then refuses to serve with it."""
    responses_skip_turn: bool = field(default=False, name="PROXY_RESPONSES_SKIP_TURN")
    """Whether the v1 dialect sends `sendUserMessage` instead of `sendUserTurn`."""
    model_aliases: dict[str, str] = field(default_factory=dict, name="PROXY_MODEL_ALIASES")
    """Names of your own for models, as `gpt-4o=gpt-5.5,fast=gpt-5.5-low`, or a table in the TOML file."""
    strict_params: bool = field(default=False, name="PROXY_STRICT_PARAMS")
    """Refuse parameters that cannot be honoured, instead of naming them in `x-turnbridge-ignored`."""
    ignore_client_system_prompt: bool = field(default=False, name="PROXY_IGNORE_CLIENT_SYSTEM_PROMPT")
    """Leave the system and developer messages of chat clients out."""
    responses_output_mode: Literal["openai-json", "obsidian-xml"] = field(
        default="openai-json", name="PROXY_RESPONSES_OUTPUT_MODE"
    )
    """How `/v1/responses` shows tool calls: `openai-json`, or `obsidian-xml` for `<use_tool>` blocks in the text.
    The header `x-proxy-output-mode` chooses for one request, on both routes."""
    responses_omit_tool_manifest: bool = field(default=False, name="PROXY_RESPONSES_OMIT_TOOL_MANIFEST")
    """Do not declare the tools of `/v1/responses` clients: these describe them in their own text."""
    stream_hold_ms: Count = field(default=3000, name="PROXY_STREAM_HOLD_MS")
    """How long a stream's headers wait for output, so that an early failure is an HTTP status."""
    sse_keepalive_ms: Count = field(default=15000, name="PROXY_SSE_KEEPALIVE_MS")
    """After how much silence a stream shows a sign of life; 0 for never."""
    timeout_ms: AtLeastOne = field(default=3_600_000, name="PROXY_TIMEOUT_MS")
    """How long a turn may take as a whole."""
    idle_timeout_ms: AtLeastOne = field(default=900_000, name="PROXY_IDLE_TIMEOUT_MS")
    """How long the model may be silent within a turn; a third of it until the first sign of the provider."""
    connect_timeout_ms: Count = field(default=10_000, name="PROXY_CONNECT_TIMEOUT_MS")
    """How long Codex may go on retrying a provider that fails; checked when an attempt fails."""
    max_turns: AtLeastOne = field(default=64, name="PROXY_MAX_TURNS")
    """Turns that run at once; further requests wait. With several keys, one key may run seven eighths of them."""
    queue_max: Count = field(default=256, name="PROXY_QUEUE_MAX")
    """Requests that wait at once; of further ones, the key that holds most gets 429."""
    queue_timeout_ms: AtLeastOne = field(default=60_000, name="PROXY_QUEUE_TIMEOUT_MS")
    """How long a request waits before it gets 503."""
    key_max_turns: AtLeastOne | None = field(default=None, name="PROXY_KEY_MAX_TURNS")
    """Turns that each key may have at once, running or waiting; further requests get 429."""
    rate_limit: str | None = field(default=None, name="PROXY_RATE_LIMIT")
    """Requests that each key may make, as `60/minute` or `60/minute;1000/day`; further ones get 429."""
    rate_limit_storage: str = field(default="memory", name="PROXY_RATE_LIMIT_STORAGE")
    """Where they are counted: `memory`, or `redis://HOST:PORT/0` to share them (package `redis`)."""
    drain_s: Amount = field(default=30, name="PROXY_DRAIN_S")
    """How long running turns may go on when the gateway is told to stop."""
    worker_count: AtLeastOne = field(
        default_factory=lambda: min(os.cpu_count() or 1, MOST_DEFAULT_WORKERS), name="WORKER_COUNT"
    )
    """App-server processes that take turns; one more is kept in reserve. Default: the cores, at most 4."""
    worker_max_threads: AtLeastOne = field(default=500, name="WORKER_MAX_THREADS")
    """Threads after which an app-server is replaced: Codex keeps 1 to 2 MB of each in memory."""
    worker_startup_timeout_ms: AtLeastOne | None = field(default=None, name="WORKER_STARTUP_TIMEOUT_MS")
    """How long an app-server may take for its handshake. Default: 15000."""
    worker_request_timeout_ms: AtLeastOne | None = field(default=None, name="WORKER_REQUEST_TIMEOUT_MS")
    """How long it may take to answer one call; turns are not calls. Default: 30000."""
    worker_shutdown_grace_ms: AtLeastOne | None = field(default=None, name="WORKER_SHUTDOWN_GRACE_MS")
    """How long it may take to leave. Default: 2000."""
    worker_backoff_initial_ms: AtLeastOne | None = field(default=None, name="WORKER_BACKOFF_INITIAL_MS")
    """How long to wait before one that ended is started again; doubled each time. Default: 200."""
    worker_backoff_max_ms: AtLeastOne | None = field(default=None, name="WORKER_BACKOFF_MAX_MS")
    """The longest such wait. Default: 30000."""
    tool_mode: Literal["auto", "direct", "native"] = field(default="auto", name="PROXY_TOOL_MODE")
    """`direct`: every model calls functions one by one. `native`: models that Codex ships to call them from scripts
    do so. `auto`: direct, and native for a model whose direct calls the provider refuses."""
    parked_turn_ttl_s: Positive = field(default=900, name="PROXY_PARKED_TURN_TTL_S")
    """How long a turn waits in Codex for the outputs of its tool calls. Later ones are replayed."""
    warm_threads_max: Count = field(default=64, name="PROXY_WARM_THREADS_MAX")
    """Threads kept for clients' next requests; 0 for none."""
    warm_threads_ttl_s: Positive = field(default=1200, name="PROXY_WARM_THREADS_TTL_S")
    """How long a thread is kept for a next request."""
    database_url: str | None = field(default=None, name="PROXY_DATABASE_URL")
    """Where answers are kept: `postgresql://…` (package `asyncpg`). Default: a file in the data dir."""
    store_ttl_days: Amount = field(default=30, name="PROXY_STORE_TTL_DAYS")
    """How long answers are kept; 0 keeps nothing at all."""
    store_max_mb: AtLeastOne = field(default=1024, name="PROXY_STORE_MAX_MB")
    """How much of them is kept, in MB; the oldest of the key that uses most are deleted first."""
    max_body_mb: Positive = field(default=16, name="PROXY_MAX_BODY_MB")
    """Largest request body, in MB."""
    cors_allowed_origins: tuple[str, ...] = field(default=(), name="PROXY_CORS_ALLOWED_ORIGINS")
    """Web origins to allow besides loopback, Obsidian and Capacitor; separated by commas, `*` for any."""
    metrics_token: str | None = field(default=None, name="PROXY_METRICS_TOKEN")
    """The bearer token that `/metrics` asks for. Default: none, and it asks for the key."""
    dialect: Literal["auto", "v2", "v2-early", "v1"] = field(default="auto", name="PROXY_APP_SERVER_DIALECT")
    """The protocol to speak with Codex: `v2`, `v2-early` or `v1`. `auto`: the best that it knows."""
    validate_rpc: bool = field(default=False, name="PROXY_VALIDATE_RPC")
    """Hold all that Codex is sent against the schema that the binary prints; for finding our defects."""
    log_proto: bool = field(default=False, name="PROXY_LOG_PROTO")
    """Write all that goes over both wires to a file, without secrets ([wire trace](trace.md))."""
    proto_log_path: Path | None = field(default=None, name="PROTO_LOG_PATH")
    """The file of the wire trace. Default: `trace/wire.ndjson` in `PROXY_DATA_DIR`."""
    trace_body_limit: Count = field(default=65536, name="PROXY_TRACE_BODY_LIMIT")
    """Most bytes of each body in the wire trace; 0 for all of it, up to 16 MB."""
    log_level: Literal["debug", "info", "warning", "error", "critical"] = field(default="info", name="PROXY_LOG_LEVEL")
    """`debug`, `info`, `warning`, `error` or `critical`."""


def _pairs(value: object) -> object:
    if not isinstance(value, str):
        return value
    pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
    if any(not (name.strip() and target.strip()) for name, _, target in pairs):
        raise ValueError("expected `name=model,name=model`")
    return {name.strip(): target.strip() for name, _, target in pairs}


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _program(value: object) -> object:
    """Return the path of a program; one without a slash is looked for on PATH, as a shell does."""
    if not isinstance(value, str | Path) or os.sep in str(value):
        return value
    found = shutil.which(value)
    if found is None:
        raise ValueError(f"there is no program `{value}` on PATH; give its path")
    return found


def _check_limits(value: str) -> None:
    try:
        usable = all(limit.amount > 0 for limit in limits.parse_many(value))
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("expected `60/minute`, or several limits as `60/minute;1000/day`")


def _check_counted_somewhere(value: str) -> None:
    if value == "memory":
        return
    if not value.startswith(REDIS_SCHEMES):
        raise ValueError("expected `memory` or a URL such as `redis://127.0.0.1:6379/0`")
    if importlib.util.find_spec("redis") is None:
        raise ValueError(f"a Redis needs a package: {_how_to_install('redis')}")
    # Raises what is wrong with a port.
    _ = urlsplit(value).port


def _check_kept_somewhere(value: str) -> None:
    if value.startswith(SQLITE_SCHEME):
        return
    if not value.startswith(POSTGRES_SCHEMES):
        raise ValueError("expected a URL such as `postgresql://USER:PASSWORD@HOST/NAME` or `sqlite:////DIR/FILE`")
    if importlib.util.find_spec("asyncpg") is None:
        raise ValueError(f"Postgres needs a package: {_how_to_install('asyncpg')}")


def _how_to_install(package: str) -> str:
    return f"{shlex.quote(sys.executable)} -m pip install {package}"


# How a text is read that is more than one value, and what is looked at besides the type.
READ: dict[str, Callable[[object], object]] = {
    "CODEX_BIN": _program,
    "PROXY_MODEL_ALIASES": _pairs,
    "PROXY_CORS_ALLOWED_ORIGINS": _listed,
}
CHECK: dict[str, Callable[[str], None]] = {
    "PROXY_RATE_LIMIT": _check_limits,
    "PROXY_RATE_LIMIT_STORAGE": _check_counted_somewhere,
    "PROXY_DATABASE_URL": _check_kept_somewhere,
}


def load_settings(**chosen: object) -> Settings:
    """Return the settings; what is chosen here, by its name, wins over the environment, and that over the file.

    Raises `ValueError` with a line for each that is wrong. Nothing, or an empty text, is no choice.
    """
    file = config_file(os.environ)
    if os.environ.get(CONFIG_VARIABLE) and not file.is_file():
        raise ValueError(f"{CONFIG_VARIABLE}: there is no file {file}.")
    given = {
        name: value
        for source in (_in_file(file), os.environ, chosen)
        for name, value in source.items()
        if value is not None and value != ""
    }
    values: dict[str, object] = {}
    wrong = []
    for setting in structs.fields(Settings):
        name = setting.encode_name
        if name not in given:
            continue
        try:
            values[setting.name] = _value(name, given[name], setting.type)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise ValueError("\n".join(wrong))
    try:
        return Settings(**values)  # type: ignore[arg-type]  # Each was made to fit its type.
    except RuntimeError as error:
        raise ValueError("This user has no home directory. Set HOME, or PROXY_DATA_DIR and CODEX_HOME.") from error


def _value(name: str, given: object, kind: object) -> object:
    read, check = READ.get(name), CHECK.get(name)
    value = converted(read(given) if read else given, kind)
    if check and isinstance(value, str):
        check(value)
    return value


def _in_file(file: Path) -> dict[str, object]:
    """Return what the TOML file says, if there is one."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from error


def config_file(environment: Mapping[str, str]) -> Path:
    """Return where the TOML file is looked for; it need not exist."""
    if chosen := environment.get(CONFIG_VARIABLE):
        return Path(chosen)
    try:
        return Path(platformdirs.user_config_dir("turnbridge", appauthor=False)) / "config.toml"
    except RuntimeError:  # The user has no home directory, and so no file in it.
        return Path(os.devnull)


def known_names() -> list[str]:
    """Return the name of every setting."""
    return [setting.encode_name for setting in structs.fields(Settings)]


def complaints(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable, or name in the file, that looks like a setting of ours and is none."""
    known = [*known_names(), CONFIG_VARIABLE]
    ours = (name for name in environment if name.startswith(OUR_PREFIXES) or name in MEANT_FOR_A_GATEWAY)
    variables = [name for name in ours if environment[name]]
    listed = _in_file(config_file(environment))
    return [_complaint(name, known) for name in sorted({*variables, *listed}) if name not in known]


def _complaint(name: str, known: list[str]) -> str:
    if (advice := advice_on(name)) is not None:
        return advice
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name} is set, but there is no such setting." + (f" Did you mean {near[0]}?" if near else "")
