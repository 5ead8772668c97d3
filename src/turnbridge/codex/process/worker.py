"""One app-server: how it is started with the bare catalogue, its handshake, and what it reports about itself."""

import asyncio
import contextlib
import contextvars
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from turnbridge.codex.process.binary import Binary, examine, run, spawn
from turnbridge.codex.process.certificates import certificate_variables
from turnbridge.codex.process.connection import Connection
from turnbridge.codex.process.handshake import Greeted, greet, older_notifications
from turnbridge.codex.process.home import bar_skills, configured_models, login_state, write_private
from turnbridge.codex.process.log_database import ignore_rows
from turnbridge.codex.process.process import AppServerProcess, resident_bytes
from turnbridge.codex.process.spare_threads import MOST_SPARES, SpareThreads
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.capabilities import Capabilities, Dialect
from turnbridge.codex.protocol.catalog import Catalog, bare_catalog, with_models
from turnbridge.codex.protocol.encode import PROCESS_OVERRIDES, STRICT, HostRules
from turnbridge.engine.ports import Model, ModelOffer
from turnbridge.turn.errors import BackendLost, BackendUnavailable
from turnbridge.turn.items import JsonObject

log = structlog.get_logger(__name__)

UNSUBSCRIBE = "thread/unsubscribe"
# How long a thread that nobody uses waits for others to be released with it; Codex keeps it for a minute anyway.
RELEASE_DELAY_S = 0.25
DIAGNOSTICS = "server/diagnostics"
# What older versions are asked instead, to see whether they are alive.
LOADED_THREADS = "thread/loaded/list"


class Tap(Protocol):
    """Observes the bytes of one connection, in whatever chunks; it must not raise."""

    def sent(self, data: bytes) -> None:
        """Observe data to Codex."""
        ...

    def received(self, data: bytes) -> None:
        """Observe data from Codex."""
        ...


@dataclass(frozen=True, kw_only=True)
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
    """The default model, if it is not that of the home's configuration."""
    version: str
    """The gateway's own version, for the handshake."""
    rules: HostRules = STRICT
    # Long enough for a provider that restarts, and short enough that clients are told of a dead one.
    connect_timeout_s: float = 10.0
    """How long Codex may retry a provider that fails."""
    # A handshake takes a tenth of a second; a first start on a slow disk takes longer.
    startup_timeout_s: float = 15.0
    # `codex debug models` may ask the provider for the account's models; without a network the bundled ones are used.
    catalog_timeout_s: float = 10.0
    call_timeout_s: float = Connection.call_timeout_s
    exit_grace_s: float = AppServerProcess.exit_grace_s
    dialect: Dialect | None = None
    """The dialect to speak, if it is not the best one that the binary knows."""
    validate_rpc: bool = False
    """Whether everything that is sent to Codex is checked against its own schema."""
    sparing: bool = True
    """Whether Codex is spared what nobody needs of it here: to read certificates again and again, and to keep a log."""
    cache: Path | None = None
    """A directory for what is learned about binaries, if it is not in the home."""

    @property
    def cache_dir(self) -> Path:
        """Return the directory for what is learned about binaries."""
        return self.cache or self.home / "binaries"

    def command(self, *words: str) -> list[str]:
        """Return a command line of this Codex."""
        flags = [word for override in (*PROCESS_OVERRIDES, *self.overrides) for word in ("-c", override)]
        return [str(self.binary), *words, *flags]


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A ready app-server: what it reported about itself, and its load."""

    spec: CodexSpec
    process: AppServerProcess
    connection: Connection
    capabilities: Capabilities
    binary: str
    """A unique name of the binary: its version and hash."""
    dialect: Dialect
    models: tuple[Model, ...]
    offer: ModelOffer
    catalog: Path | None = None
    """The catalogue file that it was given, if any."""
    login_missing: bool
    makes_images: bool
    """Whether Codex is logged in to ChatGPT, and uses it: only then it has an image tool."""
    login_in_file: bool = True
    """Whether the login can only be in the file, whose changes are seen; else it may be in the system's keyring."""
    login_providers: frozenset[str] = frozenset()
    """The configured providers that use OpenAI's login."""
    login: tuple[int, int] | None
    started_at: float
    extras: tuple[str, ...] = ()
    """What this Codex adds to a request by itself, in a word each."""
    opened: int = 0
    """Threads that were opened for requests."""
    load: int = 0
    """Threads that are being opened, or whose turn runs."""
    parked: int = 0
    """Turns that wait for a client."""
    held: int = 0
    """Threads that are in use, parked or warm: Codex keeps them for a reason."""
    idle_since: float
    """When its last turn ended."""
    resident_bytes: int = 0
    """Its memory, as last measured."""
    first_resident_bytes: int = 0
    """Its memory when it was ready."""
    stale: bool = False
    """Whether it is to be replaced by one that reads its configuration anew."""
    hangs: bool = False
    """Whether it was killed because it did not answer the probe."""
    over_websocket: bool
    """Whether Codex reaches the provider over WebSocket."""
    release: "_Releases" = field(init=False)
    """Takes the id of a thread that nobody uses any more."""
    spares: SpareThreads = field(init=False)

    def __post_init__(self) -> None:
        # `release` holds no worker: with its spares it would be a cycle, which stays in memory.
        self.release = _Releases(self.connection, self.capabilities)
        # Over WebSocket, each thread that is started sends the provider a request.
        self.spares = SpareThreads(self.connection, self.release, most=0 if self.over_websocket else MOST_SPARES)

    def lacks_login(self, provider: str | None) -> bool:
        """Tell whether turns with a provider, or the default one, fail for want of a login."""
        return self.login_missing and (provider is None or provider in self.login_providers)

    @property
    def is_homeless(self) -> bool:
        """Tell whether its home was removed: Codex reads the catalogue there at every thread."""
        return not (self.spec.workdir.is_dir() and (self.catalog or self.spec.home).exists())

    async def measure(self, *, within_s: float) -> None:
        """Note its memory, as Codex reports it, or else the system; raises `GatewayError` if Codex does not answer."""
        probe = DIAGNOSTICS if DIAGNOSTICS in self.capabilities.params else LOADED_THREADS
        told = await self.connection.call(probe, {}, schema.DiagnosticsResult, timeout_s=within_s)
        self.resident_bytes = told.process.resident_memory_bytes or resident_bytes(self.process.pid)

    @property
    def fidelity(self) -> str:
        """Return how faithfully the model is shown a thread of this app-server."""
        return "exact" if self.dialect == "v2" and not self.extras else fidelity_of([self])


