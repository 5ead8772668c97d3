"""The description that a Codex binary prints of its own protocol, and the questions that one asks it.

`codex app-server generate-json-schema` writes one JSON Schema that holds all others as definitions; those of the second
generation of the protocol stand in a table of their own, `v2`.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

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
