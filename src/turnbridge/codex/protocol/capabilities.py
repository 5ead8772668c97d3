"""What a Codex binary can do, read from the JSON Schema that it prints of its own protocol."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from turnbridge.turn.items import Json, JsonObject

# Codex describes what these notifications hold, but calls them internal and does not list the methods.
UNLISTED_NOTIFICATIONS = {
    "rawResponseItem/completed": "RawResponseItemCompletedNotification",
    "rawResponse/completed": "RawResponseCompletedNotification",
}


class Protocol:
    """A binary's own schema."""

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        self._definitions = _table(schema.get("definitions"))
        self._v2 = _table(self._definitions.get("v2"))

    @cached_property
    def requests(self) -> Mapping[str, Json]:
        """Return the schema of the parameters of each method that Codex takes."""
        return self._params("ClientRequest")

    @cached_property
    def notifications(self) -> Mapping[str, Json]:
        """Return the schema of the parameters of each notification that Codex sends."""
        unlisted: dict[str, Json] = {
            method: {"$ref": f"#/definitions/v2/{name}"}
            for method, name in UNLISTED_NOTIFICATIONS.items()
            if name in self._v2
        }
        return {**unlisted, **self._params("ServerNotification")}

    @cached_property
    def questions(self) -> Mapping[str, Json]:
        """Return the schema of the parameters of each request that Codex makes of us."""
        return self._params("ServerRequest")

    def reply(self, question: str) -> Json:
        """Return the schema of our answer to a request of Codex's; None if Codex does not describe it."""
        name = self._name(self.questions.get(question)).removesuffix("Params")
        return self.reference(f"{name}Response")

    def reference(self, name: str) -> Json:
        """Return a reference to a definition, whichever generation it belongs to; None if there is none."""
        if name in self._definitions:
            return {"$ref": f"#/definitions/{name}"}
        return {"$ref": f"#/definitions/v2/{name}"} if name in self._v2 else None

    def shapes(self, schema: Json) -> Iterator[JsonObject]:
        """Yield every shape that a value of this schema may have, references followed."""
        if not isinstance(schema, dict):
            return
        if isinstance(schema.get("$ref"), str):
            yield from self.shapes(self._target(schema))
            return
        alternatives = [one for word in ("anyOf", "oneOf", "allOf") for one in _list(schema.get(word))]
        if "properties" in schema or not alternatives:
            yield schema
        for one in alternatives:
            yield from self.shapes(one)

    def fields(self, schema: Json) -> frozenset[str]:
        """Return the names of the fields that an object of this schema may have."""
        return frozenset(name for shape in self.shapes(schema) for name in _table(shape.get("properties")))

    def _params(self, union: str) -> Mapping[str, Json]:
        found: dict[str, Json] = {}
        for variant in _list(_table(self._definitions.get(union)).get("oneOf")):
            properties = _table(_table(variant).get("properties"))
            for method in _list(_table(properties.get("method")).get("enum")):
                found[str(method)] = properties.get("params")
        return found

    def _target(self, schema: JsonObject) -> Json:
        found: Json = self.schema
        for word in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = _table(found).get(word)
        return found

    def _name(self, schema: Json) -> str:
        return str(_table(schema).get("$ref", "")).rpartition("/")[2]


def _table(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


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
