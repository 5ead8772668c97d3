"""The routes of the Messages API for `/openapi.json`, and its shape of the models."""

from dataclasses import replace

from turnbridge.api.anthropic.schema import MessagesRequest
from turnbridge.api.openapi.gateway import MODEL, MODELS
from turnbridge.api.openapi.operations import Operation, Part
from turnbridge.api.openapi.schemas import (
    FLAG,
    INPUT_USAGE,
    NUMBER,
    TEXT,
    an_object,
    array,
    constant,
    optional,
    ref,
)
from turnbridge.engine.models import DEFAULT_MODEL
from turnbridge.turn.items import JsonObject

TAG, ERROR = "Messages (Anthropic)", "AnthropicError"
# So that a tool that reads the document can ask something that is answered.
ASK: JsonObject = {"model": DEFAULT_MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 100}
SHAPE = "in Anthropic's shape for requests with `anthropic-version`."


PART = Part(
    operations={
        ("POST", "/v1/messages"): Operation(
            summary="Create a message.",
            tag=TAG,
            error=ERROR,
            also_by="x-api-key",
            answer="Message",
            body=MessagesRequest,
            required=("model", "messages", "max_tokens"),
            example=ASK,
            streams=True,
        ),
        ("POST", "/v1/messages/count_tokens"): Operation(
            summary="Count the input tokens of a message, about.",
            tag=TAG,
            error=ERROR,
            also_by="x-api-key",
            answer="TokenCount",
            body=MessagesRequest,
            required=("model", "messages"),
            example=ASK,
        ),
        ("HEAD", "/v1/api/hello"): Operation(
            summary="Say that a server is here.", tag=TAG, error=ERROR, also_by="x-api-key", open=True
        ),
        ("GET", "/v1/models"): replace(
            MODELS, summary=f"List the models; {SHAPE}", or_answer="AnthropicModelList", or_error=ERROR
        ),
        ("GET", "/v1/models/{model}"): replace(
            MODEL, summary=f"Return a model; {SHAPE}", or_answer="AnthropicModel", or_error=ERROR
        ),
    },
    schemas={
        "AnthropicError": an_object(
            "An error of the Messages API.",
            {
                "type": constant("error"),
                "error": an_object("What.", {"type": TEXT, "message": TEXT}),
                "request_id": TEXT,
            },
        ),
        "Message": an_object(
            "An answer of the Messages API.",
            {
                "id": TEXT,
                "type": constant("message"),
                "role": constant("assistant"),
                "model": TEXT,
                "content": array(an_object("A block.", {"type": TEXT})),
                "stop_reason": optional(TEXT),
                "usage": INPUT_USAGE,
            },
        ),
        "TokenCount": an_object("A count.", {"input_tokens": NUMBER}),
        "AnthropicModel": an_object("A model.", {"id": TEXT, "type": constant("model"), "display_name": TEXT}),
        "AnthropicModelList": an_object("The models.", {"data": array(ref("AnthropicModel")), "has_more": FLAG}),
    },
)
