"""The OpenAPI document of what is served: a row for each route; bodies are generated from the types that read them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnbridge import __version__
from turnbridge.api.anthropic.schema import MessagesRequest
from turnbridge.api.chat.routes import ChatUpdate
from turnbridge.api.chat.schema import ChatRequest
from turnbridge.api.images.routes import ImagesRequest
from turnbridge.api.openapi.answers import ANSWERS, FLAG, TEXT, one_of, ref
from turnbridge.api.responses.conversations import ConversationBody
from turnbridge.api.responses.schema import ResponsesRequest
from turnbridge.engine.models import DEFAULT_MODEL
from turnbridge.turn.items import Json, JsonObject

PATH = "/openapi.json"

ABOUT = (
    "An OpenAI-compatible and Anthropic-compatible server in front of the official Codex app-server. Every route under "
    "`/v1` is served without it too. What is not listed here is refused with 404 `not_served` and a reason."
)

# So that a tool that reads the document can ask something that is answered.
ASK_CHAT: JsonObject = {"model": DEFAULT_MODEL, "messages": [{"role": "user", "content": "Say hello."}], "store": True}
ASK_RESPONSES: JsonObject = {"model": DEFAULT_MODEL, "input": "Say hello."}
ASK_MESSAGES: JsonObject = {"model": DEFAULT_MODEL, "messages": ASK_CHAT["messages"], "max_tokens": 100}

_MODULE = re.compile(r"turnbridge\.api\.(\w+)\.schema\.(\w+)")

PAGE: Mapping[str, JsonObject] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "order": one_of("asc", "desc"),
    "after": TEXT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one route does."""

    summary: str
    tag: str
    answer: str | None = None
    """The schema of its answer; none if it has no JSON."""
    or_answer: str | None = None
    """The schema if the request is of the other API."""
    or_error: str | None = None
    """The schema of what it says besides errors if it cannot answer."""
    body: type[msgspec.Struct] | None = None
    form: JsonObject | None = None
    """The schema of its body, if that is a form."""
    example: JsonObject | None = None
    needs_body: bool = True
    required: tuple[str, ...] = ()
    """The fields that a body must have, which its type does not say: their absence has an error of its own."""
    streams: bool = False
    plain: bool = False
    """Whether its answer is a text."""
    binary: bool = False
    """Whether its answer is bytes."""
    query: Mapping[str, JsonObject] | None = None
    gives: str | None = None
    """The parameter of other routes that the id of its answer is."""
    status: str = "200"
    open: bool = False
    """Whether it needs no key."""


CHAT, RESPONSES, MESSAGES = "Chat Completions", "Responses", "Messages (Anthropic)"
CONVERSATIONS, FILES, MODELS, GATEWAY = "Conversations", "Files", "Models", "Gateway"

