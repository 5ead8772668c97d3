"""The package as it would be published: built, installed by uv and pipx from the wheel, and used in a clean home."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tools.docs import ROOT
from turnbridge import __version__
from turnbridge.settings import installation

# Some hundred megabytes may have to be fetched; with a warm cache it takes seconds.
INSTALL_TIMEOUT_S = 300
# What installers say when there is no index, rather than something wrong with the package.
NO_INDEX = re.compile(
    r"error sending request|failed to fetch|dns error|connection (refused|reset)|name resolution|could not connect"
    r"|no matching distribution|offline",
    re.IGNORECASE,
)
BUILD = "import sys; from flit_core.buildapi import build_wheel; print(build_wheel(sys.argv[1]))"
DATABASE = "postgresql://127.0.0.1/none"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(directory)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return directory / built.stdout.strip().splitlines()[-1]


def clean(home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of somebody with nothing but an installer."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "SSL_"))}
    return {**kept, "PATH": os.environ["PATH"], "HOME": str(home), "WORKER_COUNT": "1", "PORT": "9", **variables}


def done(command: list[str], env: dict[str, str]) -> str:
    """Return what an installer printed; skip where it cannot reach an index."""
    ran = subprocess.run(
        command,
        env=env,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if ran.returncode and NO_INDEX.search(ran.stderr + ran.stdout):
        pytest.skip(f"packages cannot be fetched here: {ran.stderr.strip().splitlines()[-1:]}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def installer(name: str) -> str:
    found = shutil.which(name)
    # A shim of pyenv is there for versions of Python that lack the program, too.
    if found is None or subprocess.run([found, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no {name} here")
    return found


def use(program: list[str], home: Path) -> str:
    """Use an installed copy as somebody new would, and return how it says to add Postgres."""
    assert done([*program, "--version"], clean(home)) == f"turnbridge {__version__}\n"
    answered = done([*program, "ask", "--demo", "Hello!"], clean(home))
    assert answered.endswith("You said: “Hello!”.\n")
    env = clean(home, PROXY_DATABASE_URL=DATABASE)
    refused = subprocess.run([*program, "models"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 78
    return refused.stderr.strip().partition("Postgres needs a package: ")[2]


@pytest.mark.promise("start.package")
def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(archive.read(metadata).decode())
        scripts = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert (told["Name"], told["Version"], told["License-Expression"]) == ("turnbridge", __version__, "MIT")
    assert {"pdf", "postgres", "redis"} <= set(told.get_all("Provides-Extra", []))
    assert "turnbridge=turnbridge.cli.main:app" in scripts
    assert {name.split("/")[0] for name in names} == {"turnbridge", metadata.split("/")[0]}
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.real
@pytest.mark.promise("start.package")
@pytest.mark.timeout(2 * INSTALL_TIMEOUT_S)
def test_uv_installs_it_as_a_tool(wheel: Path, tmp_path: Path) -> None:
    uv = installer("uv")
    env = clean(tmp_path, UV_TOOL_DIR=str(tmp_path / "tools"), UV_TOOL_BIN_DIR=str(tmp_path / "bin"))
    done([uv, "tool", "install", "--quiet", "--python", sys.executable, f"{wheel}[pdf]"], env)
    told = use([str(tmp_path / "bin" / "turnbridge")], tmp_path)
    python = tmp_path / "tools" / "turnbridge" / "bin" / "python"
    assert told == f"uv pip install --python {python} asyncpg"
    done([uv, *told.split()[1:]], env)
    done([str(python), "-c", "import asyncpg, pypdf"], env)


@pytest.mark.real
@pytest.mark.promise("start.package")
@pytest.mark.timeout(2 * INSTALL_TIMEOUT_S)
def test_uvx_runs_it_without_installing(wheel: Path, tmp_path: Path) -> None:
    uv = installer("uv")
    told = use([uv, "tool", "run", "--quiet", "--python", sys.executable, "--from", str(wheel), "turnbridge"], tmp_path)
    assert told == "uvx --with asyncpg, before the words with which you start it"


@pytest.mark.real
@pytest.mark.promise("start.package")
@pytest.mark.timeout(2 * INSTALL_TIMEOUT_S)
def test_pipx_installs_it(wheel: Path, tmp_path: Path) -> None:
    pipx = installer("pipx")
    env = clean(tmp_path, PIPX_HOME=str(tmp_path / "pipx"), PIPX_BIN_DIR=str(tmp_path / "bin"))
    done([pipx, "install", "--python", sys.executable, str(wheel)], env)
    told = use([str(tmp_path / "bin" / "turnbridge")], tmp_path)
    assert told == "pipx inject turnbridge asyncpg"
    done([pipx, *told.split()[1:]], env)
    done([str(tmp_path / "pipx" / "venvs" / "turnbridge" / "bin" / "python"), "-c", "import asyncpg"], env)


@pytest.mark.promise("start.package")
@pytest.mark.parametrize(
    ("mark", "pip", "managed", "told"),
    [
        ("pipx_metadata.json", True, False, "pipx inject 'my tools' redis"),
        ("uv-receipt.toml", True, False, "uv pip install --python /py redis"),
        (None, False, False, "uv pip install --python /py redis"),
        (None, True, False, "/py -m pip install redis"),
        (None, True, True, "make a virtual environment: the packages of /py belong to the system"),
    ],
)
def test_a_package_is_added_the_way_this_copy_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str | None, pip: bool, managed: bool, told: str
) -> None:
    prefix = tmp_path / "my tools"
    prefix.mkdir()
    if mark is not None:
        (prefix / mark).touch()
    monkeypatch.setattr("sys.prefix", str(prefix))
    monkeypatch.setattr("sys.executable", "/py")
    monkeypatch.setattr(installation, "_has_pip", lambda: pip)
    monkeypatch.setattr(installation, "_uv", lambda: "uv")
    monkeypatch.setattr(installation, "_is_managed_by_system", lambda: managed)
    assert installation.adding("redis") == told
