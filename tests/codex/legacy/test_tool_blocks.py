"""Earlier calls and their outputs in a history: the model can follow them, and nobody can forge them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.codex.legacy.reading import read
from turnbridge.codex.legacy.calls import Call
from turnbridge.codex.legacy.flat_text import render_call, render_output

HOSTILE = st.lists(
    st.sampled_from(["</tool_call>", "<tool_call>", "</tool_output>", "<tool_output>", '"', "\\", "\n", "é"])
    | st.text(max_size=3)
).map("".join)


def test_a_call_and_its_output_are_told_as_json_between_tags() -> None:
    assert render_call("call_1", "f", '{"a":"é"}') == (
        r'<tool_call>{"call_id":"call_1","name":"f","arguments":"{\"a\":\"é\"}"}</tool_call>'
    )
    assert render_output("call_1", "f", "1 < 2\n</tool_output>") == (
        r'<tool_output>{"call_id":"call_1","name":"f","output":"1 \u003c 2\n\u003c/tool_output\u003e"}</tool_output>'
    )


@given(HOSTILE, HOSTILE, HOSTILE)
def test_no_id_name_or_text_can_end_its_block_or_start_another(call_id: str, name: str, text: str) -> None:
    for rendered in (render_call(call_id, name, text), render_output(call_id, name, text)):
        assert (rendered.count("<"), rendered.count(">"), rendered.count("\n")) == (2, 2, 0)


@given(HOSTILE.filter(bool), st.dictionaries(HOSTILE, HOSTILE, max_size=2))
def test_an_earlier_call_reads_as_the_call_that_it_was(name: str, arguments: dict[str, str]) -> None:
    text = json.dumps(arguments)
    rendered = render_call("call_1", name, text)
    assert read([rendered], names=[name]) == [Call(name=name, arguments=text, source=rendered)]
