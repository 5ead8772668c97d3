"""A history becomes a summary that the model writes: by `/v1/responses/compact`, or by `context_management`. Pure.

The summary travels in a `compaction` item, opaque to the client, and sealed: in later requests it is expanded again.
There are two kinds. That of `/compact` is a message, and what stands before it stays. That of `context_management` is
all that the model was shown when the history was compacted, and what stands before it is dropped. OpenAI's own items
are passed on as they are.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import takewhile
from typing import TypeAlias

import msgspec

from turnbridge.api.responses.decode import ADDITIONAL_TOOLS, Placed, decode_items, item_type, placed
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.responses.mcp_items import LIST_TOOLS
from turnbridge.api.responses.schema import ContextManagement
from turnbridge.api.shared.validation import invalid, within
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject, Message, TextPart
from turnbridge.turn.request import Compaction

ItemOf: TypeAlias = Callable[[str], JsonObject]
"""Makes the item of a summary."""

COMPACTION = "compaction"
# OpenAI's begin otherwise.
PREFIX = "turnbridge1."
WINDOW_PREFIX = "turnbridge2."
# The `minimum` of `compact_threshold` in OpenAI's own openapi.yaml (github.com/openai/openai-openapi, 2026-08-21).
LEAST_THRESHOLD = 1000
# Of the model's context window, for a client that names no threshold: the answer needs some room.
DEFAULT_SHARE = 0.9
SEAL_BYTES = hashlib.sha256().digest_size
PROMPT = (
    "Summarize this conversation for a model that will continue it and sees only the user's latest messages and your "
    "summary. "
    "Keep every fact, decision, result of a tool, open question and name that may still matter, and the state of the "
    "work. Write the summary only."
)
INTRODUCTION = "A summary of the conversation so far:\n\n"
# What of a request is about the answer, which a compaction has none of.
LEFT_OUT = (
    *("background", "context_management", "conversation", "include", "store", "stream", "text", "tool_choice", "tools"),
)
# Items that declare something, and are not shown to the model.
DECLARATIONS = (ADDITIONAL_TOOLS, LIST_TOOLS)


class Seal:
    """Makes a summary opaque, and finds out whether it is one of ours."""

    def __init__(self, secret: Callable[[], bytes]) -> None:
        """`secret` returns that of this gateway, always the same; it is asked for when it is needed first."""
        self._secret = cache(secret)

    def close(self, summary: str, prefix: str = PREFIX) -> str:
        """Return the content of an item with a summary; `prefix` is of its kind."""
        content = summary.encode()
        return prefix + base64.urlsafe_b64encode(self._mark(content, prefix) + content).decode()

    def open(self, content: str, prefix: str = PREFIX, *, param: str) -> str:
        """Return the summary again; raises `InvalidRequest` if this gateway did not write it so."""
        try:
            sealed = base64.b64decode(content.removeprefix(prefix), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            sealed = b""
        mark, summary = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
        if not hmac.compare_digest(mark, self._mark(summary, prefix)):
            raise InvalidRequest(
                "This compaction item was changed, or made by a gateway with another data directory. Send the history "
                "itself, and compact it again.",
                code="invalid_compaction",
                param=param,
            )
        return summary.decode()

    def _mark(self, content: bytes, prefix: str) -> bytes:
        # One kind cannot be passed off as the other.
        kind = b"" if prefix == PREFIX else prefix.encode()
        return hmac.digest(self._secret(), kind + content, "sha256")


def compaction_body(body: JsonObject) -> JsonObject:
    """Return the request that has the model write the summary."""
    given = body.get("input")
    items: list[Json] = given if isinstance(given, list) else [] if given is None else [_said("user", given)]
    kept = {name: value for name, value in body.items() if name not in LEFT_OUT}
    return {**kept, "input": [*items, _said("user", PROMPT)], "store": False}


def expanded(history: Sequence[JsonObject], inputs: Sequence[JsonObject], seal: Seal) -> list[Placed] | None:
    """Return what the model is shown of a request's items, if some of them are compacted."""
    if not any(item.get("type") == COMPACTION for items in (history, inputs) for item in items):
        return None
    given = [*placed(history, "history"), *placed(inputs, "input")]
    start = max((index for index, (_, item) in enumerate(given) if _content(item, WINDOW_PREFIX)), default=0)
    declared = [(place, item) for place, item in given[:start] if item_type(item) == LIST_TOOLS]
    return [*declared, *(shown for place, item in given[start:] for shown in _expanded(item, seal, place))]


