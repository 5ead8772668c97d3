"""Finds the calls that a model writes into its text, while it is streamed, and turns them into events.

The texts and the sources of the calls, joined, are exactly what the model wrote, however it was cut into chunks. Text
is held back only while it may still belong to a call.

Tags inside a JSON string do not count. If the JSON is damaged, its quotes cannot be trusted: the first tag ends the
block then, so that the blocks after it are still found.

The syntax errors that models make in the JSON are repaired where only one meaning is possible. A call that was cut off
is not completed: half of its arguments could do harm.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

import msgspec

from turnbridge.codex.legacy.flat_text import CLOSE_CALL, OPEN_CALL
from turnbridge.turn import events as ev

# How both tags end.
TAG_END = CLOSE_CALL[2:]
# What may precede the JSON; models add the fence.
BEFORE_JSON = re.compile(r"\s*+(?:`{3,}+\w*+\s*+)?(?=[{\[])")
# What models append to the JSON: a brace or bracket too many, the end of a tag or of a fence.
LEFT_BEHIND = re.compile(r"[\s}\]>`]*")
# A call may omit its arguments, but not pass them under another name.
WITHOUT_ARGUMENTS = frozenset({"name", "call_id"})
TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],]|\s+|[^"{}\[\],\s]+|"', re.DOTALL)
CLOSERS = {"{": "}", "[": "]"}
IN_STRING = re.compile(r'(?P<escape>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|(?P<backslash>\\)|(?P<control>[\x00-\x1f])')
# Arguments as a JSON string whose quotes are not escaped.
UNESCAPED = re.compile(
    r'\{\s*"name"\s*:\s*(?P<name>"[^"\\]*")\s*,\s*"arguments"\s*:\s*"(?P<arguments>\{.*\})"\s*\}[\s}\]>`]*', re.DOTALL
)
_decode_entries = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[dict[str, msgspec.Raw]]).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text outside of calls."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a declared tool."""

    name: str
    arguments: str
    """The text of a JSON object."""
    source: str = ""
    """The text of the block; of several calls in one block, the first has it."""


Piece: TypeAlias = Text | Call


def _prefixes(tag: str) -> str:
    """Return a pattern for an incomplete tag."""
    return "|".join(re.escape(tag[:length]) for length in range(len(tag) - 1, 0, -1))


_PARTIAL_TAG = f"(?:{_prefixes(OPEN_CALL)}|{_prefixes(CLOSE_CALL)})"
# Models like to put a fence around their blocks. It belongs to them if there is nothing else in it.
_START = re.compile(rf"(?:(?<!`)(?P<fence>`{{3,}}+)\w*+\s*+)?(?P<tag>{OPEN_CALL})")
_MAYBE_START = re.compile(
    rf"(?:(?<!`)(?:`{{1,2}}|`{{3,}}+\w*+\s*+(?:{_prefixes(OPEN_CALL)})?)|{_prefixes(OPEN_CALL)})\Z"
)
_MAYBE_BEFORE_JSON = re.compile(r"\s*+(?:`{1,2}|`{3,}+\w*+\s*+)?\Z")
_TAG = re.compile(f"{OPEN_CALL}|{CLOSE_CALL}")
_CUT_OFF_TAG = re.compile(rf"{_PARTIAL_TAG}\Z")
_INSIDE = re.compile(r'(?:[^"\\<]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|<(?!/?tool_call>))*+', re.DOTALL)
_AFTER = re.compile(rf"(?P<close>(?:\s*+{CLOSE_CALL})*+)\s*+(?:(?P<open>(?={OPEN_CALL}))|(?P<fence>`++))?")
_MAYBE_AFTER = re.compile(rf"\s*+(?:{_PARTIAL_TAG}|`*+)\Z")


