"""Arguments made up for a function's schema, to show the model what a call looks like.

An example that breaks the schema teaches the model to break it. So every one is checked by `jsonschema_rs`, and if none
of a few attempts conforms there is none.
"""

import math
from collections.abc import Iterator
from fractions import Fraction

import jsonschema_rs

from turnbridge.codex.legacy.plain_schema import plain_schema, required_names, types_of
from turnbridge.turn.items import Json, JsonObject

# Below this level an example has only what the schema requires.
DETAILED_LEVELS = 3

# Deeper or larger, an example is no help; and a recursive schema must come to an end.
MOST_LEVELS = 12
MOST_VALUES = 300
LONGEST_TEXT = 200

# Beyond this, not every reader of JSON takes a number exactly.
LARGEST_NUMBER = 2**53

# What differs in a schema that the first attempts do not meet is usually one union or one pair of alternatives.
MOST_CHOICES = 4

WORD = "example"
FORMATS = {
    "date-time": "2025-01-31T12:00:00Z",
    "date": "2025-01-31",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "user@example.com",
    "idn-email": "user@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "uri": "https://example.com/",
    "iri": "https://example.com/",
    "json-pointer": "/example",
    "relative-json-pointer": "0",
}
# What patterns of parameters ask for, more often than not.
GUESSES = (
    *("a", "A", "0", "1", "ab", "AB", "12", "abc", "ABC", "123", "1234", "12345", "123456", "EXAMPLE", "Example"),
    *("a1", "A1", "A-1", "ABC-123", "abc-123", "a_b", "a-b", "1.0", "1.0.0", "v1.0.0", "12:00", "2025-01", "en-US"),
    *("1234567890", "@example", "#example", "#000000", "/example", "example.txt", "example/example", "+12025550123"),
)

