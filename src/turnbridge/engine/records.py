"""What is kept after an answer, and what a store of it must do.

Histories share their beginnings: each response adds a segment of its own items after the segment that it continues, and
a conversation points at its last segment. So any response can be continued, conversations branch, and nothing is kept
twice. A segment stays for as long as a response, a conversation or a later segment needs it.

Everything belongs to an owner; to anybody else it does not exist. Items and answers are the client's own JSON: a store
does not look inside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from turnbridge.turn.items import JsonObject

# What a background response is before it has ended.
QUEUED = "queued"
IN_PROGRESS = "in_progress"
CANCELLED = "cancelled"
RUNNING = frozenset({QUEUED, IN_PROGRESS})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptItem:
    """An item of a history."""

    id: str
    """The name by which clients refer to it; the item itself need not have it inside."""
    body: JsonObject
    """As the client sent it, or the model made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """A response as it is shown to its client."""

    id: str
    owner: str
    created_at: int
    status: str
    background: bool = False
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRecord:
    """A conversation; its items are its history."""

    id: str
    owner: str
    created_at: int
    metadata: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRecord:
    """A chat completion that its client asked to keep."""

    id: str
    owner: str
    created_at: int
    model: str
    metadata: Mapping[str, str]
    body: JsonObject
    messages: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The items up to the end of a segment."""

    segment: int
    inputs: tuple[KeptItem, ...]
    """What the model was shown for the last response, or all of a conversation's items."""
    outputs: tuple[KeptItem, ...] = ()
    """What it answered; empty for a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Which items of a history to list."""

    after: str | None = None
    limit: int = 20
    newest_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage:
    """A page of a history's items."""

    items: tuple[KeptItem, ...] = ()
    has_more: bool = False
    knows_after: bool = True
    """Whether the item that the page begins after is in the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuery:
    """Which chat completions to list."""

    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    after: str | None = None
    limit: int = 20
    newest_first: bool = False


class Store(Protocol):
    """Keeps responses, conversations and chat completions. Each method happens whole, or not at all."""

    async def add_response(
        self,
        record: ResponseRecord,
        *,
        continues: int | None,
        inputs: Sequence[KeptItem],
        outputs: Sequence[KeptItem] = (),
        conversation: str | None = None,
        lease_s: float | None = None,
    ) -> None:
        """Keep a response after the segment that it continues, or at the end of a conversation.

        One that still runs has a lease: whoever runs it extends it, and without that it counts as lost. Leases are
        counted by the store's clock.
        """
        ...

    async def finish_response(
        self,
        record: ResponseRecord,
        *,
        outputs: Sequence[KeptItem] = (),
        events: bytes | None = None,
        conversation: str | None = None,
    ) -> bool:
        """Keep the end of a running response, and its stream; False if it does not run: a response ends once.

        Its items become the last ones of the conversation, if that still exists.
        """
        ...

    async def end_lost_response(self, record: ResponseRecord) -> bool:
        """Keep the end of a response that nobody makes any more; False if its lease was extended, or it has ended."""
        ...

    async def response(self, owner: str, response_id: str) -> ResponseRecord | None:
        """Return a response."""
        ...

    async def response_events(self, owner: str, response_id: str) -> bytes | None:
        """Return the stream that was kept with a response, if one was."""
        ...

    async def delete_response(self, owner: str, response_id: str) -> bool:
        """Remove a response, and what of its history nothing else needs; False if there is none."""
        ...

    async def response_history(self, owner: str, response_id: str) -> History | None:
        """Return the history that ends with a response."""
        ...

    async def response_inputs(self, owner: str, response_id: str, query: ItemQuery) -> ItemPage | None:
        """Return a page of what the model was shown for a response; None if there is no such response."""
        ...

    async def response_outputs(self, owner: str, response_id: str) -> Sequence[KeptItem]:
        """Return what the model answered."""
        ...

    async def items(self, owner: str, ids: Sequence[str]) -> Mapping[str, JsonObject]:
        """Return those of the items that are kept, by id."""
        ...

    async def answers_with_calls(self, owner: str, call_ids: Sequence[str]) -> Sequence[tuple[JsonObject, ...]]:
        """Return the model's own items of each response in which it made one of these calls."""
        ...

    async def extend_leases(self, ids: Sequence[str], lease_s: float) -> set[str]:
        """Let the leases of running responses end so long from now; return those that still run."""
        ...

    async def lost_responses(self) -> Sequence[ResponseRecord]:
        """Return the responses that should run, and whose lease has ended."""
        ...

    async def add_conversation(self, record: ConversationRecord, items: Sequence[KeptItem]) -> None:
        """Keep a conversation with its first items."""
        ...

    async def conversation(self, owner: str, conversation_id: str) -> ConversationRecord | None:
        """Return a conversation."""
        ...

    async def update_conversation(self, owner: str, conversation_id: str, metadata: JsonObject) -> bool:
        """Replace the metadata; False if there is no such conversation."""
        ...

    async def delete_conversation(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation, and those of its items that no response needs; False if there is none."""
        ...

    async def conversation_history(self, owner: str, conversation_id: str) -> History | None:
        """Return all items of a conversation, as inputs."""
        ...

    async def conversation_items(self, owner: str, conversation_id: str, query: ItemQuery) -> ItemPage | None:
        """Return a page of a conversation's items; None if there is no such conversation."""
        ...

    async def conversation_item(self, owner: str, conversation_id: str, item_id: str) -> KeptItem | None:
        """Return an item of a conversation; the latest, where clients have used an id twice."""
        ...

    async def append_items(self, owner: str, conversation_id: str, items: Sequence[KeptItem]) -> bool:
        """Add items at the end; False if there is no such conversation."""
        ...

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove an item from a conversation, and from every history that shares it; False if there is none."""
        ...

    async def add_chat(self, record: ChatRecord) -> None:
        """Keep a chat completion."""
        ...

    async def chat(self, owner: str, chat_id: str) -> ChatRecord | None:
        """Return a chat completion."""
        ...

    async def chats(self, owner: str, query: ChatQuery) -> tuple[Sequence[ChatRecord], bool]:
        """Return a page of chat completions, and whether there are more."""
        ...

    async def update_chat(self, record: ChatRecord) -> bool:
        """Replace metadata and body; False if there is no such completion."""
        ...

    async def delete_chat(self, owner: str, chat_id: str) -> bool:
        """Remove a chat completion; False if there is none."""
        ...
