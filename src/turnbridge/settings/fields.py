"""All settings, from the environment or from a TOML file with the same names."""

import difflib
import math
import os
import shutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import platformdirs
from msgspec import Meta, Struct, field, inspect, structs

from turnbridge.settings.checks import SQLITE_SCHEME, check_database_url, check_rate_limit_storage
from turnbridge.settings.former import RECOGNISED, warning_about
from turnbridge.turn.mcp_hosts import parse_hosts
from turnbridge.turn.rates import parse_rates

# Variables with these prefixes are meant for this gateway, so unknown ones are reported.
OUR_PREFIXES = ("PROXY_", "WORKER_")
CONFIG_VARIABLE = "PROXY_CONFIG"
# Spellings of booleans that are common in environments.
BOOLEANS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}
# More processes gain nothing for one plan, and each takes 130 MB.
MOST_DEFAULT_WORKERS = 4

MOST_PORT = 65535
DEFAULT_PORT = 11435
# A setting that is a switch as well as a value.
ON = "on"

PortNumber = Annotated[int, Meta(ge=0, le=MOST_PORT)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Amount = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


class Settings(Struct, frozen=True, kw_only=True):
    """The settings; `docs/configuration.md` is generated from the strings below them."""

    host: str = field(default="127.0.0.1", name="PROXY_HOST")
    """Address to listen on."""
    port: PortNumber = field(default=DEFAULT_PORT, name="PORT")
    """Port to listen on; 0 picks a free one."""
    ollama: str | None = field(default=None, name="PROXY_OLLAMA")
    """Address of a second listener for [Ollama's clients](ollama.md), which asks programs on this machine for no key:
    `on` for `127.0.0.1:11434` or the next free port, or an address such as `127.0.0.1:11500`. Default: none."""
    api_key: str | None = field(default=None, name="PROXY_API_KEY")
    """API key of clients, or several separated by commas; [others](keys.md) are made by `turnbridge keys`. Default:
    generated at the first start."""
    data_dir: Path = field(
        default_factory=lambda: Path(platformdirs.user_data_dir("turnbridge", appauthor=False)), name="PROXY_DATA_DIR"
    )
    """Directory of the generated key, the store and the gateway's Codex home. Default: the user's data directory."""
    codex_bin: Path | None = field(default=None, name="CODEX_BIN")
    """The `codex` binary: a path, or a name on PATH. Default: the one installed with Turnbridge."""
    codex_home: Path = field(default_factory=lambda: Path.home() / ".codex", name="CODEX_HOME")
    """The user's Codex home, from which login and models are read. Default: `~/.codex`."""
    codex_model: str | None = field(default=None, name="CODEX_MODEL")
    """Default model; it need not be in Codex's catalogue. Default: the model of the user's Codex configuration."""
    codex_force_provider: str | None = field(default=None, name="CODEX_FORCE_PROVIDER")
    """Model provider, one of those in the Codex configuration. Default: the one selected there."""
    codex_workdir: Path | None = field(default=None, name="PROXY_CODEX_WORKDIR")
    """Working directory of Codex, which has no tool that reads it. Default: an empty directory."""
    sandbox_mode: Literal["read-only", "workspace-write", "danger-full-access"] = field(
        default="read-only", name="PROXY_SANDBOX_MODE"
    )
    """Sandbox mode passed to Codex; without effect, since Codex has no tool that runs in it."""
    approval_policy: Literal["untrusted", "on-request", "never"] = field(default="never", name="PROXY_APPROVAL_POLICY")
    """Approval policy passed to Codex; every request for approval is declined."""
    include_apply_patch_tool: bool = field(default=False, name="PROXY_INCLUDE_APPLY_PATCH_TOOL")
    """Whether the v1 dialect requests the patch tool; the gateway then refuses to serve with it."""
    responses_skip_turn: bool = field(default=False, name="PROXY_RESPONSES_SKIP_TURN")
    """Whether the v1 dialect sends `sendUserMessage` instead of `sendUserTurn`."""
    model_aliases: dict[str, str] = field(default_factory=dict, name="PROXY_MODEL_ALIASES")
    """Aliases of models, such as `gpt-4o=gpt-5.5,fast=gpt-5.5-low`, or a table in the TOML file."""
    strict_params: bool = field(default=False, name="PROXY_STRICT_PARAMS")
    """Reject parameters that are not supported, instead of listing them in `x-turnbridge-ignored`."""
    ignore_client_system_prompt: bool = field(default=False, name="PROXY_IGNORE_CLIENT_SYSTEM_PROMPT")
    """Drop the system and developer messages of chat requests."""
    responses_output_mode: Literal["openai-json", "obsidian-xml"] = field(
        default="openai-json", name="PROXY_RESPONSES_OUTPUT_MODE"
    )
    """Format of tool calls on `/v1/responses`: `openai-json`, or `obsidian-xml` for `<use_tool>` blocks in the text.
    The header `x-proxy-output-mode` overrides it for one request, on both routes."""
    responses_omit_tool_manifest: bool = field(default=False, name="PROXY_RESPONSES_OMIT_TOOL_MANIFEST")
    """Do not declare the tools of `/v1/responses` requests: for clients that describe them in their prompt."""
    mcp: str = field(default="off", name="PROXY_MCP")
    """MCP servers that requests may name: `off`, `public` (https, port 443, public addresses), or a list of hosts such
    as `hosts:mcp.example.com,http://10.0.0.5:8000`, which may have any address."""
    stream_hold_ms: Count = field(default=3000, name="PROXY_STREAM_HOLD_MS")
    """How long the headers of a stream wait for the first output, so that an early failure has an HTTP status."""
    sse_keepalive_ms: Count = field(default=15000, name="PROXY_SSE_KEEPALIVE_MS")
    """Keepalive interval of streams; 0 disables it."""
    timeout_ms: AtLeastOne = field(default=3_600_000, name="PROXY_TIMEOUT_MS")
    """Timeout of a turn."""
    idle_timeout_ms: AtLeastOne = field(default=900_000, name="PROXY_IDLE_TIMEOUT_MS")
    """Idle timeout of a turn: how long the model may be silent; a third of it until the provider's first event."""
    connect_timeout_ms: Count = field(default=10_000, name="PROXY_CONNECT_TIMEOUT_MS")
    """How long Codex may retry a failing provider; checked when an attempt fails."""
    max_turns: AtLeastOne = field(default=64, name="PROXY_MAX_TURNS")
    """Maximum of concurrent turns, of all replicas together; further requests are queued. With several keys, one key
    may use seven eighths."""
    queue_max: Count = field(default=256, name="PROXY_QUEUE_MAX")
    """Maximum of queued requests; beyond it, requests of the key with the most get 429."""
    queue_timeout_ms: AtLeastOne = field(default=60_000, name="PROXY_QUEUE_TIMEOUT_MS")
    """How long a request may be queued before it gets 503."""
    key_max_turns: AtLeastOne | None = field(default=None, name="PROXY_KEY_MAX_TURNS")
    """Maximum of turns per key, running or queued; further requests get 429. Default: no limit."""
    rate_limit: str | None = field(default=None, name="PROXY_RATE_LIMIT")
    """Rate limit per key, such as `60/minute` or `60/minute;1000/day`; further requests get 429. Default: none."""
    rate_limit_storage: str = field(default="memory", name="PROXY_RATE_LIMIT_STORAGE")
    """Where replicas count together: `redis://HOST:PORT/0` (a Redis or Valkey; package `redis`), or `memory` for one
    gateway. It has rates, turns, token limits and idempotency keys."""
    drain_s: Amount = field(default=30, name="PROXY_DRAIN_S")
    """Graceful shutdown: how long running turns may take to finish."""
    worker_count: AtLeastOne = field(
        default_factory=lambda: min(os.cpu_count() or 1, MOST_DEFAULT_WORKERS), name="WORKER_COUNT"
    )
    """Maximum of Codex app-server processes: one at rest, more under load. Default: the number of cores, at most 4."""
    worker_max_growth_mb: AtLeastOne = field(default=96, name="WORKER_MAX_GROWTH_MB")
    """Memory that an app-server may gain before it is recycled: Codex keeps about 1 MB of each recent thread."""
    worker_startup_timeout_ms: AtLeastOne | None = field(default=None, name="WORKER_STARTUP_TIMEOUT_MS")
    """Timeout of an app-server's handshake. Default: 15000."""
    worker_request_timeout_ms: AtLeastOne | None = field(default=None, name="WORKER_REQUEST_TIMEOUT_MS")
    """Timeout of one JSON-RPC call to an app-server, not of a turn. Default: 30000."""
    worker_shutdown_grace_ms: AtLeastOne | None = field(default=None, name="WORKER_SHUTDOWN_GRACE_MS")
    """How long an app-server may take to exit before it is killed. Default: 2000."""
    worker_backoff_initial_ms: AtLeastOne | None = field(default=None, name="WORKER_BACKOFF_INITIAL_MS")
    """Initial backoff before an app-server is restarted; doubled each time. Default: 200."""
    worker_backoff_max_ms: AtLeastOne | None = field(default=None, name="WORKER_BACKOFF_MAX_MS")
    """Maximum of that backoff. Default: 30000."""
    tool_mode: Literal["auto", "direct", "native"] = field(default="auto", name="PROXY_TOOL_MODE")
    """`direct`: every model calls functions directly. `native`: models that Codex configures to call them from scripts
    do so. `auto`: direct, and native for a model whose direct calls the provider rejects."""
    parked_turn_ttl_s: Positive = field(default=900, name="PROXY_PARKED_TURN_TTL_S")
    """How long a turn stays parked for the outputs of its tool calls; later outputs are replayed on a new thread."""
    warm_threads_max: Count = field(default=64, name="PROXY_WARM_THREADS_MAX")
    """Maximum of warm threads kept for follow-up requests; 0 disables them."""
    warm_threads_ttl_s: Positive = field(default=1200, name="PROXY_WARM_THREADS_TTL_S")
    """How long a warm thread is kept."""
    database_url: str | None = field(default=None, name="PROXY_DATABASE_URL")
    """Database of the store: `postgresql://…` (package `asyncpg`). Default: a SQLite file in the data directory."""
    store_ttl_days: Amount = field(default=30, name="PROXY_STORE_TTL_DAYS")
    """Retention of stored answers and files in days; 0 stores none. [Keys and usage](keys.md) are
    stored in any case."""
    store_max_mb: AtLeastOne = field(default=1024, name="PROXY_STORE_MAX_MB")
    """Maximum size of the store in MB; the oldest entries of the key that uses most are deleted first."""
    max_body_mb: Positive = field(default=16, name="PROXY_MAX_BODY_MB")
    """Maximum size of a request body in MB."""
    cors_allowed_origins: tuple[str, ...] = field(default=(), name="PROXY_CORS_ALLOWED_ORIGINS")
    """CORS origins allowed besides loopback, Obsidian and Capacitor; separated by commas, `*` for any."""
    page: bool = field(default=True, name="PROXY_PAGE")
    """Serve the page for browsers at `/`."""
    metrics_token: str | None = field(default=None, name="PROXY_METRICS_TOKEN")
    """Bearer token of `/metrics`. Default: the API key, or an [admin's](keys.md)."""
    dialect: Literal["auto", "v2", "v2-early", "v1"] = field(default="auto", name="PROXY_APP_SERVER_DIALECT")
    """App-server protocol: `v2`, `v2-early` or `v1`. `auto`: the best that the binary supports."""
    validate_rpc: bool = field(default=False, name="PROXY_VALIDATE_RPC")
    """Validate every message to Codex against the schema that the binary prints; for debugging the gateway."""
    log_proto: bool = field(default=False, name="PROXY_LOG_PROTO")
    """Write a trace of HTTP and JSON-RPC messages, with secrets redacted ([wire trace](trace.md))."""
    proto_log_path: Path | None = field(default=None, name="PROTO_LOG_PATH")
    """File of the wire trace. Default: `trace/wire.ndjson` in `PROXY_DATA_DIR`."""
    trace_body_limit: Count = field(default=65536, name="PROXY_TRACE_BODY_LIMIT")
    """Maximum bytes of each body in the wire trace; 0 for whole bodies, up to 16 MB."""
    log_level: Literal["debug", "info", "warning", "error", "critical"] = field(default="info", name="PROXY_LOG_LEVEL")
    """`debug`, `info`, `warning`, `error` or `critical`. Probes and scrapes are logged at `debug`."""
    log_format: Literal["json", "text"] | None = field(default=None, name="PROXY_LOG_FORMAT")
    """`json`, or `text`: a readable line per event. Default: `text` on a terminal, else `json`."""

    @property
    def trace_path(self) -> Path:
        """Return the file of the wire trace."""
        return self.proto_log_path or self.data_dir / "trace" / "wire.ndjson"

    @property
    def redis_url(self) -> str | None:
        """Return the Redis that replicas share, if there is one."""
        return None if self.rate_limit_storage == "memory" else self.rate_limit_storage

    @property
    def store_is_shared(self) -> bool:
        """Tell whether replicas may share the store: a file is one gateway's."""
        return self.database_url is not None and not self.database_url.startswith(SQLITE_SCHEME)


def _pairs(value: object) -> object:
    if not isinstance(value, str):
        return value
    pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
    if any(not (name.strip() and target.strip()) for name, _, target in pairs):
        raise ValueError("expected `name=model,name=model`")
    return {name.strip(): target.strip() for name, _, target in pairs}


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _switched(value: object) -> object:
    """Return a value that may be a switch as `on` or None."""
    switch = BOOLEANS.get(value.strip().lower(), value) if isinstance(value, str) else value
    return (ON if switch else None) if isinstance(switch, bool) else value


def _check_address(value: str) -> None:
    host, _, port = value.rpartition(":")
    if value != ON and not (host and port.isdecimal() and int(port) <= MOST_PORT):
        raise ValueError("expected `on`, or an address such as `127.0.0.1:11434`")


def _program(value: object) -> object:
    """Return the path of a program; a name without a slash is looked up on PATH."""
    if not isinstance(value, str | Path) or os.sep in str(value):
        return value
    if (found := shutil.which(value)) is None:
        raise ValueError(f"there is no program `{value}` on PATH; give its path")
    return found


# Parsers of strings that are more than one value, and checks besides the type.
PARSE: dict[str, Callable[[object], object]] = {
    "CODEX_BIN": _program,
    "PROXY_OLLAMA": _switched,
    "PROXY_MODEL_ALIASES": _pairs,
    "PROXY_CORS_ALLOWED_ORIGINS": _listed,
}
CHECK: dict[str, Callable[[str], object]] = {
    "PROXY_OLLAMA": _check_address,
    "PROXY_RATE_LIMIT": parse_rates,
    "PROXY_RATE_LIMIT_STORAGE": check_rate_limit_storage,
    "PROXY_DATABASE_URL": check_database_url,
    "PROXY_MCP": parse_hosts,
}


def load_settings(**chosen: object) -> Settings:
    """Return the settings; `chosen`, by name, takes precedence over the environment, and that over the file.

    None and empty strings count as unset. Raises `ValueError` with one line for each invalid setting.
    """
    file = config_file(os.environ)
    if os.environ.get(CONFIG_VARIABLE) and not file.is_file():
        raise ValueError(f"{CONFIG_VARIABLE}: there is no file {file}.")
    given = {
        name: value
        for source in (_read_file(file), os.environ, chosen)
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
    read, check = PARSE.get(name), CHECK.get(name)
    value = converted(read(given) if read else given, kind)
    if check and isinstance(value, str):
        check(value)
    return value


def _read_file(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from error


def config_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the TOML file, which need not exist."""
    if chosen := environment.get(CONFIG_VARIABLE):
        return Path(chosen)
    try:
        return Path(platformdirs.user_config_dir("turnbridge", appauthor=False)) / "config.toml"
    except RuntimeError:  # The user has no home directory.
        return Path(os.devnull)


def known_names() -> list[str]:
    return [setting.encode_name for setting in structs.fields(Settings)]


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable, or name in the file, that looks like a setting but is none."""
    known = [*known_names(), CONFIG_VARIABLE]
    ours = (name for name in environment if name.startswith(OUR_PREFIXES) or name in RECOGNISED)
    variables = [name for name in ours if environment[name]]
    listed = _read_file(config_file(environment))
    unknown = sorted({*variables, *listed}.difference(known))
    return [warning_about(name) or _no_such_setting(name, known) for name in unknown]


def _no_such_setting(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name} is set, but there is no such setting." + (f" Did you mean {near[0]}?" if near else "")


def converted(value: object, kind: object) -> object:
    """Return a value as this type; the message of `ValueError` does not contain the value, which may be a secret."""
    expected_type = inspect.type_info(kind)
    if isinstance(expected_type, inspect.UnionType):
        # Optional: the other type is None's.
        expected_type = expected_type.types[0]
    if isinstance(value, str):
        if isinstance(expected_type, inspect.BoolType):
            value = BOOLEANS.get(value.strip().lower(), value)
        elif isinstance(expected_type, inspect.IntType | inspect.FloatType):
            value = value.strip()
    expected = f"expected {_expected(expected_type)}"
    try:
        found: object = msgspec.convert(value, kind, strict=False, dec_hook=_path)
    except msgspec.ValidationError:
        raise ValueError(expected) from None
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(expected)
    return found


def _path(kind: type, value: object) -> Path:
    if kind is not Path or not isinstance(value, str | Path):
        raise TypeError(f"{type(value)} is no path")
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError("There is no such user.") from error


def _expected(kind: inspect.Type) -> str:
    match kind:
        case inspect.BoolType():
            return "`true` or `false`"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(f"`{value}`" for value in values)
        case inspect.IntType():
            return "a whole number" + _bounds(kind)
        case inspect.FloatType():
            return "a number" + _bounds(kind)
        case inspect.VarTupleType():
            return "a comma-separated list"
        case inspect.DictType():
            return "a table of strings"
        case inspect.CustomType():
            return "a path; the user of a leading `~` must exist"
        case _:
            return "a string"


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.gt is not None:
        return f" above {kind.gt}"
    if kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    return f" of at least {kind.ge}"