class _Releases:
    """Lets Codex unload threads that nobody uses: a minute later from 0.166 on, half an hour before.

    The calls of a short while are sent together: each by itself would take a write, and a read for its answer.
    """

    def __init__(self, connection: Connection, capabilities: Capabilities) -> None:
        self._connection = connection
        self._known = UNSUBSCRIBE in capabilities.params
        self._loop = asyncio.get_running_loop()
        self._waiting: list[str] = []

    def __call__(self, thread_id: str) -> None:
        if not self._known:
            return
        if not self._waiting:
            # In an empty context: it does not belong to the request that happens to be served.
            self._loop.call_later(RELEASE_DELAY_S, self._send, context=contextvars.Context())
        self._waiting.append(thread_id)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for thread_id in waiting:
            self._connection.cast(UNSUBSCRIBE, {"threadId": thread_id})


def fidelity_of(workers: Sequence[Worker]) -> str:
    """Return `exact`, or whether histories are flattened and what Codex adds to them."""
    extras = dict.fromkeys(extra for worker in workers for extra in worker.extras)
    flaws = ["flattened"] if any(worker.dialect != "v2" for worker in workers) else []
    flaws += [f"extra={','.join(extras)}"] if extras else []
    return "; ".join(flaws) or "exact"


async def start_worker(spec: CodexSpec, *, tap: Callable[[int], Tap] | None = None) -> Worker:
    """Start an app-server up to its handshake; raises a `GatewayError` or `OSError`, and leaves no process then.

    `tap` makes the observer of the connection to the app-server with a process id.
    """
    spec.workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Read before the process starts, so that a login in between counts as a change.
    login = login_state(spec.home)
    (catalog, binary), certificates = await asyncio.gather(
        _catalog_and_binary(spec), asyncio.to_thread(_certificate_variables, spec)
    )
    dialect = _dialect(spec, binary)
    if dialect != "v2":
        bar_skills(spec.home)
    catalog_file = _write_catalog(spec, catalog)
    process = await _spawned(spec, catalog_file, certificates if dialect == "v2" else {})
    try:
        connection = _connect(spec, binary, process, None if tap is None else tap(process.pid))
        greeted = await _greeted(spec, binary, connection, catalog)
    except BaseException as error:
        await process.stop()
        _explain(error, process)
        raise
    now = asyncio.get_running_loop().time()
    return Worker(
        spec=spec,
        process=process,
        connection=connection,
        capabilities=binary.capabilities,
        binary=binary.name,
        dialect=dialect,
        models=greeted.models,
        offer=greeted.offer,
        catalog=catalog_file,
        login_missing=greeted.login_missing,
        makes_images=greeted.makes_images,
        login_in_file=greeted.config.cli_auth_credentials_store == "file",
        login_providers=greeted.config.login_providers,
        login=login,
        over_websocket=greeted.config.over_websocket,
        started_at=now,
        idle_since=now,
    )


