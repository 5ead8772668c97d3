"""A small sample of the values that a JSON Schema describes: enough for strict schemas of the usual kind. Pure.

It ignores `pattern`, `uniqueItems`, `allOf` and other rare keywords.
"""

import math
from dataclasses import dataclass

import jsonschema_rs

from turnbridge.scripted_model.replies import Json, JsonObject

FORMATS: dict[Json, str] = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "demo@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
# The size of a sample: enough for any answer of the demo.
MOST_VALUES = 10_000
LONGEST_TEXT = 10_000
BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


class NoSample(ValueError):
    """The schema has no finite sample, or none that is small and easily found."""


def sample(schema: Json, *, text: str = "demo {name}", most: int = MOST_VALUES) -> Json:
    """Return a value that conforms to the schema: at most so many values, with texts of this form."""
    return _Sampler(root=schema, text=text, left=most).value(schema, "value", frozenset())


@dataclass(slots=True, kw_only=True)
class _Sampler:
    """Walks one schema; `name` is the name of a value, `inside` the references that led to it."""

    root: Json
    text: str
    left: int

    def value(self, schema: Json, name: str, inside: frozenset[str]) -> Json:
        self.left -= 1
        if self.left < 0:
            raise NoSample("It is too large.")
        rules = schema if isinstance(schema, dict) else {}
        match rules:
            case {"$ref": str(reference)}:
                # A finite sample never needs the same reference twice.
                if reference in inside:
                    raise NoSample(f"{reference} has no end.")
                return self.value(self._resolve(reference), name, inside | {reference})
            case {"const": value} | {"default": value} | {"examples": [value, *_]} | {"enum": [value, *_]}:
                return value
            case {"anyOf": [_, *_] as options} | {"oneOf": [_, *_] as options}:
                return self._first(options, name, inside)
            case {"type": [_, *_] as kinds}:
                return self._first([{**rules, "type": kind} for kind in kinds], name, inside)
            case {"type": "object"} | {"properties": _}:
                return self._object(rules, inside)
            case {"type": "array"} | {"items": _}:
                return self._array(rules, name, inside)
            case _:
                return _scalar(rules, self.text.format(name=name))

    def _resolve(self, reference: str) -> Json:
        found = self.root
        for step in reference.split("/")[1:]:
            if not isinstance(found, dict) or step not in found:
                raise NoSample(f"{reference} is not in the schema.")
            found = found[step]
        return found

    def _first(self, options: list[Json], name: str, inside: frozenset[str]) -> Json:
        # Null says least about a value.
        *others, last = sorted(options, key=lambda option: isinstance(option, dict) and option.get("type") == "null")
        for option in others:
            try:
                return self.value(option, name, inside)
            except NoSample:
                continue
        return self.value(last, name, inside)

    def _object(self, schema: JsonObject, inside: frozenset[str]) -> JsonObject:
        properties, required = schema.get("properties"), schema.get("required")
        result: JsonObject = {}
        for name, described in properties.items() if isinstance(properties, dict) else ():
            try:
                result[name] = self.value(described, name, inside)
            except NoSample:
                if isinstance(required, list) and name in required:
                    raise
        return result

    def _array(self, schema: JsonObject, name: str, inside: frozenset[str]) -> list[Json]:
        least, most = int(_figure(schema, "minItems", 0)), int(_figure(schema, "maxItems", 1))
        try:
            if least > self.left:
                raise NoSample("It is too large.")
            return [self.value(schema.get("items"), name, inside) for _ in range(max(least, min(1, most)))]
        except NoSample:
            if least:
                raise
            return []


def _scalar(schema: JsonObject, default: str) -> Json:
    match schema.get("type"):
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            text = FORMATS.get(schema.get("format"), default)
            text = text.ljust(min(int(_figure(schema, "minLength", 0)), LONGEST_TEXT), ".")
            return text[: int(_figure(schema, "maxLength", len(text)))]


def _number(schema: JsonObject) -> float:
    """Return 1, or else the first number near a bound that conforms."""
    rules = {name: schema[name] for name in ("type", "multipleOf", *BOUNDS) if name in schema}
    bounds = [_figure(schema, name, 1) for name in BOUNDS if name in schema]
    step = _figure(schema, "multipleOf", 1)
    near = [(math.ceil(bound / step) + offset) * step for bound in bounds for offset in (0, 1, -1)]
    for candidate in (1, 0, *near, math.fsum(bounds) / max(len(bounds), 1)):
        if jsonschema_rs.is_valid(rules, candidate):
            return candidate
    raise NoSample(f"No number was found for {rules}.")


def _figure(schema: JsonObject, name: str, default: float) -> float:
    value = schema.get(name)
    return value if isinstance(value, int | float) else default
