"""The blocks of the pages run with the demo, in order, as a reader pastes them; what is not run has a reason."""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.conftest import ROOT, Demo

DOCS = ROOT / "docs"
# The README's blocks have tests of their own, and so has what the pages of the clients show.
PAGES = (*sorted(DOCS.glob("*.md")), *sorted((DOCS / "how-to").glob("*.md")))
COMMANDS = {"sh": ["bash", "-euc"], "python": [sys.executable, "-c"]}
PARSERS = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
NOT_CODE = {"text", "", "nginx"}
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\s+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)


def blocks(page: Path) -> Iterator[re.Match[str]]:
    return _BLOCK.finditer(page.read_text(encoding="utf-8"))


def run_blocks(page: Path) -> list[re.Match[str]]:
    return [block for block in blocks(page) if block["reason"] is None and block["language"] in COMMANDS]


@pytest.mark.promise("start.examples")
@pytest.mark.real
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("page", [page for page in PAGES if run_blocks(page)], ids=lambda page: page.stem)
def test_every_block_runs(demo: Demo, page: Path) -> None:
    for block in run_blocks(page):
        code = block["code"].replace("http://127.0.0.1:11435", demo.url.removesuffix("/v1"))
        code = code.replace("YOUR_KEY", demo.key).replace("sk-turnbridge-...", demo.key)
        printed = demo.run([*COMMANDS[block["language"]], code])
        assert not re.search(r'"error": ?\{', printed), code


def test_what_is_not_run_has_a_language_and_a_reason() -> None:
    known = {*COMMANDS, *PARSERS, *NOT_CODE}
    silent = [
        (page.name, block["code"])
        for page in PAGES
        for block in blocks(page)
        if block["reason"] is None and block["language"] not in known
    ]
    assert silent == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_settings_and_messages_on_a_page_can_be_read(page: Path) -> None:
    for block in blocks(page):
        if (parse := PARSERS.get(block["language"])) is not None:
            assert parse(block["code"])