async def _greeted(spec: CodexSpec, binary: Binary, connection: Connection, catalog: JsonObject | None) -> Greeted:
    async with asyncio.timeout(spec.startup_timeout_s):
        greeted = await greet(connection, binary.capabilities, spec.version, spec.model, catalog)
        if spec.sparing:
            # The database is there only now.
            await asyncio.to_thread(ignore_rows, spec.home)
    return greeted


def _certificate_variables(spec: CodexSpec) -> dict[str, str]:
    return certificate_variables(spec.home, spec.overrides) if spec.sparing else {}


async def _spawned(spec: CodexSpec, catalog: Path | None, variables: Mapping[str, str]) -> AppServerProcess:
    flags = [] if catalog is None else ["-c", f"model_catalog_json={json.dumps(str(catalog))}"]
    command = [*spec.command("app-server"), *flags]
    return await spawn(command, home=spec.home, cwd=spec.workdir, exit_grace_s=spec.exit_grace_s, variables=variables)


def _explain(error: BaseException, process: AppServerProcess) -> None:
    """Log a failed handshake; raises an error that says more, if there is one."""
    if isinstance(error, asyncio.CancelledError):
        return
    log.warning("codex_handshake_failed", last_words=process.last_words())
    if isinstance(error, TimeoutError):
        raise BackendUnavailable("Codex did not finish its handshake in time.") from error
    if isinstance(error, BackendLost) and (complaint := process.complaint()):
        raise BackendUnavailable(f"Codex ended (exit status {process.exit_status}): {complaint}") from error


def _connect(spec: CodexSpec, binary: Binary, process: AppServerProcess, tap: Tap | None) -> Connection:
    """Return a connection to a process that ends when the process does."""
    write = process.write if tap is None else _tee(tap.sent, process.write)
    check = binary.rpc_check if spec.validate_rpc else None
    connection = Connection(write, check=check, older=older_notifications(binary.capabilities))
    connection.call_timeout_s = spec.call_timeout_s
    connection.on_broken = process.kill
    process.receive_by(connection.receive if tap is None else _tee(tap.received, connection.receive))
    process.exited.add_done_callback(
        lambda _: connection.end(BackendLost(f"Codex ended (exit status {process.exit_status})."))
    )
    return connection


def _tee(observe: Callable[[bytes], None], take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    def both(data: bytes) -> None:
        observe(data)
        take(data)

    return both


async def _catalog_and_binary(spec: CodexSpec) -> tuple[JsonObject | None, Binary]:
    """Return the catalogue and what the binary can do, concurrently. Older versions have no catalogue."""
    examining = asyncio.ensure_future(examine(spec.binary, home=spec.home, cwd=spec.workdir, cache=spec.cache_dir))
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
    """Return the dialect to speak; raises `BackendUnavailable` if the binary does not know the requested one."""
    known = binary.capabilities.dialects
    if spec.dialect is not None and spec.dialect not in known:
        raise BackendUnavailable(
            f"{spec.binary} (Codex {binary.version}) does not speak {spec.dialect}, only {' and '.join(known)}. "
            "Set PROXY_APP_SERVER_DIALECT to auto, or CODEX_BIN to another version."
        )
    return spec.dialect or binary.capabilities.dialect


def _write_catalog(spec: CodexSpec, catalog: JsonObject | None) -> Path | None:
    """Write the catalogue for Codex, with the models that only the configuration names."""
    if catalog is None:
        return None
    named = configured_models(spec.home) if spec.model is None else (spec.model, *configured_models(spec.home))
    catalog_file = spec.home / ("models-direct.json" if spec.direct_tools else "models-native.json")
    # Replaced atomically: other app-servers read it at every thread.
    write_private(catalog_file, json.dumps(bare_catalog(with_models(catalog, named), direct_tools=spec.direct_tools)))
    return catalog_file


async def _catalog(spec: CodexSpec) -> JsonObject:
    """Return Codex's model catalogue: the account's own if it is available, else the one inside the binary."""
    with contextlib.suppress(BackendUnavailable):
        return await _printed_catalog(spec, spec.command("debug", "models"))
    return await _printed_catalog(spec, spec.command("debug", "models", "--bundled"))


async def _printed_catalog(spec: CodexSpec, command: list[str]) -> JsonObject:
    outcome = await run(command, home=spec.home, cwd=spec.workdir, timeout_s=spec.catalog_timeout_s)
    try:
        catalog: JsonObject = msgspec.json.decode(outcome.printed, type=dict)
    except msgspec.MsgspecError as error:
        raise BackendUnavailable(f"`codex debug models` printed no catalogue ({outcome.last_words}).") from error
    try:
        msgspec.convert(catalog, Catalog)
    except msgspec.ValidationError as error:
        raise BackendUnavailable(f"`codex debug models` printed no list of models: {error}.") from error
    return catalog
