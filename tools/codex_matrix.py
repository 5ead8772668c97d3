"""Tries real versions of Codex, and writes what was seen into docs/codex-versions.md: `python -m tools.codex_matrix`.

They come from npm, except for the one that is installed with Turnbridge. With versions on the command line, only those
are tried, and the table is printed instead. What is tried is tests/codex_versions/test_any_version.py.
"""

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import codex_cli_bin

from tests.codex_versions.installed import INSTALLED, OLDEST, installed_codex

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/codex-versions.md"
SUITE = "tests/codex_versions/test_any_version.py"
PACKAGE = "@openai/codex"
PINNED = importlib.metadata.version("openai-codex-cli-bin")

# The versions before and after changes of the protocol that concern us, and some in between.
VERSIONS = (
    *(OLDEST, "0.98.0", "0.101.0", "0.104.0", "0.105.0", "0.120.0", "0.121.0", "0.125.0", "0.130.0", "0.142.0"),
    *("0.144.6", "0.145.0", "0.150.0", "0.157.0", "0.164.0", "0.165.0", "0.166.0"),
)

# A version has some hundred megabytes.
INSTALL_TIMEOUT_S = 600.0
# It takes 20 seconds; a busy machine takes longer, and each test that hangs a minute.
SUITE_TIMEOUT_S = 600.0
# Enough of a reason to know where to look.
REASON_CHARACTERS = 300

HEAD = ("version", "dialect", "what the model is shown besides", "outputs", "tests passed", "remarks")
# What the self-check finds is a tool, or else one of these.
TEXTS = re.compile(r"text|.*-message")

_CASE = re.compile(r"(?P<test>\w+)\[.*\bcodex0-(?P<dialect>v2-early|v2|v1)\b")
_PART = re.compile(r"(<!-- matrix -->\n).*?(<!-- end: matrix -->)", re.DOTALL)


class Unavailable(Exception):
    """A version that could not be had, or not be tried to the end; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a version did in one dialect."""

    dialect: str
    tests: int
    failures: dict[str, str]
    """The tests that failed, each with the reason."""
    fidelity: str
    """What `x-turnbridge-fidelity` said; nothing if no answer came."""
    outputs: str
    """What `x-turnbridge-thread` said when the outputs of functions were brought."""


def main() -> None:
    """Try the versions that are named and print the table, or try all and write the page."""
    if named := sys.argv[1:]:
        print(table([row for version in named for row in rows(version)]))
        return
    labels = {OLDEST: "the oldest that is supported", newest(): "the newest on npm"}
    labels[PINNED] = "comes with Turnbridge"
    versions = sorted({*VERSIONS, *labels}, key=lambda version: [int(number) for number in version.split(".")])
    seen = [row for version in versions for row in rows(version, labels.get(version))]
    day = datetime.datetime.now(datetime.UTC).date()
    part = f"Seen on {day}, {platform.system()} {platform.machine()}:\n\n{table(seen)}"
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_PART.sub(lambda old: f"{old[1]}\n{part}\n\n{old[2]}", page), encoding="utf-8")


def rows(version: str, label: str | None = None) -> list[tuple[str, ...]]:
    """Return what is to be said about a version: a row for each dialect, the one that is chosen by itself first."""
    print(f"Codex {version}", file=sys.stderr, flush=True)
    try:
        results = tried(program_of(version))
    except Unavailable as reason:
        return [(version, "", "", "", "none", str(reason))]
    return [row(version, result, label if result is results[0] else None) for result in results]


def row(version: str, result: Result, label: str | None) -> tuple[str, ...]:
    """Return what is to be said about a version in one dialect."""
    failed = [f"`{name.partition('[')[0]}`: {reason}" for name, reason in result.failures.items()]
    if len(failed) == result.tests:
        # The gateway did not start, which is the same reason each time.
        failed = [*result.failures.values()][:1]
    passed = f"{result.tests - len(result.failures)} of {result.tests}"
    remarks = "; ".join([*([label] if label else []), *failed])
    return (version, result.dialect, besides(result.fidelity), result.outputs, passed, remarks)


def besides(fidelity: str) -> str:
    """Return what Codex adds to requests, for people."""
    found = [word for word in fidelity.partition("extra=")[2].split(",") if word]
    shown = [f"`{word}`" for word in found if not TEXTS.fullmatch(word)]
    shown += ["texts"] if any(map(TEXTS.fullmatch, found)) else []
    return ", ".join(shown) or ("nothing" if fidelity else "")


def newest() -> str:
    """Return the newest version on npm."""
    return _run(["npm", "view", PACKAGE, "version"], INSTALL_TIMEOUT_S).strip()


def program_of(version: str) -> Path:
    """Return the program of a version, which is installed if it is not there."""
    if version == PINNED:
        return codex_cli_bin.bundled_codex_path()
    if installed_codex(version) is None:
        place = INSTALLED / version
        place.mkdir(parents=True, exist_ok=True)
        quietly = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        _run(["npm", "install", "--prefix", str(place), *quietly, f"{PACKAGE}@{version}"], INSTALL_TIMEOUT_S)
    binary = installed_codex(version)
    if binary is None:
        raise Unavailable("npm has no program for this machine")
    return binary


def tried(binary: Path) -> list[Result]:
    """Return how a program did, in each dialect that it speaks."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", SUITE]
        environment = {**os.environ, "TURNBRIDGE_TEST_CODEX": str(binary)}
        _run(command, SUITE_TIMEOUT_S, environment, may_fail=True)
        if not report.exists():
            raise Unavailable("the tests did not run")
        return results(ET.parse(report).getroot())


def results(report: ET.Element) -> list[Result]:
    """Return what pytest has written down; a dialect that is not spoken has only skipped tests."""
    recorded = {each.get("name"): each.get("value", "") for each in report.iter("property")}
    outcomes: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for case in report.iter("testcase"):
        name = case.get("name", "")
        found = _CASE.match(name)
        if found and case.find("skipped") is None:
            # What goes wrong after a test is told as a case of its own.
            outcomes[found["dialect"]][name] = outcomes[found["dialect"]].get(name) or _reason(case)
    return [
        Result(
            dialect=dialect,
            tests=len(cases),
            failures={name: reason for name, reason in cases.items() if reason},
            fidelity=recorded.get(f"fidelity {dialect}", ""),
            outputs=recorded.get(f"outputs {dialect}", ""),
        )
        for dialect, cases in outcomes.items()
    ]


def table(lines: Sequence[tuple[str, ...]]) -> str:
    """Return a table of these lines."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (HEAD, ("---",) * len(HEAD), *lines))


def _reason(case: ET.Element) -> str:
    """Return why a test failed, in a cell of a table; nothing if it passed."""
    told = [each.get("message", "") or "no reason" for each in case if each.tag in ("failure", "error")]
    return " ".join(" ".join(told).split())[:REASON_CHARACTERS].replace("|", "\\|")


def _run(
    command: list[str], timeout_s: float, environment: dict[str, str] | None = None, *, may_fail: bool = False
) -> str:
    """Return what a command printed; raises `Unavailable` if it failed."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"`{command[0]}` took longer than {timeout_s:g} seconds") from error
    except FileNotFoundError as error:
        raise Unavailable(f"there is no `{command[0]}`") from error
    if done.returncode != 0 and not may_fail:
        raise Unavailable(f"`{' '.join(command[:2])}` failed: {' '.join(done.stderr.split())[:REASON_CHARACTERS]}")
    return done.stdout


if __name__ == "__main__":
    main()
