"""A binary is asked once what it can do; what it said is kept for as long as it is the same."""

import asyncio
import hashlib
import importlib.metadata
import os
from pathlib import Path

import codex_cli_bin
import pytest

from tests.support.codex_schema import pinned_schema
from turnbridge.codex.process import binary as capabilities
from turnbridge.codex.process.binary import Binary, examine
from turnbridge.codex.protocol.capabilities import read_capabilities
from turnbridge.turn.errors import BackendUnavailable

pytestmark = [pytest.mark.anyio, pytest.mark.real]

REAL = codex_cli_bin.bundled_codex_path()


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test begin like a process that has seen no binary."""
    monkeypatch.setattr(capabilities, "_known", {})


class Codex:
    """A program in the place of `codex`, which notes down what it is asked for."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "codex"
        self._log = directory / "asked"
        self._directory = directory
        self.is_like()

    def is_like(self, *, version: str = "codex-cli 1.2.3", schema: str = f'exec "{REAL}" "$@"') -> None:
        """Change the program."""
        self.path.write_text(
            f'#!/bin/sh\necho "$2" >> "{self._log}"\n[ "$1" = --version ] && exec echo "{version}"\n{schema}\n'
        )
        self.path.chmod(0o700)

    async def examined(self) -> Binary:
        """Examine it, as a process that knows nothing would."""
        capabilities._known.clear()
        return await self.examined_again()

    async def examined_again(self) -> Binary:
        """Examine it in the same process."""
        return await examine(
            self.path, home=self._directory, cwd=self._directory, cache=self._directory / "data" / "binaries"
        )

    def schemas_asked(self) -> int:
        """Return how often it printed its schema."""
        return self._log.read_text().count("generate-json-schema")


@pytest.fixture
def codex(tmp_path: Path) -> Codex:
    return Codex(tmp_path)


async def test_the_real_binary_says_what_it_can_do(tmp_path: Path) -> None:
    binary = await examine(REAL, home=tmp_path, cwd=tmp_path, cache=tmp_path / "binaries")
    assert (binary.path, binary.version) == (REAL, importlib.metadata.version("openai-codex-cli-bin"))
    assert binary.schema() == pinned_schema()
    assert binary.capabilities == read_capabilities(pinned_schema())
    assert {path.name for path in (tmp_path / "binaries" / binary.name).iterdir()} == {"schema.json"}


async def test_a_binary_is_asked_once_also_by_later_processes(codex: Codex) -> None:
    first = await codex.examined()
    assert await codex.examined() == first
    assert await codex.examined_again() == first
    assert (first.version, codex.schemas_asked()) == ("1.2.3", 1)


async def test_a_large_file_is_hashed_once(codex: Codex, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await codex.examined()
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert await codex.examined() == first


async def test_a_binary_that_has_changed_is_asked_again(codex: Codex) -> None:
    first = await codex.examined()
    codex.is_like(schema=f'exec "{REAL}" "$@" # changed')
    second = await codex.examined_again()
    assert (second.version, second.digest != first.digest, codex.schemas_asked()) == (first.version, True, 2)


async def test_a_script_that_starts_another_version_is_asked_again(codex: Codex) -> None:
    status = codex.path.stat()
    first = await codex.examined()
    codex.is_like(version="codex-cli 1.2.4")
    os.utime(codex.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    second = await codex.examined_again()
    assert (first.version, second.version, codex.schemas_asked()) == ("1.2.3", "1.2.4", 2)


@pytest.mark.parametrize("broken", ["", "[]", "{", "words"])
async def test_notes_that_cannot_be_read_are_made_again(codex: Codex, broken: str) -> None:
    first = await codex.examined()
    for note in codex.path.parent.glob("data/binaries/**/*.json"):
        note.write_text(broken)
    assert await codex.examined() == first
    assert codex.schemas_asked() == 2


async def test_a_binary_without_a_version_is_served_too(codex: Codex) -> None:
    codex.is_like(version="words")
    assert (await codex.examined()).version == "unknown"


async def test_a_binary_that_knows_no_experimental_protocol_is_asked_without(codex: Codex) -> None:
    codex.is_like(schema=f'[ "$3" = --experimental ] && exit 2\nexec "{REAL}" "$@"')
    assert not (await codex.examined()).capabilities.environments


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("echo no such command >&2; exit 2", r"does not describe its protocol.*exit status 2: no such command.*0\.92"),
        ("exit 0", "does not describe its protocol"),
        (f"for out; do :; done; echo '{{}}' > \"$out/{capabilities.SCHEMA_FILE}\"", "speaks no protocol"),
    ],
)
async def test_a_binary_that_is_not_codex_is_refused_by_name(codex: Codex, schema: str, reason: str) -> None:
    codex.is_like(schema=schema)
    with pytest.raises(BackendUnavailable, match=f"{codex.path} {reason}"):
        await codex.examined()


async def test_a_binary_that_does_not_answer_is_given_up(codex: Codex, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its version has to come within it.
    monkeypatch.setattr(capabilities, "COMMAND_TIMEOUT_S", 2.0)
    codex.is_like(schema="exec sleep 60")
    async with asyncio.timeout(25):
        with pytest.raises(BackendUnavailable, match="`app-server generate-json-schema` did not end within"):
            await codex.examined()
