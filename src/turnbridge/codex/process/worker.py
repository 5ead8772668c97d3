"""One ready app-server: started in the gateway's home with the bare catalogue, initialized, asked for its account."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from turnbridge.codex.legacy.notifications import OLDER_NOTIFICATIONS, OlderNotification
from turnbridge.codex.process.binary import (
    Binary,
    examine,
    run,
    spawn,
)
from turnbridge.codex.process.connection import CallRefused, CodexFaulted, Connection
from turnbridge.codex.process.home import (
    bar_skills,
    configured_model,
    login_state,
    write_private,
)
from turnbridge.codex.process.process import AppServerProcess
from turnbridge.codex.process.spare_threads import SpareThreads
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.capabilities import Capabilities, Dialect
from turnbridge.codex.protocol.configured_model import with_model
from turnbridge.codex.protocol.encode import PROCESS_OVERRIDES, bare_catalog, initialize_params
from turnbridge.codex.protocol.permissions import STRICT, HostRules
from turnbridge.engine.ports import Model
from turnbridge.turn.errors import BackendLost, BackendUnavailable
from turnbridge.turn.items import JsonObject


class Tap(Protocol):
    """Somebody who listens in on one pipe; it must not raise."""

    def sent(self, data: bytes) -> None:
        """Take a line to Codex."""
        ...

    def received(self, data: bytes) -> None:
        """Take what the pipe brought, in whatever pieces."""
        ...


def overheard(listen: Callable[[bytes], None], take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return `take` with somebody who listens in."""

    def both(data: bytes) -> None:
        listen(data)
        take(data)

    return both


log = structlog.get_logger(__name__)

# `codex debug models` may ask the provider for the account's models; without a network the bundled ones must do.
CATALOG_TIMEOUT_S = 10.0
# Handshakes take a tenth of a second; a first start on a slow disk takes longer.
HANDSHAKE_TIMEOUT_S = 15.0
# Long enough for a provider that restarts, and short enough that a dead one is told before clients give up.
CONNECT_TIMEOUT_S = 10.0
# What Codex says of a login that is good, when it cannot ask where the account's requests go.
ACCOUNT_UNREACHABLE = "workspace routing discovery failed"
# Far more than any catalogue, so that one page holds it.
MODEL_PAGE = 1000


class CatalogEntry(msgspec.Struct, frozen=True):
    """The part of a catalogue entry that `model/list` does not tell, and the bare catalogue hides."""

    slug: str
    tool_mode: str | None = None
    context_window: int | None = None
    max_context_window: int | None = None


