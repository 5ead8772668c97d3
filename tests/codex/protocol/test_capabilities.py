"""What a binary can do is read from what it says about itself."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.codex_schema import old_schema, pinned_schema
from turnbridge.codex.protocol.capabilities import Capabilities, Dialect, Protocol, read_capabilities
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.real


def plain(capabilities: Capabilities) -> Capabilities:
    """Return the capabilities without what are long lists in both binaries."""
    nothing: frozenset[str] = frozenset()
    return replace(capabilities, params={}, item_types=nothing)


def without(schema: JsonObject, union: str, *methods: str) -> JsonObject:
    """Return a schema as if the binary did not have these methods."""
    definitions = schema["definitions"]
    assert isinstance(definitions, dict)
    variants = definitions[union]
    assert isinstance(variants, dict)
    listed = variants["oneOf"]
    assert isinstance(listed, list)
    kept = [variant for variant in listed if not any(f"'{method}'" in str(variant) for method in methods)]
    return {**schema, "definitions": {**definitions, union: {**variants, "oneOf": kept}}}


def test_the_pinned_binary_can_do_everything() -> None:
    assert plain(read_capabilities(pinned_schema())) == Capabilities(
        dialects=("v2", "v2-early"),
        params={},
        item_types=frozenset(),
        dynamic_tools=True,
        typed_tool_specs=True,
        tool_reply="contentItems",
        ephemeral=True,
        environments=True,
        inject_items=True,
        raw_items=True,
        raw_usage=True,
        opt_out=True,
    )


def test_an_old_binary_can_do_less_and_speaks_the_first_dialect() -> None:
    assert plain(read_capabilities(old_schema())) == Capabilities(
        dialects=("v2-early", "v1"),
        params={},
        item_types=frozenset(),
        dynamic_tools=True,
        typed_tool_specs=False,
        tool_reply="output",
        ephemeral=True,
        environments=False,
        inject_items=False,
        raw_items=True,
        raw_usage=False,
        opt_out=False,
    )


@pytest.mark.parametrize(
    ("missing", "dialects"),
    [
        ((), ("v2", "v2-early")),
        (("thread/inject_items",), ("v2-early",)),
        (("thread/start",), ()),
        (("turn/interrupt",), ()),
    ],
)
def test_the_dialects_follow_from_the_methods(missing: tuple[str, ...], dialects: tuple[Dialect, ...]) -> None:
    assert read_capabilities(without(pinned_schema(), "ClientRequest", *missing)).dialects == dialects


@pytest.mark.parametrize(
    ("missing", "dialects"),
    [
        (("sendUserTurn",), ("v2-early", "v1")),
        (("sendUserTurn", "sendUserMessage"), ("v2-early",)),
        (("turn/start",), ("v1",)),
    ],
)
def test_either_way_of_sending_a_turn_will_do_for_v1(missing: tuple[str, ...], dialects: tuple[Dialect, ...]) -> None:
    capabilities = read_capabilities(without(old_schema(), "ClientRequest", *missing))
    assert (capabilities.dialects, capabilities.dialect) == (dialects, dialects[0])


def test_methods_fields_and_items_are_those_of_the_binary() -> None:
    pinned, old = read_capabilities(pinned_schema()), read_capabilities(old_schema())
    assert {"thread/inject_items", "thread/start"} <= pinned.params.keys()
    assert {"newConversation", "thread/start"} <= old.params.keys()
    wished: JsonObject = {"threadId": "t", "serviceTier": "fast"}
    assert pinned.supported("turn/start", wished) == wished
    assert old.supported("turn/start", wished) == {"threadId": "t"}
    assert pinned.supported("newConversation", {"model": "m"}) == {}
    assert {"commandExecution", "agentMessage"} <= old.item_types


def test_without_a_schema_nothing_is_known() -> None:
    nothing = read_capabilities({})
    assert (nothing.dialects, nothing.params, nothing.dynamic_tools) == ((), {}, False)


@pytest.mark.parametrize("schema", [pinned_schema, old_schema])
def test_every_request_of_codex_has_an_answer_in_the_schema(schema: Callable[[], JsonObject]) -> None:
    protocol = Protocol(schema())
    assert [question for question in protocol.questions if protocol.reply(question) is None] == []
