"""Every promise is well formed and has tests, and every test of behaviour names its promises."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.compat.promise import SOURCES
from tests.compat.promises import AREAS, PROMISES

TESTS = Path(__file__).parents[1]
ID = re.compile(r"[a-z]+(\.[a-z]+(-[a-z]+)*){1,2}")
SENTENCE = re.compile(r"[A-Z0-9`].*[^.]\.")

# What is tested here is what a client or an operator sees; the other folders test parts, which may keep a promise too.
BEHAVIOUR = ("codex_versions/", "compat/test_promises.py", "faults/", "frameworks/", "hostile/", "real/")

# Tests in these folders that are about the tests themselves.
ABOUT_TESTS = {
    "faults/test_leaving_clients.py::test_the_table_below_holds_every_event",
    "faults/test_soak.py::test_a_hostile_request_may_be_refused_or_cut_off_but_must_end_and_be_no_defect",
    "faults/test_soak.py::test_a_report_passes_only_if_nothing_is_wrong",
    "faults/test_soak.py::test_an_answer_that_ends_twice_or_never_is_seen",
    "faults/test_soak.py::test_only_a_fault_at_the_time_explains_an_error_and_nothing_explains_a_defect",
    "hostile/test_harness.py::test_a_gateway_that_stalls_is_noticed",
    "hostile/test_harness.py::test_an_ordinary_request_disturbs_nobody",
    "real/test_node.py::test_every_scenario_is_judged",
}


def test_no_two_promises_have_the_same_id_or_sentence() -> None:
    used = Counter(text for promise in PROMISES for text in (promise.id, promise.sentence))
    assert [text for text, count in used.items() if count > 1] == []


def test_the_ids_of_an_area_begin_with_a_word_of_its_own() -> None:
    words = [{promise.id.partition(".")[0] for promise in area} for area in AREAS.values()]
    assert [len(area) for area in words] == [1] * len(AREAS)
    assert len(set[str]().union(*words)) == len(AREAS)


def test_ids_sources_and_sentences_are_well_formed() -> None:
    texts = [text for promise in PROMISES for text in (promise.sentence, promise.divergence) if text is not None]
    assert [promise.id for promise in PROMISES if not ID.fullmatch(promise.id)] == []
    assert [promise.source for promise in PROMISES if promise.source not in SOURCES] == []
    # A pipe would end its cell of the table in the documentation.
    assert [text for text in texts if not SENTENCE.fullmatch(text) or "|" in text] == []


def test_every_promise_has_a_test() -> None:
    named = set[str]().union(*promises_of_tests().values())
    assert [promise.id for promise in PROMISES if promise.id not in named] == []


def test_every_marker_names_promises() -> None:
    known = {promise.id for promise in PROMISES}
    assert {test: ids - known for test, ids in promises_of_tests().items() if not ids <= known} == {}


def test_every_test_of_behaviour_names_its_promises() -> None:
    unnamed = {test for test, ids in promises_of_tests().items() if test.startswith(BEHAVIOUR) and not ids}
    assert unnamed == ABOUT_TESTS


@cache
def promises_of_tests() -> dict[str, frozenset[str]]:
    """Return the ids that the markers of each test name; the files are read, not imported."""
    paths = [path for path in sorted(TESTS.rglob("test_*.py")) if "node_modules" not in path.parts]
    return {
        f"{path.relative_to(TESTS).as_posix()}::{node.name}": frozenset(_marked(node))
        for path in paths
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def _marked(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the ids in `@pytest.mark.promise(...)`, also where it marks a single case of a parametrized test."""
    calls = (node for each in test.decorator_list for node in ast.walk(each) if isinstance(node, ast.Call))
    for call in calls:
        if ast.unparse(call.func) == "pytest.mark.promise":
            yield from (ast.literal_eval(argument) for argument in call.args)
