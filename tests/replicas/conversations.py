"""Conversations with a tool, in the ways that clients have: what they send back, and what the model saw of it."""

from dataclasses import dataclass
from typing import Any

import httpx2

from tests.replicas.cluster import MODEL, Fleet
from tests.support.plain_http import CHAT, RESPONSES
from tests.support.tool_clients import bare
from turnbridge.scripted_model.replies import Reply, answer, function_call, message, reasoning
from turnbridge.turn.items import Json

LOOK: dict[str, Any] = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
WAYS = ("history", "history without reasoning", "previous response", "chat")
"""How a client brings the outputs of its calls."""


def first_leg(call_id: str) -> Reply:
    """Return an answer that thinks, says something and calls a function."""
    thought = reasoning(["Let me look."], encrypted=f"sealed {call_id}")
    return answer(thought, message("One moment."), function_call("look", "{}", call_id=call_id))


def last_leg() -> Reply:
    """Return the answer to its output."""
    return answer(message("Seen."))


@dataclass(kw_only=True)
class Conversation:
    """One question that needs a tool; the two requests may go to different replicas."""

    way: str
    call_id: str
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        self._followup: dict[str, Any] = {}

    @property
    def path(self) -> str:
        """Return the route."""
        return CHAT if self.way == "chat" else RESPONSES

    async def begin(self, http: httpx2.AsyncClient) -> None:
        """Ask, and get the call."""
        question = {"role": "user", "content": "What is there?"}
        if self.way == "chat":
            asked: dict[str, Any] = {
                "model": MODEL,
                "messages": [question],
                "tools": [{"type": "function", "function": LOOK}],
            }
        else:
            asked = {"model": MODEL, "input": [question], "tools": [{"type": "function", **LOOK}]}
            asked["include"] = ["reasoning.encrypted_content"]
        answered = await http.post(self.path, json=asked)
        assert answered.status_code == 200, answered.text
        self._followup = self._next(asked, answered.json())

    def _next(self, asked: dict[str, Any], answered: dict[str, Any]) -> dict[str, Any]:
        if self.way == "chat":
            said = answered["choices"][0]["message"]
            (call,) = said["tool_calls"]
            output = {"role": "tool", "tool_call_id": call["id"], "content": "a cat"}
            return {**asked, "messages": [*asked["messages"], said, output]}
        (call,) = (item for item in answered["output"] if item["type"] == "function_call")
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "a cat"}
        if self.way == "previous response":
            return {**asked, "input": [output], "previous_response_id": answered["id"]}
        kept = [item for item in answered["output"] if self.way == "history" or item["type"] != "reasoning"]
        return {**asked, "input": [*asked["input"], *kept, output]}

    async def go_on(self, http: httpx2.AsyncClient) -> httpx2.Response:
        """Bring the output."""
        key = {} if self.idempotency_key is None else {"idempotency-key": self.idempotency_key}
        return await http.post(self.path, json=self._followup, headers=key)


def seen_last(fleet: Fleet) -> Json:
    """Return the items that the model was shown last, without what it cannot tell apart."""
    return bare(fleet.asked()[-1]["input"])
