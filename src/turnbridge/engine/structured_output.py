"""Checks whether an answer is the JSON that the client asked for, and finds what is wrong with it.

`jsonschema_rs` decides whether an answer is valid. The place of an error is searched for here: the library lists the
errors of all alternatives of all unions, and for a recursive schema they double with each level, so that an answer of
18 levels would block the gateway for 15 seconds.

Nothing is ever fetched, and no answer makes these functions raise.
"""

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self
from urllib.parse import quote, unquote

import jsonschema_rs

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import as_object, layers, resolve_reference, subschemas

# More than any schema asks for, and far below the limit of the library's native stack, a few thousand.
MAX_DEPTH = 200

# Python stops reading a number at 4300 digits, unless told otherwise.
MAX_DIGITS = 4000

# A model corrects a few errors at a time; the others are reported for its next answer.
MAX_PROBLEMS = 3

# The message of a keyword may quote the schema.
MAX_PROBLEM_CHARS = 300

# Limits of the search, after which no place is named: an answer can be large. Every alternative is compiled, so these
# are fewer.
MAX_SEARCHED = 50_000
MAX_ALTERNATIVES = 300

# Keywords that constrain one value, not what is inside it.
_OWN_KEYWORDS = (
    *("type", "enum", "const", "pattern", "minLength", "maxLength", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "uniqueItems"),
    *("minProperties", "maxProperties", "required", "dependentRequired"),
)

# The name under which alternatives of the schema are compiled; it has a path so that a relative `$id` resolves.
_ROOT = "https://schema.invalid/root"


class _NotJsonError(Exception):
    """The text is not JSON, or not JSON that all parsers read alike."""


class _Place(NamedTuple):
    """A value that must match a schema, and the JSON pointers of both."""

    schema: Json
    schema_pointer: str
    value: Json
    pointer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance:
    """A compiled schema that answers are checked against."""

    schema: JsonObject
    validator: jsonschema_rs.Validator
    registry: jsonschema_rs.Registry

    @classmethod
    def for_schema(cls, schema: JsonObject) -> Self:
        """Compile a JSON Schema; raises `InvalidRequest` if it is not valid."""
        draft = jsonschema_rs.validator_cls_for(schema)
        if draft is jsonschema_rs.Draft202012Validator:
            # The library also chooses it for an unknown `$schema`, which must not be fetched.
            schema = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
        try:
            # Formats are not checked: dialects differ in what a `time` is, the provider's decoder has enforced one
            # already, and a false positive costs a turn.
            validator = draft(schema, offline=True, validate_formats=False)
            registry = jsonschema_rs.Registry([(_ROOT, schema)])
        except ValueError as error:
            message = error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
            raise InvalidRequest(f"Invalid schema: {_cut(message)}.", code="invalid_json_schema") from error
        return cls(schema=schema, validator=validator, registry=registry)

    def accepts(self, text: str) -> bool:
        """Tell whether `text` is the JSON asked for."""
        try:
            return self.validator.is_valid(_read(text))
        except _NotJsonError:
            return False

    def problem(self, text: str) -> str | None:
        """Return in a sentence why `text` is not the JSON asked for; None if it is."""
        try:
            value = _read(text)
        except _NotJsonError as error:
            return f"The answer is not valid JSON: {error}."
        if self.validator.is_valid(value):
            return None
        found = _Search(self).problems(value)
        if not found:
            return "The JSON does not match the schema."
        more = "; and more" if len(found) > MAX_PROBLEMS else ""
        return f"The JSON does not match the schema: {'; '.join(found[:MAX_PROBLEMS])}{more}."


def repair_instruction(problem: str) -> str:
    """Return the message that asks the model to correct its answer."""
    return (
        f"Your last answer cannot be used. {problem} "
        "Answer again with the corrected JSON only: no explanation, no code fence."
    )


def _read(text: str) -> Json:
    too_deep = f"it is nested more than {MAX_DEPTH} levels deep"
    try:
        value: Json = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
        )
        # Half a surrogate pair, plain or escaped, is not Unicode: neither library nor client could encode it.
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise _NotJsonError(f"{what} at line {error.lineno}, column {error.colno}") from error
    except UnicodeEncodeError as error:
        raise _NotJsonError("a string contains half of a surrogate pair") from error
    except RecursionError as error:
        raise _NotJsonError(too_deep) from error
    too_deep_values = next(itertools.islice(layers(value), MAX_DEPTH, None), [])
    if any(isinstance(one, dict | list) for one in too_deep_values):
        raise _NotJsonError(too_deep)
    return value


def _object(pairs: list[tuple[str, Json]]) -> JsonObject:
    members: JsonObject = {}
    for name, value in pairs:
        if name in members:
            raise _NotJsonError(f"the key {_cut(json.dumps(name))} appears twice in one object")
        members[name] = value
    return members


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _NotJsonError(f"a number has more than {MAX_DIGITS} digits")
    return int(digits)


def _number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NotJsonError(f"the number {_cut(digits)} is too large")
    return number


def _constant(name: str) -> Json:
    raise _NotJsonError(f"{name} is not a JSON value")


