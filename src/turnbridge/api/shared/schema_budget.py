"""What the schemas of one request may cost together, and which of them have to be compiled with a deadline.

The limits are several times what large clients send, and are told before any work that grows faster than the schemas.
"""

import hashlib
from collections import OrderedDict

from msgspec import Struct, json

from turnbridge.api.shared.strict_schema import (
    CODES,
    SchemaUse,
    broken_strict_rule,
    misconstruction,
)
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject, layers
from turnbridge.turn.json_schema import simple_size, target

# In all schemas of a request. A hundred tools of an MCP server have about 10,000; more than this many would not leave
# the model's context window any room. To compile them takes 0.1 seconds.
MAX_SCHEMA_VALUES = 50_000
# In each of them. The library's own limit on depth lies a few levels below this one.
MAX_SCHEMA_DEPTH = 250
# In all patterns of a request. Few schemas have more than a hundred characters of them.
MAX_PATTERN_CHARS = 50_000
# How many ways lead through the references of a schema that an answer is checked against, each of which may be tried
# for each value of the answer. Recursive schemas of languages and documents have some thousands.
MAX_REFERENCE_PATHS = 100_000
# To count them, a place is looked at once for each reference that leads to something around it.
MAX_LOOKED_AT = 200_000

# A message may quote the schema, and a schema may be huge.
MAX_DETAIL_CHARS = 500

# How many schemas are remembered as good, by 32 bytes each: clients send the same ones in every request.
MOST_REMEMBERED = 4096

DEFINITIONS = ("$defs", "definitions")


class SchemaPlace(Struct, frozen=True, kw_only=True):
    """A schema of a request, and what an error calls it."""

    schema: JsonObject
    param: str
    name: str
    use: SchemaUse

    def refused(self, why: str) -> InvalidRequest:
        """Return the refusal of this schema."""
        detail = why if len(why) <= MAX_DETAIL_CHARS else f"{why[:MAX_DETAIL_CHARS]}..."
        message = f"Invalid schema for {self.use} '{self.name}': {detail}"
        return InvalidRequest(message, code=CODES[self.use], param=self.param)


class Schemas:
    """Checks the schemas of one request, all but what may take long."""

    def __init__(self) -> None:
        self._values = 0
        self._pattern_chars = 0
        self.uncompiled: list[SchemaPlace] = []
        """Those that somebody else has to compile before they are used."""

    def check(self, schema: Json, *, strict: bool, param: str, name: str, use: SchemaUse) -> None:
        """Raise unless this can be a JSON Schema that stands on its own; if `strict`, one that OpenAI takes as such."""
        if not isinstance(schema, dict):
            raise SchemaPlace(schema={}, param=param, name=name, use=use).refused(_not_an_object(schema))
        place = SchemaPlace(schema=schema, param=param, name=name, use=use)
        try:
            digest = _digest(schema, strict=strict)
        except UnicodeEncodeError as error:
            raise place.refused(f"{error}.") from error
        known = _good.get(digest)
        before = self._values
        excess = self._excess(schema) if known is None else self._too_many(known)
        if excess is not None:
            raise place.refused(excess)
        if known is not None:
            _remember(digest, known)
            return
        if (strict or use == "response_format") and _has_too_many_paths(schema):
            raise place.refused(
                f"more than {MAX_REFERENCE_PATHS} ways lead through its references. Let fewer '$ref' refer to others."
            )
        if strict and (broken := broken_strict_rule(schema)) is not None:
            raise place.refused(broken)
        if simple_size(schema) is None:
            self.uncompiled.append(place)
            return
        if (wrong := misconstruction(schema)) is not None:
            raise place.refused(wrong)
        _remember(digest, self._values - before)

    def _excess(self, schema: JsonObject) -> str | None:
        """Return why this is too much to be looked at, together with what came before it."""
        for depth, layer in enumerate(layers(schema)):
            if (too_many := self._too_many(len(layer))) is not None:
                return too_many
            if depth == MAX_SCHEMA_DEPTH and any(isinstance(value, dict | list) for value in layer):
                return f"the schema has more than {MAX_SCHEMA_DEPTH} levels of JSON. Use '$ref' and '$defs'."
            self._pattern_chars += sum(map(_pattern_chars, layer))
            if self._pattern_chars > MAX_PATTERN_CHARS:
                return f"the patterns of the request have more than {MAX_PATTERN_CHARS} characters. Make them shorter."
        return None

    def _too_many(self, values: int) -> str | None:
        self._values += values
        if self._values <= MAX_SCHEMA_VALUES:
            return None
        return f"the schemas of the request have more than {MAX_SCHEMA_VALUES} JSON values. Make them smaller."


# Simple schemas that are as they must be, by their digests, with the number of their values.
_good: OrderedDict[bytes, int] = OrderedDict()


def _remember(digest: bytes, values: int) -> None:
    # Large bodies are decoded in a thread: another one may have come in between any two of these steps.
    _good.pop(digest, None)
    _good[digest] = values
    if len(_good) > MOST_REMEMBERED:
        _good.popitem(last=False)


def _digest(schema: JsonObject, *, strict: bool) -> bytes:
    try:
        written = json.encode(schema)
    except RecursionError:
        written = b""  # Too deep to be good.
    return hashlib.blake2b(written, digest_size=32, key=b"strict" if strict else b"").digest()


def _not_an_object(schema: Json) -> str:
    return f"{'an array' if isinstance(schema, list) else str(schema)[:MAX_DETAIL_CHARS]} is not of type 'object'."


def _pattern_chars(value: Json) -> int:
    if not isinstance(value, dict):
        return 0
    pattern, named = value.get("pattern"), value.get("patternProperties")
    chars = len(pattern) if isinstance(pattern, str) else 0
    return chars + (sum(map(len, named)) if isinstance(named, dict) else 0)


def _has_too_many_paths(root: JsonObject) -> bool:
    """Tell whether the ways through the references of a schema exceed the limit; one that leads back counts once."""
    paths: dict[str, int] = {}
    looked_at = 0
    open_ones: list[_Way] = [_Way("", *_references(root))]
    while open_ones:
        current = open_ones[-1]
        following = next(current.references, None)
        if following is None:
            paths[current.name] = current.paths
            open_ones.pop()
            if open_ones:
                open_ones[-1].paths += current.paths
            continue
        # One that is still open leads back here.
        if following in paths:
            current.paths += paths[following]
        else:
            paths[following] = 1
            open_ones.append(_Way(following, *_references(target(root, following))))
            looked_at += open_ones[-1].size
        if current.paths > MAX_REFERENCE_PATHS or looked_at > MAX_LOOKED_AT:
            return True
    return False


class _Way:
    """A reference whose own references are being followed."""

    def __init__(self, name: str, references: list[str], size: int) -> None:
        self.name = name
        self.references = iter(references)
        self.size = size
        self.paths = 1


def _references(schema: Json) -> tuple[list[str], int]:
    """Return the references in a schema, and how many values it has; definitions are only reached by one."""
    found: list[str] = []
    size = 0
    for layer in layers(_without_definitions(schema)):
        size += len(layer)
        found += [ref for one in layer if isinstance(one, dict) and isinstance(ref := one.get("$ref"), str)]
    return found, size


def _without_definitions(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key not in DEFINITIONS}
