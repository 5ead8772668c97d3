"""The routes of responses and conversations for `/openapi.json`."""

from turnbridge.api.openapi.operations import PAGE, Operation, Part
from turnbridge.api.openapi.schemas import (
    ANY_OBJECT,
    FLAG,
    INPUT_USAGE,
    NUMBER,
    TEXT,
    a_page,
    an_object,
    array,
    constant,
    one_of,
    optional,
    ref,
)
from turnbridge.api.responses.conversations import ConversationBody
from turnbridge.api.responses.schema import ResponsesRequest
from turnbridge.engine.models import DEFAULT_MODEL
from turnbridge.turn.items import JsonObject

RESPONSES, CONVERSATIONS = "Responses", "Conversations"
# So that a tool that reads the document can ask something that is answered.
ASK: JsonObject = {"model": DEFAULT_MODEL, "input": "Say hello."}


PART = Part(
    operations={
        ("POST", "/v1/responses"): Operation(
            summary="Create a response.",
            tag=RESPONSES,
            answer="Response",
            body=ResponsesRequest,
            required=("model",),
            example=ASK,
            streams=True,
            gives="response_id",
        ),
        ("GET", "/v1/responses"): Operation(
            summary="Open a WebSocket (docs/websocket.md). A request that is no handshake gets 426.",
            tag=RESPONSES,
            status="101",
        ),
        ("POST", "/v1/responses/compact"): Operation(
            summary="Shorten a history to its user messages and a summary.",
            tag=RESPONSES,
            answer="Compaction",
            body=ResponsesRequest,
            required=("model",),
            example=ASK,
        ),
        ("POST", "/v1/responses/input_tokens"): Operation(
            summary="Count the input tokens of a response, about.",
            tag=RESPONSES,
            answer="InputTokens",
            body=ResponsesRequest,
            example=ASK,
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
    },
    schemas={
        "Response": an_object(
            "A response.",
            {
                "id": TEXT,
                "object": constant("response"),
                "created_at": NUMBER,
                "status": one_of("queued", "in_progress", "completed", "incomplete", "failed", "cancelled"),
                "model": TEXT,
                "output": array(ANY_OBJECT),
                "error": optional(ANY_OBJECT),
                "usage": optional(INPUT_USAGE),
            },
        ),
        "Item": an_object("An item of a history.", {"id": TEXT, "type": TEXT}),
        "Compaction": an_object(
            "A history in short.",
            {
                "id": TEXT,
                "object": constant("response.compaction"),
                "created_at": NUMBER,
                "output": array(ref("Item")),
                "usage": INPUT_USAGE,
            },
        ),
        "InputTokens": an_object("A count.", {"object": constant("response.input_tokens"), "input_tokens": NUMBER}),
        "Conversation": an_object(
            "A conversation.",
            {"id": TEXT, "object": constant("conversation"), "created_at": NUMBER, "metadata": ANY_OBJECT},
        ),
        "ItemList": a_page("items", ref("Item")),
    },
)
