"""The quickstart and every how-to can be pasted from top to bottom: their blocks are run in order, with the demo."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.conftest import ROOT, Demo

DOCS = ROOT / "docs"
PAGES = (DOCS / "quickstart.md", *sorted((DOCS / "how-to").glob("*.md")))
COMMANDS = {"sh": ["bash", "-euc"], "python": [sys.executable, "-c"]}
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\s+)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)


def blocks(page: Path) -> Iterator[re.Match[str]]:
    return _BLOCK.finditer(page.read_text(encoding="utf-8"))


@pytest.mark.promise("start.examples")
@pytest.mark.real
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_how_to_runs(demo: Demo, page: Path) -> None:
    for block in blocks(page):
        if block["reason"] is None and block["language"] in COMMANDS:
            printed = demo.run([*COMMANDS[block["language"]], block["code"]])
            assert not re.search(r'"error": ?\{', printed), block["code"]


def test_what_is_not_run_has_a_language_and_a_reason() -> None:
    silent = [
        (page.name, block["code"])
        for page in PAGES
        for block in blocks(page)
        if block["reason"] is None and block["language"] not in (*COMMANDS, "text")
    ]
    assert silent == []
