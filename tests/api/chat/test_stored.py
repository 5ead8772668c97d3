"""Messages of chat completions that are kept."""

import pytest
from openai.types.chat import ChatCompletionStoreMessage

from tests.api.shared.official import unknown_fields
from turnbridge.api.chat.routes import shown_message
from turnbridge.turn.items import JsonObject

PARTS: JsonObject = {"content": [{"type": "text", "text": "hi"}]}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi", "content_parts": None, "refusal": None}),
        (
            {"role": "user", **PARTS},
            {"role": "user", "content": None, "content_parts": PARTS["content"], "refusal": None},
        ),
        (
            {"role": "assistant", "refusal": "No."},
            {"role": "assistant", "content": None, "content_parts": None, "refusal": "No."},
        ),
    ],
    ids=["text", "parts", "refusal"],
)
def test_a_message_is_shown_with_an_id_and_its_parts_apart(message: JsonObject, shown: JsonObject) -> None:
    assert shown_message("chatcmpl-1-0", message) == {"id": "chatcmpl-1-0", **shown}


def test_the_official_client_knows_every_field_of_a_message() -> None:
    # It takes every message for the model's own.
    said: JsonObject = {"role": "assistant", **PARTS}
    assert unknown_fields(ChatCompletionStoreMessage, shown_message("chatcmpl-1-0", said)) == set()
