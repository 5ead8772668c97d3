"""What a Codex binary can do, read from the JSON Schema that it prints of its own protocol; and a check of messages."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import jsonschema_rs

from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import as_list, as_object, resolve_reference

# Codex describes these notifications, but does not list their methods.
UNLISTED_NOTIFICATIONS = {
    "rawResponseItem/completed": "RawResponseItemCompletedNotification",
    "rawResponse/completed": "RawResponseCompletedNotification",
}


class Protocol:
    """A binary's own schema."""

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        self._definitions = as_object(schema.get("definitions"))
        self._v2 = as_object(self._definitions.get("v2"))

    @cached_property
    def requests(self) -> dict[str, Json]:
        """Return the schema of the parameters of each method."""
        return self._params("ClientRequest")

    @cached_property
    def notifications(self) -> dict[str, Json]:
        """Return the schema of the parameters of each notification."""
        unlisted: dict[str, Json] = {
            method: {"$ref": f"#/definitions/v2/{name}"}
            for method, name in UNLISTED_NOTIFICATIONS.items()
            if name in self._v2
        }
        return {**unlisted, **self._params("ServerNotification")}

    @cached_property
    def questions(self) -> dict[str, Json]:
        """Return the schema of the parameters of each request that Codex sends."""
        return self._params("ServerRequest")

    def reply(self, question: str) -> Json:
        """Return the schema of the answer to a request of Codex's; None if Codex does not describe it."""
        params = str(as_object(self.questions.get(question)).get("$ref", ""))
        return self.reference(f"{params.rpartition('/')[2].removesuffix('Params')}Response")

    def reference(self, name: str) -> Json:
        """Return a reference to a definition of either protocol generation; None if there is none."""
        if name in self._definitions:
            return {"$ref": f"#/definitions/{name}"}
        return {"$ref": f"#/definitions/v2/{name}"} if name in self._v2 else None

    def shapes(self, schema: Json) -> Iterator[JsonObject]:
        """Yield every alternative of a schema, with references resolved."""
        if not isinstance(schema, dict):
            return
        if isinstance(reference := schema.get("$ref"), str):
            yield from self.shapes(resolve_reference(self.schema, reference))
            return
        alternatives = [one for word in ("anyOf", "oneOf", "allOf") for one in as_list(schema.get(word))]
        if "properties" in schema or not alternatives:
            yield schema
        for one in alternatives:
            yield from self.shapes(one)

    def fields(self, schema: Json) -> frozenset[str]:
        """Return the names of the fields that an object of this schema may have."""
        return frozenset(name for shape in self.shapes(schema) for name in as_object(shape.get("properties")))

    def _params(self, union: str) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for variant in as_list(as_object(self._definitions.get(union)).get("oneOf")):
            properties = as_object(as_object(variant).get("properties"))
            for method in as_list(as_object(properties.get("method")).get("enum")):
                found[str(method)] = properties.get("params")
        return found


Dialect: TypeAlias = Literal["v2", "v2-early", "v1"]

# The methods that a turn needs.
V2_METHODS = frozenset({"thread/start", "turn/start", "turn/interrupt"})
V1_METHODS = frozenset({"newConversation", "addConversationListener", "interruptConversation"})
V1_TURN_METHODS = frozenset({"sendUserTurn", "sendUserMessage"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one binary supports."""

    dialects: tuple[Dialect, ...]
    """The dialects that it speaks, best first."""
    params: Mapping[str, frozenset[str]]
    """Its methods, with the parameters of each."""
    item_types: frozenset[str]
    """The item types of `item/started`."""
    dynamic_tools: bool
    """Whether functions can be declared; otherwise they are described in text."""
    typed_tool_specs: bool
    """Whether such a declaration has a `type`."""
    tool_reply: Literal["contentItems", "output"]
    """The field of the answer to `item/tool/call` that holds the output."""
    ephemeral: bool
    environments: bool
    inject_items: bool
    raw_items: bool
    """Whether it reports the provider's items unchanged."""
    raw_usage: bool
    """Whether it reports the end of each model call, with its exact usage."""
    opt_out: bool
    """Whether the handshake can opt out of notifications."""

    @property
    def dialect(self) -> Dialect:
        """Return the best dialect."""
        return self.dialects[0]

    def supported(self, method: str, params: JsonObject) -> JsonObject:
        """Return the parameters that a method takes, without the others."""
        fields = self.params.get(method, frozenset())
        return {field: value for field, value in params.items() if field in fields}


def read_capabilities(schema: JsonObject) -> Capabilities:
    """Return what the binary that printed this schema supports."""
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
    """Return the dialects, best first; v2 needs raw items in both directions."""
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


class RpcCheck:
    """Validates messages against the schema that a binary printed. A problem names places, never a client's values."""

    def __init__(self, schema: JsonObject) -> None:
        self._protocol = Protocol(schema)
        self._validators: dict[str, jsonschema_rs.Draft7Validator] = {}

    def request_problem(self, method: str, params: Json) -> str | None:
        """Return what is wrong with a request to Codex, if anything."""
        if method not in self._protocol.requests:
            return "there is no such method"
        return self._problem(method, self._protocol.requests[method], params)

    def reply_problem(self, question: str, result: Json) -> str | None:
        """Return what is wrong with an answer to a request of Codex's, if anything."""
        schema = self._protocol.reply(question)
        return "there is no such request" if schema is None else self._problem(f"reply to {question}", schema, result)

    def incoming_problem(self, method: str, params: Json) -> str | None:
        """Return what is wrong with a notification or request of Codex's, if anything."""
        known = self._protocol.notifications | self._protocol.questions
        return self._problem(method, known[method], params) if method in known else "it is not in the schema"

    def _problem(self, name: str, schema: Json, value: Json) -> str | None:
        for error in self._validator(name, schema).iter_errors(value):
            return f"`{'/'.join(map(str, error.instance_path))}` breaks {'/'.join(map(str, error.schema_path))}"
        if isinstance(value, dict):
            unknown = sorted(value.keys() - self._protocol.fields(schema))
            return f"there is no field `{unknown[0]}`" if unknown else None
        return None

    def _validator(self, name: str, schema: Json) -> jsonschema_rs.Draft7Validator:
        if name not in self._validators:
            definitions = self._protocol.schema.get("definitions")
            # Keywords beside a `$ref` are ignored, so it stands alone.
            self._validators[name] = jsonschema_rs.Draft7Validator({"allOf": [schema], "definitions": definitions})
        return self._validators[name]
