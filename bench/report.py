"""What was measured, as text: a section for each part, kept apart so that one part can be run again alone."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from bench.plots import Plot, svg

FOLDER = Path(__file__).parent
KEPT = FOLDER / "results"
RESULTS = FOLDER / "RESULTS.md"
KB_PER_GB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What was wanted, and what was seen."""

    what: str
    wanted: str
    seen: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The results of one part."""

    title: str
    lines: list[str]
    goals: list[Goal] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)


def at_most(what: str, seen: float, bound: float, unit: str = "") -> Goal:
    """Return a goal that is met by little."""
    return Goal(what=what, wanted=f"≤ {bound:g}{unit}", seen=f"{seen:.3g}{unit}", met=seen <= bound)


def at_least(what: str, seen: float, bound: float, unit: str = "") -> Goal:
    """Return a goal that is met by much."""
    return Goal(what=what, wanted=f"≥ {bound:g}{unit}", seen=f"{seen:.3g}{unit}", met=seen >= bound)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return a table; the first column is text, the others are numbers."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ruler, *rows)]


def save(name: str, section: Section, *, load: float) -> None:
    """Keep the results of a part, with when and where they were taken, and how busy the machine was before."""
    KEPT.mkdir(exist_ok=True)
    kept = {"taken": f"{_taken()}; load before the run: {load:.1f}.", **asdict(section)}
    (KEPT / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_results(order: Sequence[str]) -> None:
    """Put the parts that have been measured together."""
    kept = [json.loads(path.read_text(encoding="utf-8")) for name in order if (path := KEPT / f"{name}.json").exists()]
    lines = [
        "# Results",
        "",
        "Written by `make bench`; docs/performance.md says what the figures mean, and what they do not.",
        "",
        *goals_table([Goal(**goal) for part in kept for goal in part["goals"]]),
        "",
    ]
    for part in kept:
        lines += [f"## {part['title']}", "", part["taken"], "", *part["lines"], ""]
        for plot in (Plot(**plot) for plot in part.get("plots", ())):
            (KEPT / f"{plot.name}.svg").write_text(svg(plot), encoding="utf-8")
            lines += [f"![{plot.title}](results/{plot.name}.svg)", ""]
    RESULTS.write_text("\n".join(lines), encoding="utf-8")


def goals_table(goals: Sequence[Goal]) -> list[str]:
    """Return what was wanted, and what was seen."""
    return table(
        ("goal", "wanted", "seen", ""), [(g.what, g.wanted, g.seen, "met" if g.met else "**missed**") for g in goals]
    )


def _taken() -> str:
    """Return when and where figures were taken."""
    memory = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1]) / KB_PER_GB
    processors = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = [line.partition(":")[2].strip() for line in processors if line.startswith("model name")]
    machine = f"{os.cpu_count()} x {named[0] if named else platform.machine()}, {memory:.0f} GB"
    versions = f"Python {platform.python_version()}, codex {version('openai-codex-cli-bin')}"
    packages = ", ".join(f"{name} {version(name)}" for name in ("turnbridge", "uvicorn", "starlette", "uvloop"))
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    system = f"{platform.system()} {platform.release()}"
    return f"{when}; {machine}; {system}; {versions}; {packages}"
