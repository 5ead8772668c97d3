"""The budget for the schemas of one request, and which of them are compiled with a deadline.

The limits are several times what large clients send. They are checked before any work that grows faster than the
schemas.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct, json

from turnbridge.api.shared.strict_schema import CODES, DEFINITIONS, SchemaUse, schema_error, shown, strict_schema_error
from turnbridge.api.shared.validation import cut
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import layers, resolve_reference, simple_size

# In all schemas of a request. A hundred tools of an MCP server have about 10,000; more than this many would not leave
# the model's context window any room. Compiling them takes 0.1 seconds.
MAX_SCHEMA_VALUES = 50_000
# In each of them. The library's own limit on depth is a few levels below this one.
MAX_SCHEMA_DEPTH = 250
# In all patterns of a request. Few schemas have more than a hundred characters of them.
MAX_PATTERN_CHARS = 50_000
# How many ways lead through the references of a schema that an answer is checked against, each of which may be tried
# for each value of the answer. Recursive schemas of languages and documents have some thousands.
MAX_REFERENCE_PATHS = 100_000
# JSON values read to count them: a value is read once for each reference that points to something around it.
MAX_COUNTED_VALUES = 200_000

# A message may quote the schema, and a schema may be huge.
MAX_DETAIL_CHARS = 500

# Cached schemas that were found valid, 32 bytes each: clients send the same ones in every request.
MAX_CACHED = 4096


class SchemaPlace(Struct, frozen=True, kw_only=True):
    """A schema of a request, and what an error calls it."""

    schema: JsonObject
    param: str
    name: str
    use: SchemaUse

    def refused(self, why: str) -> InvalidRequest:
        """Return the refusal of this schema."""
        message = f"Invalid schema for {self.use} '{self.name}': {cut(why, MAX_DETAIL_CHARS)}"
        return InvalidRequest(message, code=CODES[self.use], param=self.param)


class SchemaChecker:
    """Checks the schemas of one request, except for what may take long."""

    def __init__(self) -> None:
        self._values = 0
        self._pattern_chars = 0
        self.uncompiled: list[SchemaPlace] = []
        """The schemas that the caller has to compile before they are used."""

    def check(self, schema: Json, *, strict: bool, param: str, name: str, use: SchemaUse) -> JsonObject:
        """Return a schema unless it exceeds a limit, is no JSON Schema, or is not strict although it should be."""
        if not isinstance(schema, dict):
            place = SchemaPlace(schema={}, param=param, name=name, use=use)
            raise place.refused(f"{shown(schema)} is not of type 'object'.")
        place = SchemaPlace(schema=schema, param=param, name=name, use=use)
        try:
            digest = _digest(schema, strict=strict)
        except UnicodeEncodeError as error:
            raise place.refused(f"{error}.") from error
        cached, before = _valid.get(digest), self._values
        problem = self._excess(schema) if cached is None else self._excess_values(cached)
        if cached is None and problem is None:
            problem = _broken_rule(place, strict=strict)
            if problem is None and simple_size(schema) is None:
                self.uncompiled.append(place)
                return schema
            problem = problem or schema_error(schema)
        if problem is not None:
            raise place.refused(problem)
        _cache(digest, self._values - before)
        return schema

    def _excess(self, schema: JsonObject) -> str | None:
        """Return the limit that this schema exceeds, together with those before it."""
        for depth, layer in enumerate(layers(schema)):
            if (excess := self._excess_values(len(layer))) is not None:
                return excess
            if depth == MAX_SCHEMA_DEPTH and any(isinstance(value, dict | list) for value in layer):
                return f"the schema has more than {MAX_SCHEMA_DEPTH} levels of JSON. Use '$ref' and '$defs'."
            self._pattern_chars += sum(map(_pattern_chars, layer))
            if self._pattern_chars > MAX_PATTERN_CHARS:
                return f"the patterns of the request have more than {MAX_PATTERN_CHARS} characters. Make them shorter."
        return None

    def _excess_values(self, values: int) -> str | None:
        self._values += values
        if self._values <= MAX_SCHEMA_VALUES:
            return None
        return f"the schemas of the request have more than {MAX_SCHEMA_VALUES} JSON values. Make them smaller."


# Simple schemas that are valid, by digest, with the number of their JSON values.
_valid: OrderedDict[bytes, int] = OrderedDict()


def _cache(digest: bytes, values: int) -> None:
    # Large bodies are decoded in a thread: another thread may run between any two of these steps.
    _valid.pop(digest, None)
    _valid[digest] = values
    if len(_valid) > MAX_CACHED:
        _valid.popitem(last=False)


def _digest(schema: JsonObject, *, strict: bool) -> bytes:
    try:
        encoded = json.encode(schema)
    except RecursionError:
        encoded = b""  # Too deep to be valid.
    return hashlib.blake2b(encoded, digest_size=32, key=b"strict" if strict else b"").digest()


def _broken_rule(place: SchemaPlace, *, strict: bool) -> str | None:
    if (strict or place.use == "response_format") and _has_too_many_paths(place.schema):
        return f"more than {MAX_REFERENCE_PATHS} ways lead through its references. Let fewer '$ref' refer to others."
    return strict_schema_error(place.schema) if strict else None


def allows_strict(schema: JsonObject) -> bool:
    """Tell whether a schema within the budget is of OpenAI's strict subset."""
    return not _has_too_many_paths(schema) and strict_schema_error(schema) is None


def _pattern_chars(value: Json) -> int:
    if not isinstance(value, dict):
        return 0
    pattern, named = value.get("pattern"), value.get("patternProperties")
    chars = len(pattern) if isinstance(pattern, str) else 0
    return chars + (sum(map(len, named)) if isinstance(named, dict) else 0)


def _has_too_many_paths(root: JsonObject) -> bool:
    """Tell whether the paths through the references of a schema exceed the limit; a cycle counts once."""
    # While a reference is open, it counts as one: what leads back to it is a cycle.
    paths: dict[str, int] = {}
    open_references = [("", _references(root)[0])]
    totals = [1]
    counted = 0
    while open_references:
        name, references = open_references[-1]
        following = next(references, None)
        if following is None:
            open_references.pop()
            paths[name] = totals.pop()
            if totals:
                totals[-1] += paths[name]
        elif following in paths:
            totals[-1] += paths[following]
        else:
            paths[following] = 1
            references, size = _references(resolve_reference(root, following))
            open_references.append((following, references))
            totals.append(1)
            counted += size
        if (totals and totals[-1] > MAX_REFERENCE_PATHS) or counted > MAX_COUNTED_VALUES:
            return True
    return False


def _references(schema: Json) -> tuple[Iterator[str], int]:
    """Return the references in a schema, and the number of its values; definitions count where they are referred to."""
    if isinstance(schema, dict):
        schema = {key: value for key, value in schema.items() if key not in DEFINITIONS}
    found: list[str] = []
    size = 0
    for layer in layers(schema):
        size += len(layer)
        found += [ref for one in layer if isinstance(one, dict) and isinstance(ref := one.get("$ref"), str)]
    return iter(found), size
