"""`turnbridge codex`: another version is installed by a package manager, checked, and used only if the user says so."""

import platform
from pathlib import Path

import pytest
from codex_cli_bin import bundled_codex_path

from tests.support.command import run
from turnbridge.codex.versions import TRIPLES

pytestmark = pytest.mark.anyio

VERSION = "0.999.0"
# pip looks nowhere, and so has nothing to offer.
NO_NETWORK = {"PIP_NO_INDEX": "1"}


def with_npm(directory: Path, script: str) -> dict[str, str]:
    """Return an environment in which `npm` is this script."""
    tools = directory / "tools"
    tools.mkdir()
    (tools / "npm").write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
    (tools / "npm").chmod(0o755)
    return {**NO_NETWORK, "PATH": f"{tools}:/usr/bin:/bin"}


def installing(binary: Path) -> str:
    """Return an `npm install --prefix DIRECTORY ...` that installs this program."""
    triple = TRIPLES[platform.system(), platform.machine()]
    place = f"$3/node_modules/@openai/codex-here/vendor/{triple}/bin"
    return f'echo "$@" > "$HOME/asked"; mkdir -p "{place}" && ln -s "{binary}" "{place}/codex"\n'


@pytest.mark.promise("commands.codex-use")
@pytest.mark.real
async def test_a_version_is_installed_checked_and_used_until_the_user_goes_back(tmp_path: Path) -> None:
    environment = with_npm(tmp_path, installing(bundled_codex_path()))
    used = await run(tmp_path, "codex", "use", VERSION, **environment)
    assert used.status == 0, used.err
    told, back = used.out.splitlines()
    assert told == f"From the next start on, the gateway uses Codex {VERSION} (fidelity: exact)."
    assert (back[:12], back[-29:]) == ("To go back: ", " -m turnbridge codex use bundled"[-29:])
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    assert f"@openai/codex@{VERSION}" in (tmp_path / "asked").read_text(encoding="utf-8").split()
    shown = (await run(tmp_path, "codex", **environment)).out
    assert f"/data/codex/{VERSION}/node_modules/" in shown
    assert f"by `turnbridge codex use {VERSION}`" in shown
    (tmp_path / "asked").unlink()
    assert (await run(tmp_path, "codex", "use", VERSION, **environment)).status == 0
    assert not (tmp_path / "asked").exists(), "what is installed is not installed again"
    assert (await run(tmp_path, "codex", "use", "bundled", **environment)).status == 0
    shown = (await run(tmp_path, "codex", **environment)).out
    assert str(bundled_codex_path()) in shown
    assert "turnbridge codex use 0.169.0" in shown, "it says which version is recommended"


@pytest.mark.promise("commands.codex-use")
async def test_a_version_that_cannot_be_had_changes_nothing(tmp_path: Path) -> None:
    environment = with_npm(tmp_path, "echo 'npm error notarget No matching version' >&2; exit 1\n")
    refused = await run(tmp_path, "codex", "use", VERSION, **environment)
    assert refused.status == 69
    assert refused.err.splitlines()[-1].endswith("npm: npm error notarget No matching version). Nothing was changed.")
    assert "pip: " in refused.err
    assert [path.name for path in (tmp_path / "data" / "codex").iterdir()] == []


@pytest.mark.promise("commands.codex-use")
async def test_a_program_that_is_no_codex_is_not_chosen(tmp_path: Path) -> None:
    environment = with_npm(tmp_path, installing(Path("/bin/false")))
    refused = await run(tmp_path, "codex", "use", VERSION, **environment)
    assert (refused.status, "Nothing was changed." in refused.err) == (69, True)
    assert not (tmp_path / "data" / "codex" / "chosen.json").exists()


@pytest.mark.parametrize("version", ["--help-me", "1.2", "0.169.0;rm", "latest"])
async def test_what_is_no_version_is_refused(tmp_path: Path, version: str) -> None:
    refused = await run(tmp_path, "codex", "use", "--", version, **NO_NETWORK)
    assert (refused.status, f"'{version}' is not a version of Codex" in refused.err) == (69, True)


async def test_codex_bin_comes_first_and_is_named(tmp_path: Path) -> None:
    refused = await run(tmp_path, "codex", "use", VERSION, CODEX_BIN="/bin/cat", **NO_NETWORK)
    assert (refused.status, "CODEX_BIN is set to /bin/cat" in refused.err) == (78, True)
