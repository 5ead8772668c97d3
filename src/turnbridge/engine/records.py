"""The records that are stored after an answer, and the interface of the store.

Histories share their prefixes. Each response adds one segment with its own items after the segment that it continues,
and a conversation points at its last segment. So any response can be continued, conversations can branch, and no item
is stored twice. A segment is deleted once no response, conversation or later segment refers to it.

Every record has an owner, and does not exist for anybody else. Items and answers are opaque JSON to the store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, TypeAlias

from turnbridge.turn.clients import KeyRecord
from turnbridge.turn.items import JsonObject
from turnbridge.turn.usage import Counts, UsageKey, UsageQuery, UsageSum

# States of a background response before its end.
QUEUED = "queued"
IN_PROGRESS = "in_progress"
CANCELLED = "cancelled"
RUNNING = frozenset({QUEUED, IN_PROGRESS})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptItem:
    """An item of a history."""

    id: str
    """The id that clients use; the body need not contain it."""
    body: JsonObject
    """The item as the client sent it, or as the model produced it."""
    seen: JsonObject | None = None
    """The item as the model saw it, if it links to something: with the content in place of the links."""

    @property
    def shown(self) -> JsonObject:
        """Return the item as the model saw it."""
        return self.body if self.seen is None else self.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """A response; `body` is what its client sees."""

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
    """A chat completion that was requested with `store: true`."""

    id: str
    owner: str
    created_at: int
    model: str
    metadata: Mapping[str, str]
    body: JsonObject
    messages: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """An uploaded file, without its content."""

    id: str
    owner: str
    created_at: int
    expires_at: int
    purpose: str
    filename: str
    mime_type: str | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """How many files one owner may have, and how many bytes in them."""

    files: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The items up to the end of a segment."""

    segment: int
    inputs: tuple[KeptItem, ...]
    """The input of the last response, or all items of a conversation."""
    outputs: tuple[KeptItem, ...] = ()
    """The output of the last response; empty for a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Pagination of a list."""

    after: str | None = None
    limit: int = 20
    newest_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage:
    """A page of a history's items."""

    items: tuple[KeptItem, ...] = ()
    has_more: bool = False
    knows_after: bool = True
    """Whether the cursor of the query is in the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuery(ItemQuery):
    """Filter and pagination of chat completions."""

    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuery(ItemQuery):
    """Filter and pagination of files."""

    purpose: str | None = None


Legs: TypeAlias = Mapping[str, Sequence[JsonObject]]
"""What the model said up to calls, with what the gateway answered to those that the client was not given.

