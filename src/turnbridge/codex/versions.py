"""Other versions of Codex than the one that is installed with Turnbridge: installing one, and choosing it.

They come from PyPI or npm through their own clients, which check the download against the registry's hash. Nothing is
installed or replaced unless the user asks for it.
"""

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import codex_cli_bin
import msgspec

from turnbridge.codex.process.home import read_cached, write_private
from turnbridge.turn.errors import BackendUnavailable

# From 0.166 on, Codex unloads threads that nobody uses after a minute instead of half an hour. PyPI lags behind npm.
RECOMMENDED = "0.169.0"

# It is passed to a package manager, so nothing else may be in it.
VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?")
# A version has some hundred megabytes.
INSTALL_TIMEOUT_S = 900.0
# The package for a platform names it like this.
TRIPLES = {
    ("Linux", "x86_64"): "x86_64-unknown-linux-musl",
    ("Linux", "aarch64"): "aarch64-unknown-linux-musl",
    ("Darwin", "x86_64"): "x86_64-apple-darwin",
    ("Darwin", "arm64"): "aarch64-apple-darwin",
}


class Chosen(msgspec.Struct, frozen=True):
    """The version that the user chose."""

    version: str
    binary: str


def chosen(data_dir: Path) -> Chosen | None:
    """Return the version that the user chose, if it is not the one that is installed with Turnbridge."""
    return read_cached(_choice(data_dir), Chosen)


def binary(data_dir: Path) -> Path:
    """Return the program of the version that the user chose, or else of the one that is installed with Turnbridge."""
    found = chosen(data_dir)
    return codex_cli_bin.bundled_codex_path() if found is None else Path(found.binary)


def choose(data_dir: Path, version: Chosen | None) -> None:
    """Use this version from the next start on; None for the one that is installed with Turnbridge."""
    if version is None:
        _choice(data_dir).unlink(missing_ok=True)
    else:
        write_private(_choice(data_dir), msgspec.json.encode(version).decode())


def install(data_dir: Path, version: str) -> Path:
    """Return the program of a version, which is installed if it is not yet; raises `BackendUnavailable`."""
    if VERSION.fullmatch(version) is None:
        raise BackendUnavailable(f"'{version}' is not a version of Codex, such as {RECOMMENDED}.")
    place = data_dir / "codex" / version
    if (found := _program(place)) is not None:
        return found
    for directory in (data_dir, place.parent):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun = place.with_name(f".{version}.part")
    problems = []
    for client, command in _commands(begun, version).items():
        shutil.rmtree(begun, ignore_errors=True)
        problem = _run(command)
        if problem is None and _program(begun) is not None:
            begun.rename(place)
            break
        problems.append(f"{client}: {problem or 'the package has no program for this machine'}")
    shutil.rmtree(begun, ignore_errors=True)
    if (found := _program(place)) is None:
        reasons = "; ".join(problems) or "neither pip, uv nor npm is installed"
        raise BackendUnavailable(f"Codex {version} could not be installed ({reasons}).")
    return found


def _choice(data_dir: Path) -> Path:
    return data_dir / "codex" / "chosen.json"


def _commands(place: Path, version: str) -> dict[str, list[str]]:
    """Return the clients that are there, each with the command that installs a version into a directory."""
    wheel = ["--target", str(place), "--no-deps", "--only-binary", ":all:", f"openai-codex-cli-bin=={version}"]
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    found = {
        "uv": [uv, "pip", "install", "--quiet", "--python", sys.executable, *wheel]
        if (uv := shutil.which("uv"))
        else [],
        "pip": [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wheel],
        "npm": [npm, "install", "--prefix", str(place), *quiet, f"@openai/codex@{version}"]
        if (npm := shutil.which("npm"))
        else [],
    }
    return {client: command for client, command in found.items() if command}


def _run(command: Sequence[str]) -> str | None:
    """Run a command; return why it failed, if it did."""
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=INSTALL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    words = [line for line in (ran.stderr or ran.stdout).splitlines() if line.strip()]
    return None if ran.returncode == 0 else (words[-1] if words else f"exit status {ran.returncode}")


def _program(place: Path) -> Path | None:
    """Return the program in a directory into which a package was installed."""
    triple = TRIPLES.get((platform.system(), platform.machine()))
    wheel = place.glob("codex_cli_bin/bin/codex")
    package = place.glob(f"node_modules/@openai/*/vendor/{triple}/*/codex")
    return next((path for path in sorted((*wheel, *package)) if path.is_file()), None)
