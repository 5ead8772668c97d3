"""The entry of a model that Codex's catalogue lacks: like the others in form, and open in all that nobody knows."""

import pytest

from turnbridge.codex.protocol.catalog import UNKNOWN_TRAITS, with_models
from turnbridge.turn.items import JsonObject

SCRIPTING: JsonObject = {"slug": "gpt-9", "tool_mode": "code_mode_only", "shell_type": "none"}
PLAIN: JsonObject = {
    "slug": "gpt-5.5",
    "display_name": "GPT-5.5",
    "context_window": 272_000,
    "comp_hash": "2911",
    "shell_type": "unified_exec",
    "a field of later versions": 5,
}
CATALOG: JsonObject = {"models": [SCRIPTING, PLAIN], "etag": "x"}


def test_it_has_the_fields_of_a_plain_model_and_none_of_its_traits() -> None:
    added: JsonObject = {
        "shell_type": "unified_exec",
        "a field of later versions": 5,
        **UNKNOWN_TRAITS,
        "slug": "Llama3",
        "display_name": "Llama3",
    }
    assert with_models(CATALOG, ["Llama3", "llama3"]) == {"models": [SCRIPTING, PLAIN, added], "etag": "x"}


def test_where_all_models_call_tools_from_scripts_it_does_not() -> None:
    added: JsonObject = {"shell_type": "none", **UNKNOWN_TRAITS, "slug": "Llama3", "display_name": "Llama3"}
    assert with_models({"models": [SCRIPTING]}, ["Llama3"]) == {"models": [SCRIPTING, added]}


@pytest.mark.parametrize("names", [[], ["gpt-5.5"], ["GPT-5.5", "gpt-9"]])
def test_a_catalogue_that_has_the_models_stays_as_it_is(names: list[str]) -> None:
    assert with_models(CATALOG, names) == CATALOG
