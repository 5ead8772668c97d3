"""Records a terminal session with the demo as an animated picture: `python -m tools.recording`.

The commands are run for real, with a home of their own. Keys, codes, paths and the port are replaced by what the pages
show; nothing else is changed.
"""

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs/pictures/terminal.svg"
PORT = "11999"
COMMANDS = ("turnbridge ask 'What can you do?'", "turnbridge connect aider --test", "turnbridge usage")
# Longer than Codex takes to start on a busy machine.
TIMEOUT_S = 60
COLUMNS = 92
LINE_PX, LEFT_PX, TOP_PX, WIDTH_PX = 19, 18, 44, 800
# How the picture plays: seconds for a typed character, and between lines and commands.
TYPED_S, LINE_S, PAUSE_S = 0.05, 0.08, 1.2
STYLE = """
  text { font: 13.5px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d1d5db; white-space: pre }
  .typed { fill: #5eead4 }
  .line { opacity: 0; animation: appear 0.01s forwards }
  @keyframes appear { to { opacity: 1 } }
  @media (prefers-reduced-motion: reduce) { .line { animation-delay: 0s !important } }
"""
REPLACED = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"sk-turnbridge-[\w-]{20,}", "sk-turnbridge-..."),
    (r"#code=\S+", "#code=..."),
    (PORT, "11435"),
    (r"key-[0-9a-f]{8}", "key-0123abcd"),
    (r"\S*/\.local/share", "~/.local/share"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the terminal, and when it appears."""

    text: str
    at: float
    typed: bool = False


def recorded() -> Iterator[tuple[str, str]]:
    """Yield each command with what it printed."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": home, "PORT": PORT}
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            ["turnbridge", "serve", "--demo"], env=environment, stdout=theirs, stderr=theirs, cwd=home
        ) as gateway:
            try:
                printed = _until(ours, "Try it:")
                yield "turnbridge serve --demo", printed.partition("Starting Codex")[0]
                for command in COMMANDS:
                    # Usage is written every two seconds.
                    time.sleep(3)
                    done = subprocess.run(
                        ["bash", "-c", command],
                        env=environment,
                        capture_output=True,
                        encoding="utf-8",
                        check=True,
                        cwd=home,
                    )
                    yield command, done.stdout
            finally:
                gateway.terminate()


def _until(terminal: int, mark: str) -> str:
    text, end = "", time.monotonic() + TIMEOUT_S
    while mark not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 65536).decode()
    return text


def _without_secrets(text: str) -> str:
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    return text


def lines() -> Iterator[Line]:
    """Yield the lines of the session."""
    now = 0.5
    for command, printed in recorded():
        now += len(command) * TYPED_S
        yield Line(f"$ {command}", now, typed=True)
        for line in _without_secrets(printed).strip().splitlines():
            for piece in textwrap.wrap(line, COLUMNS, drop_whitespace=False) or [""]:
                now += LINE_S
                yield Line(piece, now)
        now += PAUSE_S
        yield Line("", now)


def drawn(session: list[Line]) -> str:
    """Return the picture."""
    height = TOP_PX + len(session) * LINE_PX
    rows = [
        f'<text class="line{" typed" if line.typed else ""}" x="{LEFT_PX}" y="{TOP_PX + place * LINE_PX}" '
        f'style="animation-delay: {line.at:.2f}s">{escape(line.text)}</text>'
        for place, line in enumerate(session)
        if line.text
    ]
    dots = [f'<circle cx="{20 + 18 * place}" cy="17" r="5" fill="#4b5563"/>' for place in range(3)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height}" role="img" '
        f'aria-label="A terminal: the demo is started, asked, and connected"><style>{STYLE}</style>'
        f'<rect width="{WIDTH_PX}" height="{height}" rx="8" fill="#111827"/>'
    )
    return "\n".join([head, *dots, *rows, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawn(list(lines())), encoding="utf-8")
