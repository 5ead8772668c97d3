"""The documentation is true: generated parts are fresh, links lead somewhere, nothing is left out, and examples run."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tests.docs.conftest import EXAMPLE_TIMEOUT_S, Demo
from tools.docs import BADGE, PAGES, PARTS, ROOT, badge, regenerated
from turnbridge import __version__
from turnbridge.api.chat import decode as chat
from turnbridge.api.chat.schema import ChatRequest
from turnbridge.api.responses import decode as responses
from turnbridge.api.responses.schema import ResponsesRequest
from turnbridge.codex.protocol.catalog import CATALOG_OVERRIDES
from turnbridge.codex.protocol.encode import SWITCHED_OFF, THREAD_CONFIG
from turnbridge.scripted_model.persona import GREETING
from turnbridge.settings.fields import CONFIG_VARIABLE, known_names

README = ROOT / "README.md"
DOCS = ROOT / "docs"
LINKING_PAGES = (
    *PAGES,
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md")),
)


def test_the_changelog_begins_with_this_version() -> None:
    newest = re.search(r"^## (\S+?),? ", _text(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__ == metadata.version("turnbridge")


def test_the_index_leads_to_every_page() -> None:
    index = _text(DOCS / "index.md")
    pages = (str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "decisions")
    assert [page for page in pages if page != "index.md" and f"]({page})" not in index] == []


def test_every_page_begins_with_its_readers() -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.name == "README.md" or page.parent.name != "decisions"]
    second = {page.name: re.sub(r"<!--.*?-->\s*", "", _text(page)).split("\n\n")[1].strip() for page in pages}
    assert [name for name, words in second.items() if not words.startswith("For ")] == []


def test_the_site_builds_without_a_broken_link() -> None:
    built = subprocess.run(
        [sys.executable, "-m", "tools.site"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=EXAMPLE_TIMEOUT_S,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    navigation = _text(ROOT / "mkdocs.yml")
    pages = {str(page.relative_to(ROOT)) for page in PAGES if page.parent.name != "decisions"}
    assert [page for page in sorted(pages) if f": {page}\n" not in navigation] == []


def test_every_generated_part_is_up_to_date() -> None:
    stale = [page.name for page in PAGES if regenerated(_text(page)) != _text(page)]
    assert not stale, "Run: python -m tools.docs"
    assert _text(BADGE) == badge(), "Run: python -m tools.docs"


def test_every_part_that_can_be_generated_stands_on_a_page() -> None:
    used = {name for page in PAGES for name in re.findall(r"<!-- generated: (\S+) -->", _text(page))}
    assert used == set(PARTS)


@pytest.mark.parametrize("page", LINKING_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in _anchors(target))):
            broken.append(link)
    assert broken == []


def test_every_setting_is_documented() -> None:
    page = _text(DOCS / "configuration.md")
    assert [name for name in (*known_names(), CONFIG_VARIABLE) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("command", [[], ["serve"]], ids=["turnbridge", "turnbridge serve"])
def test_every_command_line_option_is_documented(command: list[str]) -> None:
    plain = {**os.environ, "TERM": "dumb", "NO_COLOR": "1"}
    shown = subprocess.run(
        [sys.executable, "-m", "turnbridge", *command, "--help"],
        env=plain,
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=EXAMPLE_TIMEOUT_S,
    ).stdout
    options = set(re.findall(r"(?<!\S)--[a-z-]+", shown))
    page = _text(DOCS / "cli.md")
    assert options >= {"--help"}
    assert [option for option in options if f"`{option}`" not in page] == []


def test_every_error_code_is_documented() -> None:
    page = _text(DOCS / "errors.md")
    edges = [path for path in (ROOT / "src/turnbridge").rglob("*.py") if "demo" not in path.parts]
    codes = {code for path in edges for code in re.findall(r'\bcode ?= ?"(\w+)"', _text(path))}
    assert [code for code in codes if f"`{code}`" not in page] == []


@pytest.mark.parametrize(
    ("column", "decode", "shape"),
    [(0, responses, ResponsesRequest), (1, chat, ChatRequest)],
    ids=["responses", "chat"],
)
def test_every_parameter_is_documented_as_what_becomes_of_it(
    column: int, decode: ModuleType, shape: type[msgspec.Struct]
) -> None:
    documented = {
        name: row[2] if row[2] in ("ignored", "refused") else "met"
        for row in _parameter_rows()
        for name in re.findall(r"`(\w+)(?:\.\w+)?`", row[column])
    }
    known = {field.encode_name for field in msgspec.structs.fields(shape)}
    assert documented == {
        name: "refused" if name in decode.UNSUPPORTED else "ignored" if name in decode.IGNORED else "met"
        for name in known
    }


def test_every_part_of_the_recipe_is_explained() -> None:
    page = _text(DOCS / "recipe.md")
    recipe = (*CATALOG_OVERRIDES, *SWITCHED_OFF, *THREAD_CONFIG)
    assert [name for name in recipe if f"`{name}`" not in page] == []


@pytest.mark.promise("start.demo", "ingress.key.chosen")
@pytest.mark.real
def test_the_readme_shows_what_the_demo_prints(demo: Demo) -> None:
    printed = demo.printed.replace(demo.url, "http://127.0.0.1:11435/v1").replace(demo.key, "sk-turnbridge-...")
    printed = printed.replace(demo.url.removesuffix("v1"), "http://127.0.0.1:11435/")
    printed = re.sub(r"  Key file .*\n", "  Key file  ~/.local/share/turnbridge/api-key\n", printed)
    printed = re.sub(r"#code=\S+", "#code=...", printed)
    (shown,) = _blocks(README, "text")
    assert printed.strip().startswith(shown.strip())


@pytest.mark.promise("start.examples")
@pytest.mark.real
def test_the_python_example_of_the_readme_runs(demo: Demo) -> None:
    (example,) = _blocks(README, "python")
    said = demo.run([sys.executable, "-c", example])
    assert said == f"{GREETING} You said: “Hello!”."


@pytest.mark.promise("start.examples")
@pytest.mark.real
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_curl_example_of_the_readme_runs(demo: Demo) -> None:
    (example,) = (block for block in _blocks(README, "sh") if block.startswith("curl "))
    answer = json.loads(demo.run(["sh", "-c", example.replace("curl ", "curl --silent ", 1)]))
    assert answer["choices"][0]["message"]["content"] == f"{GREETING} You said: “Hello!”."


@pytest.mark.promise("start.examples")
@pytest.mark.real
@pytest.mark.skipif(
    shutil.which("node") is None or not (ROOT / "tests/node/node_modules/openai").exists(),
    reason="there is no node, or its packages are not installed",
)
def test_the_node_example_of_the_clients_page_runs(demo: Demo) -> None:
    (example,) = _blocks(DOCS / "clients.md", "js")
    said = demo.run(["node", "--input-type=module", "--eval", example])
    assert said == f"{GREETING} You said: “Hello!”.\n"


def _parameter_rows() -> list[list[str]]:
    """Return the rows of the table of parameters: on Responses, on chat, what becomes of them, how."""
    lines = _text(DOCS / "parameters.md").splitlines()
    first = lines.index("| Responses | Chat Completions | | |") + 2
    last = lines.index("", first)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:last]]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", _text(page), re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Return the names that a page's headings can be linked by, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE) if page.suffix == ".md" else []
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", _text(page), flags=re.DOTALL | re.MULTILINE)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")
