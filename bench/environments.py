"""Python environments besides the one of the development, each made once below `.venv`."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.processes import ROOT

RUN_LOCK = ROOT / "requirements" / "run.txt"


def environment(name: str, contents: str, *installations: Sequence[str]) -> Path:
    """Return an environment, made by these words to `pip install` if none was made of these contents."""
    venv = ROOT / ".venv" / f"bench-{name}"
    done = venv / contents
    if not done.exists():
        print(f"Installing {name} into {venv}; this takes a while, once.", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        uv, python = shutil.which("uv"), str(venv / "bin/python")
        install = [uv, "pip", "install", "-q", "--python", python] if uv else [python, "-m", "pip", "install", "-qq"]
        for words in installations:
            subprocess.run([*install, *words], check=True, cwd=ROOT)
        done.touch()
    return venv


def as_users_have_it() -> str:
    """Return a Python with the packages that users get: each start would import some that are for development."""
    contents = f"run-{hashlib.sha256(RUN_LOCK.read_bytes()).hexdigest()[:16]}"
    locked = ("--only-binary", ":all:", "--require-hashes", "-r", str(RUN_LOCK))
    return str(environment("run", contents, locked, ("--no-deps", "--no-build-isolation", "-e", ".")) / "bin/python")
