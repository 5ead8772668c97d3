"""Finds the calls in a model's text while it is still being written.

Nothing is lost and nothing is doubled: the texts and the sources of the calls, joined, are what the model wrote. How
it was cut into chunks makes no difference. Text is held back only while it may still belong to a call.

Tags inside a JSON string mean nothing. If the JSON turns out to be damaged, its quotes do not tell what is a string:
the first tag ends the block then, so that the blocks after it are still found.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, assert_never

from turnbridge.codex.legacy.json_repair import BEFORE_JSON, read_calls
from turnbridge.codex.legacy.tool_blocks import CLOSE_CALL, OPEN_CALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What the model said outside of calls."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a declared tool."""

    name: str
    arguments: str
    """The text of a JSON object."""
    source: str
    """The text that it was read from; the first has it of several calls in one block."""


Piece: TypeAlias = Text | Call

_Stage: TypeAlias = Literal["prose", "block", "after"]


def _beginnings(tag: str) -> str:
    """Return a pattern for a tag whose end is missing."""
    return "|".join(re.escape(tag[:length]) for length in range(len(tag) - 1, 0, -1))


# Models like to put a fence round their blocks. It goes with them if there is nothing else in it.
_START = re.compile(rf"(?:(?<!`)(?P<fence>`{{3,}}+)\w*+\s*+)?(?P<tag>{OPEN_CALL})")
_MAYBE_START = re.compile(
    rf"(?:(?<!`)(?:`{{1,2}}|`{{3,}}+\w*+\s*+(?:{_beginnings(OPEN_CALL)})?)|{_beginnings(OPEN_CALL)})\Z"
)
_MAYBE_BEFORE_JSON = re.compile(r"\s*+(?:`{1,2}|`{3,}+\w*+\s*+)?\Z")
_TAG = re.compile(f"{OPEN_CALL}|{CLOSE_CALL}")
_MAYBE_TAG = re.compile(rf"(?:{_beginnings(OPEN_CALL)}|{_beginnings(CLOSE_CALL)})\Z")
_AFTER = re.compile(rf"\s*+(?:(?P<close>{CLOSE_CALL})|(?P<open>(?={OPEN_CALL}))|(?P<fence>`++))?")
_MAYBE_AFTER = re.compile(rf"\s*+(?:{_beginnings(OPEN_CALL)}|{_beginnings(CLOSE_CALL)}|`*+)\Z")
_OUTSIDE_STRINGS = re.compile(r'["\\<]')
_INSIDE_STRINGS = re.compile(r'["\\]')


class _End(NamedTuple):
    """Where in the text a block ends, and where what is in it."""

    content: int
    block: int


class _EndOfBlock:
    """Looks for the end of one block in a text that grows."""

    def __init__(self, content: int) -> None:
        self._content = self._seen = content
        self._in_string = False
        self._trusts_quotes = True

    def find(self, text: str, *, final: bool) -> _End | None:
        """Return where the block ends; nothing if more text must come first."""
        tag = self._tag_outside_strings(text)
        if not self._trusts_quotes:
            tag = _TAG.search(text, self._seen)
            self._seen = max(self._content, len(text) - len(CLOSE_CALL))
        if tag is not None:
            return _End(content=tag.start(), block=tag.start() if tag.group() == OPEN_CALL else tag.end())
        if not final:
            return None
        cut_off = _MAYBE_TAG.search(text, self._content)
        return _End(content=len(text) if cut_off is None else cut_off.start(), block=len(text))

    def distrust_quotes(self) -> bool:
        """Look again, for any tag; tell whether that is another search than before."""
        trusted, self._trusts_quotes, self._seen = self._trusts_quotes, False, self._content
        return trusted

    def _tag_outside_strings(self, text: str) -> re.Match[str] | None:
        while self._trusts_quotes:
            found = (_INSIDE_STRINGS if self._in_string else _OUTSIDE_STRINGS).search(text, self._seen)
            if found is None:
                self._seen = max(self._seen, len(text))
                return None
            self._seen = found.end()
            if found.group() == '"':
                self._in_string = not self._in_string
            elif self._in_string:
                self._seen += 1  # what is escaped, even if it has not come yet
            elif found.group() == "\\":
                self.distrust_quotes()  # JSON has none here: the quotes are wrong
            elif tag := _TAG.match(text, found.start()):
                return tag
            elif _MAYBE_TAG.match(text, found.start()):
                self._seen = found.start()
                return None
        return None


