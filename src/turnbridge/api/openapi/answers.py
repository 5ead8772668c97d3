"""The objects of answers as JSON Schemas: the fields that a client may rely on. More may come, so none is closed."""

from collections.abc import Mapping, Sequence

from turnbridge.turn.items import Json, JsonObject

TEXT: JsonObject = {"type": "string"}
NUMBER: JsonObject = {"type": "integer"}
FLAG: JsonObject = {"type": "boolean"}
ANY_OBJECT: JsonObject = {"type": "object"}


def optional(schema: JsonObject) -> JsonObject:
    """Return a schema that null meets too."""
    return {"anyOf": [schema, {"type": "null"}]}


def constant(value: str) -> JsonObject:
    """Return the schema of one text."""
    return {"type": "string", "const": value}


def one_of(*values: str) -> JsonObject:
    """Return the schema of a few texts."""
    return {"type": "string", "enum": list(values)}


def ref(name: str) -> JsonObject:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: JsonObject) -> JsonObject:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def an_object(description: str, fields: Mapping[str, JsonObject], *, lacks: Sequence[str] = ()) -> JsonObject:
    """Return the schema of an object; all of its fields are there, except those that it may lack."""
    required: list[Json] = [name for name in fields if name not in lacks]
    return {"type": "object", "description": description, "properties": dict(fields), "required": required}


def a_page(of: str, items: JsonObject) -> JsonObject:
    """Return the schema of a page of a list."""
    fields = {"object": constant("list"), "data": array(items), "has_more": FLAG}
    return an_object(f"A page of {of}.", {**fields, "first_id": optional(TEXT), "last_id": optional(TEXT)})


USAGE = an_object(
    "Tokens.",
    {"prompt_tokens": NUMBER, "completion_tokens": NUMBER, "total_tokens": NUMBER},
)
INPUT_USAGE = an_object("Tokens.", {"input_tokens": NUMBER, "output_tokens": NUMBER})

ANSWERS: dict[str, JsonObject] = {
    "Error": an_object(
        "An error. docs/errors.md has every code.",
        {
            "error": an_object(
                "What went wrong.",
                {"message": TEXT, "type": TEXT, "param": optional(TEXT), "code": optional(TEXT)},
            )
        },
    ),
    "AnthropicError": an_object(
        "An error of the Messages API.",
        {"type": constant("error"), "error": an_object("What.", {"type": TEXT, "message": TEXT}), "request_id": TEXT},
    ),
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
                        "message": an_object("The answer.", {"role": constant("assistant"), "content": optional(TEXT)}),
                    },
                )
            ),
            "usage": USAGE,
        },
    ),
    "ChatMessageShown": an_object("A message of a stored completion.", {"id": TEXT, "role": TEXT}),
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
    "Images": an_object(
        "Images, as base64.",
        {"created": NUMBER, "data": array(an_object("An image.", {"b64_json": TEXT, "revised_prompt": TEXT}))},
    ),
    "InputTokens": an_object("A count.", {"object": constant("response.input_tokens"), "input_tokens": NUMBER}),
    "Conversation": an_object(
        "A conversation.",
        {"id": TEXT, "object": constant("conversation"), "created_at": NUMBER, "metadata": ANY_OBJECT},
    ),
    "File": an_object(
        "An uploaded file.",
        {
            "id": TEXT,
            "object": constant("file"),
            "bytes": NUMBER,
            "created_at": NUMBER,
            "expires_at": NUMBER,
            "filename": TEXT,
            "purpose": one_of("assistants", "user_data", "vision"),
        },
    ),
    "Deleted": an_object("A deletion.", {"id": TEXT, "object": TEXT, "deleted": {"type": "boolean", "const": True}}),
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
    "Model": an_object(
        "A model.", {"id": TEXT, "object": constant("model"), "created": NUMBER, "owned_by": TEXT, "display_name": TEXT}
    ),
    "ModelList": an_object("The models.", {"object": constant("list"), "data": array(ref("Model"))}),
    "AnthropicModel": an_object("A model.", {"id": TEXT, "type": constant("model"), "display_name": TEXT}),
    "AnthropicModelList": an_object("The models.", {"data": array(ref("AnthropicModel")), "has_more": FLAG}),
    "ChatCompletionList": a_page("chat completions", ref("ChatCompletion")),
    "ChatMessageList": a_page("messages", ref("ChatMessageShown")),
    "FileList": a_page("files", ref("File")),
    "ItemList": a_page("items", ref("Item")),
    "UsagePage": an_object(
        "A page of usage.",
        {"object": constant("page"), "data": array(ref("UsageBucket")), "has_more": FLAG, "next_page": optional(TEXT)},
    ),
    "UsageBucket": an_object(
        "The usage of a day or an hour.",
        {"object": constant("bucket"), "start_time": NUMBER, "end_time": NUMBER, "results": array(ANY_OBJECT)},
    ),
    "Alive": an_object("The gateway runs.", {"status": constant("ok")}),
    "Ready": an_object(
        "Turns can be run; `degraded` says what replicas lack.",
        {"status": constant("ready"), "fidelity": TEXT, "degraded": TEXT},
        lacks=("degraded",),
    ),
    "NotReady": an_object("Turns cannot be run.", {"status": constant("not_ready"), "reason": TEXT}),
}
