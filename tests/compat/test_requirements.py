"""Every promise is well formed, and has tests that exist."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.compat.requirement import SOURCES
from tests.compat.requirements import AREAS, REQUIREMENTS

ROOT = Path(__file__).parents[2]
ID = re.compile(r"[a-z]+(\.[a-z]+(-[a-z]+)*){1,2}")
SENTENCE = re.compile(r"[A-Z0-9`].*[^.]\.")


def test_no_two_promises_have_the_same_id_or_sentence() -> None:
    used = Counter(text for promise in REQUIREMENTS for text in (promise.id, promise.sentence))
    assert [text for text, count in used.items() if count > 1] == []


def test_the_ids_of_an_area_begin_with_a_word_of_its_own() -> None:
    words = [{promise.id.partition(".")[0] for promise in area} for area in AREAS.values()]
    assert [len(area) for area in words] == [1] * len(AREAS)
    assert len(set[str]().union(*words)) == len(AREAS)


def test_ids_sources_and_sentences_are_well_formed() -> None:
    texts = [text for promise in REQUIREMENTS for text in (promise.sentence, promise.divergence) if text is not None]
    assert [promise.id for promise in REQUIREMENTS if not ID.fullmatch(promise.id)] == []
    assert [promise.source for promise in REQUIREMENTS if promise.source not in SOURCES] == []
    # A pipe would end its cell of the table in the documentation.
    assert [text for text in texts if not SENTENCE.fullmatch(text) or "|" in text] == []


def test_every_promise_has_tests_that_exist() -> None:
    assert [promise.id for promise in REQUIREMENTS if not promise.tests] == []
    cited = [(promise.id, *test.split("::")) for promise in REQUIREMENTS for test in promise.tests]
    assert [(name, path, test) for name, path, test in cited if test not in names_in(path)] == []


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of a file's test functions; the file is read, not imported."""
    if not (ROOT / path).is_file():
        return frozenset()
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    functions = (node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in functions if name.startswith("test_"))