class ToolCallParser:
    """Splits the text of one message. A call of a tool that is not among `names` stays text."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._text = ""
        self._open = False
        """Whether a block has begun, and no tag has come since."""
        self._inside: list[str] = []
        """What has come since: a long call has thousands of pieces, and is not searched from its beginning for each."""
        self._tail = ""
        """The end of the text, where a tag may have begun."""

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that are certain with this text."""
        self._inside.append(text)
        if self._open:
            recent = self._tail + text
            if TAG_END not in recent:
                self._tail = recent[-len(TAG_END) :]
                return []
        return self._pieces(final=False)

    def close(self) -> list[Piece]:
        """Return the rest."""
        return self._pieces(final=True)

    def _pieces(self, *, final: bool) -> list[Piece]:
        self._text += "".join(self._inside)
        self._inside.clear()
        self._open = False
        pieces: list[Piece] = []
        place = 0
        while place < len(self._text) and (found := self._next(place, final=final)) is not None:
            pieces += found[0]
            place = found[1]
        self._text = self._text[place:]
        return [piece for piece in pieces if isinstance(piece, Call) or piece.text]

    def _next(self, place: int, *, final: bool) -> tuple[list[Piece], int] | None:
        """Return the next pieces and where they end; None if more text is needed."""
        start = _START.search(self._text, place)
        if start is not None and start.start() == place:
            return self._calls(start, final=final)
        if start is None and not final:
            start = _MAYBE_START.search(self._text, place)
        end = len(self._text) if start is None else start.start()
        return ([Text(text=self._text[place:end])], end) if end > place else None

    def _calls(self, start: re.Match[str], *, final: bool) -> tuple[list[Piece], int] | None:
        """Return the calls of a block, and of those that follow in the same fence."""
        pieces: list[Piece] = []
        fence, before, block = len(start["fence"] or ""), start.start(), start.start("tag")
        while (found := self._block(block, final=final)) is not None:
            calls, end = found
            if not calls:
                return [*pieces, Text(text=self._text[before:end])], end
            after = _AFTER.match(self._text, end)
            assert after is not None  # it matches any text
            end = after.end("close")
            if not final and _MAYBE_AFTER.match(self._text, end):
                break
            pieces.append(Text(text=self._text[before:block]))
            pieces += [replace(calls[0], source=self._text[block:end]), *calls[1:]]
            if fence and after["open"] is not None:
                before, block = end, after.start("open")
                continue
            if fence and len(after["fence"] or "") >= fence:
                return _without_texts(pieces, self._text[end : after.end()]), after.end()
            return (pieces if after.end() < len(self._text) else _without_texts(pieces, "")), end
        return None

    def _block(self, block: int, *, final: bool) -> tuple[list[Call], int] | None:
        """Return the declared calls of a block, and where it ends; None if more text is needed."""
        content = block + len(OPEN_CALL)
        if BEFORE_JSON.match(self._text, content) is None:
            return None if not final and _MAYBE_BEFORE_JSON.match(self._text, content) else ([], content)
        if not final and self._text.find(TAG_END, content) < 0:
            self._open, self._tail = True, self._text[-len(TAG_END) :]
            return None
        ends = self._ends(content, final=final)
        readings = [(read_calls(self._text[content:content_end]), block_end) for content_end, block_end in ends]
        if not readings:
            return None
        calls, end = next((reading for reading in readings if reading[0]), readings[-1])
        return (calls if all(call.name in self._names for call in calls) else []), end

    def _ends(self, content: int, *, final: bool) -> list[tuple[int, int]]:
        """Return where the content and the block may end: at the first tag outside of strings, or the first of all."""
        inside = _INSIDE.match(self._text, content)
        assert inside is not None  # it matches any text
        tags = [_TAG.match(self._text, inside.end())]
        if self._text[inside.end() : inside.end() + 1] == "\\":
            tags = []  # JSON has no backslash here: the quotes are wrong
        elif tags == [None] and not final:
            return []
        tags.append(_TAG.search(self._text, content))
        cut_off = _CUT_OFF_TAG.search(self._text, max(content, len(self._text) - len(CLOSE_CALL)))
        rest = (len(self._text) if cut_off is None else cut_off.start(), len(self._text))
        ends = [(tag.start(), tag.start() if tag.group() == OPEN_CALL else tag.end()) if tag else rest for tag in tags]
        return ends if final else [end for end in ends if end != rest]


