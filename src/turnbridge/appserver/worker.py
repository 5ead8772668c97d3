"""One ready app-server: started in the gateway's home, with the bare catalogue, shaken hands with, asked who it is."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from turnbridge.appserver.connection import CallRefused, Connection
from turnbridge.appserver.files import write_private
from turnbridge.appserver.home import login_state
from turnbridge.appserver.process import AppServerProcess
from turnbridge.turn.errors import BackendLost, BackendUnavailable
from turnbridge.turn.items import JsonObject
from turnbridge.turn.models import Model
from turnbridge.wire.codex import schema
from turnbridge.wire.codex.encode import bare_catalog, initialize_params

log = structlog.get_logger(__name__)

# `codex debug models` may ask the provider for the account's models; without a network the bundled ones must do.
CATALOG_TIMEOUT_S = 10.0
# Handshakes take a tenth of a second; a first start on a slow disk takes longer.
HANDSHAKE_TIMEOUT_S = 15.0
# Far more than any catalogue, so that one page holds it.
MODEL_PAGE = 1000


class CatalogEntry(msgspec.Struct, frozen=True):
    """The part of a catalogue entry that `model/list` does not tell, and the bare catalogue hides."""

    slug: str
    tool_mode: str | None = None
    context_window: int | None = None
    max_context_window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexSpec:
    """How to run Codex: which binary, in which home, with which settings on its command line."""

    binary: Path
    home: Path
    workdir: Path
    direct_tools: bool = True
    """Whether every model calls functions one by one, also those that Codex ships to do it from scripts."""
    overrides: tuple[str, ...] = ()
    """TOML assignments such as `model="gpt-5.5"`."""
    version: str
    """The gateway's own version, for the handshake."""

    def command(self, *words: str) -> list[str]:
        """Return a command line of this Codex."""
        flags = [word for override in self.overrides for word in ("-c", override)]
        return [str(self.binary), *words, *flags]


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A ready app-server: what it told about itself, and what it has to do."""

    process: AppServerProcess
    connection: Connection
    models: tuple[Model, ...]
    default_model: str | None
    login_missing: bool
    login: tuple[int, int] | None
    started_at: float
    threads: int = 0
    """Threads that were started here: Codex keeps them all in memory."""
    load: int = 0
    """Conversations that are being opened, or whose turn runs."""
    parked: int = 0
    """Turns that wait for a client."""


async def start_worker(spec: CodexSpec) -> Worker:
    """Start an app-server and shake hands; raises `BackendUnavailable` that says what failed."""
    spec.workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Read before the process starts, so that a login in between counts as a change.
    login = login_state(spec.home)
    catalog = await _catalog(spec)
    catalog_file = spec.home / ("models-direct.json" if spec.direct_tools else "models-native.json")
    bare = bare_catalog(catalog, direct_tools=spec.direct_tools)
    # Codex reads it again at every thread, also while another app-server starts.
    write_private(catalog_file, json.dumps(bare))
    command = [*spec.command("app-server"), "-c", f"model_catalog_json={json.dumps(str(catalog_file))}"]

    process = await _spawn(spec, command)
    connection = Connection(process.write)
    process.receive_by(connection.receive)
    process.exited.add_done_callback(
        lambda _: connection.end(BackendLost(f"Codex ended (exit status {process.exit_status})."))
    )
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            return await _shake_hands(spec, process, connection, catalog, login)
    except BaseException as error:
        await process.stop()
        log.warning("codex_handshake_failed", last_words=process.last_words())
        if isinstance(error, TimeoutError):
            raise BackendUnavailable("Codex did not finish its handshake in time.") from error
        raise


async def _shake_hands(
    spec: CodexSpec,
    process: AppServerProcess,
    connection: Connection,
    catalog: JsonObject,
    login: tuple[int, int] | None,
) -> Worker:
    await connection.call("initialize", initialize_params(spec.version), dict[str, msgspec.Raw])
    connection.tell("initialized")
    login_missing, listed, config = await asyncio.gather(
        _login_missing(connection),
        connection.call("model/list", {"includeHidden": True, "limit": MODEL_PAGE}, schema.ModelListResult),
        connection.call("config/read", {}, schema.ConfigReadResult),
    )
    return Worker(
        process=process,
        connection=connection,
        models=_models(listed.data, catalog, config.config.model_reasoning_effort),
        default_model=config.config.model,
        login_missing=login_missing,
        login=login,
        started_at=asyncio.get_running_loop().time(),
    )


async def _login_missing(connection: Connection) -> bool:
    try:
        account = await connection.call("account/read", {}, schema.AccountReadResult)
    except CallRefused:
        # Codex has a login file, and can make nothing of it.
        return True
    return account.requires_openai_auth and account.account is None


async def _spawn(spec: CodexSpec, command: list[str]) -> AppServerProcess:
    try:
        return await AppServerProcess.start(command, home=spec.home, cwd=spec.workdir)
    except OSError as error:
        raise BackendUnavailable(f"Codex could not be started: {error}") from error


async def _catalog(spec: CodexSpec) -> JsonObject:
    """Return Codex's model catalogue: the account's own if it can be had, else the one inside the binary."""
    with contextlib.suppress(BackendUnavailable):
        return await _read_catalog(spec, spec.command("debug", "models"))
    return await _read_catalog(spec, spec.command("debug", "models", "--bundled"))


async def _read_catalog(spec: CodexSpec, command: list[str]) -> JsonObject:
    printed = bytearray()
    process = await _spawn(spec, command)
    process.receive_by(printed.extend)
    try:
        done, _ = await asyncio.wait([process.exited], timeout=CATALOG_TIMEOUT_S)
        if not done:
            raise BackendUnavailable("`codex debug models` did not end in time.")
    finally:
        await asyncio.shield(process.stop())
    try:
        catalog: JsonObject = msgspec.json.decode(printed, type=dict)
    except msgspec.MsgspecError as error:
        raise BackendUnavailable(f"`codex debug models` printed no catalogue ({process.last_words()}).") from error
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
            default_effort=configured_effort or model.default_reasoning_effort,
            context_window=known[model.id].context_window if model.id in known else None,
            max_context_window=known[model.id].max_context_window if model.id in known else None,
            modalities=tuple(model.input_modalities),
            service_tiers=tuple(tier.id for tier in model.service_tiers),
            hidden=model.hidden,
            is_default=model.is_default,
            scripts_tools=model.id in known and known[model.id].tool_mode is not None,
        )
        for model in listed
    )
