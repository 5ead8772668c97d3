"""What a client knows of a response that it reads event by event, and the order that it relies on."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, UnsetType

from turnbridge.turn.items import JsonObject

TERMINALS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a message or thought."""

    type: str
    text: str
    annotations: list[JsonObject] | UnsetType = UNSET
    logprobs: list[JsonObject] | UnsetType = UNSET


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """A message, a thought, a call or a search."""

    type: str
    id: str
    content: list[Part] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    action: JsonObject | UnsetType = UNSET
    summary: list[Part] | UnsetType = UNSET
    role: str | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """Any event of the stream."""

    type: str
    sequence_number: int
    response: JsonObject = {}
    output_index: int = 0
    item_id: str = ""
    item: Item | None = None
    content_index: int = 0
    summary_index: int = 0
    part: Part | None = None
    delta: str = ""
    name: str = ""
    arguments: str = ""
    text: str = ""
    annotation: JsonObject = {}
    annotation_index: int = 0
    logprobs: list[JsonObject] = []
    error: JsonObject = {}
    code: str | None = None
    message: str = ""
    param: str | None = None


class Reader:
    """Rebuilds the output of a response from its events alone, and insists on their order."""

    def __init__(self) -> None:
        self.output: list[Item] = []
        self._open_items: set[int] = set()
        self._open_parts: set[int] = set()

    def read(self, events: Iterable[JsonObject]) -> Iterator[Event]:
        """Take the events in, and yield those that say something of the response as a whole."""
        for number, raw in enumerate(events):
            event = msgspec.convert(raw, Event)
            assert event.sequence_number == number
            *_, subject, verb = ("", *event.type.split("."))
            if event.error:
                assert (event.type, event.error["message"]) == ("error", event.message)
                assert not self._open_items
            elif event.response:
                assert event.type not in TERMINALS or not self._open_items
                yield event
            elif subject == "output_item":
                self._item(event, verb)
            elif subject in ("content_part", "reasoning_summary_part"):
                self._part(event, verb)
            elif subject == "function_call_arguments":
                self._arguments(event, verb)
            elif subject == "web_search_call":
                assert self.output[event.output_index].id == event.item_id
            else:
                self._text(event, verb)

    def assert_closed(self) -> None:
        """Assert that everything that was opened was closed."""
        assert (self._open_items, self._open_parts) == (set(), set())

    def _item(self, event: Event, verb: str) -> None:
        assert event.item is not None
        index = event.output_index
        if verb == "added":
            assert index == len(self.output)
            assert not event.item.content
            self.output.append(event.item)
            self._open_items.add(index)
            return
        self._open_items.remove(index)
        assert index not in self._open_parts
        self.output[index].status = event.item.status
        self.output[index].encrypted_content = event.item.encrypted_content
        self.output[index].action = event.item.action
        assert event.item == self.output[index]

    def _arguments(self, event: Event, verb: str) -> None:
        call = self.output[event.output_index]
        assert call.id == event.item_id
        if verb == "delta":
            assert event.delta
            call.arguments = f"{call.arguments}{event.delta}"
        else:
            assert event.arguments == call.arguments

    def _part(self, event: Event, verb: str) -> None:
        assert event.part is not None
        parts, index = self._parts(event)
        if verb == "added":
            assert event.output_index not in self._open_parts
            assert index == len(parts)
            assert not event.part.text
            parts.append(event.part)
            self._open_parts.add(event.output_index)
        else:
            self._open_parts.remove(event.output_index)
            assert (index, event.part) == (len(parts) - 1, parts[-1])

    def _text(self, event: Event, verb: str) -> None:
        assert event.output_index in self._open_parts
        parts, index = self._parts(event)
        part = parts[index]
        if verb == "delta":
            assert event.delta
            part.text += event.delta
        elif event.annotation:
            assert isinstance(part.annotations, list)
            assert event.annotation_index == len(part.annotations)
            part.annotations.append(event.annotation)
        else:
            assert (verb, event.text) == ("done", part.text)

    def _parts(self, event: Event) -> tuple[list[Part], int]:
        """Return the parts that an event speaks of, and which of them."""
        item = self.output[event.output_index]
        assert item.id == event.item_id
        if "summary" not in event.type:
            assert isinstance(item.content, list)
            return item.content, event.content_index
        assert isinstance(item.summary, list)
        return item.summary, event.summary_index
