"""What the demo model says to someone who tries the gateway."""

import json

import pytest

from turnbridge.scripted_model.persona import (
    GREETING,
    QUOTE_LIMIT,
    SUMMARY,
    WORD_PAUSE,
    respond,
)
from turnbridge.scripted_model.replies import (
    HttpReply,
    Json,
    JsonObject,
    Reply,
    StreamReply,
    error_reply,
)

WEATHER: JsonObject = {
    "type": "function",
    "name": "get_weather",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CLOCK: JsonObject = {"type": "function", "name": "clock", "strict": False, "parameters": {}}
IMAGE: JsonObject = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}


def says(role: str, text: str, *parts: Json) -> JsonObject:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}, *parts]}


def called(call_id: str, name: str) -> JsonObject:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def returned(call_id: str, output: Json) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def asking(*items: Json, **fields: Json) -> JsonObject:
    return {"model": "m", "stream": True, "input": list(items), **fields}


def answered(reply: Reply) -> list[JsonObject]:
    """Return the finished items of an answer."""
    assert isinstance(reply, StreamReply)
    return [
        beat["item"]
        for beat in reply.render(1)
        if isinstance(beat, dict) and beat["type"] == "response.output_item.done" and isinstance(beat["item"], dict)
    ]


def spoken(reply: Reply) -> str:
    """Return the text of an answer that is a message alone."""
    match answered(reply):
        case [{"type": "message", "content": [{"text": str(text)}]}]:
            return text
        case other:
            pytest.fail(f"Not a single message: {other}")


def test_it_says_what_it_is_and_repeats_the_text() -> None:
    assert spoken(respond(asking(says("user", "Good morning")))) == f"{GREETING} You said: “Good morning”."


def test_it_tells_everything_that_reached_it() -> None:
    request = asking(
        says("user", "Hi"),
        says("assistant", "Hello."),
        says("developer", "Be brief."),
        says("user", "What is this?", IMAGE),
        says("user", "And this?", IMAGE),
        instructions="You are kind.",
        tools=[WEATHER, CLOCK],
    )
    assert spoken(respond(request)) == (
        f"{GREETING} You said: “What is this?\nAnd this?”. With it came 2 images. "
        "Before that, the conversation had 1 answer of mine. I was given instructions of 5 words. "
        "I may call get_weather, clock: mention one by name and I will."
    )


def test_a_long_text_is_repeated_in_part() -> None:
    said = spoken(respond(asking(says("user", "x" * 5000))))
    assert said == f"{GREETING} You said: “{'x' * QUOTE_LIMIT}…”."


def test_a_message_without_text_is_said_to_be_one() -> None:
    request = asking({"type": "message", "role": "user", "content": [IMAGE]})
    assert spoken(respond(request)) == f"{GREETING} You sent no text. With it came 1 image."


def test_words_are_streamed_one_by_one_with_a_pause_after_each() -> None:
    reply = respond(asking(says("user", "a  b\n")))
    assert isinstance(reply, StreamReply)
    beats = [b.get("delta") if isinstance(b, dict) else b for b in reply.render(1)]
    streamed = [beat for beat in beats if beat is not None]
    words = [*(w for w in streamed if isinstance(w, str))]
    assert streamed == [beat for word in words for beat in (word, WORD_PAUSE)]
    assert words[-4:] == [" said:", " “a", "  b", "\n”."]
    assert "".join(words) == spoken(reply)


def test_the_functions_that_the_user_mentions_are_called() -> None:
    request = asking(says("user", "Ask clock, then get_weather."), tools=[WEATHER, CLOCK])
    calls = [(item["type"], item["name"], item["arguments"]) for item in answered(respond(request))]
    assert calls == [
        ("function_call", "get_weather", '{"city": "demo city"}'),
        ("function_call", "clock", "{}"),
    ]


def test_a_function_is_not_called_for_a_part_of_a_word() -> None:
    request = asking(says("user", "Ask clockwork and get_weather_now"), tools=[WEATHER, CLOCK])
    assert [item["type"] for item in answered(respond(request))] == ["message"]


