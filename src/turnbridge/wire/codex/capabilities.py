"""What a Codex binary can do, read from the protocol that it describes itself."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

from turnbridge.turn.items import JsonObject
from turnbridge.wire.codex.protocol import Protocol

Dialect: TypeAlias = Literal["v2", "v2-early", "v1"]

# A turn needs these; everything else about a dialect can be done without.
V2_METHODS = frozenset({"thread/start", "turn/start", "turn/interrupt"})
V1_METHODS = frozenset({"newConversation", "addConversationListener", "interruptConversation"})
V1_TURN_METHODS = frozenset({"sendUserTurn", "sendUserMessage"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What may be sent to one binary, and what it may send."""

    dialects: tuple[Dialect, ...]
    """All that it speaks, the best one first; nothing if it is not of this family."""
    params: Mapping[str, frozenset[str]]
    """The methods that it knows, with the fields that each takes."""
    item_types: frozenset[str]
    """The kinds of items that it reports in `item/started`."""
    dynamic_tools: bool
    """Whether the client's functions can be declared; otherwise they must be explained in words."""
    typed_tool_specs: bool
    """Whether such a declaration has a `type`."""
    tool_reply: Literal["contentItems", "output"]
    """What holds the output of a client's function in our answer."""
    ephemeral: bool
    environments: bool
    inject_items: bool
    raw_items: bool
    """Whether it can pass on the provider's items as they came."""
    raw_usage: bool
    """Whether it tells the end of each model call, with its exact usage."""
    opt_out: bool
    """Whether it can be told at the handshake which notifications nobody wants."""

    @property
    def dialect(self) -> Dialect:
        """Return the best dialect that it speaks."""
        return self.dialects[0]

    def takes(self, method: str, field: str) -> bool:
        """Tell whether a method has a parameter."""
        return field in self.params.get(method, frozenset())


def read_capabilities(schema: JsonObject) -> Capabilities:
    """Return what the binary that printed this schema can do."""
    protocol = Protocol(schema)
    thread_fields = protocol.fields(protocol.requests.get("thread/start"))
    inject_items = "thread/inject_items" in protocol.requests
    raw_items = "rawResponseItem/completed" in protocol.notifications and "experimentalRawEvents" in thread_fields
    raw_usage = "rawResponse/completed" in protocol.notifications
    reply_fields = protocol.fields(protocol.reply("item/tool/call"))
    return Capabilities(
        dialects=_dialects(protocol.requests.keys(), lossless=inject_items and raw_items and raw_usage),
        params={method: protocol.fields(params) for method, params in protocol.requests.items()},
        item_types=_item_types(protocol),
        dynamic_tools="dynamicTools" in thread_fields and "item/tool/call" in protocol.questions,
        typed_tool_specs="type" in protocol.fields(protocol.reference("DynamicToolSpec")),
        tool_reply="contentItems" if "contentItems" in reply_fields else "output",
        ephemeral="ephemeral" in thread_fields,
        environments="environments" in thread_fields,
        inject_items=inject_items,
        raw_items=raw_items,
        raw_usage=raw_usage,
        opt_out="optOutNotificationMethods" in protocol.fields(protocol.reference("InitializeCapabilities")),
    )


def _dialects(methods: Set[str], *, lossless: bool) -> tuple[Dialect, ...]:
    """Return the dialects, best first; a history can go in as it is only if raw items can go in and come out."""
    found: list[Dialect] = []
    if methods >= V2_METHODS:
        found += ["v2", "v2-early"] if lossless else ["v2-early"]
    if methods >= V1_METHODS and methods & V1_TURN_METHODS:
        found.append("v1")
    return tuple(found)


def _item_types(protocol: Protocol) -> frozenset[str]:
    types: set[str] = set()
    for shape in protocol.shapes(protocol.reference("ThreadItem")):
        match shape:
            case {"properties": {"type": {"enum": [str(kind)]}}}:
                types.add(kind)
    return frozenset(types)
