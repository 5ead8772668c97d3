"""What the demo model says to someone who tries the gateway: it repeats what reached it. Pure.

It calls a function that the user mentions by name, fills in a JSON Schema that it is asked to keep to, and answers in
JSON where it is told to.
Its usage counts words, not tokens.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from itertools import takewhile

from turnbridge.scripted_model.replies import (
    Json,
    JsonObject,
    OutputItem,
    Pause,
    Reply,
    Usage,
    answer,
    error_reply,
    function_call,
    message,
    reasoning,
)
from turnbridge.scripted_model.schema_sample import NoSample, sample

# Slow enough to be visible as a stream.
WORD_PAUSE = Pause(seconds=0.015)
# Characters of a text that are repeated: it only has to be recognised.
QUOTE_LIMIT = 400
# The beginning of a developer message with a schema that the provider cannot enforce.
SCHEMA_IN_WORDS = re.compile(r"JSON Schema:\n(\{.*\})", re.DOTALL)
JSON_WANTED = re.compile(r"\b(?:answer|respond|reply|return|output|produce|give)\b[^.\n]{0,60}\bjson\b", re.IGNORECASE)
CALL_WANTED = re.compile(r"\bmust call one of the available tools\b")

SUMMARY = "**Looking at the request**\n\nI look at what arrived, and then I repeat it."
GREETING = "Hello! I am Turnbridge's scripted demo model: no account is used, and I only repeat what reached me."


def respond(request: JsonObject) -> Reply:
    """Return what the demo model does with this request."""
    try:
        items = _answer(request)
    except NoSample as error:
        return error_reply(400, f"The demo model cannot fill in this JSON Schema: {error}")
    thought = 0
    match request.get("reasoning"):
        case {"summary": str(wanted)} if wanted != "none":
            items = [reasoning([SUMMARY], encrypted="turnbridge-demo"), *items]
            thought = _words(SUMMARY)
    usage = Usage(
        input_tokens=_words(request.get("instructions")) + _words(request.get("input")),
        cached_tokens=0,
        output_tokens=sum(_words(item.item) for item in items),
        reasoning_tokens=thought,
    )
    # Ids never repeat, also after a restart, because every request of Codex names its thread and turn.
    key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:24]
    return answer(*items, usage=usage, key=key)


def _answer(request: JsonObject) -> list[OutputItem]:
    sent = request.get("input")
    items = [item for item in sent if isinstance(item, dict)] if isinstance(sent, list) else []
    outputs = list(takewhile(lambda item: item.get("type") == "function_call_output", reversed(items)))[::-1]
    turn = takewhile(lambda item: item.get("role") in ("user", "developer"), reversed(items))
    asked = [item for item in turn if item["role"] == "user"][::-1]
    said = "\n".join(text for item in asked for text in _texts(item))
    tools = _functions(request)
    called = [name for name in tools if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", said)]
    if not called and CALL_WANTED.search(said):
        called = list(tools)[:1]
    if called:
        return [function_call(name, json.dumps(sample(tools[name]), ensure_ascii=False)) for name in called]
    rules = "\n".join(text for item in items if item.get("role") == "developer" for text in _texts(item))
    if (schema := _schema(request, rules)) is not None:
        text = json.dumps(sample(schema), ensure_ascii=False)
    else:
        text = _thanks(items, outputs) if outputs else " ".join([GREETING, *_inventory(request, items, asked, said)])
        if JSON_WANTED.search(said) or JSON_WANTED.search(rules):
            text = json.dumps({"answer": text}, ensure_ascii=False)
    words = re.findall(r"\s*\S+|\s+$", text)
    return [message(text, pieces=[piece for word in words for piece in (word, WORD_PAUSE)])]


def _schema(request: JsonObject, rules: str) -> Json:
    """Return the JSON Schema that the answer must keep to, if there is one; `rules` is what developers said."""
    match request.get("text"):
        case {"format": {"type": "json_schema", "schema": schema}}:
            return schema
    if words := SCHEMA_IN_WORDS.search(rules):
        with contextlib.suppress(json.JSONDecodeError):
            found: Json = json.loads(words[1])
            return found
    return None


def _functions(request: JsonObject) -> dict[str, Json]:
    """Return the parameters' schema of every declared function, by name."""
    found: dict[str, Json] = {}
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        match tool:
            case {"type": "function", "name": str(name), "parameters": dict(parameters)}:
                found[name] = {"type": "object", **parameters}
    return found


def _thanks(items: list[JsonObject], outputs: list[JsonObject]) -> str:
    names = {item["call_id"]: item["name"] for item in items if item.get("type") == "function_call"}
    sentences = [
        f"{names.get(output['call_id'], 'The function')} answered: {_quoted(' '.join(_texts(output)))}."
        for output in outputs
    ]
    return " ".join(["Thank you.", *sentences])


def _inventory(request: JsonObject, items: list[JsonObject], asked: list[JsonObject], said: str) -> Iterator[str]:
    """Yield a sentence for everything that the request holds."""
    yield f"You said: {_quoted(said)}." if said else "You sent no text."
    contents = [item.get("content") for item in asked]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    images = sum(1 for part in parts if isinstance(part, dict) and part.get("type") == "input_image")
    if images:
        yield f"With it came {_counted(images, 'image')}."
    answers = sum(1 for item in items if item.get("role") == "assistant")
    if answers:
        yield f"Before that, the conversation had {_counted(answers, 'answer')} of mine."
    told = [item for item in items if item.get("role") == "developer"]
    rules = _words(request.get("instructions")) + sum(_words(item) for item in told)
    if rules:
        yield f"I was given instructions of {_counted(rules, 'word')}."
    if tools := _functions(request):
        yield f"I may call {', '.join(tools)}: mention one by name and I will."


def _texts(value: Json) -> list[str]:
    """Return every text inside an item, a part or a list of them."""
    match value:
        case str():
            return [value]
        case {"text": str(text)}:
            return [text]
        case list():
            return [text for element in value for text in _texts(element)]
        case dict():
            fields = ("content", "output", "summary", "arguments", "input")
            return [text for name in fields for text in _texts(value.get(name))]
        case _:
            return []


def _words(value: Json) -> int:
    return sum(len(text.split()) for text in _texts(value))


def _quoted(text: str) -> str:
    return f"“{text}”" if len(text) <= QUOTE_LIMIT else f"“{text[:QUOTE_LIMIT].rstrip()}…”"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
