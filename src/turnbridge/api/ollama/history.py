"""The messages of a request → items. Results of calls are paired by id, by name, or by their order.

Most clients keep no ids of calls: Home Assistant's results have neither an id nor the name of their function. A call
without an id gets the one that it had when the model made it, if that is known, so that its turn is resumed.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

import msgspec

from turnbridge.api.ollama import schema
from turnbridge.api.shared.history import ContentPart, PartsDecoder, Wording
from turnbridge.api.shared.validation import invalid, missing, unknown_value
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    JsonObject,
    Message,
    Part,
    TextPart,
    canonical_json,
    normalized_json,
    visible,
)

ROLES = ("system", "user", "assistant", "tool")

IN_MESSAGES = Wording(
    "messages",
    "An assistant message with 'tool_calls' must be followed by a message of role 'tool' for each of them. "
    "Without a result are: {call_ids}.",
    "A message of role 'tool' must follow the call that it answers. There is no call with the id {call_id}.",
)

UNPARSED = "unparsed_arguments"
"""The only member of `arguments` that stands for arguments which are not a JSON object."""


class CallPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the model made a call, so that it is recognised when it comes back without its id."""

    before: int
    """How many items there were before the answer."""
    last: bytes
    """The digest of the last of them."""
    name: str
    arguments: bytes
    nth: int
    """Which one of equal calls of the answer it is."""


class CallPlaces:
    """The places of the calls of one answer, one after another."""

    def __init__(self, before: Sequence[Item]) -> None:
        """`before` are the items that it answered."""
        self._before = len(before)
        self._last = sha256(canonical_json(visible(before[-1]))).digest() if before else b""
        self._equal: Counter[tuple[str, bytes]] = Counter()

    def next(self, name: str, arguments: str) -> CallPlace:
        """Return the place of the answer's next call."""
        digest = sha256(normalized_json(arguments).encode("utf-8", "surrogatepass")).digest()
        nth = self._equal[name, digest]
        self._equal[name, digest] += 1
        return CallPlace(before=self._before, last=self._last, name=name, arguments=digest, nth=nth)


class _Call(NamedTuple):
    number: int
    call_id: str
    name: str
    has_own_id: bool
    """Whether the client told its id."""


class OpenCalls:
    """The calls whose results have not come yet. Each result is found at once: a history may have thousands."""

    def __init__(self) -> None:
        self._open: dict[str, _Call] = {}
        self._queues: defaultdict[tuple[bool, str | None], deque[_Call]] = defaultdict(deque)
        """Calls in their order, with and without ids of their own, of each name and of any."""
        self._added = 0

    def add(self, call_id: str, name: str, *, has_own_id: bool) -> None:
        """Add a call."""
        call = self._open[call_id] = _Call(self._added, call_id, name, has_own_id)
        self._added += 1
        for key in (name, None):
            self._queues[has_own_id, key].append(call)

    def take(self, call_id: str | None, name: str | None) -> str | None:
        """Return the id of the call that a result belongs to: that of its id, or the first one that may be meant."""
        told = self._open.get(call_id or "")
        if told is None or not told.has_own_id:
            # A call that has an id of its own is not meant by another one.
            firsts = (self._first(own, name or None) for own in ((False,) if call_id else (False, True)))
            told = min((call for call in firsts if call is not None), default=None)
        return None if told is None else self._open.pop(told.call_id).call_id

    def _first(self, own: bool, name: str | None) -> _Call | None:
        queue = self._queues[own, name]
        while queue and queue[0].call_id not in self._open:
            queue.popleft()
        return queue[0] if queue else None


@dataclass(slots=True)
class History:
    """Decodes the messages of one request within its budget."""

    known_id: Callable[[CallPlace], str | None]
    """Returns the id of a call that the model made at a place."""
    parts: PartsDecoder = field(default_factory=PartsDecoder)
    _open: OpenCalls = field(default_factory=OpenCalls)
    _ids: set[str] = field(default_factory=set)

    def items(self, messages: Sequence[schema.ChatMessage]) -> list[Item]:
        """Return the items of all messages."""
        items: list[Item] = []
        for index, message in enumerate(messages):
            param = f"messages[{index}]"
            match message.role:
                case "system":
                    items.append(
                        Message(role="developer", parts=self.content(message.content, message.images, f"{param}."))
                    )
                case "user":
                    items.append(Message(role="user", parts=self.content(message.content, message.images, f"{param}.")))
                case "assistant":
                    items += self._assistant(message, param, CallPlaces(items))
                case "tool":
                    items.append(self._output(message, param))
                case _:
                    raise unknown_value(message.role, ROLES, param=f"{param}.role")
        return items

    def content(self, text: str | None, images: Sequence[str] | None, param: str) -> tuple[Part, ...]:
        """Return a text and the images beside it, which are base64, with or without the head of a data URL.

        `param` is what comes before the names of their fields.
        """
        if not images:
            if text is None:
                raise missing(f"{param}content")
            return (TextPart(text=text),)
        sources = (each if each[:5].lower() == "data:" else f"data:image/png;base64,{each}" for each in images)
        shown = [ContentPart(type="image_url", image_url=source) for source in sources]
        told: tuple[Part, ...] = (TextPart(text=text),) if text else ()
        return (*told, *self.parts.decode(shown, param=f"{param}images"))

    def _assistant(self, message: schema.ChatMessage, param: str, places: CallPlaces) -> Iterator[Item]:
        if message.images:
            raise invalid(f"{param}.images", "only messages of users and tools may have images.")
        if message.content or not message.tool_calls:
            yield Message(role="assistant", parts=(TextPart(text=message.content or ""),))
        for index, call in enumerate(message.tool_calls or ()):
            function, place = call.function, f"{param}.tool_calls[{index}]"
            arguments = _arguments(function.arguments, f"{place}.function.arguments")
            known = self.known_id(places.next(function.name, arguments)) if call.id is None else call.id
            call_id = known if known is not None and known not in self._ids else self._new_id()
            self._ids.add(call_id)
            self._open.add(call_id, function.name, has_own_id=call.id is not None)
            yield FunctionCall(call_id=call_id, name=function.name, arguments=arguments)

    def _new_id(self) -> str:
        """Return an id that depends on nothing but the place, so that the same history is the same to the model."""
        number = len(self._ids)
        while (made := f"call_{number}") in self._ids:
            number += 1
        return made

    def _output(self, message: schema.ChatMessage, param: str) -> FunctionCallOutput:
        given, name = message.tool_call_id or None, message.tool_name or None
        call_id = self._open.take(given, name)
        if call_id is None:
            told = f" with the id '{given}'" if given else f" of '{name}'" if name else ""
            advice = "Send the assistant's message with its 'tool_calls' before it."
            raise InvalidRequest(f"There is no open call{told} before this result. {advice}", param=param)
        if message.images:
            return FunctionCallOutput(
                call_id=call_id, output=self.content(message.content, message.images, f"{param}.")
            )
        return FunctionCallOutput(call_id=call_id, output=message.content or "")


def _arguments(given: JsonObject | str | None, param: str) -> str:
    if given is None or isinstance(given, str):
        return given or "{}"
    unparsed = given.get(UNPARSED)
    if isinstance(unparsed, str) and len(given) == 1:
        return unparsed
    try:
        return msgspec.json.encode(given).decode()
    except (UnicodeEncodeError, RecursionError):
        raise invalid(param, "they are nested too deeply, or have text that is not Unicode.") from None