By the id of the first call that it was given.
"""
NO_LEGS: Legs = MappingProxyType({})


class Store(Protocol):
    """Stores responses, conversations, chat completions and files. Each method is one atomic operation.

    The result is None or False if this owner has no such record. Deleting a record also deletes the items that nothing
    else refers to. Where an id of an item occurs more than once, it means the latest one.
    """

    async def add_response(
        self,
        record: ResponseRecord,
        *,
        continues: int | None,
        inputs: Sequence[KeptItem],
        outputs: Sequence[KeptItem] = (),
        legs: Legs = NO_LEGS,
        conversation: str | None = None,
        lease_s: float | None = None,
        maker: str | None = None,
    ) -> None:
        """Add a response after the segment that it continues, or at the end of a conversation.

        `legs` is what the model said around calls, where `outputs` do not tell it.

        A running response has a lease, which its owner renews; once the lease has expired, the response counts as
        lost. Leases use the store's clock. `maker` is the replica that runs it. Raises `NotFound` if what the response
        continues has been deleted.
        """

    async def finish_response(
        self,
        record: ResponseRecord,
        *,
        outputs: Sequence[KeptItem] = (),
        legs: Legs = NO_LEGS,
        events: bytes | None = None,
        conversation: str | None = None,
        maker: str | None = None,
    ) -> bool:
        """Store the end of a running response, and its event stream; False if it is not running.

        Its items are appended to the conversation, if that still exists. With a `maker`, the result is False also if
        another replica has taken the response over.
        """

    async def take_over(self, record: ResponseRecord, maker: str, lease_s: float) -> bool:
        """Make another replica the maker of a response whose lease has expired; False if it was renewed, or has ended.

        From then on the store refuses what the former maker writes.
        """

    async def response(self, owner: str, response_id: str) -> ResponseRecord | None: ...
    async def response_events(self, owner: str, response_id: str) -> bytes | None: ...
    async def response_history(self, owner: str, response_id: str) -> History | None: ...
    async def response_inputs(self, owner: str, response_id: str, query: ItemQuery) -> ItemPage | None: ...
    async def response_outputs(self, owner: str, response_id: str) -> Sequence[KeptItem]: ...
    async def delete_response(self, owner: str, response_id: str) -> bool: ...

    async def items(self, owner: str, ids: Sequence[str]) -> Mapping[str, KeptItem]:
        """Return the stored items among these ids."""

    async def keep_seen(self, owner: str, items: Sequence[KeptItem]) -> None:
        """Add what the model saw to stored items with the same id and body, unless they have it."""

    async def answers_with_calls(self, owner: str, call_ids: Sequence[str]) -> Sequence[tuple[JsonObject, ...]]:
        """Return the output items of each response that made one of these calls, then the legs of the calls."""

    async def extend_leases(self, ids: Sequence[str], lease_s: float, maker: str | None = None) -> set[str]:
        """Renew the leases of running responses; return the ids that are still running, and still this maker's."""

    async def lost_responses(self) -> Sequence[ResponseRecord]:
        """Return the running responses whose lease has expired."""

    async def add_conversation(self, record: ConversationRecord, items: Sequence[KeptItem]) -> None: ...
    async def conversation(self, owner: str, conversation_id: str) -> ConversationRecord | None: ...
    async def update_conversation(self, owner: str, conversation_id: str, metadata: JsonObject) -> bool: ...
    async def delete_conversation(self, owner: str, conversation_id: str) -> bool: ...

    async def conversation_history(self, owner: str, conversation_id: str) -> History | None:
        """Return all items of a conversation, as inputs."""

    async def conversation_items(self, owner: str, conversation_id: str, query: ItemQuery) -> ItemPage | None: ...
    async def conversation_item(self, owner: str, conversation_id: str, item_id: str) -> KeptItem | None: ...
    async def append_items(self, owner: str, conversation_id: str, items: Sequence[KeptItem]) -> bool: ...

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Delete an item from a conversation, and from every history that shares it."""

    async def add_chat(self, record: ChatRecord, legs: Mapping[str, Sequence[JsonObject]] | None = None) -> None:
        """Store a chat completion; `legs` has all that the model said up to its calls, by the first call's id."""

    async def chat(self, owner: str, chat_id: str) -> ChatRecord | None: ...

    async def chats(self, owner: str, query: ChatQuery) -> tuple[Sequence[ChatRecord], bool]:
        """Return a page of chat completions in the order of their creation, and whether there are more."""

    async def update_chat(self, record: ChatRecord) -> bool:
        """Replace metadata and body."""

    async def delete_chat(self, owner: str, chat_id: str) -> bool: ...

    async def fits_file(self, owner: str, size: int, limits: FileLimits) -> bool:
        """Tell whether the owner may have another file of this size."""

    async def add_file(self, record: FileRecord, content: bytes, limits: FileLimits) -> bool:
        """Store a file; False if it exceeds the limits of its owner. A large one is written in several transactions."""

    async def file(self, owner: str, file_id: str) -> FileRecord | None: ...

    async def known_files(self, owner: str, file_ids: Sequence[str]) -> set[str]:
        """Return those of these ids that the owner has files for."""

    async def files(self, owner: str, query: FileQuery) -> tuple[Sequence[FileRecord], bool]:
        """Return a page of files in the order of their creation, and whether there are more."""

    async def file_piece(self, owner: str, file_id: str, number: int) -> bytes | None:
        """Return a piece of a file's content, from 0 on; None after the last one."""

    async def file_content(self, owner: str, file_id: str) -> tuple[FileRecord, bytes] | None: ...
    async def delete_file(self, owner: str, file_id: str) -> bool: ...


class KeyStore(Protocol):
    """Stores keys. Every change increases the version, which is cheap to read."""

    async def keys_version(self) -> int: ...

    async def keys(self) -> tuple[int, Sequence[KeyRecord]]:
        """Return the version, and all keys by name, revoked ones too."""

    async def add_key(self, record: KeyRecord) -> None:
        """Add a client with its key; raises `InvalidRequest` if the name is taken."""

    async def change_key(self, record: KeyRecord) -> None:
        """Replace everything of a client but its name, id and creation; raises `NotFound`."""

    async def delete_key(self, name: str) -> None:
        """Delete a client: its name is free again, and its data belong to nobody. Raises `NotFound`."""


class UsageStore(Protocol):
    """Stores what clients have used."""

    async def add_usage(self, usage: Mapping[UsageKey, Counts], names: Mapping[str, str]) -> None:
        """Add to what is stored; `names` has the names of the clients by their ids."""

    async def tokens_since(self, clients: Sequence[str], since: int) -> Mapping[str, int]:
        """Return the tokens of each of these clients from an hour on, if it has used any."""

    async def usage(self, query: UsageQuery) -> Sequence[UsageSum]: ...
