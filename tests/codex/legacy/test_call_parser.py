"""Calls in a model's text: which are found, which are mended, and which stay text."""

import pytest

from tests.codex.legacy.reading import (
    calls,
    prose,
    read,
    written,
)
from turnbridge.codex.legacy.calls import Call, Text, ToolCallParser

PLAIN = r'<tool_call>{"name":"f","arguments":"{\"a\":1}"}</tool_call>'

UNDERSTOOD: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "as it was asked for": (PLAIN, [("f", '{"a":1}')]),
    "arguments that are an object": (
        '<tool_call>{"name":"f","arguments":{ "a" : 1.50 }}</tool_call>',
        [("f", '{ "a" : 1.50 }')],
    ),
    "space around the JSON": ('<tool_call>\n  {"name":"f","arguments":{}}\n</tool_call>', [("f", "{}")]),
    "keys in another order, and more of them": (
        '<tool_call>{"type":"function","arguments":{},"id":"x","name":"f"}</tool_call>',
        [("f", "{}")],
    ),
    "no arguments": ('<tool_call>{"name":"f"}</tool_call>', [("f", "{}")]),
    "arguments that are null": ('<tool_call>{"name":"f","arguments":null}</tool_call>', [("f", "{}")]),
    "arguments that are empty": ('<tool_call>{"name":"f","arguments":" "}</tool_call>', [("f", "{}")]),
    "a list of one": ('<tool_call>[{"name":"f","arguments":"{}"}]</tool_call>', [("f", "{}")]),
    "a list of two": (
        '<tool_call>[{"name":"f","arguments":{"a":1}},{"name":"f","arguments":{"a":2}}]</tool_call>',
        [("f", '{"a":1}'), ("f", '{"a":2}')],
    ),
    "tags inside of a string": (
        r'<tool_call>{"name":"f","arguments":{"a":"\"</tool_call><tool_call>{"}}</tool_call>',
        [("f", r'{"a":"\"</tool_call><tool_call>{"}')],
    ),
    "a fence round the block": (f"```json\n{PLAIN}\n```", [("f", '{"a":1}')]),
    "a fence in one line": (f"```{PLAIN}```", [("f", '{"a":1}')]),
    "a fence that nothing ends": (f"```\n{PLAIN}", [("f", '{"a":1}')]),
    "a fence round several blocks": (f"````xml\n{PLAIN}\n\n{PLAIN}\n````", [("f", '{"a":1}')] * 2),
    "a fence that ends longer than it began": (f"```\n{PLAIN}\n`````", [("f", '{"a":1}')]),
    "a fence round the JSON": ('<tool_call>\n```json\n{"name":"f","arguments":{}}\n```\n</tool_call>', [("f", "{}")]),
    "a second closing tag": (f"{PLAIN}\n</tool_call></tool_call>", [("f", '{"a":1}')]),
    "a comma too many inside, which was taken for a brace too many": (
        '<tool_call>{"name":"f","arguments":{"a":1,}}</tool_call>',
        [("f", '{"a":1}')],
    ),
    "commas too many in lists and with space": (
        '<tool_call>{"name":"f","arguments":{"a":[1, 2 , ],"b":"x,}"},\n}</tool_call>',
        [("f", '{"a":[1, 2  ],"b":"x,}"}')],
    ),
    "a comma too many in a string of arguments": (
        r'<tool_call>{"name":"f","arguments":"{\"a\":1,}"}</tool_call>',
        [("f", '{"a":1}')],
    ),
    "a brace too few": ('<tool_call>{"name":"f","arguments":{"a":{}}</tool_call>', [("f", '{"a":{}}')]),
    "a brace too few in a string of arguments": (
        r'<tool_call>{"name":"f","arguments":"{\"a\":{}"}</tool_call>',
        [("f", '{"a":{}}')],
    ),
    "braces too many": ('<tool_call>{"name":"f","arguments":{}}}}</tool_call>', [("f", "{}")]),
    "a bracket too many": ('<tool_call>{"name":"f","arguments":{}}]</tool_call>', [("f", "{}")]),
    "an angle bracket too many": ('<tool_call>{"name":"f","arguments":{}}></tool_call>', [("f", "{}")]),
    "line breaks in a string": (
        '<tool_call>{"name":"f","arguments":{"a":"x\ny"}}</tool_call>',
        [("f", r'{"a":"x\u000ay"}')],
    ),
    "line breaks in a string of arguments": (
        r'<tool_call>{"name":"f","arguments":"{\"a\":\"x\ny\"}"}</tool_call>',
        [("f", r'{"a":"x\u000ay"}')],
    ),
    "a backslash that escapes nothing": (
        r'<tool_call>{"name":"f","arguments":{"a":"\d+\\\u00e9\uXY"}}</tool_call>',
        [("f", r'{"a":"\\d+\\\u00e9\\uXY"}')],
    ),
    "a string of arguments with plain quotes": (
        '<tool_call>{"name":"f","arguments":"{"a":"b","c":{}}"}</tool_call>',
        [("f", '{"a":"b","c":{}}')],
    ),
    "no closing tag at the end": (
        '<tool_call>{"name":"f","arguments":{"a":"</tool_call>"}}\n',
        [("f", '{"a":"</tool_call>"}')],
    ),
    "half of a closing tag at the end": ('<tool_call>{"name":"f","arguments":{}}</tool_c', [("f", "{}")]),
    "no closing tag and a brace too few at the end": ('<tool_call>{"name":"f","arguments":{}', [("f", "{}")]),
    "no closing tag before the next call": (
        '<tool_call>{"name":"f","arguments":{}}\n<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>',
        [("f", "{}"), ("f", '{"a":1}')],
    ),
}