def _expanded(item: JsonObject, seal: Seal, place: str) -> list[Placed]:
    param = f"{place}.encrypted_content"
    if (content := _content(item, PREFIX)) is not None:
        return [(place, _said("developer", INTRODUCTION + seal.open(content, param=param)))]
    if (content := _content(item, WINDOW_PREFIX)) is not None:
        window = seal.open(content, WINDOW_PREFIX, param=param)
        return placed(msgspec.json.decode(window, type=list[JsonObject]), param)
    return [(place, item)]


def _content(item: JsonObject, prefix: str) -> str | None:
    """Return the content of a compaction item of one of our kinds."""
    content = item.get("encrypted_content") if item.get("type") == COMPACTION else None
    return content if isinstance(content, str) and content.startswith(prefix) else None


def threshold_of(entries: Sequence[ContextManagement], context_window: int | None) -> int | None:
    """Return from how many tokens on `context_management` wants a history compacted, if it does."""
    wanted: list[int] = []
    for index, entry in enumerate(entries):
        place = f"context_management[{index}]"
        if entry.type != COMPACTION:
            raise invalid(f"{place}.type", f"only '{COMPACTION}' is supported, but got '{entry.type[:64]}'.")
        named = within(entry.compact_threshold, LEAST_THRESHOLD, param=f"{place}.compact_threshold")
        if named is None and context_window is None:
            raise invalid(f"{place}.compact_threshold", "a number is needed, since this model's context is unknown.")
        wanted.append(int((context_window or 0) * DEFAULT_SHARE) if named is None else named)
    return min(wanted, default=None)


def planned(shown: Sequence[JsonObject], threshold: int, seal: Seal, item_id: str) -> tuple[Compaction, ItemOf]:
    """Return how a history is compacted, and what makes the item of it.

    The client's new messages stay as they are. Of the messages before, those of the developer stay, and the latest ones
    of the user: as text, and as many bytes as the threshold has tokens, which is about a quarter of it.
    """
    told = [item for item in shown if item_type(item) not in DECLARATIONS]
    tail = len([*takewhile(_is_clients, reversed(told))])
    kept, left = list[JsonObject](), threshold
    for item in reversed([item for item in told[: len(told) - tail] if _is_clients(item)]):
        text = _text(item)
        if item.get("role") != "user":
            kept += [] if text.startswith(INTRODUCTION) else [item]
        elif left > 0 and (left := left - len(text.encode())) >= 0:
            kept.append(_said("user", text))
    kept.reverse()
    plan = Compaction(
        threshold=threshold,
        prompt=Message(role="user", parts=(TextPart(text=PROMPT),)),
        kept=decode_items(kept),
        introduction=INTRODUCTION,
        tail=tail,
    )
    return plan, partial(_window_item, seal, item_id, kept, told[len(told) - tail :])


def _window_item(
    seal: Seal, item_id: str, kept: Sequence[JsonObject], tail: Sequence[JsonObject], summary: str
) -> JsonObject:
    window = msgspec.json.encode([*kept, _said("developer", INTRODUCTION + summary), *tail]).decode()
    return {"id": item_id, "type": COMPACTION, "encrypted_content": seal.close(window, WINDOW_PREFIX)}


def _is_clients(item: JsonObject) -> bool:
    return item_type(item) == "message" and item.get("role") != "assistant"


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
    """Return the text of a message; nothing of another item."""
    content = item.get("content") if item_type(item) == "message" else None
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "".join(text for text in texts if isinstance(text, str))
