"""The OpenAPI document of what is served, from the parts of all APIs; the types that read bodies describe them."""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnbridge import __version__
from turnbridge.api.openapi.operations import Operation, Part
from turnbridge.api.openapi.schemas import TEXT, ref
from turnbridge.turn.items import Json, JsonObject

ABOUT = (
    "An OpenAI-compatible and Anthropic-compatible server in front of the official Codex app-server. Every route under "
    "`/v1` is served without it too. What is not listed here is refused with 404 `not_served` and a reason."
)

_MODULE = re.compile(r"turnbridge\.api\.(\w+)\.schema\.(\w+)")

Operations = Mapping[tuple[str, str], Operation]


class OpenApi:
    """Answers with the document."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = tuple(parts)

    async def serve(self, _: Request) -> Response:
        """Return it."""
        return Response(self._document, media_type="application/json")

    @cached_property
    def _document(self) -> bytes:
        return msgspec.json.encode(document(self._parts))


def document(parts: Iterable[Part]) -> JsonObject:
    """Return the whole document."""
    operations: dict[tuple[str, str], Operation] = {}
    schemas: dict[str, Json] = {}
    for part in parts:
        operations |= part.operations
        schemas |= part.schemas
    bodies = list(dict.fromkeys(each.body for each in operations.values() if each.body is not None))
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    # Two types of the same name are told apart by their modules.
    named = _MODULE.sub(lambda found: f"{found[1].title()}{found[2]}", msgspec.json.encode(components).decode())
    schemas |= msgspec.json.decode(named, type=dict[str, JsonObject])
    paths: dict[str, dict[str, Json]] = {}
    for (method, path), operation in operations.items():
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, operation, operations)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Turnbridge", "version": __version__, "description": ABOUT},
        "security": [{"bearer": []}],
        "paths": {**paths},
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": schemas,
        },
    }


def _operation(method: str, path: str, operation: Operation, all_of_them: Operations) -> JsonObject:
    parameters: list[Json] = [_parameter(name, "path", TEXT) for name in _names_in(path)]
    parameters += [_parameter(name, "query", schema) for name, schema in (operation.query or {}).items()]
    described: dict[str, Json] = {
        "operationId": _id_of(method, path),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": parameters,
        "responses": _responses(method, operation, all_of_them),
    }
    if operation.open:
        described["security"] = []
    elif operation.also_by is not None:
        described["security"] = [{"bearer": []}, {operation.also_by: []}]
    if operation.form is not None:
        described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": operation.form}}}
    if operation.body is not None:
        schema: JsonObject = ref(operation.body.__name__)
        if operation.required:
            schema = {"allOf": [schema, {"type": "object", "required": list(operation.required)}]}
        content: dict[str, Json] = {"schema": schema}
        if operation.example is not None:
            content["example"] = operation.example
        described["requestBody"] = {"required": operation.needs_body, "content": {"application/json": content}}
    return described


def _responses(method: str, operation: Operation, all_of_them: Operations) -> JsonObject:
    good: dict[str, Json] = {"description": "The answer."}
    content: dict[str, Json] = {}
    if operation.answer is not None:
        schema = ref(operation.answer)
        if operation.or_answer is not None:
            schema = {"anyOf": [schema, ref(operation.or_answer)]}
        content["application/json"] = {"schema": schema}
    if operation.plain:
        content["text/plain"] = {}
        content["application/openmetrics-text"] = {}
    if operation.binary:
        content["application/octet-stream"] = {}
    if operation.streams:
        # The events of a stream are described where they come from: in the API's own documentation.
        content["text/event-stream"] = {}
    if content:
        good["content"] = content
    if operation.gives is not None:
        good["links"] = _links(operation.gives, all_of_them)
    failed: dict[str, Json] = {"description": "An error."}
    if method != "HEAD":
        error, other = ref(operation.error), operation.or_error
        told: JsonObject = {"anyOf": [error, ref(other)]} if other else error
        failed["content"] = {"application/json": {"schema": told}}
    return {operation.status: good, "4XX": failed, "5XX": failed}


def _links(parameter: str, operations: Operations) -> JsonObject:
    """Return the operations that an answer's id leads to."""
    below = [_id_of(method, path) for method, path in operations if _names_in(path) == [parameter]]
    return {one: {"operationId": one, "parameters": {parameter: "$response.body#/id"}} for one in below}


def _id_of(method: str, path: str) -> str:
    return f"{method.lower()}{path}".translate(str.maketrans("/{}.", "____")).strip("_")


def _parameter(name: str, place: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _names_in(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]
