"""The items of a conversation as the model sees them: messages, reasoning, calls and their outputs.

The APIs decode into these, and Codex's raw items are encoded from them: nothing is flattened to text. Two items are
equal if the model sees no difference: ids and places in the request do not count.

Each delta of a turn creates a value. A frozen dataclass takes 0.4 µs to create and 5 to copy, a `Struct` a fifth of it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, json, structs

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

replace = structs.replace

# Fields that the model does not see: the id of an item, and its place in the request.
INVISIBLE = frozenset({"id", "param"})

# Larger arguments are mostly the text of files, and are compared as they are: parsing a million values takes a second.
LONGEST_NORMALIZED = 2**20
MOST_NORMALIZED = 20_000


class ModelVisible(Struct, frozen=True, kw_only=True, eq=False):
    """A struct that equals another one if the model sees no difference."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelVisible) and type(self) is type(other) and self._visible() == other._visible()

    def __ne__(self, other: object) -> bool:
        # The inherited one compares identity.
        return not self == other

    def __hash__(self) -> int:
        return hash(self._visible())

    def _visible(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self.__struct_fields__ if name not in INVISIBLE])


class TextPart(Struct, frozen=True, kw_only=True):
    """Text in a message or a tool's output."""

    text: str


class ImagePart(ModelVisible, frozen=True, kw_only=True):
    """An image, by data URL; until it is loaded, by https URL or by the id of an uploaded file."""

    url: str = ""
    file_id: str | None = None
    detail: str | None = None
    param: str
    """Where the client wrote it, such as `input[0].content[1]`, so that an error can name it."""


class FilePart(ModelVisible, frozen=True, kw_only=True):
    """A file that is converted to text before the turn starts; one of `data`, `url` and `file_id` is set."""

    filename: str | None
    mime_type: str | None = None
    data: bytes | None = None
    url: str | None = None
    file_id: str | None = None
    param: str


Part: TypeAlias = TextPart | ImagePart | FilePart


class Message(ModelVisible, frozen=True, kw_only=True):
    """A message of the user, the assistant or the developer (also `system`, which Codex would drop)."""

    role: Role
    parts: tuple[Part, ...]
    phase: str | None = None
    id: str | None = None

    @property
    def text(self) -> str:
        """Return the text of all parts."""
        return "".join([part.text for part in self.parts if isinstance(part, TextPart)])


class Reasoning(ModelVisible, frozen=True, kw_only=True):
    """The model's reasoning in an earlier turn."""

    id: str | None
    summary: tuple[str, ...]
    content: tuple[str, ...] | None
    encrypted: str | None


class FunctionCall(ModelVisible, frozen=True, kw_only=True):
    """A call that the model made in an earlier turn; of a custom (free-form) tool, it has its text as an argument."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    custom: bool = False
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
    """An item that is passed on as it is, such as `compaction`."""

    item: JsonObject

    @property
    def id(self) -> str | None:
        """Return the id, if it has one."""
        found = self.item.get("id")
        return found if isinstance(found, str) else None


def image_item(item_id: str, prompt: str, image: str | None) -> JsonObject:
    """Return the item of an image that was made, or could not be."""
    status = "failed" if image is None else "completed"
    return {
        "type": "image_generation_call",
        "id": item_id,
        "status": status,
        "revised_prompt": prompt,
        "result": image,
    }


# The namespaces of a call that mean the same as none.
NO_NAMESPACE = (None, "", "functions")

# The only argument of a custom (free-form) tool, which is declared as a function.
CUSTOM_ARGUMENT = "input"


def custom_arguments(text: str) -> str:
    """Return the arguments of a custom tool's call with this text."""
    return json.encode({CUSTOM_ARGUMENT: text}).decode()


def custom_input(arguments: str) -> str:
    """Return the text of a custom tool's call; of arguments that are not its own, all of them."""
    try:
        return json.decode(arguments, type=dict[str, str])[CUSTOM_ARGUMENT]
    except (ValueError, KeyError, RecursionError):
        return arguments


Item: TypeAlias = Message | Reasoning | FunctionCall | FunctionCallOutput | RawItem

# The types of raw items that the model produces.
MODELS_OWN = ("web_search_call", "image_generation_call")


def is_models(item: Item) -> bool:
    """Tell whether the model produced an item."""
    if isinstance(item, Message):
        return item.role == "assistant"
    if isinstance(item, RawItem):
        return item.item.get("type") in MODELS_OWN
    return isinstance(item, Reasoning | FunctionCall)


def parts_of(item: Item) -> tuple[Part, ...]:
    """Return the parts of a message, or of an output that is not just a text."""
    if isinstance(item, Message):
        return item.parts
    if isinstance(item, FunctionCallOutput) and not isinstance(item.output, str):
        return item.output
    return ()


def media_parts(items: Iterable[Item]) -> Iterator[ImagePart | FilePart]:
    """Yield the images and files in messages and outputs."""
    return (part for item in items for part in parts_of(item) if isinstance(part, ImagePart | FilePart))


canonical_json: Callable[[object], bytes] = json.Encoder(order="deterministic").encode
"""Return JSON that is the same for equal values; it tells 1 from true, which Python's `==` does not."""


def visible(value: object) -> object:
    """Return what the model sees of a value, for `canonical_json`."""
    if isinstance(value, ModelVisible):
        return [type(value).__name__, *map(visible, value._visible())]
    if isinstance(value, tuple):
        return list(map(visible, value))
    return value


def normalized_json(text: str, defaults: JsonObject | None = None) -> str:
    """Return JSON without spaces and with sorted keys; text that is not JSON, or very large, as it is.

    Members of an object that are missing have their `defaults`.
    """
    if len(text) > LONGEST_NORMALIZED or sum(map(text.count, ",[{")) > MOST_NORMALIZED:
        return text
    try:
        value = json.decode(text)
        return canonical_json({**defaults, **value} if defaults and isinstance(value, dict) else value).decode()
    except (ValueError, RecursionError):
        return text


def size(value: object) -> int:
    """Return the number of characters and bytes in a value, at any depth."""
    total = 0
    inside: list[object] = [value]
    while inside:
        match inside.pop():
            case str() | bytes() as text:
                total += len(text)
            case tuple() | list() as values:
                inside += values
            case dict() as members:
                inside += (*members.keys(), *members.values())
            case Struct() as one:
                inside += structs.astuple(one)
    return total
