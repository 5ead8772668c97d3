"""Namespaces in Codex's terms: names that it takes and that lead back, and declarations."""

import re

from hypothesis import given
from hypothesis import strategies as st

from turnbridge.codex.protocol.tool_names import LONGEST_NAMESPACE, RESERVED_NAMESPACES, ToolNames
from turnbridge.codex.protocol.tools import LONGEST_GROUP_DESCRIPTION, dynamic_tools
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.request import Namespace, Tool, by_key

SCHEMA: JsonObject = {"type": "object", "properties": {}}


def tool(name: str, namespace: str | None = None, about: str = "G") -> Tool:
    group = None if namespace is None else Namespace(name=namespace, description=about)
    return Tool(name=name, description="F", parameters=SCHEMA, namespace=group)


def declared(*tools: Tool) -> list[Json]:
    return dynamic_tools(tools, ToolNames.of(tools))


def shown(name: str, description: str = "F") -> JsonObject:
    return {"type": "function", "name": name, "description": description, "inputSchema": SCHEMA}


def group(name: str, *tools: Json, about: str = "G") -> JsonObject:
    return {"type": "namespace", "name": name, "description": about, "tools": [*tools]}


def test_a_namespace_stands_where_its_first_function_does() -> None:
    assert declared(tool("x"), tool("y", "b"), tool("x", "a"), tool("z"), tool("x", "b")) == [
        shown("x"),
        group("b", shown("y"), shown("x")),
        group("a", shown("x")),
        shown("z"),
    ]


def test_names_that_codex_refuses_are_changed() -> None:
    long = "n" * 100
    given = [tool("exec_command", "mcp__crm"), tool("mcp__x", "web"), tool("a.b", "a.b"), tool("x", long)]
    assert declared(*given) == [
        group("client_mcp__crm", shown("exec_command")),
        group("client_web", shown("client_mcp__x")),
        group("a_b", shown("a_b")),
        group("n" * LONGEST_NAMESPACE, shown("x")),
    ]


def test_a_description_that_codex_refuses_is_told_by_the_first_function() -> None:
    about = "ü" * (LONGEST_GROUP_DESCRIPTION + 1)
    cut = "ü" * (LONGEST_GROUP_DESCRIPTION - 1) + "…"
    assert declared(tool("x", "crm", about), tool("y", "crm", about)) == [
        group("crm", shown("x", f"About all tools here: {about}\n\nF"), shown("y"), about=cut)
    ]
    whole = about[:-1]
    assert declared(tool("x", "crm", whole)) == [group("crm", shown("x"), about=whole)]


NAMES = st.text(min_size=1, max_size=150) | st.sampled_from(["mcp", "mcp__a", "a.b", "a_b", *RESERVED_NAMESPACES])


@given(st.lists(st.tuples(st.none() | NAMES, NAMES), max_size=20))
def test_every_call_leads_back_to_one_function(given_tools: list[tuple[str | None, str]]) -> None:
    tools = by_key(tool(name, namespace) for namespace, name in given_tools)
    names = ToolNames.of(tools.values())
    in_codex = [names.call_to_codex(name, namespace) for namespace, name in tools]
    assert [names.call_to_client(*call) for call in in_codex] == [(name, namespace) for namespace, name in tools]
    assert len(set(in_codex)) == len(tools)
    for name, namespace in in_codex:
        assert re.fullmatch("[a-zA-Z0-9_-]{1,128}", name)
        assert namespace is None or re.fullmatch("[a-zA-Z0-9_-]{1,64}", namespace)
        assert not name.startswith("mcp__")
        assert not (namespace or "").startswith("mcp__")
        assert namespace not in RESERVED_NAMESPACES
