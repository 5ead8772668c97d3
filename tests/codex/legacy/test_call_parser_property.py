"""What holds for every text a model could write: nothing lost, nothing doubled, and chunks make no difference."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codex.legacy.reading import (
    NAMES,
    calls,
    prose,
    read,
    written,
)
from turnbridge.codex.legacy.calls import Text
from turnbridge.codex.legacy.flat_text import example_call, render_call
from turnbridge.turn.items import Json

# What blocks are made of, whole and broken.
FRAGMENTS = (
    *("<tool_call>", "</tool_call>", "<tool_call", "</tool_", "<", ">", "<tool_output>"),
    *("```", "```json\n", "`", "``", "json", "\n", " ", "\t"),
    *("{", "}", "[", "]", '"', "\\", '\\"', ",", ":", "1", "null"),
    *('{"name":"f","arguments":', '"{}"', '{"a":1}', r'"{\"a\":\"</tool_call>\"}"', '{"name":"unknown"}'),
    *('<tool_call>{"name":"f","arguments":{}}</tool_call>', '```\n<tool_call>{"name":"f"}'),
    *("Hello", "é", "\U0001f600", "\ud800", "\x1c", "\u2028"),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=20).map("".join)


@st.composite
def chunked(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[str]:
    text = draw(texts)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@settings(max_examples=500)
@given(chunked(TEXTS))
def test_any_chunks_give_the_same_pieces(chunks: list[str]) -> None:
    text = "".join(chunks)
    whole = read([text])
    assert read(chunks) == whole
    assert read(text) == whole


@given(TEXTS)
def test_the_pieces_together_are_the_text_and_every_call_is_declared_with_an_object(text: str) -> None:
    pieces = read([text])
    assert written(pieces) == text
    for name, arguments in calls(pieces):
        assert name in NAMES
        assert isinstance(json.loads(arguments), dict)


VALUES: st.SearchStrategy[Json] = st.one_of(
    st.sampled_from([text for text in FRAGMENTS if text != "\ud800"]),
    st.sampled_from([None, True, -1.5, 10**20, [], {}, {"a": ["}", {"</tool_call>": "`\\"}]}]),
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, str, str]:
    """Return a block in one of the forms that models use, with the name and the arguments that it means."""
    name = draw(st.sampled_from(NAMES))
    arguments = draw(st.dictionaries(st.text(max_size=2), VALUES, max_size=3))
    form = draw(st.sampled_from(["asked for", "history", "string", "object"]))
    compact = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    spaced = json.dumps(arguments, indent=draw(st.sampled_from([None, 1])))
    match form:
        case "asked for":
            return example_call(name, arguments), name, compact
        case "history":
            return render_call("call_1", name, spaced), name, spaced
        case "string":
            return f"<tool_call>\n{json.dumps({'name': name, 'arguments': spaced})}\n</tool_call>", name, spaced
        case _:
            return f'<tool_call>{{"name": "{name}", "arguments": {spaced}}}</tool_call>', name, spaced


# Without what starts a block, or could belong to one that stands before or after.
PROSE = st.lists(
    st.sampled_from(["Hello", "<", "<tool", "tool_call>", "</p>", " ", "\n", "{", '"', "é", "`a`"]), max_size=6
).map(lambda parts: f"{''.join(parts)}.")


@given(st.lists(st.tuples(PROSE, blocks()), max_size=4), PROSE, st.integers(1, 40))
def test_calls_come_back_from_among_prose(said: list[tuple[str, tuple[str, str, str]]], last: str, size: int) -> None:
    text = "".join(before + block for before, (block, _, _) in said) + last
    pieces = read(text[start : start + size] for start in range(0, len(text), size))
    assert calls(pieces) == [(name, arguments) for _, (_, name, arguments) in said]
    assert prose(pieces) == "".join(before for before, _ in said) + last
    assert written(pieces) == text


@given(blocks(), st.data())
def test_a_call_that_is_cut_off_is_whole_or_text(block: tuple[str, str, str], data: st.DataObject) -> None:
    text, name, arguments = block
    cut = text[: data.draw(st.integers(0, len(text)))]
    pieces = read([cut])
    assert calls(pieces) == [(name, arguments)] or pieces == ([Text(text=cut)] if cut else [])