UPLOAD: JsonObject = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "contentMediaType": "application/octet-stream"},
        "purpose": one_of("assistants", "user_data", "vision"),
        "expires_after[anchor]": one_of("created_at"),
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
    },
    "required": ["file", "purpose"],
}

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/chat/completions"): Operation(
        summary="Create a chat completion.",
        tag=CHAT,
        answer="ChatCompletion",
        body=ChatRequest,
        required=("model", "messages"),
        example=ASK_CHAT,
        streams=True,
        gives="completion_id",
    ),
    ("GET", "/v1/chat/completions"): Operation(
        summary="List stored chat completions.", tag=CHAT, answer="ChatCompletionList", query={**PAGE, "model": TEXT}
    ),
    ("GET", "/v1/chat/completions/{completion_id}"): Operation(
        summary="Return a stored chat completion.", tag=CHAT, answer="ChatCompletion"
    ),
    ("POST", "/v1/chat/completions/{completion_id}"): Operation(
        summary="Replace the metadata of a stored chat completion.", tag=CHAT, answer="ChatCompletion", body=ChatUpdate
    ),
    ("DELETE", "/v1/chat/completions/{completion_id}"): Operation(
        summary="Delete a stored chat completion.", tag=CHAT, answer="Deleted"
    ),
    ("GET", "/v1/chat/completions/{completion_id}/messages"): Operation(
        summary="List the messages of a stored chat completion.", tag=CHAT, answer="ChatMessageList", query=PAGE
    ),
    ("POST", "/v1/responses"): Operation(
        summary="Create a response.",
        tag=RESPONSES,
        answer="Response",
        body=ResponsesRequest,
        required=("model",),
        example=ASK_RESPONSES,
        streams=True,
        gives="response_id",
    ),
    ("GET", "/v1/responses"): Operation(
        summary="Open a WebSocket (docs/websocket.md). A request that is no handshake gets 426.",
        tag=RESPONSES,
        status="101",
    ),
    ("POST", "/v1/images/generations"): Operation(
        summary="Make images; needs a ChatGPT login.",
        tag="Images",
        answer="Images",
        body=ImagesRequest,
        required=("prompt",),
        example={"prompt": "A red cat."},
    ),
    ("POST", "/v1/responses/compact"): Operation(
        summary="Shorten a history to its user messages and a summary.",
        tag=RESPONSES,
        answer="Compaction",
        body=ResponsesRequest,
        required=("model",),
        example=ASK_RESPONSES,
    ),
    ("POST", "/v1/responses/input_tokens"): Operation(
        summary="Count the input tokens of a response, about.",
        tag=RESPONSES,
        answer="InputTokens",
        body=ResponsesRequest,
        example=ASK_RESPONSES,
    ),
    ("GET", "/v1/responses/{response_id}"): Operation(
        summary="Return a stored response, or follow the stream of a background response.",
        tag=RESPONSES,
        answer="Response",
        streams=True,
        query={"stream": FLAG, "starting_after": {"type": "integer", "minimum": 0}, "include[]": TEXT},
    ),
    ("DELETE", "/v1/responses/{response_id}"): Operation(
        summary="Delete a stored response.", tag=RESPONSES, answer="Deleted"
    ),
    ("POST", "/v1/responses/{response_id}/cancel"): Operation(
        summary="Cancel a background response.", tag=RESPONSES, answer="Response"
    ),
    ("GET", "/v1/responses/{response_id}/input_items"): Operation(
        summary="List the input items of a stored response.", tag=RESPONSES, answer="ItemList", query=PAGE
    ),
    ("POST", "/v1/conversations"): Operation(
        summary="Create a conversation.",
        tag=CONVERSATIONS,
        answer="Conversation",
        body=ConversationBody,
        needs_body=False,
        gives="conversation_id",
    ),
    ("GET", "/v1/conversations/{conversation_id}"): Operation(
        summary="Return a conversation.", tag=CONVERSATIONS, answer="Conversation"
    ),
    ("POST", "/v1/conversations/{conversation_id}"): Operation(
        summary="Replace the metadata of a conversation.",
        tag=CONVERSATIONS,
        answer="Conversation",
        body=ConversationBody,
    ),
    ("DELETE", "/v1/conversations/{conversation_id}"): Operation(
        summary="Delete a conversation.", tag=CONVERSATIONS, answer="Deleted"
    ),
    ("GET", "/v1/conversations/{conversation_id}/items"): Operation(
        summary="List the items of a conversation.", tag=CONVERSATIONS, answer="ItemList", query=PAGE
    ),
    ("POST", "/v1/conversations/{conversation_id}/items"): Operation(
        summary="Add items to a conversation.", tag=CONVERSATIONS, answer="ItemList", body=ConversationBody
    ),
    ("GET", "/v1/conversations/{conversation_id}/items/{item_id}"): Operation(
        summary="Return an item of a conversation.", tag=CONVERSATIONS, answer="Item"
    ),
    ("DELETE", "/v1/conversations/{conversation_id}/items/{item_id}"): Operation(
        summary="Delete an item of a conversation.", tag=CONVERSATIONS, answer="Conversation"
    ),
    ("POST", "/v1/files"): Operation(
        summary="Upload a file (docs/files.md).", tag=FILES, answer="File", form=UPLOAD, gives="file_id"
    ),
    ("GET", "/v1/files"): Operation(
        summary="List uploaded files.",
        tag=FILES,
        answer="FileList",
        query={**PAGE, "limit": {"type": "integer", "minimum": 1, "maximum": 10_000}, "purpose": TEXT},
    ),
    ("GET", "/v1/files/{file_id}"): Operation(summary="Describe an uploaded file.", tag=FILES, answer="File"),
    ("DELETE", "/v1/files/{file_id}"): Operation(summary="Delete an uploaded file.", tag=FILES, answer="Deleted"),
    ("GET", "/v1/files/{file_id}/content"): Operation(
        summary="Return the content of an uploaded file.", tag=FILES, binary=True
    ),
    ("POST", "/v1/messages"): Operation(
        summary="Create a message.",
        tag=MESSAGES,
        answer="Message",
        body=MessagesRequest,
        required=("model", "messages", "max_tokens"),
        example=ASK_MESSAGES,
        streams=True,
    ),
    ("POST", "/v1/messages/count_tokens"): Operation(
        summary="Count the input tokens of a message, about.",
        tag=MESSAGES,
        answer="TokenCount",
        body=MessagesRequest,
        required=("model", "messages"),
        example=ASK_MESSAGES,
    ),
    ("HEAD", "/v1/api/hello"): Operation(summary="Say that a server is here.", tag=MESSAGES, open=True),
    ("GET", "/v1/models"): Operation(
        summary="List the models; in Anthropic's shape for requests with `anthropic-version`.",
        tag=MODELS,
        answer="ModelList",
        or_answer="AnthropicModelList",
    ),
    ("GET", "/v1/models/{model}"): Operation(
        summary="Return a model; in Anthropic's shape for requests with `anthropic-version`.",
        tag=MODELS,
        answer="Model",
        or_answer="AnthropicModel",
    ),
    ("GET", "/v1/organization/usage/completions"): Operation(
        summary="Return the usage of this key, or of all keys to an admin's, by day or hour (docs/keys.md).",
        tag=GATEWAY,
        answer="UsagePage",
        query={
            "start_time": {"type": "integer", "minimum": 0},
            "end_time": {"type": "integer", "minimum": 0},
            "bucket_width": one_of("1h", "1d"),
            "limit": {"type": "integer", "minimum": 1, "maximum": 31},
            "page": TEXT,
        },
    ),
    ("GET", "/healthz"): Operation(summary="Say that the gateway runs.", tag=GATEWAY, answer="Alive", open=True),
    ("GET", "/livez"): Operation(summary="Say that the gateway runs.", tag=GATEWAY, answer="Alive", open=True),
    ("GET", "/readyz"): Operation(
        summary="Say whether turns can be run.", tag=GATEWAY, answer="Ready", or_error="NotReady", open=True
    ),
    ("GET", "/metrics"): Operation(
        summary="Return the metrics in Prometheus' format (docs/metrics.md).", tag=GATEWAY, plain=True
    ),
    ("GET", PATH): Operation(summary="Return this document.", tag=GATEWAY, answer="Document"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """What is served besides."""

    operations: Mapping[tuple[str, str], Operation]
    schemas: Mapping[str, JsonObject]


NOTHING_MORE = Further(operations={}, schemas={})


class OpenApi:
    """Answers with the document."""

    def __init__(self, further: Further) -> None:
        self._further = further

    async def serve(self, _: Request) -> Response:
        """Return it."""
        return Response(self._document, media_type="application/json")

    @cached_property
    def _document(self) -> bytes:
        return msgspec.json.encode(document(self._further))


def document(further: Further = NOTHING_MORE) -> JsonObject:
    """Return the whole document."""
    operations = {**OPERATIONS, **further.operations}
    bodies = list(dict.fromkeys(each.body for each in operations.values() if each.body is not None))
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    # Two types of the same name are told apart by their modules.
    named = _MODULE.sub(lambda found: f"{found[1].title()}{found[2]}", msgspec.json.encode(components).decode())
    schemas: dict[str, Json] = {
        **msgspec.json.decode(named, type=dict[str, JsonObject]),
        **ANSWERS,
        **further.schemas,
        "Document": {"type": "object"},
    }
    paths: dict[str, dict[str, Json]] = {}
    for (method, path), operation in operations.items():
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, operation)
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


