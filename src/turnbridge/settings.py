"""Every knob, in one place: from the environment, or from a TOML file under the same names."""

import difflib
import importlib.util
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import limits
import platformdirs
from pydantic import Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from turnbridge.former_settings import MEANT_FOR_A_GATEWAY, advice_on

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


class Settings(BaseSettings):
    """The operator's choices. An empty variable is an unset one."""

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", case_sensitive=True, allow_inf_nan=False)

    host: str = Field("127.0.0.1", alias="PROXY_HOST", description="Address to listen on.")
    port: int = Field(11435, alias="PORT", ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    api_key: str | None = Field(
        None,
        alias="PROXY_API_KEY",
        description="The key that clients send, or several with commas. Default: one made at the first start.",
    )
    data_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("turnbridge", appauthor=False)),
        alias="PROXY_DATA_DIR",
        description="Where the gateway keeps its key and its own Codex home. Default: the user's data directory.",
    )
    codex_bin: Path | None = Field(
        None, alias="CODEX_BIN", description="The `codex` program. Default: the one installed with Turnbridge."
    )
    codex_home: Path = Field(
        default_factory=lambda: Path.home() / ".codex",
        alias="CODEX_HOME",
        description="The user's Codex home, for its login and models; nothing is written there. Default: `~/.codex`.",
    )
    codex_model: str | None = Field(
        None, alias="CODEX_MODEL", description="The default model. Default: the one in the user's Codex configuration."
    )
    codex_force_provider: str | None = Field(
        None,
        alias="CODEX_FORCE_PROVIDER",
        description="The provider to use, of those in the Codex configuration. Default: the one chosen there.",
    )
    codex_workdir: Path | None = Field(
        None,
        alias="PROXY_CODEX_WORKDIR",
        description="Where Codex runs; it has no tool that looks around there. Default: an empty folder of its own.",
    )
    sandbox_mode: Literal["read-only", "workspace-write", "danger-full-access"] = Field(
        "read-only",
        alias="PROXY_SANDBOX_MODE",
        description="The sandbox that Codex is told; it is given no tool that could use it.",
    )
    approval_policy: Literal["untrusted", "on-request", "never"] = Field(
        "never",
        alias="PROXY_APPROVAL_POLICY",
        description="When Codex is told to ask for approval; whatever it asks for is declined.",
    )
    include_apply_patch_tool: bool = Field(
        False,
        alias="PROXY_INCLUDE_APPLY_PATCH_TOOL",
        description="Whether the v1 dialect asks for the patch tool; the gateway then refuses to serve with it.",
    )
    responses_skip_turn: bool = Field(
        False,
        alias="PROXY_RESPONSES_SKIP_TURN",
        description="Whether the v1 dialect sends `sendUserMessage` instead of `sendUserTurn`.",
    )
    model_aliases: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        alias="PROXY_MODEL_ALIASES",
        description="Names of your own for models, as `gpt-4o=gpt-5.5,fast=gpt-5.5-low`, or a table in the TOML file.",
    )
    strict_params: bool = Field(
        False,
        alias="PROXY_STRICT_PARAMS",
        description="Refuse parameters that cannot be honoured, instead of naming them in `x-turnbridge-ignored`.",
    )
    ignore_client_system_prompt: bool = Field(
        False,
        alias="PROXY_IGNORE_CLIENT_SYSTEM_PROMPT",
        description="Leave the system and developer messages of chat clients out.",
    )
    responses_output_mode: Literal["openai-json", "obsidian-xml"] = Field(
        "openai-json",
        alias="PROXY_RESPONSES_OUTPUT_MODE",
        description=(
            "How `/v1/responses` shows tool calls: `openai-json`, or `obsidian-xml` for `<use_tool>` blocks in the "
            "text. The header `x-proxy-output-mode` chooses for one request, on both routes."
        ),
    )
    responses_omit_tool_manifest: bool = Field(
        False,
        alias="PROXY_RESPONSES_OMIT_TOOL_MANIFEST",
        description="Do not declare the tools of `/v1/responses` clients: these describe them in their own text.",
    )
    stream_hold_ms: int = Field(
        3000,
        alias="PROXY_STREAM_HOLD_MS",
        ge=0,
        description="How long a stream's headers wait for output, so that an early failure is an HTTP status.",
    )
    sse_keepalive_ms: int = Field(
        15000,
        alias="PROXY_SSE_KEEPALIVE_MS",
        ge=0,
        description="After how much silence a stream shows a sign of life; 0 for never.",
    )
    timeout_ms: int = Field(
        3_600_000, alias="PROXY_TIMEOUT_MS", gt=0, description="How long a turn may take as a whole."
    )
    idle_timeout_ms: int = Field(
        900_000, alias="PROXY_IDLE_TIMEOUT_MS", gt=0, description="How long the model may be silent within a turn."
    )
    connect_timeout_ms: int = Field(
        10_000,
        alias="PROXY_CONNECT_TIMEOUT_MS",
        ge=0,
        description="How long Codex may go on failing to reach the provider; looked at when an attempt fails.",
    )
    max_turns: int = Field(
        64, alias="PROXY_MAX_TURNS", ge=1, description="Turns that run at once; further requests wait."
    )
    queue_max: int = Field(
        256, alias="PROXY_QUEUE_MAX", ge=0, description="Requests that wait at once; further ones get 429."
    )
    queue_timeout_ms: int = Field(
        60_000, alias="PROXY_QUEUE_TIMEOUT_MS", gt=0, description="How long a request waits before it gets 503."
    )
    key_max_turns: int | None = Field(
        None,
        alias="PROXY_KEY_MAX_TURNS",
        ge=1,
        description="Turns that each key may have at once, running or waiting; further requests get 429.",
    )
    rate_limit: str | None = Field(
        None,
        alias="PROXY_RATE_LIMIT",
        description="Requests that each key may make, as `60/minute` or `60/minute;1000/day`; further ones get 429.",
    )
    rate_limit_storage: str = Field(
        "memory",
        alias="PROXY_RATE_LIMIT_STORAGE",
        description="Where they are counted: `memory`, or `redis://HOST:PORT/0` to share them (extra `redis`).",
    )
    drain_s: float = Field(
        30,
        alias="PROXY_DRAIN_S",
        ge=0,
        description="How long running turns may go on when the gateway is told to stop.",
    )
    worker_count: int = Field(
        default_factory=lambda: min(os.cpu_count() or 1, MOST_DEFAULT_WORKERS),
        alias="WORKER_COUNT",
        ge=1,
        description="App-server processes that take turns; one more is kept in reserve. Default: the cores, at most 4.",
    )
    worker_max_threads: int = Field(
        500,
        alias="WORKER_MAX_THREADS",
        ge=1,
        description="Threads after which an app-server is replaced: Codex keeps 1 to 2 MB of each in memory.",
    )
    worker_startup_timeout_ms: int | None = Field(
        None,
        alias="WORKER_STARTUP_TIMEOUT_MS",
        gt=0,
        description="How long an app-server may take for its handshake. Default: 15000.",
    )
    worker_request_timeout_ms: int | None = Field(
        None,
        alias="WORKER_REQUEST_TIMEOUT_MS",
        gt=0,
        description="How long it may take to answer one call; turns are not calls. Default: 30000.",
    )
    worker_shutdown_grace_ms: int | None = Field(
        None, alias="WORKER_SHUTDOWN_GRACE_MS", gt=0, description="How long it may take to leave. Default: 2000."
    )
    worker_backoff_initial_ms: int | None = Field(
        None,
        alias="WORKER_BACKOFF_INITIAL_MS",
        gt=0,
        description="How long to wait before one that ended is started again; doubled each time. Default: 200.",
    )
    worker_backoff_max_ms: int | None = Field(
        None, alias="WORKER_BACKOFF_MAX_MS", gt=0, description="The longest such wait. Default: 30000."
    )
    tool_mode: Literal["auto", "direct", "native"] = Field(
        "auto",
        alias="PROXY_TOOL_MODE",
        description=(
            "`direct`: every model calls functions one by one. `native`: models that Codex ships to call them from "
            "scripts do so. `auto`: direct, and native for a model whose direct calls the provider refuses."
        ),
    )
    parked_turn_ttl_s: float = Field(
        900,
        alias="PROXY_PARKED_TURN_TTL_S",
        gt=0,
        description="How long a turn waits in Codex for the outputs of its tool calls. Later ones are replayed.",
    )
    warm_threads_max: int = Field(
        64, alias="PROXY_WARM_THREADS_MAX", ge=0, description="Threads kept for a client's next request; 0 for none."
    )
    warm_threads_ttl_s: float = Field(
        1200, alias="PROXY_WARM_THREADS_TTL_S", gt=0, description="How long a thread is kept for a next request."
    )
    warm_threads_mb: int = Field(
        64, alias="PROXY_WARM_THREADS_MB", ge=1, description="How much of kept threads is held for comparison, in MB."
    )
    database_url: str | None = Field(
        None,
        alias="PROXY_DATABASE_URL",
        description="Where answers are kept: `postgresql://…` (extra `postgres`). Default: a file in the data dir.",
    )
    store_ttl_days: float = Field(
        30, alias="PROXY_STORE_TTL_DAYS", ge=0, description="How long answers are kept; 0 keeps nothing at all."
    )
    store_max_mb: int = Field(
        1024, alias="PROXY_STORE_MAX_MB", ge=1, description="How much of them is kept, in MB; the oldest make room."
    )
    max_body_mb: float = Field(16, alias="PROXY_MAX_BODY_MB", gt=0, description="Largest request body, in MB.")
    cors_allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        alias="PROXY_CORS_ALLOWED_ORIGINS",
        description="Web origins to allow besides loopback, Obsidian and Capacitor; separated by commas, `*` for any.",
    )
    metrics_token: str | None = Field(
        None, alias="PROXY_METRICS_TOKEN", description="Lets `/metrics` be read from elsewhere, as a bearer token."
    )
    dialect: Literal["auto", "v2", "v2-early", "v1"] = Field(
        "auto",
        alias="PROXY_APP_SERVER_DIALECT",
        description="The protocol to speak with Codex: `v2`, `v2-early` or `v1`. `auto`: the best that it knows.",
    )
    validate_rpc: bool = Field(
        False,
        alias="PROXY_VALIDATE_RPC",
        description="Hold all that Codex is sent against the schema that the binary prints; for finding our defects.",
    )
    log_proto: bool = Field(
        False,
        alias="PROXY_LOG_PROTO",
        description="Write all that goes over both wires to a file, without secrets ([wire trace](trace.md)).",
    )
    proto_log_path: Path | None = Field(
        None,
        alias="PROTO_LOG_PATH",
        description="The file of the wire trace. Default: `trace/wire.ndjson` in `PROXY_DATA_DIR`.",
    )
    trace_body_limit: int = Field(
        65536,
        alias="PROXY_TRACE_BODY_LIMIT",
        ge=0,
        description="Most bytes of each body in the wire trace; 0 for all of it.",
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "info", alias="PROXY_LOG_LEVEL", description="`debug`, `info`, `warning`, `error` or `critical`."
    )

    @model_validator(mode="before")
    @classmethod
    def _without_empty_texts(cls, values: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in values.items() if value != ""}

    @field_validator("model_aliases", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
        if any(not (name.strip() and target.strip()) for name, _, target in pairs):
            raise ValueError("expected `name=model,name=model`")
        return {name.strip(): target.strip() for name, _, target in pairs}

    @field_validator("cors_allowed_origins", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("rate_limit")
    @classmethod
    def _limits(cls, value: str | None) -> str | None:
        try:
            usable = value is None or all(limit.amount > 0 for limit in limits.parse_many(value))
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("expected `60/minute`, or several limits as `60/minute;1000/day`")
        return value

    @field_validator("rate_limit_storage")
    @classmethod
    def _counted_somewhere(cls, value: str) -> str:
        if value == "memory":
            return value
        if not value.startswith(REDIS_SCHEMES):
            raise ValueError("expected `memory` or a URL such as `redis://127.0.0.1:6379/0`")
        if importlib.util.find_spec("redis") is None:
            raise ValueError("a Redis needs the extra: pip install 'turnbridge[redis]'")
        # Raises what is wrong with a port.
        _ = urlsplit(value).port
        return value

    @field_validator("database_url")
    @classmethod
    def _kept_somewhere(cls, value: str | None) -> str | None:
        if value is None or value.startswith(SQLITE_SCHEME):
            return value
        if not value.startswith(POSTGRES_SCHEMES):
            raise ValueError("expected a URL such as `postgresql://USER:PASSWORD@HOST/NAME` or `sqlite:////DIR/FILE`")
        if importlib.util.find_spec("asyncpg") is None:
            raise ValueError("Postgres needs the extra: pip install 'turnbridge[postgres]'")
        return value

    @field_validator("data_dir", "codex_home", "codex_bin", "codex_workdir", "proto_log_path")
    @classmethod
    def _expanded(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the command line win over the environment, and that over the file."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=config_file(os.environ))


def load_settings(**chosen: object) -> Settings:
    """Return the settings; what is chosen here, by its name, wins over the environment and the file."""
    given = {name: value for name, value in chosen.items() if value is not None}
    file = config_file(os.environ)
    if os.environ.get(CONFIG_VARIABLE) and not file.is_file():
        raise ValueError(f"{CONFIG_VARIABLE}: there is no file {file}.")
    try:
        return Settings(**given)  # type: ignore[arg-type]  # pydantic itself checks them
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from error


def config_file(environment: Mapping[str, str]) -> Path:
    """Return where the TOML file is looked for; it need not exist."""
    chosen = environment.get(CONFIG_VARIABLE)
    return Path(chosen) if chosen else Path(platformdirs.user_config_dir("turnbridge", appauthor=False)) / "config.toml"


def known_names() -> list[str]:
    """Return the name of every setting."""
    return [str(field.alias) for field in Settings.model_fields.values()]


def complaints(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable, or name in the file, that looks like a setting of ours and is none."""
    known = [*known_names(), CONFIG_VARIABLE]
    ours = (name for name in environment if name.startswith(OUR_PREFIXES) or name in MEANT_FOR_A_GATEWAY)
    variables = [name for name in ours if environment[name]]
    file = config_file(environment)
    listed = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return [_complaint(name, known) for name in sorted({*variables, *listed}) if name not in known]


def _complaint(name: str, known: list[str]) -> str:
    if (advice := advice_on(name)) is not None:
        return advice
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name} is set, but there is no such setting." + (f" Did you mean {near[0]}?" if near else "")