class _Placed(NamedTuple):
    """A call, and the text right before it that belongs to the call if nothing else is in the fence."""

    before: str
    call: Call


class ToolCallParser:
    """Takes the text of one message apart. A call of a tool that is not among `names` stays text."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._text = ""
        self._passed = 0  # how much of the text is done with
        self._stage: _Stage = "prose"
        self._before = ""  # what stands between a fence, or the last call in it, and the block
        self._fence = 0  # the length of the fence before the first block, if there is one
        self._calls: list[_Placed] = []  # those of which it is not yet known what belongs to them
        self._end = _EndOfBlock(0)

    def feed(self, text: str) -> list[Piece]:
        """Return what is certain once `text` has come."""
        if self._stage != "block":  # whose end is being looked for at known places
            self._text, self._passed = self._text[self._passed :], 0
        self._text += text
        return self._pieces(final=False)

    def close(self) -> list[Piece]:
        """Return the rest, since no more text comes."""
        return self._pieces(final=True)

    def _pieces(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        while (found := self._next(final=final)) is not None:
            pieces += found
        return [piece for piece in pieces if isinstance(piece, Call) or piece.text]

    def _next(self, *, final: bool) -> list[Piece] | None:
        """Return what is found next; nothing if more text must come first."""
        match self._stage:
            case "prose":
                return self._prose(final=final)
            case "block":
                return self._block(final=final)
            case "after":
                return self._after(final=final)
            case _:
                assert_never(self._stage)

    def _prose(self, *, final: bool) -> list[Piece] | None:
        start = _START.search(self._text, self._passed)
        if start is not None:
            prose = self._take(start.start())
            self._fence = len(start["fence"] or "")
            self._enter_block(start.start("tag"))
            return [Text(text=prose)]
        maybe = None if final else _MAYBE_START.search(self._text, self._passed)
        prose = self._take(len(self._text) if maybe is None else maybe.start())
        return [Text(text=prose)] if prose else None

    def _enter_block(self, start: int) -> None:
        self._before = self._take(start)
        self._stage = "block"
        self._end = _EndOfBlock(start + len(OPEN_CALL))

    def _block(self, *, final: bool) -> list[Piece] | None:
        content = self._passed + len(OPEN_CALL)
        if BEFORE_JSON.match(self._text, content) is None:
            unknown = not final and _MAYBE_BEFORE_JSON.match(self._text, content)
            return None if unknown else self._give_back(content)
        end = self._end.find(self._text, final=final)
        if end is None:
            return None
        calls = read_calls(self._text[content : end.content])
        if not calls and self._end.distrust_quotes():
            return []
        if not calls or any(call.name not in self._names for call in calls):
            return self._give_back(end.block)
        for call in calls:
            placed = Call(name=call.name, arguments=call.arguments, source=self._take(end.block))
            self._calls.append(_Placed(self._before, placed))
            self._before = ""
        self._stage = "after"
        return []

    def _after(self, *, final: bool) -> list[Piece] | None:
        """Find out whether what follows a call belongs to it: a second closing tag, or the end of its fence."""
        if not final and _MAYBE_AFTER.match(self._text, self._passed):
            return None
        found = _AFTER.match(self._text, self._passed)
        assert found is not None  # it matches any text
        if found["close"]:
            self._add_to_last(found.end())
            return []
        if self._fence and found["open"] is not None:
            self._enter_block(found.end())
            return []
        closed = bool(self._fence) and len(found["fence"] or "") >= self._fence
        if closed:
            self._add_to_last(found.end())
        return self._release(whole=closed or found.end() == len(self._text))

    def _add_to_last(self, end: int) -> None:
        before, call = self._calls[-1]
        self._calls[-1] = _Placed(before, replace(call, source=call.source + self._take(end)))

    def _release(self, *, whole: bool) -> list[Piece]:
        """Return the calls, and what stands before them: as part of them if the fence has nothing else in it."""
        pieces: list[Piece] = []
        for before, call in self._calls:
            pieces += [replace(call, source=before + call.source)] if whole else [Text(text=before), call]
        self._calls, self._fence, self._stage = [], 0, "prose"
        return pieces

    def _give_back(self, end: int) -> list[Piece]:
        """Return as text what turned out to be no call."""
        return [*self._release(whole=False), Text(text=self._before), Text(text=self._take(end))]

    def _take(self, end: int) -> str:
        """Return the text up to a place, which is done with then."""
        start, self._passed = self._passed, end
        return self._text[start:end]