def _operation(method: str, path: str, operation: Operation) -> JsonObject:
    anthropic = operation.tag == MESSAGES
    parameters: list[Json] = [_parameter(name, "path", TEXT) for name in _names_in(path)]
    parameters += [_parameter(name, "query", schema) for name, schema in (operation.query or {}).items()]
    described: dict[str, Json] = {
        "operationId": _id_of(method, path),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": parameters,
        "responses": _responses(method, operation, "AnthropicError" if anthropic else "Error"),
    }
    if operation.open:
        described["security"] = []
    elif anthropic:
        described["security"] = [{"bearer": []}, {"x-api-key": []}]
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


def _responses(method: str, operation: Operation, error: str) -> JsonObject:
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
        good["links"] = _links(operation.gives)
    failed: dict[str, Json] = {"description": "An error."}
    if method != "HEAD":
        other = "AnthropicError" if operation.or_answer else operation.or_error
        told: JsonObject = {"anyOf": [ref(error), ref(other)]} if other else ref(error)
        failed["content"] = {"application/json": {"schema": told}}
    return {operation.status: good, "4XX": failed, "5XX": failed}


def _links(parameter: str) -> JsonObject:
    """Return the operations that an answer's id leads to."""
    below = [_id_of(method, path) for method, path in OPERATIONS if _names_in(path) == [parameter]]
    return {one: {"operationId": one, "parameters": {parameter: "$response.body#/id"}} for one in below}


def _id_of(method: str, path: str) -> str:
    return f"{method.lower()}{path}".translate(str.maketrans("/{}.", "____")).strip("_")


def _parameter(name: str, place: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _names_in(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]
