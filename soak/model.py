"""What the scripted model of a soak says: it repeats the mark of the question, so that nobody's answer gets lost."""

import json
from dataclasses import asdict, dataclass

from turnbridge.scripted_model.replies import (
    Pause,
    Reply,
    answer,
    error_reply,
    function_call,
    message,
)
from turnbridge.turn.items import Json, JsonObject

PREFIX = "soak "
FUNCTION = "look"
TOOL: JsonObject = {"name": FUNCTION, "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"mark": {"type": "string"}},
    "required": ["mark"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a client wants to hear: its mark, and then so many words, each of so many letters, with pauses between."""

    mark: str
    words: int = 8
    letters: int = 4
    pause_ms: int = 2

    def text(self) -> str:
        """Return the question as a user's message."""
        return PREFIX + json.dumps(asdict(self))

    def spoken(self) -> str:
        """Return the answer in words."""
        return "".join(self.pieces())

    def pieces(self) -> list[str]:
        """Return the answer word by word."""
        return [self.mark, *[" " + "x" * self.letters] * self.words]

    def written(self) -> str:
        """Return the answer as JSON."""
        return json.dumps({"mark": self.mark})


def respond(request: JsonObject) -> Reply:
    """Return what the model does: it calls a function if it has one that was not called, and otherwise answers."""
    question = _question(request["input"])
    if question is None:
        return error_reply(400, "This is no question of a soak.")
    if request.get("tools") and not _is_answered(request["input"]):
        return answer(function_call(FUNCTION, "{}", call_id=f"call_{question.mark}"))
    match request.get("text"):
        case {"format": {"type": "json_schema"}}:
            return answer(message(question.written()))
    pause = Pause(seconds=question.pause_ms / 1000)
    pieces = [piece for word in question.pieces() for piece in (word, pause)]
    return answer(message(question.spoken(), pieces=pieces if question.pause_ms else question.pieces()))


def _question(items: Json) -> Question | None:
    """Return the last question among the items of a request."""
    for item in reversed(items if isinstance(items, list) else []):
        match item:
            case {"role": "user", "content": [{"text": str(text)}, *_]} if text.startswith(PREFIX):
                return Question(**json.loads(text.removeprefix(PREFIX)))
    return None


def _is_answered(items: Json) -> bool:
    match items:
        case [*_, {"type": "function_call_output"}]:
            return True
    return False