class _Search:
    """Finds the places where a value does not match its schema."""

    def __init__(self, asked: Conformance) -> None:
        self._schema = asked.schema
        self._draft = type(asked.validator)
        self._registry = asked.registry
        self._own: dict[str, jsonschema_rs.Validator] = {}
        self._whole: dict[str, jsonschema_rs.Validator] = {}

    def problems(self, value: Json) -> list[str]:
        """Return the first problems in the order of the value, one more than are reported if there are more."""
        found: list[str] = []
        seen: set[tuple[str, str]] = set()
        todo = [_Place(self._schema, "", value, "")]
        for _ in range(MAX_SEARCHED):
            if not todo or len(found) > MAX_PROBLEMS or len(self._whole) > MAX_ALTERNATIVES:
                break
            place = todo.pop()
            if (place.schema_pointer, place.pointer) in seen:
                continue  # a cycle in the schema
            seen.add((place.schema_pointer, place.pointer))
            found += [_at(place, problem) for problem in self._own_problems(place)]
            further = [*_members(place), *_branches(place, "allOf"), *self._referred(place)]
            for keyword in ("anyOf", "oneOf"):
                branches = _branches(place, keyword)
                if branches and not any(map(self._matches, branches)):
                    likely = list(filter(self._is_likely, branches))
                    if len(likely) == 1:
                        further += likely
                    else:
                        found.append(_at(place, f"the value matches none of {len(branches)} alternatives"))
            todo.extend(reversed(further))
        return found

    def _own_problems(self, place: _Place) -> Iterator[str]:
        """Yield what is wrong with the value itself, apart from what is inside it."""
        if place.schema is False:
            yield "no value is allowed"
        if isinstance(place.schema, dict):
            if place.schema_pointer not in self._own:
                self._own[place.schema_pointer] = self._draft(_own_part(place.schema), offline=True, mask="the value")
            for error in self._own[place.schema_pointer].iter_errors(place.value):
                yield _cut(error.message)

    def _matches(self, place: _Place) -> bool:
        if place.schema_pointer not in self._whole:
            reference = f"{_ROOT}#{quote(place.schema_pointer, safe='/~')}"
            self._whole[place.schema_pointer] = self._draft(
                {"$ref": reference}, registry=self._registry, offline=True, validate_formats=False
            )
        return self._whole[place.schema_pointer].is_valid(place.value)

    def _is_likely(self, place: _Place) -> bool:
        """Tell whether this alternative was meant: the value's type and fixed properties match."""
        schema = next((target.schema for target in self._referred(place)), place.schema)
        return not isinstance(schema, dict) or self._draft(_discriminators(schema), offline=True).is_valid(place.value)

    def _referred(self, place: _Place) -> Iterator[_Place]:
        """Yield the same value with the schema that `$ref` points to in this document."""
        reference = place.schema.get("$ref") if isinstance(place.schema, dict) else None
        if isinstance(reference, str) and (schema := resolve_reference(self._schema, reference)) is not None:
            yield place._replace(schema=schema, schema_pointer=unquote(reference[1:]))


def _members(place: _Place) -> Iterator[_Place]:
    """Yield what is inside the value, each with the schema that it must match."""
    schema, value = place.schema, place.value
    if not isinstance(schema, dict):
        return
    named, others, items = as_object(schema.get("properties")), schema.get("additionalProperties"), schema.get("items")
    if isinstance(value, dict):
        for name, member in value.items():
            if name in named:
                yield _member(place, named[name], ("properties", name), member, name)
            elif isinstance(others, dict) and "patternProperties" not in schema:
                yield _member(place, others, ("additionalProperties",), member, name)
    if isinstance(value, list) and isinstance(items, dict) and "prefixItems" not in schema:
        for index, item in enumerate(value):
            yield _member(place, items, ("items",), item, str(index))


def _member(place: _Place, schema: Json, steps: tuple[str, ...], value: Json, name: str) -> _Place:
    return _Place(schema, place.schema_pointer + _pointer(*steps), value, place.pointer + _pointer(name))


def _branches(place: _Place, keyword: str) -> list[_Place]:
    """Return the same value with each schema that `allOf`, `anyOf` or `oneOf` lists."""
    inside = subschemas(place.schema, (keyword,)) if isinstance(place.schema, dict) else ()
    return [place._replace(schema=schema, schema_pointer=place.schema_pointer + _pointer(*to)) for to, schema in inside]


def _pointer(*steps: str) -> str:
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def _own_part(schema: JsonObject) -> JsonObject:
    """Return the part of the schema that constrains one value only."""
    part: JsonObject = {keyword: schema[keyword] for keyword in _OWN_KEYWORDS if keyword in schema}
    if schema.get("additionalProperties") is False:
        part["additionalProperties"] = False
        for keyword in ("properties", "patternProperties"):
            part[keyword] = dict.fromkeys(as_object(schema.get(keyword)), True)
    return part


def _discriminators(schema: JsonObject) -> JsonObject:
    """Return the part of the schema that tells one alternative from another."""
    fixed: JsonObject = {
        name: {keyword: member[keyword] for keyword in ("enum", "const") if keyword in member}
        for (_, name), member in subschemas(schema, ("properties",))
        if isinstance(member, dict)
    }
    own: JsonObject = {keyword: schema[keyword] for keyword in ("type", "enum", "const") if keyword in schema}
    return {"properties": fixed, **own}


def _at(place: _Place, problem: str) -> str:
    where = json.dumps(place.pointer, ensure_ascii=False) if place.pointer else "the top level"
    return f"at {where}, {problem}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_PROBLEM_CHARS else f"{text[:MAX_PROBLEM_CHARS]}..."