class Catalog(msgspec.Struct, frozen=True):
    """The part of a catalogue that is read here."""

    models: list[CatalogEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexSpec:
    """How to run Codex: which binary, in which home, with which settings on its command line."""

    binary: Path
    home: Path
    workdir: Path
    direct_tools: bool = True
    """Whether every model calls functions one by one, also those that Codex ships to do it from scripts."""
    overrides: tuple[str, ...] = ()
    """TOML assignments such as `model_provider="openai"`."""
    model: str | None = None
    """The default model; that of the home's configuration, if none is named."""
    version: str
    """The gateway's own version, for the handshake."""
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    """How long Codex may go on retrying a provider that fails."""
    rules: HostRules = STRICT
    startup_timeout_s: float | None = None
    call_timeout_s: float | None = None
    exit_grace_s: float | None = None
    dialect: Dialect | None = None
    """The dialect to speak; the best that the binary knows, if none is named."""
    validate_rpc: bool = False
    """Whether all that Codex is sent is held against its own schema first."""
    notes: Path | None = None
    """A directory of its own for what is learned about binaries; else it is kept in the home."""

    @property
    def notes_dir(self) -> Path:
        """Return the directory for what is learned about binaries."""
        return self.notes or self.home / "binaries"

    def command(self, *words: str) -> list[str]:
        """Return a command line of this Codex."""
        flags = [word for override in (*PROCESS_OVERRIDES, *self.overrides) for word in ("-c", override)]
        return [str(self.binary), *words, *flags]


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A ready app-server: what it told about itself, and what it has to do."""

    spec: CodexSpec
    process: AppServerProcess
    connection: Connection
    capabilities: Capabilities
    binary: str
    """A name of the binary that no other one has."""
    dialect: Dialect
    """The one that is spoken, of those that it knows."""
    models: tuple[Model, ...]
    default_model: str | None
    catalog: Path | None = None
    """The file with its models, if it was given one."""
    login_missing: bool
    login: tuple[int, int] | None
    started_at: float
    extras: tuple[str, ...] = ()
    """What this Codex is known to add to a request of its own accord, in a word each."""
    opened: int = 0
    """Threads that were opened here for requests."""
    load: int = 0
    """Conversations that are being opened, or whose turn runs."""
    parked: int = 0
    """Turns that wait for a client."""
    spares: SpareThreads = field(init=False)

    def __post_init__(self) -> None:
        self.spares = SpareThreads(self.connection)

    @property
    def is_uprooted(self) -> bool:
        """Tell whether its home was removed: Codex reads the catalogue there at every thread."""
        return not (self.spec.workdir.is_dir() and (self.catalog or self.spec.home).exists())

    @property
    def threads(self) -> int:
        """Return how many threads were started here: Codex keeps them all in memory."""
        return self.opened + self.spares.unused


def fidelity_of(workers: Sequence[Worker]) -> str:
    """Tell whether models see a history as it is, or flattened into one message; and what Codex adds to it."""
    extras = dict.fromkeys(extra for worker in workers for extra in worker.extras)
    flaws = ["flattened"] if any(worker.dialect != "v2" for worker in workers) else []
    flaws += [f"extra={','.join(extras)}"] if extras else []
    return "; ".join(flaws) or "exact"


async def start_worker(spec: CodexSpec, *, tap: Callable[[int], Tap] | None = None) -> Worker:
    """Start an app-server and shake hands; raises a `GatewayError` or `OSError` that says what failed.

    No process is left then. `tap` makes a listener for the pipe of the app-server with a process id.
    """
    spec.workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Read before the process starts, so that a login in between counts as a change.
    login = login_state(spec.home)
    catalog, binary = await _ask_both(spec)
    dialect = _dialect(spec, binary)
    if dialect != "v2":
        bar_skills(spec.home)
    if catalog is not None:
        catalog = with_model(catalog, spec.model or configured_model(spec.home))
    catalog_file = _written_catalog(spec, catalog)
    flags = [] if catalog_file is None else ["-c", f"model_catalog_json={json.dumps(str(catalog_file))}"]
    command = [*spec.command("app-server"), *flags]

    process = await spawn(command, home=spec.home, cwd=spec.workdir, exit_grace_s=spec.exit_grace_s)
    try:
        connection = _connect(spec, binary, process, None if tap is None else tap(process.pid))
        async with asyncio.timeout(spec.startup_timeout_s or HANDSHAKE_TIMEOUT_S):
            worker = await _shake_hands(spec, binary, dialect, process, connection, catalog, login)
            worker.catalog = catalog_file
            return worker
    except BaseException as error:
        await process.stop()
        if not isinstance(error, asyncio.CancelledError):
            log.warning("codex_handshake_failed", last_words=process.last_words())
        if isinstance(error, TimeoutError):
            raise BackendUnavailable("Codex did not finish its handshake in time.") from error
        if isinstance(error, BackendLost) and (complaint := process.complaint()):
            raise BackendUnavailable(f"Codex ended (exit status {process.exit_status}): {complaint}") from error
        raise


def _connect(spec: CodexSpec, binary: Binary, process: AppServerProcess, tap: Tap | None) -> Connection:
    """Return a connection to a process that ends when the process does."""
    write = process.write if tap is None else overheard(tap.sent, process.write)
    older = _older_notifications(binary)
    check = binary.rpc_check if spec.validate_rpc else None
    connection = Connection(write, check=check, older=older, call_timeout_s=spec.call_timeout_s)
    connection.broke = process.kill
    process.receive_by(connection.receive if tap is None else overheard(tap.received, connection.receive))
    process.exited.add_done_callback(
        lambda _: connection.end(BackendLost(f"Codex ended (exit status {process.exit_status})."))
    )
    return connection


async def _shake_hands(
    spec: CodexSpec,
    binary: Binary,
    dialect: Dialect,
    process: AppServerProcess,
    connection: Connection,
    catalog: JsonObject | None,
    login: tuple[int, int] | None,
) -> Worker:
    wanted = _older_notifications(binary)
    greeting = initialize_params(spec.version, opt_out=binary.capabilities.opt_out, wanted=wanted)
    await connection.call("initialize", _known(binary, "initialize", greeting), dict[str, msgspec.Raw])
    connection.tell("initialized")
    wish = _known(binary, "model/list", {"includeHidden": True, "limit": MODEL_PAGE})
    login_missing, listed, config = await asyncio.gather(
        _login_missing(connection),
        connection.call("model/list", wish, schema.ModelListResult),
        connection.call("config/read", {}, schema.ConfigReadResult),
    )
    default = spec.model or config.config.model
    models = _models(listed.data, catalog or {}, config.config.model_reasoning_effort)
    if catalog is None and default is not None and not any(model.id == default for model in models):
        # Older versions have no catalogue that it could be added to, and run any model.
        models = (*models, _undescribed(default, config.config.model_reasoning_effort))
    return Worker(
        spec=spec,
        process=process,
        connection=connection,
        capabilities=binary.capabilities,
        binary=binary.name,
        dialect=dialect,
        models=models,
        default_model=default,
        login_missing=login_missing,
        login=login,
        started_at=asyncio.get_running_loop().time(),
    )


def _older_notifications(binary: Binary) -> dict[str, type[OlderNotification]]:
    """Return what is listened to in place of what a binary does not tell."""
    return {} if binary.capabilities.raw_usage else OLDER_NOTIFICATIONS


def _known(binary: Binary, method: str, params: JsonObject) -> JsonObject:
    """Return those of the parameters that a binary takes."""
    return {field: value for field, value in params.items() if binary.capabilities.takes(method, field)}


async def _login_missing(connection: Connection) -> bool:
    try:
        account = await connection.call("account/read", {}, schema.AccountReadResult)
    except (CallRefused, CodexFaulted) as refused:
        # Codex has a login file. Either it can make nothing of it, or it cannot reach the account's server now.
        return ACCOUNT_UNREACHABLE not in refused.message
    return account.requires_openai_auth and account.account is None


async def _ask_both(spec: CodexSpec) -> tuple[JsonObject | None, Binary]:
    """Return the catalogue, and what the binary can do; asked for at the same time. Older ones have no catalogue."""
    examining = asyncio.ensure_future(examine(spec.binary, home=spec.home, cwd=spec.workdir, notes=spec.notes_dir))
    try:
        try:
            catalog: JsonObject | None = await _catalog(spec)
        except BackendUnavailable:
            if "v2" in (await examining).capabilities.dialects:
                raise
            catalog = None
        return catalog, await examining
    finally:
        examining.cancel()
        await asyncio.gather(examining, return_exceptions=True)


def _dialect(spec: CodexSpec, binary: Binary) -> Dialect:
    """Return the dialect to speak; raises `BackendUnavailable` if the binary does not know the one that is wanted."""
    known = binary.capabilities.dialects
    if spec.dialect is not None and spec.dialect not in known:
        raise BackendUnavailable(
            f"{spec.binary} (Codex {binary.version}) does not speak {spec.dialect}, only {' and '.join(known)}. "
            "Set PROXY_APP_SERVER_DIALECT to auto, or CODEX_BIN to another version."
        )
    return spec.dialect or binary.capabilities.dialect


def _written_catalog(spec: CodexSpec, catalog: JsonObject | None) -> Path | None:
    """Return the file with Codex's own catalogue, with the extras removed."""
    if catalog is None:
        return None
    catalog_file = spec.home / ("models-direct.json" if spec.direct_tools else "models-native.json")
    # Codex reads it again at every thread, also while another app-server starts.
    write_private(catalog_file, json.dumps(bare_catalog(catalog, direct_tools=spec.direct_tools)))
    return catalog_file


async def _catalog(spec: CodexSpec) -> JsonObject:
    """Return Codex's model catalogue: the account's own if it can be had, else the one inside the binary."""
    with contextlib.suppress(BackendUnavailable):
        return await _read_catalog(spec, spec.command("debug", "models"))
    return await _read_catalog(spec, spec.command("debug", "models", "--bundled"))


async def _read_catalog(spec: CodexSpec, command: list[str]) -> JsonObject:
    told = await run(command, home=spec.home, cwd=spec.workdir, timeout_s=CATALOG_TIMEOUT_S)
    try:
        catalog: JsonObject = msgspec.json.decode(told.printed, type=dict)
    except msgspec.MsgspecError as error:
        raise BackendUnavailable(f"`codex debug models` printed no catalogue ({told.last_words}).") from error
    try:
        msgspec.convert(catalog, Catalog)
    except msgspec.ValidationError as error:
        raise BackendUnavailable(f"`codex debug models` printed no list of models: {error}.") from error
    return catalog


def _models(
    listed: Sequence[schema.ListedModel], catalog: JsonObject, configured_effort: str | None
) -> tuple[Model, ...]:
    """Return the models; the user's own default effort counts for all of them."""
    entries = msgspec.convert(catalog.get("models", []), list[CatalogEntry])
    known = {entry.slug: entry for entry in entries}
    return tuple(
        Model(
            id=model.id,
            display_name=model.display_name,
            description=model.description,
            efforts=tuple(option.reasoning_effort for option in model.supported_reasoning_efforts),
            # Codex calls it "none" where nobody knows.
            default_effort=configured_effort
            or (model.default_reasoning_effort if model.supported_reasoning_efforts else None),
            context_window=entry.context_window,
            max_context_window=entry.max_context_window,
            modalities=model.input_modalities,
            service_tiers=tuple(tier.id for tier in model.service_tiers),
            hidden=model.hidden,
            is_default=model.is_default,
            scripts_tools=entry.tool_mode is not None,
        )
        for model in listed
        for entry in [known.get(model.id, CatalogEntry(model.id))]
    )


def _undescribed(name: str, configured_effort: str | None) -> Model:
    """Return a model of which nothing is known but its name."""
    return Model(
        id=name,
        display_name=name,
        description="",
        efforts=(),
        default_effort=configured_effort,
        context_window=None,
        max_context_window=None,
        modalities=("text", "image"),
        service_tiers=(),
        hidden=False,
        is_default=False,
    )
