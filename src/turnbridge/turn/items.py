"""The items of a conversation as the model sees them: messages, reasoning, calls and their outputs.

The APIs decode into these, and Codex's raw items are encoded from them: nothing is flattened to text. Two items are
equal if the model sees no difference: ids and places in the request do not count.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from turnbridge.turn.values import ModelVisible

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:
    # Libraries that read annotations at run time cannot follow an alias that names itself.
    Json = Any
JsonObject: TypeAlias = dict[str, Json]

# The phase of a message in which the model reports what it is doing.
NARRATION = "commentary"
# The separator of messages that are joined for a client that has one text field.
BETWEEN_MESSAGES = "\n\n"

Role = Literal["user", "assistant", "developer"]


class TextPart(Struct, frozen=True, kw_only=True):
    """Text in a message or a tool's output."""

    text: str


class ImagePart(ModelVisible, frozen=True, kw_only=True):
    """An image, by data URL, or by https URL until it is fetched."""

    url: str
    detail: str | None = None
    param: str
    """Where the client wrote it, such as `input[0].content[1]`, so that an error can name it."""


class FilePart(ModelVisible, frozen=True, kw_only=True):
    """A file that is converted to text before the turn starts; exactly one of `data` and `url` is set."""

    filename: str | None
    mime_type: str | None
    data: bytes | None = None
    url: str | None = None
    param: str


Part: TypeAlias = TextPart | ImagePart | FilePart


class Message(ModelVisible, frozen=True, kw_only=True):
    """A message of the user, the assistant or the developer (also `system`, which Codex would drop)."""

    role: Role
    parts: tuple[Part, ...]
    phase: str | None = None
    id: str | None = None


class Reasoning(ModelVisible, frozen=True, kw_only=True):
    """The model's reasoning in an earlier turn."""

    id: str | None
    summary: tuple[str, ...]
    content: tuple[str, ...] | None
    encrypted: str | None


class FunctionCall(ModelVisible, frozen=True, kw_only=True):
    """A call that the model made in an earlier turn."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    id: str | None = None


class FunctionCallOutput(ModelVisible, frozen=True, kw_only=True):
    """The output of a client's function; `custom` for a free-form tool."""

    call_id: str
    output: str | tuple[Part, ...]
    custom: bool = False
    name: str | None = None
    namespace: str | None = None
    id: str | None = None


class RawItem(Struct, frozen=True, kw_only=True):
    """An item that is passed on as it is, such as `custom_tool_call`."""

    item: JsonObject


Item: TypeAlias = Message | Reasoning | FunctionCall | FunctionCallOutput | RawItem

# The types of raw items that the model produces.
MODELS_OWN = ("web_search_call",)


def is_models(item: Item) -> bool:
    """Tell whether the model produced an item."""
    if isinstance(item, Message):
        return item.role == "assistant"
    if isinstance(item, RawItem):
        return item.item.get("type") in MODELS_OWN
    return isinstance(item, Reasoning | FunctionCall)