def _without_texts(pieces: Iterable[Piece], last: str) -> list[Piece]:
    """Return calls with the texts before them, and one after the last, as part of their sources."""
    calls: list[Call] = []
    before = ""
    for piece in pieces:
        if isinstance(piece, Text):
            before = piece.text
        else:
            calls.append(replace(piece, source=before + piece.source))
            before = ""
    calls[-1] = replace(calls[-1], source=calls[-1].source + last)
    return [*calls]


@dataclass(slots=True)
class _Message:
    phase: str | None
    parser: ToolCallParser
    said: list[str] = field(default_factory=list)
    space: str = ""
    """Whitespace that is dropped if a call follows."""
    calls: int = 0


class CallExtractor:
    """Replaces the calls in the text of one turn by events; `new_id` makes the ids of calls.

    The whitespace around a call is dropped. If the turn ends before the model has finished, its calls stay text, in
    messages of their own: nobody can check them.
    """

    def __init__(self, names: Iterable[str], new_id: Callable[[], str]) -> None:
        self._names = frozenset(names)
        self._new_id = new_id
        self._messages: dict[str, _Message] = {}
        self._calls: list[ev.FunctionCallDone] = []
        self._sources: list[str] = []

    @property
    def functions(self) -> dict[str, str]:
        """Return the function of each call so far, by call id."""
        return {call.call_id: call.name for call in self._calls}

    def read(self, incoming: Sequence[ev.TurnEvent]) -> list[ev.TurnEvent]:
        """Return the events, with calls in place of their text."""
        return [event for each in incoming for event in self._read(each)]

    def _read(self, event: ev.TurnEvent) -> list[ev.TurnEvent]:
        match event:
            case ev.MessageStarted():
                self._messages[event.item_id] = _Message(event.phase, ToolCallParser(self._names))
                return []
            case ev.TextDelta():
                message = self._messages[event.item_id]
                return self._pieces(event.item_id, message, message.parser.feed(event.text))
            case ev.MessageDone():
                return self._message_done(event)
            case ev.TurnCompleted() if self._calls:
                return [*self._calls, ev.CallsAwaited(event.usage)]
            case ev.TurnCompleted() | ev.CallsAwaited() | ev.TurnIncomplete() | ev.TurnFailed():
                return [*self._cut_off(), event]
            case _:
                return [event]

    def _pieces(self, item_id: str, message: _Message, pieces: Iterable[Piece]) -> list[ev.TurnEvent]:
        events: list[ev.TurnEvent] = []
        for piece in pieces:
            match piece:
                case Text():
                    text = message.space + piece.text
                    if message.calls and not message.said:
                        text = text.lstrip()
                    spoken = text.rstrip()
                    message.space = text[len(spoken) :]
                    events += self._say(item_id, message, spoken)
                case Call():
                    call_id = self._new_id()
                    self._calls.append(ev.FunctionCallDone(f"fc_{call_id}", call_id, piece.name, piece.arguments))
                    self._sources.append(piece.source)
                    message.space = ""
                    message.calls += 1
                case _:
                    assert_never(piece)
        return events

    def _say(self, item_id: str, message: _Message, text: str) -> list[ev.TurnEvent]:
        if not text:
            return []
        started = [] if message.said else [ev.MessageStarted(item_id, message.phase)]
        message.said.append(text)
        return [*started, ev.TextDelta(item_id, text)]

    def _message_done(self, event: ev.MessageDone) -> list[ev.TurnEvent]:
        message = self._messages.pop(event.item_id)
        message.phase = event.phase
        events = self._pieces(event.item_id, message, message.parser.close())
        if not message.calls:
            events += self._say(event.item_id, message, message.space)
        if message.calls and not message.said:
            return events
        started = [] if message.said else [ev.MessageStarted(event.item_id, message.phase)]
        done = ev.MessageDone(event.item_id, message.phase, "".join(message.said), event.annotations)
        return [*events, *started, done]

    def _cut_off(self) -> list[ev.TurnEvent]:
        """Return the held-back text: the rest of incomplete messages, and the source of every call."""
        events: list[ev.TurnEvent] = []
        for item_id, message in self._messages.items():
            events += self._pieces(item_id, message, message.parser.close())
        self._messages.clear()
        for call, source in zip(self._calls, self._sources, strict=True):
            # Several calls in one block have one text.
            if source:
                item_id = f"msg_{call.call_id}"
                events += [ev.MessageStarted(item_id, None), ev.TextDelta(item_id, source)]
                events.append(ev.MessageDone(item_id, None, source))
        return events


