"""A Codex binary: its version, hash and protocol schema, and commands of it that run to their end.

What is learned about a binary is cached in the data directory until the binary changes.
"""

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import msgspec

from turnbridge.codex.process.home import read_cached, write_private
from turnbridge.codex.process.process import AppServerProcess
from turnbridge.codex.protocol.capabilities import Capabilities, RpcCheck, read_capabilities
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.turn.items import JsonObject

T = TypeVar("T")

# A command takes a tenth of a second; a first start from a slow disk takes longer.
COMMAND_TIMEOUT_S = 15.0
# Codex writes many files; this one holds all the others.
SCHEMA_FILE = "codex_app_server_protocol.schemas.json"
# Enough of a hash to tell binaries apart, and short enough for the name of a directory.
HASH_CHARACTERS = 32

VERSION = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The stdout of a command, its exit status, and the end of its stderr."""

    printed: bytes
    status: int | None
    last_words: str


async def spawn(
    command: Sequence[str],
    *,
    home: Path,
    cwd: Path,
    exit_grace_s: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> AppServerProcess:
    """Start Codex; raises `BackendUnavailable` that names the program if it cannot be run."""
    try:
        process = await AppServerProcess.start(command, home=home, cwd=cwd, variables=variables)
    except OSError as error:
        raise BackendUnavailable(f"{command[0]} cannot be run: {error.strerror or error}.") from error
    if exit_grace_s is not None:
        process.exit_grace_s = exit_grace_s
    return process


async def run(command: Sequence[str], *, home: Path, cwd: Path, timeout_s: float) -> Outcome:
    """Run a command of Codex to its end; raises `BackendUnavailable` after a timeout."""
    printed = bytearray()
    process = await spawn(command, home=home, cwd=cwd)
    process.receive_by(printed.extend)
    try:
        done, _ = await asyncio.wait([process.exited], timeout=timeout_s)
        if not done:
            raise BackendUnavailable(f"`{' '.join(command[1:3])}` did not end within {timeout_s:g} seconds.")
    finally:
        await asyncio.shield(process.stop())
    return Outcome(printed=bytes(printed), status=process.exit_status, last_words=process.last_words())


class FileState(msgspec.Struct, frozen=True):
    """The metadata of a file. If it has not changed, neither has the content."""

    path: str
    size: int
    mtime_ns: int


class HashedFile(msgspec.Struct, frozen=True):
    """The hash of a file's content."""

    seen: FileState
    digest: str


@dataclass(frozen=True, kw_only=True)
class Binary:
    """What is known about a binary. (Without slots, for the cached property.)"""

    path: Path
    version: str
    digest: str
    schema_text: bytes
    capabilities: Capabilities

    @property
    def name(self) -> str:
        """Return a unique name."""
        return f"{self.version}-{self.digest}"

    def schema(self) -> JsonObject:
        """Return the JSON Schema of the binary's protocol."""
        decoded: JsonObject = msgspec.json.decode(self.schema_text, type=dict)
        return decoded

    @cached_property
    def rpc_check(self) -> RpcCheck:
        """Return the validator of messages to this binary."""
        return RpcCheck(self.schema())


# A program may be a script that starts another one, whose version can change while the script stays the same.
_known: dict[tuple[FileState, str], Binary] = {}


async def examine(path: Path, *, home: Path, cwd: Path, cache: Path) -> Binary:
    """Return what a binary can do; raises `BackendUnavailable` if it does not print its protocol."""
    execute = partial(run, home=home, cwd=cwd, timeout_s=COMMAND_TIMEOUT_S)
    found = VERSION.search((await execute([str(path), "--version"])).printed.decode(errors="replace"))
    version = found.group() if found else "unknown"
    state = await asyncio.to_thread(_state, path)
    if (state, version) not in _known:
        digest = await asyncio.to_thread(_digest, state, cache)
        own_cache = cache / f"{version}-{digest}"
        own_cache.mkdir(mode=0o700, exist_ok=True)
        schema = await _schema(path, own_cache / "schema.json", execute)
        capabilities = read_capabilities(schema)
        if not capabilities.dialects:
            raise BackendUnavailable(f"{path} speaks no protocol that Turnbridge knows. Use Codex 0.92 or later.")
        text = msgspec.json.encode(schema)
        _known[state, version] = Binary(
            path=path, version=version, digest=digest, schema_text=text, capabilities=capabilities
        )
    return _known[state, version]


def _state(path: Path) -> FileState:
    status = path.stat()
    return FileState(str(path.resolve()), status.st_size, status.st_mtime_ns)


def _digest(state: FileState, cache: Path) -> str:
    """Return the hash of a file; it is computed only if the file has changed."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    cached = cache / f"file-{hashlib.sha256(state.path.encode()).hexdigest()[:HASH_CHARACTERS]}.json"
    hashed = read_cached(cached, HashedFile)
    if hashed is None or hashed.seen != state:
        with Path(state.path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        hashed = HashedFile(state, digest[:HASH_CHARACTERS])
        write_private(cached, msgspec.json.encode(hashed).decode())
    return hashed.digest


async def _schema(path: Path, cached: Path, execute: Callable[[list[str]], Awaitable[Outcome]]) -> JsonObject:
    """Return the protocol that the binary prints; older ones have no experimental part, and refuse the option."""
    schema: JsonObject | None = await asyncio.to_thread(read_cached, cached, dict)
    if schema is not None:
        return schema
    command = [str(path), "app-server", "generate-json-schema"]
    with tempfile.TemporaryDirectory(prefix="turnbridge-") as out:
        for options in (["--experimental", "--out", out], ["--out", out]):
            outcome = await execute([*command, *options])
            if outcome.status == 0:
                break
        schema = await asyncio.to_thread(read_cached, Path(out) / SCHEMA_FILE, dict)
    if schema is None:
        raise BackendUnavailable(
            f"{path} does not describe its protocol (`app-server generate-json-schema`: {outcome.last_words}). "
            "Turnbridge needs Codex 0.92 or later."
        )
    write_private(cached, msgspec.json.encode(schema).decode())
    return schema
