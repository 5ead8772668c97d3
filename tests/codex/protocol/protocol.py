"""The binary's own description of its protocol, and the questions that tests ask it."""

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import jsonschema_rs
import msgspec

from turnbridge.turn.items import Json, JsonObject


class Schema(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As much of a JSON Schema as the protocol uses to say which fields and types there are."""

    ref: str = msgspec.field(name="$ref", default="")
    type: str | list[str] = []
    enum: list[str] = []
    properties: dict[str, "Schema | bool"] = {}
    required: list[str] = []
    items: "Schema | bool" = True
    all_of: list["Schema"] = []
    any_of: list["Schema"] = []
    one_of: list["Schema"] = []


class Protocol:
    """What `codex app-server generate-json-schema` wrote into a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @cached_property
    def definitions(self) -> dict[str, Schema]:
        """Return every type of the protocol, by name."""
        return msgspec.convert(self._raw_definitions, dict[str, Schema])

    def methods(self, union: str) -> dict[str, str]:
        """Return the methods of `ServerNotification` or `ServerRequest`, each with the name of its parameters."""
        found: dict[str, str] = {}
        for variant in msgspec.convert(self._read(f"{union}.json"), Schema).one_of:
            match variant.properties:
                case {"method": Schema(enum=[method]), "params": Schema(ref=reference)}:
                    found[method] = _target(reference)
        return found

    def alternatives(self, schema: Schema | bool) -> Iterator[Schema]:
        """Yield every shape that a value may have; one without a type may be anything."""
        if isinstance(schema, bool):
            yield Schema()
        elif schema.ref:
            yield from self.alternatives(self.definitions[_target(schema.ref)])
        elif schema.properties:
            yield schema
        elif several := [*schema.all_of, *schema.any_of, *schema.one_of]:
            for one in several:
                yield from self.alternatives(one)
        else:
            types = [schema.type] if isinstance(schema.type, str) else schema.type
            yield from [msgspec.structs.replace(schema, type=type_) for type_ in types] or [schema]

    def problems(self, name: str, value: JsonObject) -> list[str]:
        """Return what keeps a value from being of the type `name`, fields that it does not have included."""
        validator = jsonschema_rs.Draft7Validator(
            {"$ref": f"#/definitions/{name}", "definitions": self._raw_definitions}
        )
        known = {
            field
            for shape in self.alternatives(self.definitions[name])
            if _could_be(shape, value)
            for field in (*shape.properties, *(field for one in shape.any_of for field in one.properties))
        }
        return [error.message for error in validator.iter_errors(value)] + sorted(set(value) - known)

    def response_problems(self, request: str, response: Json) -> list[str]:
        """Return what is wrong with our response to a request of the server's."""
        name = self.methods("ServerRequest")[request].removesuffix("Params")
        validator = jsonschema_rs.Draft7Validator(self._read(f"{name}Response.json"))
        return [error.message for error in validator.iter_errors(response)]

    @cached_property
    def _raw_definitions(self) -> JsonObject:
        files = ("ServerRequest.json", "codex_app_server_protocol.v2.schemas.json")
        return {name: schema for file in files for name, schema in self._definitions_of(file).items()}

    def _definitions_of(self, file: str) -> JsonObject:
        definitions = self._read(file)["definitions"]
        assert isinstance(definitions, dict)
        return definitions

    def _read(self, file: str) -> JsonObject:
        read: JsonObject = json.loads((self._directory / file).read_text(encoding="utf-8"))
        return read


def _target(reference: str) -> str:
    return reference.rpartition("/")[2]


def _could_be(shape: Schema, value: JsonObject) -> bool:
    """Tell whether an object's `type` is that of this shape."""
    tag = shape.properties.get("type")
    return not isinstance(tag, Schema) or not tag.enum or value.get("type") in tag.enum
