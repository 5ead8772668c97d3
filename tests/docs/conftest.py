"""A demo as a newcomer starts it, for the examples of the documentation."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
# Longer than any example takes, shorter than the patience of a test.
EXAMPLE_TIMEOUT_S = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A gateway as a newcomer starts it."""

    home: str
    printed: str
    url: str
    key: str

    def run(self, command: list[str]) -> str:
        """Return what an example prints that knows the gateway from its environment only."""
        port = self.url.removesuffix("/v1").rpartition(":")[2]
        gateway = {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": self.key, "PROXY_DATA_DIR": self.home, "PORT": port}
        done = subprocess.run(
            command,
            env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": self.home, **gateway},
            cwd=ROOT / "tests/node",  # Node looks for packages from here.
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=EXAMPLE_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Return a running `turnbridge serve --demo` that touches nothing of the user's."""
    home = str(tmp_path_factory.mktemp("demo"))
    command = [sys.executable, "-m", "turnbridge", "serve", "--demo", "--port", "0"]
    environment = {"PATH": os.environ["PATH"], "HOME": home, "PROXY_DATA_DIR": home}
    # The key is printed to a terminal only.
    ours, theirs = pty.openpty()
    with (
        os.fdopen(ours, encoding="utf-8") as terminal,
        subprocess.Popen(command, env=environment, stdout=theirs, stderr=subprocess.PIPE, encoding="utf-8") as process,
    ):
        os.close(theirs)
        try:
            printed = _read_until("output_text", terminal)
            # Codex takes many times as long to start as the listener: who has read this line can connect.
            _read_until("codex_ready", process.stderr)
            url, key = (_printed(label, printed) for label in ("Base URL", "API key"))
            yield Demo(home=home, printed=printed, url=url, key=key)
        finally:
            process.terminate()


def _read_until(mark: str, stream: IO[str] | None) -> str:
    lines: list[str] = []
    for line in stream or ():
        lines.append(line)
        if mark in line:
            return "".join(lines)
    raise AssertionError(f"The gateway ended before it wrote {mark!r}: {''.join(lines)}")


def _printed(label: str, text: str) -> str:
    found = re.search(rf"{label} +(\S+)", text)
    if found is None:
        raise AssertionError(f"The gateway printed no {label}.")
    return found[1]