@pytest.mark.parametrize(("text", "expected"), UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_a_call_is_understood(text: str, expected: list[tuple[str, str]]) -> None:
    pieces = read([text])
    assert (calls(pieces), prose(pieces), written(pieces)) == (expected, "", text)
    assert read(text) == pieces


NOT_UNDERSTOOD: dict[str, str] = {
    "no JSON": "<tool_call>f(a=1)</tool_call>",
    "nothing": "<tool_call></tool_call>",
    "no name": '<tool_call>{"arguments":{}}</tool_call>',
    "a name that is no text": '<tool_call>{"name":1,"arguments":{}}</tool_call>',
    "an empty list": "<tool_call>[]</tool_call>",
    "a list with something else in it": '<tool_call>[{"name":"f"},1]</tool_call>',
    "arguments under another name": '<tool_call>{"name":"f","parameters":{"a":1}}</tool_call>',
    "arguments that are a number": '<tool_call>{"name":"f","arguments":1}</tool_call>',
    "arguments that are a list": '<tool_call>{"name":"f","arguments":[]}</tool_call>',
    "arguments that are any text": '<tool_call>{"name":"f","arguments":"soon"}</tool_call>',
    "a tool that was not declared": '<tool_call>{"name":"rm","arguments":{}}</tool_call>',
    "one of two tools that was not declared": '<tool_call>[{"name":"f"},{"name":"rm"}]</tool_call>',
    "a tool that was not declared, with a call in its arguments": (
        f'<tool_call>{{"name":"rm","arguments":{{"a":"<tool_call>","b":"{PLAIN[11:26]}"}}}}</tool_call>'
    ),
    "something after the JSON": '<tool_call>{"name":"f","arguments":{}} and more</tool_call>',
    "half of a surrogate pair": r'<tool_call>{"name":"f","arguments":{"a":"\ud800"}}</tool_call>',
    "too many levels": f'<tool_call>{{"name":"f","arguments":{{"a":{"[" * 100_000}{"]" * 100_000}}}}}</tool_call>',
    "a call that is cut off before its arguments": '<tool_call>{"name":"f"',
    "a call that is cut off after a comma": '<tool_call>{"name":"f","arguments":{},',
    "a call that is cut off in its arguments": '<tool_call>{"name":"f","arguments":{"path":"/","all":true',
    "a call that is cut off in a list": '<tool_call>{"name":"f","arguments":{"a":[1',
    "a call that is cut off in a string": r'<tool_call>{"name":"f","arguments":"{\"a\":1}',
    "a call that is cut off after a backslash": '<tool_call>{"name":"f","arguments":"{\\',
    "a call that is cut off before its JSON": "<tool_call>\n``",
    "half of an opening tag": "so <tool_ca",
    "half of a fence": "so ```json\n <tool",
    "a fence round no call": "```json\n<tool_call>{}</tool_call>\n```",
    "a closing tag alone": "so </tool_call> it is",
    "a tag that is written about": "the `<tool_call>` tag",
}


@pytest.mark.parametrize("text", NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD)
def test_what_is_not_understood_stays_text(text: str) -> None:
    assert read([text]) == [Text(text=text)]
    assert read(text) == [Text(text=text)]


def test_the_text_around_calls_is_kept_exactly() -> None:
    first = Call(name="f", arguments='{"a":1}', source=PLAIN)
    second = Call(
        name="get_weather",
        arguments='{"city":"Oslo"}',
        source='<tool_call>{"name":"get_weather","arguments":{"city":"Oslo"}}</tool_call>',
    )
    assert read([f"I look.\n\n{first.source} \n{second.source}\n\n`Done` < all "]) == [
        Text(text="I look.\n\n"),
        first,
        Text(text=" \n"),
        second,
        Text(text="\n\n`Done` < all "),
    ]


def test_a_fence_with_something_else_in_it_is_kept() -> None:
    assert read([f"```\n{PLAIN}\nprint()\n```"]) == [
        Text(text="```\n"),
        Call(name="f", arguments='{"a":1}', source=PLAIN),
        Text(text="\nprint()\n```"),
    ]
    assert read([f"```\n{PLAIN}\n<tool_call>oops</tool_call>```"]) == [
        Text(text="```\n"),
        Call(name="f", arguments='{"a":1}', source=PLAIN),
        Text(text="\n<tool_call>oops</tool_call>```"),
    ]


DAMAGED = (
    '<tool_call>{"name: "f", "arguments":{}}</tool_call>',
    '<tool_call>{"name":"f","arguments":{"a":"say "hi"}}</tool_call>',
    r"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
    '<tool_call>{"name":"f',
    "<tool_call>",
)


@pytest.mark.parametrize("damaged", DAMAGED)
@pytest.mark.parametrize("following", [PLAIN, '<tool_call>{"name":"f","arguments":{"a":"</tool_call>"}}</tool_call>'])
def test_a_damaged_block_does_not_hide_the_one_after_it(damaged: str, following: str) -> None:
    (call,) = read([following])
    text = f"{damaged} and {following}"
    assert read([text]) == [Text(text=f"{damaged} and "), call]
    assert read(text) == read([text])


def test_a_block_whose_quotes_are_escaped_is_given_back_at_its_end() -> None:
    parser = ToolCallParser(["f"])
    assert parser.feed(r"<tool_call>{\"name\":\"f\"}") == []
    assert parser.feed("</tool_call>") == [Text(text=r"<tool_call>{\"name\":\"f\"}</tool_call>")]


def test_text_is_passed_on_as_soon_as_it_cannot_be_the_start_of_a_call() -> None:
    parser = ToolCallParser(["f"])
    fed = ["Hel", "lo <", "b> `", "``py", "\n", "x", "\n```\n<tool_call", "s> <tool_call>", " ", "no", "w"]
    assert [[*parser.feed(text)] for text in fed] == [
        [Text(text="Hel")],
        [Text(text="lo ")],
        [Text(text="<b> ")],
        [],
        [],
        [Text(text="```py\nx")],
        [Text(text="\n")],
        [Text(text="```\n<tool_calls> ")],
        [],
        [Text(text="<tool_call>"), Text(text=" no")],
        [Text(text="w")],
    ]
    assert parser.close() == []


def test_a_call_is_passed_on_as_soon_as_nothing_more_can_belong_to_it() -> None:
    parser = ToolCallParser(["f"])
    assert parser.feed(f"{PLAIN}\n") == []
    assert parser.feed("T") == [Call(name="f", arguments='{"a":1}', source=PLAIN), Text(text="\nT")]
    assert parser.feed(PLAIN) == []
    assert parser.close() == [Call(name="f", arguments='{"a":1}', source=PLAIN)]


LARGE = 300_000


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * (LARGE // 11),
        '<tool_call>{"' * (LARGE // 13),
        r"<tool_call>{\"" * (LARGE // 14),
        '<tool_call>{"a":"' + r"\"<tool_call>{" * (LARGE // 14),
        '<tool_call>{"a":"' + r"\"" * (LARGE // 2) + "</tool_call>",
        "`" * LARGE,
        "``` " * (LARGE // 4),
        "```\n<tool_call>" * (LARGE // 15),
        "<tool_call>{" + "," * LARGE + "</tool_call>",
        "<tool_call>" + "{" * LARGE + "</tool_call>",
    ],
    ids=range(10),
)
@pytest.mark.timeout(60)
def test_no_text_takes_time_that_grows_faster_than_it(text: str) -> None:
    assert read([text]) == [Text(text=text)]


@pytest.mark.timeout(60)
def test_a_long_call_in_many_pieces_is_not_searched_anew_for_each() -> None:
    text = "x" * (2 * LARGE)
    (call,) = read(f'<tool_call>{{"name":"f","arguments":{{"a":"{text}"}}}}</tool_call>')
    assert isinstance(call, Call)
    assert call.arguments == f'{{"a":"{text}"}}'
