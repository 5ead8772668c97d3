"""Parts of the JSON Schemas of answers: the fields that a client may rely on. More may come, so no object is closed."""

from collections.abc import Mapping, Sequence

from turnbridge.turn.items import Json, JsonObject

TEXT: JsonObject = {"type": "string"}
NUMBER: JsonObject = {"type": "integer"}
FLAG: JsonObject = {"type": "boolean"}
ANY_OBJECT: JsonObject = {"type": "object"}


def optional(schema: JsonObject) -> JsonObject:
    """Return a schema that null meets too."""
    return {"anyOf": [schema, {"type": "null"}]}


def constant(value: str) -> JsonObject:
    """Return the schema of one text."""
    return {"type": "string", "const": value}


def one_of(*values: str) -> JsonObject:
    """Return the schema of a few texts."""
    return {"type": "string", "enum": list(values)}


def ref(name: str) -> JsonObject:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: JsonObject) -> JsonObject:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def an_object(description: str, fields: Mapping[str, JsonObject], *, lacks: Sequence[str] = ()) -> JsonObject:
    """Return the schema of an object; all of its fields are there, except those that it may lack."""
    required: list[Json] = [name for name in fields if name not in lacks]
    return {"type": "object", "description": description, "properties": dict(fields), "required": required}


def a_page(of: str, items: JsonObject) -> JsonObject:
    """Return the schema of a page of a list."""
    fields = {"object": constant("list"), "data": array(items), "has_more": FLAG}
    return an_object(f"A page of {of}.", {**fields, "first_id": optional(TEXT), "last_id": optional(TEXT)})


INPUT_USAGE = an_object("Tokens.", {"input_tokens": NUMBER, "output_tokens": NUMBER})
