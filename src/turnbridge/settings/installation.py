"""How this copy of Turnbridge was installed, and so how a package is added to it."""

import importlib.util
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

# Files that installers leave in the environments that they make.
PIPX_MARK = "pipx_metadata.json"
UV_TOOL_MARK = "uv-receipt.toml"
# Where uv keeps the environments that `uvx` makes for one run.
UV_CACHE_MARKS = ("archive-v", "environments-v")


def adding(package: str) -> str:
    """Return the command that adds a package to the environment that this copy runs in."""
    prefix = Path(sys.prefix)
    python = shlex.quote(sys.executable)
    if (prefix / PIPX_MARK).is_file():
        return f"pipx inject {shlex.quote(prefix.name)} {package}"
    if any(part.startswith(UV_CACHE_MARKS) for part in prefix.parts):
        return f"uvx --with {package}, before the words with which you start it"
    if (prefix / UV_TOOL_MARK).is_file() or not _has_pip():
        return f"{_uv()} pip install --python {python} {package}"
    if _is_managed_by_system():
        return f"make a virtual environment: the packages of {python} belong to the system"
    return f"{python} -m pip install {package}"


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def _uv() -> str:
    """Return uv, which makes environments without pip; where it is missing, the way to it."""
    return "uv" if shutil.which("uv") is not None else "pipx run uv"


def _is_managed_by_system() -> bool:
    """Tell whether a distribution's package manager owns this Python, and pip would refuse."""
    if sys.prefix != sys.base_prefix:
        return False
    return (Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").is_file()