# What a schema without a type must be about, if it uses these.
TELLING = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
# Keywords that look at one value, not at what is inside it.
OWN_KEYWORDS = frozenset(
    {"type", "enum", "const", "pattern", "minLength", "maxLength", "format"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)


class _NoExampleError(Exception):
    """Nothing can be made up for a schema."""


def example_arguments(parameters: JsonObject) -> JsonObject | None:
    """Return arguments that conform to the schema, as telling as possible; nothing if none are found."""
    draft = jsonschema_rs.validator_cls_for(parameters)
    validator = draft(parameters, offline=True, validate_formats=True)
    for number in range(MOST_CHOICES):
        for given, optional in ((True, True), (False, True), (True, False), (False, False)):
            attempt = _Attempt(parameters, draft, given=given, optional=optional)
            try:
                arguments = attempt.arguments(number)
            except _NoExampleError:
                continue
            if isinstance(arguments, dict) and validator.is_valid(arguments):
                return arguments
    return None


class _Attempt:
    """Makes up one value for a schema, `given` ones where the schema has them, with or without what is `optional`."""

    def __init__(self, root: JsonObject, draft: type[jsonschema_rs.Validator], *, given: bool, optional: bool) -> None:
        self._root = root
        self._draft = draft
        self._given = given
        self._optional = optional
        self._left = MOST_VALUES

    def arguments(self, number: int) -> Json:
        """Return one of the possible values of the whole schema."""
        return self._value({"allOf": [{"type": "object"}, self._root]}, 0, number)

    def _value(self, schema: Json, level: int, number: int) -> Json:
        self._left -= 1
        if schema is False or self._left < 0 or level > MOST_LEVELS:
            raise _NoExampleError
        simplest = level > DETAILED_LEVELS
        choice, choices = 0, 1
        while choice < choices:
            said, choices = plain_schema(schema, self._root, choice=number + choice, simplest=simplest)
            try:
                return self._value_of(said, level, number)
            except _NoExampleError:
                choice += 1
        raise _NoExampleError

    def _value_of(self, said: JsonObject, level: int, number: int) -> Json:
        """Return a value for a plain schema."""
        if said.get("type") == [] or said.get("enum") == []:
            raise _NoExampleError  # what was joined cannot be met together
        own = self._draft({key: said[key] for key in said.keys() & OWN_KEYWORDS}, validate_formats=True)
        for value in _given_values(said) if self._given else ():
            if own.is_valid(value):
                return value
        if listed := _listed_values(said):
            fitting = [value for value in listed if own.is_valid(value)]
            if not fitting:
                raise _NoExampleError
            return fitting[number % len(fitting)]
        for name in _ordered_types(said, simplest=level > DETAILED_LEVELS):
            try:
                made = self._values_of_type(name, said, level, number)
                return next(value for value in made if own.is_valid(value))
            except (_NoExampleError, StopIteration):
                continue
        raise _NoExampleError

    def _values_of_type(self, name: str, said: JsonObject, level: int, number: int) -> Iterator[Json]:
        """Yield values of a type, another one first for each number."""
        match name:
            case "object":
                yield self._object(said, level, number)
            case "array":
                yield self._array(said, level, number)
            case "null":
                yield None
            case "boolean":
                yield number % 2 == 1
            case "integer" | "number":
                yield from _numbers(said, number)
            case "string":
                yield from _texts(said, number)

    def _object(self, said: JsonObject, level: int, number: int) -> Json:
        properties, others, least = (said.get(key) for key in ("properties", "additionalProperties", "minProperties"))
        named = properties if isinstance(properties, dict) else {}
        needed = required_names(said)
        members: JsonObject = {}
        for name, schema in named.items():
            if name in needed:
                members[name] = self._value(schema, level + 1, number)
            elif self._optional and level < DETAILED_LEVELS:
                members |= self._optional_member(name, schema, level, number)
        count = min(least, MOST_VALUES) - len(members) if isinstance(least, int) else 0
        invented = [f"{WORD}{number}" for number in range(1, count + 1)]
        for name in [*needed, *invented]:
            if name not in members:
                members[name] = self._value(True if others is None else others, level + 1, number)
        return members

    def _optional_member(self, name: str, schema: Json, level: int, number: int) -> JsonObject:
        try:
            return {name: self._value(schema, level + 1, number)}
        except _NoExampleError:
            return {}

    def _array(self, said: JsonObject, level: int, number: int) -> Json:
        first, items = said.get("prefixItems"), said.get("items", True)
        if isinstance(items, list):  # how older drafts wrote it
            first, items = items, said.get("additionalItems", True)
        schemas = first if isinstance(first, list) else []
        least, most = said.get("minItems"), said.get("maxItems")
        needed = least if isinstance(least, int) else 0
        wanted = max(len(schemas), 1) if self._optional and level < DETAILED_LEVELS else 0
        values: list[Json] = []
        for place in range(min(max(needed, wanted), most if isinstance(most, int) else MOST_VALUES)):
            schema = schemas[place] if place < len(schemas) else items
            # Each one differs from those before, if the schema leaves a choice.
            shift = place if said.get("uniqueItems") is True else 0
            try:
                values.append(self._value(schema, level + 1, number + shift))
            except _NoExampleError:
                if place < needed:
                    raise
                break
        return values


def _given_values(said: JsonObject) -> list[Json]:
    """Return the values by which the schema itself shows what it means."""
    examples = said.get("examples")
    given = [said[key] for key in ("default", "example") if key in said]
    return given + (examples[:1] if isinstance(examples, list) else [])


def _listed_values(said: JsonObject) -> list[Json]:
    """Return the only values that are allowed, if the schema lists them."""
    enum = said.get("enum")
    return [said["const"]] if "const" in said else enum if isinstance(enum, list) else []


def _ordered_types(said: JsonObject, *, simplest: bool) -> list[str]:
    """Return the types that the value may have, in the order in which they are tried."""
    implied = next((name for name, keywords in TELLING.items() if said.keys() & set(keywords)), "string")
    return sorted(types_of(said) or [implied], key=lambda name: (name == "null") != simplest)


def _numbers(said: JsonObject, number: int) -> Iterator[Json]:
    step = _fraction(said.get("multipleOf")) or Fraction(1)
    starts = [Fraction(0)]
    lows = [low for key in ("minimum", "exclusiveMinimum") if (low := _fraction(said.get(key))) is not None]
    highs = [high for key in ("maximum", "exclusiveMaximum") if (high := _fraction(said.get(key))) is not None]
    if lows:
        starts += [math.ceil(max(lows) / step) * step, (math.floor(max(lows) / step) + 1) * step]
    if highs:
        starts += [math.floor(min(highs) / step) * step, (math.ceil(min(highs) / step) - 1) * step]
    if lows and highs:
        starts.append((max(lows) + min(highs)) / 2)
    for shift in (number * step, -number * step, 0):
        for start in starts:
            if abs(value := start + shift) <= LARGEST_NUMBER:
                yield int(value) if value.denominator == 1 else float(value)


def _fraction(value: Json) -> Fraction | None:
    # As it was written: 0.1 is a tenth.
    return None if isinstance(value, bool) or not isinstance(value, int | float) else Fraction(str(value))


def _texts(said: JsonObject, number: int) -> Iterator[Json]:
    written = said.get("format")
    if isinstance(written, str) and written in FORMATS:
        yield FORMATS[written]
    least, most = said.get("minLength"), said.get("maxLength")
    suffix = str(number + 1) if number else ""
    length = max(len(WORD), least - len(suffix) if isinstance(least, int) else 0)
    if isinstance(most, int):
        length = max(min(length, most - len(suffix)), 0)
    if length <= LONGEST_TEXT:
        yield (WORD * LONGEST_TEXT)[:length] + suffix
    if "pattern" in said:
        yield from (*FORMATS.values(), *GUESSES[number:], *GUESSES[:number])
