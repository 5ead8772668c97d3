"""Where versions of Codex from npm lie, and the program inside the package."""

import platform
from pathlib import Path

OLDEST = "0.92.0"
INSTALLED = Path(__file__).parents[2] / ".venv/codex-versions"

TRIPLES = {
    ("Linux", "x86_64"): "x86_64-unknown-linux-musl",
    ("Linux", "aarch64"): "aarch64-unknown-linux-musl",
    ("Darwin", "x86_64"): "x86_64-apple-darwin",
    ("Darwin", "arm64"): "aarch64-apple-darwin",
}


def installed_codex(version: str) -> Path | None:
    """Return the program for this machine, if this version is installed.

    It lies in the package itself or in one for the platform, in a directory that has been renamed once.
    """
    triple = TRIPLES.get((platform.system(), platform.machine()))
    found = INSTALLED.glob(f"{version}/node_modules/@openai/*/vendor/{triple}/*/codex")
    return next((path for path in sorted(found) if path.is_file()), None)
