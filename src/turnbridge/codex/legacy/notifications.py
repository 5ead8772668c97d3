"""What older versions of Codex tell of a turn, said in the words of the current ones.

They do not tell the end of a model call; the running total of tokens grows there. The first generation of the protocol
(v1) moreover has no raw items, and does not tell that a turn has begun. With that put right, one decoder reads all.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from turnbridge.codex.protocol import messages as schema
from turnbridge.turn.items import Json, JsonObject


class CompletedItem(schema.Wire, frozen=True):
    """The fields of a finished item that we read, whatever its type."""

    type: str
    id: str = ""
    text: str = ""
    summary: msgspec.Raw = msgspec.Raw(b"[]")
    content: msgspec.Raw = msgspec.Raw(b"[]")
    query: str | None = None


class ItemCompleted(schema.Wire, frozen=True):
    """`item/completed`"""

    thread_id: str
    turn_id: str
    item: CompletedItem


class ThreadUsage(schema.Wire, frozen=True):
    """The tokens of a thread so far."""

    total: schema.TokenUsage


class TokenUsageUpdated(schema.Wire, frozen=True):
    """`thread/tokenUsage/updated`: told at the end of each model call, and again whenever the plan's limits change."""

    thread_id: str
    turn_id: str
    token_usage: ThreadUsage


OlderNotification: TypeAlias = ItemCompleted | TokenUsageUpdated

OLDER_NOTIFICATIONS: dict[str, type[OlderNotification]] = {
    "item/completed": ItemCompleted,
    "thread/tokenUsage/updated": TokenUsageUpdated,
}

Told: TypeAlias = schema.Notification | schema.ToolCallAsked


class Translator:
    """Translates what is told of one thread; it has raw items of its own, except for a search, whose id they lack."""

    def __init__(self) -> None:
        self._total = schema.TokenUsage()

    def translate(self, note: Told | OlderNotification) -> Sequence[Told]:
        """Return what a current Codex would have told."""
        if isinstance(note, TokenUsageUpdated):
            return self._counted(note)
        if isinstance(note, ItemCompleted):
            item = self._raw_item(note.item)
            return [] if item is None else [_as_raw(note, item)]
        return [note]

    def _counted(self, note: TokenUsageUpdated) -> list[Told]:
        before, self._total = self._total, note.token_usage.total
        if self._total == before:
            return []
        usage = schema.TokenUsage(
            input_tokens=self._total.input_tokens - before.input_tokens,
            cached_input_tokens=self._total.cached_input_tokens - before.cached_input_tokens,
            output_tokens=self._total.output_tokens - before.output_tokens,
            reasoning_output_tokens=self._total.reasoning_output_tokens - before.reasoning_output_tokens,
        )
        return [schema.RawResponseCompleted(thread_id=note.thread_id, turn_id=note.turn_id, usage=usage)]

    def _raw_item(self, item: CompletedItem) -> JsonObject | None:
        if item.type == "webSearch":
            return {"type": "web_search_call", "id": item.id, "action": {"type": "search", "query": item.query}}
        return None


class V1Translator(Translator):
    """Translates what is told of one v1 conversation."""

    def _raw_item(self, item: CompletedItem) -> JsonObject | None:
        if item.type == "agentMessage":
            said: list[Json] = [{"type": "output_text", "text": item.text}]
            return {"type": "message", "id": item.id, "role": "assistant", "content": said}
        if item.type == "reasoning":
            return {
                "type": "reasoning",
                "id": item.id,
                "summary": _texts(item.summary, "summary_text"),
                "content": _texts(item.content, "reasoning_text"),
            }
        return super()._raw_item(item)


def _texts(told: msgspec.Raw, kind: str) -> list[Json]:
    return [{"type": kind, "text": text} for text in msgspec.json.decode(told, type=list[str])]


def _as_raw(note: ItemCompleted, item: JsonObject) -> schema.RawItemCompleted:
    raw = msgspec.Raw(msgspec.json.encode(item))
    return schema.RawItemCompleted(thread_id=note.thread_id, turn_id=note.turn_id, item=raw)
