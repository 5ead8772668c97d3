"""A Codex binary: its version, hash, the protocol that it prints, and commands of it that run to their end.

What is learned of a binary is kept in the data directory until the binary changes.
"""

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import msgspec

from turnbridge.codex.process.home import write_private
from turnbridge.codex.process.process import AppServerProcess
from turnbridge.codex.protocol.capabilities import Capabilities, read_capabilities
from turnbridge.codex.protocol.rpc_check import RpcCheck
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.turn.items import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended: what it printed, its exit status, and what it said about it."""

    printed: bytes
    status: int | None
    last_words: str


async def spawn(
    command: Sequence[str], *, home: Path, cwd: Path, exit_grace_s: float | None = None
) -> AppServerProcess:
    """Start Codex; raises `BackendUnavailable` that names the program if it cannot be run."""
    try:
        return await AppServerProcess.start(command, home=home, cwd=cwd, exit_grace_s=exit_grace_s)
    except OSError as error:
        raise BackendUnavailable(f"{command[0]} cannot be run: {error.strerror or error}.") from error


async def run(command: Sequence[str], *, home: Path, cwd: Path, timeout_s: float) -> Outcome:
    """Run a command of Codex's to its end; raises `BackendUnavailable` if it takes too long."""
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


# It takes a tenth of a second; a first start from a slow disk takes longer.
ASK_TIMEOUT_S = 15.0
# Codex writes many files; this one holds all the others.
SCHEMA_FILE = "codex_app_server_protocol.schemas.json"
# Enough of a hash to tell binaries apart, and short enough for the name of a directory.
HASH_CHARACTERS = 32

VERSION = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.-]*")

Ask = Callable[[list[str]], Awaitable[Outcome]]


class FileSeen(msgspec.Struct, frozen=True):
    """A file as it lay on the disk. If none of this has changed, its content has not either."""

    path: str
    size: int
    mtime_ns: int


class HashedFile(msgspec.Struct, frozen=True):
    """The hash of a file's content."""

    seen: FileSeen
    digest: str


@dataclass(frozen=True, kw_only=True)
class Binary:
    """What is known about a binary. (Without slots, because what is seldom asked for is computed once.)"""

    path: Path
    version: str
    digest: str
    schema_text: bytes
    capabilities: Capabilities

    @property
    def name(self) -> str:
        """Return a name that no other binary has."""
        return f"{self.version}-{self.digest}"

    def schema(self) -> JsonObject:
        """Return the protocol as the binary describes it."""
        decoded: JsonObject = msgspec.json.decode(self.schema_text, type=dict)
        return decoded

    @cached_property
    def rpc_check(self) -> RpcCheck:
        """Return what holds our messages against the protocol."""
        return RpcCheck(self.schema())


# A program may be a script that starts another one: its file then says little, and its version more.
_known: dict[tuple[FileSeen, str], Binary] = {}


async def examine(path: Path, *, home: Path, cwd: Path, notes: Path) -> Binary:
    """Return what a binary can do; raises `BackendUnavailable` if it cannot say so itself.

    What was learned is kept in the directory `notes`.
    """
    ask = partial(run, home=home, cwd=cwd, timeout_s=ASK_TIMEOUT_S)
    version = _version(await ask([str(path), "--version"]))
    seen = await asyncio.to_thread(_look, path)
    if (seen, version) not in _known:
        digest = await asyncio.to_thread(_digest, seen, notes)
        own_notes = notes / f"{version}-{digest}"
        own_notes.mkdir(mode=0o700, exist_ok=True)
        schema = await _schema(path, own_notes, ask)
        _known[seen, version] = Binary(
            path=path,
            version=version,
            digest=digest,
            schema_text=msgspec.json.encode(schema),
            capabilities=_capabilities(schema, path),
        )
    return _known[seen, version]


def _look(path: Path) -> FileSeen:
    status = path.stat()
    return FileSeen(str(path.resolve()), status.st_size, status.st_mtime_ns)


def _version(told: Outcome) -> str:
    found = VERSION.search(told.printed.decode(errors="replace"))
    return found.group() if found else "unknown"


def _digest(seen: FileSeen, notes: Path) -> str:
    """Return the hash of a file, which is computed only if the file has changed since the last time."""
    notes.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = hashlib.sha256(seen.path.encode()).hexdigest()[:HASH_CHARACTERS]
    remembered = notes / f"file-{place}.json"
    try:
        hashed = msgspec.json.decode(remembered.read_bytes(), type=HashedFile)
    except (FileNotFoundError, msgspec.MsgspecError):
        hashed = None
    if hashed is None or hashed.seen != seen:
        with Path(seen.path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        hashed = HashedFile(seen, digest[:HASH_CHARACTERS])
        write_private(remembered, msgspec.json.encode(hashed).decode())
    return hashed.digest


async def _schema(path: Path, notes: Path, ask: Ask) -> JsonObject:
    kept = notes / "schema.json"
    schema = await asyncio.to_thread(_read, kept)
    if schema is None:
        schema = await _ask_schema(path, ask)
        write_private(kept, msgspec.json.encode(schema).decode())
    return schema


async def _ask_schema(path: Path, ask: Ask) -> JsonObject:
    """Let the binary print its protocol; older ones have no experimental part, and refuse the word."""
    command = [str(path), "app-server", "generate-json-schema"]
    with tempfile.TemporaryDirectory(prefix="turnbridge-") as out:
        for words in (["--experimental", "--out", out], ["--out", out]):
            told = await ask([*command, *words])
            if told.status == 0:
                break
        schema = await asyncio.to_thread(_read, Path(out) / SCHEMA_FILE)
    if schema is None:
        raise BackendUnavailable(
            f"{path} does not describe its protocol (`app-server generate-json-schema`: {told.last_words}). "
            "Turnbridge needs Codex 0.92 or later."
        )
    return schema


def _read(file: Path) -> JsonObject | None:
    try:
        schema: JsonObject = msgspec.json.decode(file.read_bytes(), type=dict)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return schema


def _capabilities(schema: JsonObject, path: Path) -> Capabilities:
    capabilities = read_capabilities(schema)
    if not capabilities.dialects:
        raise BackendUnavailable(f"{path} speaks no protocol that Turnbridge knows. Use Codex 0.92 or later.")
    return capabilities