def test_what_functions_returned_is_quoted() -> None:
    request = asking(
        says("user", "Ask clock and get_weather"),
        called("c1", "clock"),
        called("c2", "get_weather"),
        returned("c1", "noon"),
        returned("c2", [{"type": "input_text", "text": "sunny"}, IMAGE]),
        tools=[WEATHER, CLOCK],
    )
    assert spoken(respond(request)) == "Thank you. clock answered: “noon”. get_weather answered: “sunny”."


def with_schema(schema: JsonObject) -> JsonObject:
    return {"format": {"type": "json_schema", "strict": True, "name": "answer", "schema": schema}}


def test_a_json_schema_is_filled_in_also_after_a_function_returned() -> None:
    text = with_schema({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
    before = asking(says("user", "Fill it in"), text=text)
    after = asking(says("user", "clock"), called("c", "clock"), returned("c", "noon"), text=text)
    assert [json.loads(spoken(respond(request))) for request in (before, after)] == [{"ok": True}] * 2


def test_a_json_schema_that_is_told_in_words_is_filled_in_too() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    rule = says("developer", f"Answer only with JSON that conforms to this JSON Schema:\n{json.dumps(schema)}")
    assert json.loads(spoken(respond(asking(rule, says("user", "Where?"))))) == {"city": "demo city"}


@pytest.mark.parametrize(
    "items",
    [
        [says("user", "Where? Respond in JSON.")],
        [says("developer", "You MUST answer with JSON."), says("user", "Where?")],
        [says("developer", "Return a JSON Schema:\n{that is none}"), says("user", "Where?")],
    ],
    ids=["user", "developer", "no schema"],
)
def test_it_answers_in_json_where_it_is_told_to(items: list[JsonObject]) -> None:
    assert json.loads(spoken(respond(asking(*items))))["answer"].startswith(GREETING)


def test_it_does_not_take_every_mention_of_json_for_a_wish() -> None:
    assert spoken(respond(asking(says("user", "What is JSON?")))).startswith(GREETING)


def test_it_calls_a_function_when_it_must() -> None:
    reminded = says("user", "You must call one of the available tools now.")
    calls = answered(respond(asking(says("user", "Hello"), says("assistant", "Hi"), reminded, tools=[CLOCK, WEATHER])))
    assert [call["name"] for call in calls] == ["clock"]


def test_a_json_schema_that_cannot_be_filled_in_is_an_error_of_the_request() -> None:
    reply = respond(asking(says("user", "Fill it in"), text=with_schema({"$ref": "#"})))
    assert reply == error_reply(400, "The demo model cannot fill in this JSON Schema: # has no end.")
    assert isinstance(reply, HttpReply)


@pytest.mark.parametrize(
    ("wish", "summaries"),
    [({"summary": "auto"}, [SUMMARY]), ({"summary": "none"}, []), ({"effort": "low"}, [])],
)
def test_a_reasoning_summary_comes_first_when_it_is_asked_for(wish: JsonObject, summaries: list[str]) -> None:
    items = answered(respond(asking(says("user", "Hi"), reasoning=wish)))
    parts = [item["summary"] for item in items if item["type"] == "reasoning"]
    assert parts == [[{"type": "summary_text", "text": text}] for text in summaries]
    assert items[-1]["type"] == "message"


def test_usage_counts_words() -> None:
    request = asking(
        says("user", "one two"),
        says("assistant", "three"),
        called("c", "clock"),
        returned("c", "four five"),
        instructions="six",
        reasoning={"summary": "auto"},
    )
    reply = respond(request)
    assert isinstance(reply, StreamReply)
    # Input: six words, and the call's arguments. Output: the summary's 14 and "Thank you. clock answered: …".
    match list(reply.render(1))[-1]:
        case {"response": {"usage": usage}}:
            assert usage == {
                "input_tokens": 7,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 14 + 6,
                "output_tokens_details": {"reasoning_tokens": 14},
                "total_tokens": 27,
            }
        case other:
            pytest.fail(f"No usage in {other}")


def test_ids_differ_between_threads_and_repeat_for_the_same_request() -> None:
    def first_id(thread: str) -> Json:
        return answered(respond(asking(says("user", "Hi"), prompt_cache_key=thread)))[0]["id"]

    assert first_id("one") == first_id("one")
    assert first_id("one") != first_id("two")
