"""The routes of Chat Completions for `/openapi.json`."""

from turnbridge.api.chat.routes import ChatUpdate
from turnbridge.api.chat.schema import ChatRequest
from turnbridge.api.openapi.operations import PAGE, Operation, Part
from turnbridge.api.openapi.schemas import (
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
from turnbridge.engine.models import DEFAULT_MODEL
from turnbridge.turn.items import JsonObject

TAG = "Chat Completions"
# So that a tool that reads the document can ask something that is answered.
ASK: JsonObject = {"model": DEFAULT_MODEL, "messages": [{"role": "user", "content": "Say hello."}], "store": True}
USAGE = an_object(
    "Tokens.",
    {"prompt_tokens": NUMBER, "completion_tokens": NUMBER, "total_tokens": NUMBER},
)


PART = Part(
    operations={
        ("POST", "/v1/chat/completions"): Operation(
            summary="Create a chat completion.",
            tag=TAG,
            answer="ChatCompletion",
            body=ChatRequest,
            required=("model", "messages"),
            example=ASK,
            streams=True,
            gives="completion_id",
        ),
        ("GET", "/v1/chat/completions"): Operation(
            summary="List stored chat completions.", tag=TAG, answer="ChatCompletionList", query={**PAGE, "model": TEXT}
        ),
        ("GET", "/v1/chat/completions/{completion_id}"): Operation(
            summary="Return a stored chat completion.", tag=TAG, answer="ChatCompletion"
        ),
        ("POST", "/v1/chat/completions/{completion_id}"): Operation(
            summary="Replace the metadata of a stored chat completion.",
            tag=TAG,
            answer="ChatCompletion",
            body=ChatUpdate,
        ),
        ("DELETE", "/v1/chat/completions/{completion_id}"): Operation(
            summary="Delete a stored chat completion.", tag=TAG, answer="Deleted"
        ),
        ("GET", "/v1/chat/completions/{completion_id}/messages"): Operation(
            summary="List the messages of a stored chat completion.", tag=TAG, answer="ChatMessageList", query=PAGE
        ),
    },
    schemas={
        "ChatCompletion": an_object(
            "A chat completion.",
            {
                "id": TEXT,
                "object": constant("chat.completion"),
                "created": NUMBER,
                "model": TEXT,
                "choices": array(
                    an_object(
                        "One answer.",
                        {
                            "index": NUMBER,
                            "finish_reason": one_of("stop", "length", "tool_calls", "content_filter", "function_call"),
                            "message": an_object(
                                "The answer.", {"role": constant("assistant"), "content": optional(TEXT)}
                            ),
                        },
                    )
                ),
                "usage": USAGE,
            },
        ),
        "ChatMessageShown": an_object("A message of a stored completion.", {"id": TEXT, "role": TEXT}),
        "ChatCompletionList": a_page("chat completions", ref("ChatCompletion")),
        "ChatMessageList": a_page("messages", ref("ChatMessageShown")),
    },
)
