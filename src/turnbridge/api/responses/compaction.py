"""`POST /v1/responses/compact`: a history becomes its user messages and a summary that the model writes. Pure.

The summary travels in a `compaction` item, opaque to the client, and sealed: in later requests it is expanded to a
message again. OpenAI's own items are passed on as they are.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from functools import cache

from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject

COMPACTION = "compaction"
# OpenAI's begin otherwise.
PREFIX = "turnbridge1."
SEAL_BYTES = hashlib.sha256().digest_size
PROMPT = (
    "Summarize this conversation for a model that will continue it and sees only the user's messages and your summary. "
    "Keep every fact, decision, result of a tool, open question and name that may still matter, and the state of the "
    "work. Write the summary only."
)
INTRODUCTION = "A summary of the conversation so far:\n\n"
# What of a request is about the answer, which a compaction has none of.
LEFT_OUT = ("background", "conversation", "include", "store", "stream", "text", "tool_choice", "tools")


class Seal:
    """Makes a summary opaque, and finds out whether it is one of ours."""

    def __init__(self, secret: Callable[[], bytes]) -> None:
        """`secret` returns that of this gateway, always the same; it is asked for when it is needed first."""
        self._secret = cache(secret)

    def close(self, summary: str) -> str:
        """Return the content of an item with a summary."""
        content = summary.encode()
        return PREFIX + base64.urlsafe_b64encode(self._mark(content) + content).decode()

    def open(self, content: str, *, param: str) -> str:
        """Return the summary again; raises `InvalidRequest` if this gateway did not write it so."""
        try:
            sealed = base64.b64decode(content.removeprefix(PREFIX), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            sealed = b""
        mark, summary = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
        if not hmac.compare_digest(mark, self._mark(summary)):
            raise InvalidRequest(
                "This compaction item was changed, or made by a gateway with another data directory. Send the history "
                "itself, and compact it again.",
                code="invalid_compaction",
                param=param,
            )
        return summary.decode()

    def _mark(self, content: bytes) -> bytes:
        return hmac.digest(self._secret(), content, "sha256")


def compaction_body(body: JsonObject) -> JsonObject:
    """Return the request that has the model write the summary."""
    given = body.get("input")
    items: list[Json] = given if isinstance(given, list) else [] if given is None else [_said("user", given)]
    kept = {name: value for name, value in body.items() if name not in LEFT_OUT}
    return {**kept, "input": [*items, _said("user", PROMPT)], "store": False}


def expanded(items: Sequence[JsonObject], seal: Seal) -> Sequence[JsonObject]:
    """Return items with our summaries as messages."""
    if not any(item.get("type") == COMPACTION for item in items):
        return items
    return [_expanded(item, seal, f"input[{place}].encrypted_content") for place, item in enumerate(items)]


def _expanded(item: JsonObject, seal: Seal, param: str) -> JsonObject:
    content = item.get("encrypted_content")
    if item.get("type") != COMPACTION or not isinstance(content, str) or not content.startswith(PREFIX):
        return item
    return _said("developer", INTRODUCTION + seal.open(content, param=param))


def _said(role: str, content: Json) -> JsonObject:
    return {"type": "message", "role": role, "content": content}


class CompactionEncoder(ResponseEncoder):
    """Encodes the summary as the answer to a compaction, which is never streamed."""

    messages: Sequence[JsonObject] = ()
    """Those of the user, which stay as they are."""
    seal: Seal
    item_id: str

    def whole(self) -> JsonObject:
        """Return the user's messages and the compaction item."""
        made = super().whole()
        summary = "".join(map(_text, self.said))
        item: JsonObject = {"id": self.item_id, "type": COMPACTION, "encrypted_content": self.seal.close(summary)}
        return {
            "id": made["id"],
            "object": "response.compaction",
            "created_at": made["created_at"],
            "output": [*self.messages, item],
            "usage": made["usage"],
        }


def _text(item: JsonObject) -> str:
    parts = item.get("content") if item.get("type") == "message" else None
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "".join(text for text in texts if isinstance(text, str))
