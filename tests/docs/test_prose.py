"""Every command, setting, header, error code, route, metric and log event that the documentation names exists."""

import re
from pathlib import Path

import click
import pytest

from tools.docs import PAGES, ROOT
from turnbridge.api.unserved import UNSERVED
from turnbridge.cli.main import app
from turnbridge.settings.fields import CONFIG_VARIABLE, known_names
from turnbridge.settings.former import FORMER

# The balancer has a header and errors of its own.
FILES = (*(ROOT / "src").rglob("*.py"), ROOT / "deploy" / "haproxy" / "haproxy.cfg")
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
# Codex's own.
FOREIGN_SETTINGS = {
    "CODEX_HOME",
    "CODEX_SQLITE_HOME",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CA_CERTIFICATE",
    "CODEX_API_KEY",
    "PORT",
}

LOG = ROOT / "docs" / "log.md"
METRICS = ROOT / "docs" / "metrics.md"
OTHERS = (ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md"))

on_every_page = pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT)))


def code(page: Path) -> list[str]:
    """Return what stands in backquotes on a page, and the lines of its shell blocks."""
    text = page.read_text(encoding="utf-8")
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()
    return [*re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)), *shell]


@on_every_page
def test_settings_exist(page: Path) -> None:
    known = {*known_names(), CONFIG_VARIABLE, *(one.name for one in FORMER), *FOREIGN_SETTINGS}
    named = {name for one in code(page) for name in re.findall(r"\b(?:PROXY|CODEX|WORKER)_[A-Z_]+[A-Z]\b", one)}
    assert [name for name in named if name not in known and not any(each.startswith(name) for each in known)] == []


@on_every_page
def test_commands_and_their_options_exist(page: Path) -> None:
    assert [line for line in code(page) if (words := _own_words(line)) and not _exists(words)] == []


@on_every_page
def test_headers_exist(page: Path) -> None:
    named = {name for one in code(page) for name in re.findall(r"\bx-turnbridge-[a-z-]*[a-z]\b", one)}
    made = ("x-turnbridge-plan-primary-", "x-turnbridge-plan-secondary-")
    assert [name for name in named - {each for each in named if each.startswith(made)} if name not in SOURCES] == []


@on_every_page
def test_error_codes_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    codes = re.findall(r"\b[45]\d\d `([a-z][a-z_]+)`", text)
    assert [name for name in codes if f'"{name}"' not in SOURCES] == []


@on_every_page
def test_routes_exist(page: Path) -> None:
    named = {each for one in code(page) for each in re.findall(r"(?:^|[A-Z] |\d)(/(?:v1|api)/[a-z_/{}]+[a-z}])", one)}
    # A path may be written in parts, as `POST` of a parent and the rest, so each part has to stand in the source.
    parts = {part for route in named - set(UNSERVED) for part in route.split("/")[2:] if "{" not in part}
    assert [part for part in parts if not re.search(rf'[/"]{part}\b', SOURCES)] == []


@on_every_page
def test_metrics_exist(page: Path) -> None:
    known = re.findall(r"^\| `(turnbridge_\w+)`", METRICS.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for one in code(page) for name in re.findall(r"^turnbridge_[a-z_]+", one)}
    assert named - set(known) == set()


def test_every_event_of_the_log_is_explained_and_exists() -> None:
    rows = re.findall(r"^\| (`.+?) \| (?:info|warning|error)", LOG.read_text(encoding="utf-8"), re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    logged = set(re.findall(r'\blog\.(?:info|warning|error|exception)\(\s*"(\w+)"', SOURCES))
    assert logged - explained == {"request"} & logged
    assert [name for name in explained if f'"{name}"' not in SOURCES] == []


def _own_words(line: str) -> list[str]:
    found = re.search(r"(?:^|\$\(|[|&;] |exec \w+ )(?:[A-Z_]+=\S+ )*(?:\S*bin/)?turnbridge((?: [^|;&>)#]+)?)", line)
    return found[1].split() if found else []


def _exists(words: list[str]) -> bool:
    command: click.Command = app
    while words and isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", words[0]):
        below = command.get_command(click.Context(command), words[0])
        if below is None:
            return False
        command, words = below, words[1:]
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    return all(word.partition("=")[0] in options for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=\S*)?", word))