def read_calls(content: str) -> list[Call]:
    """Return the calls between two tags: usually one, none if the text is not understood."""
    start = BEFORE_JSON.match(content)
    text = content[start.end() :] if start is not None else ""
    for read in (_calls, _repaired_calls, _unescaped_call):
        try:
            return read(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue
    return []


def _calls(text: str) -> list[Call]:
    entries = _decode_entries(text)
    return [_call(entry) for entry in (entries if isinstance(entries, list) else [entries])]


def _repaired_calls(text: str) -> list[Call]:
    repaired, completed = _repair(text)
    if completed and "arguments" not in _decode_object(repaired):
        raise msgspec.DecodeError("The text is not a call.")  # they may have been cut off
    return _calls(repaired)


def _unescaped_call(text: str) -> list[Call]:
    found = UNESCAPED.fullmatch(text)
    if found is None:
        raise msgspec.DecodeError("The text is not a call.")
    return [Call(name=_decode_text(found["name"]), arguments=_object_text(found["arguments"]))]


def _call(entry: dict[str, msgspec.Raw]) -> Call:
    if "name" not in entry:
        raise msgspec.DecodeError("The text is not a call.")
    name = _decode_text(entry["name"])
    if "arguments" in entry:
        return Call(name=name, arguments=_arguments(bytes(entry["arguments"]).decode()))
    if entry.keys() <= WITHOUT_ARGUMENTS:
        return Call(name=name, arguments="{}")
    raise msgspec.DecodeError("The text is not a call.")


def _arguments(written: str) -> str:
    """Return the text of the arguments, which are an object, or a string with an object in it."""
    if written == "null":
        return "{}"
    if not written.startswith('"'):
        return _object_text(written)
    text = _decode_text(written)
    return _object_text(text) if text.strip() else "{}"


def _object_text(text: str) -> str:
    try:
        _decode_object(text)
    except msgspec.DecodeError:
        text, _ = _repair(text)
        _decode_object(text)
    return text


def _repair(text: str) -> tuple[str, bool]:
    """Return JSON text without the usual errors, and whether a last brace was added."""
    text = text.strip()
    kept: list[str] = []
    unclosed: list[str] = []
    for found in TOKEN.finditer(text):
        token = found.group()
        if token == '"':  # a string without an end
            return text, False
        if token in CLOSERS:
            unclosed.append(CLOSERS[token])
        elif unclosed and token == unclosed[-1]:
            unclosed.pop()
            _drop_comma(kept)
        kept.append(IN_STRING.sub(_escaped, token) if token.startswith('"') else token)
        if not unclosed:
            rest = text[found.end() :]
            return "".join(kept) + ("" if LEFT_BEHIND.fullmatch(rest) else rest), False
    # Where more than one brace is missing, this does not make it JSON.
    return "".join([*kept, "}"]), True


def _drop_comma(kept: list[str]) -> None:
    """Remove a trailing comma."""
    last = next((place for place in reversed(range(len(kept))) if not kept[place].isspace()), None)
    if last is not None and kept[last] == ",":
        del kept[last]


def _escaped(found: re.Match[str]) -> str:
    if found["control"]:
        return f"\\u{ord(found['control']):04x}"
    return found["escape"] or "\\\\"
