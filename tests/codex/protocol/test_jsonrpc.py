"""Lines on the pipe: cut from any chunks, and read as requests, answers and notifications."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.codex.protocol import jsonrpc
from turnbridge.codex.protocol.jsonrpc import Incoming, LineSplitter, RpcError


@given(st.lists(st.binary()))
def test_lines_do_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    stream = b"".join(chunks)
    complete = stream.split(b"\n")[:-1]
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == [line for line in complete if line]


@pytest.mark.parametrize(
    ("chunks", "lines", "endless"),
    [
        ([b"x" * 10, b"\n"], [b"x" * 10], False),
        ([b"x" * 5, b"x" * 5 + b"\n" + b"y" * 10, b"\n"], [b"x" * 10, b"y" * 10], False),
        ([b"x" * 11], [], True),
        ([b"a\n" + b"x" * 5, b"x" * 6, b"\nb\n"], [b"a"], True),
    ],
    ids=["as long as may be", "two of them", "too long", "too long after another"],
)
def test_a_line_that_does_not_end_ends_the_stream_and_is_not_held(
    chunks: list[bytes], lines: list[bytes], endless: bool
) -> None:
    splitter = LineSplitter()
    splitter.longest_bytes = 10
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == lines
    assert (splitter.endless, splitter._pieces) == (endless, [])


@given(st.lists(st.text()), st.integers(1, 9))
def test_messages_do_not_depend_on_the_chunks(methods: list[str], size: int) -> None:
    stream = b"".join(jsonrpc.encode_notification(method) for method in methods)
    splitter = LineSplitter()
    lines = [line for at in range(0, len(stream), size) for line in splitter.feed(stream[at : at + size])]
    assert [jsonrpc.decode_line(line) for line in lines] == [Incoming(method=method) for method in methods]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id":1,"result":{}}', Incoming(id=1, result=msgspec.Raw(b"{}"))),
        (
            b'{"id":"a","error":{"code":-32600,"message":"No.","data":[1]}}',
            Incoming(id="a", error=RpcError(-32600, "No.")),
        ),
        (
            b'{"method":"error","params":{"a":1},"emittedAtMs":7}',
            Incoming(method="error", params=msgspec.Raw(b'{"a":1}')),
        ),
        (
            b'{"jsonrpc":"2.0","id":0,"method":"item/tool/call","params":null}',
            Incoming(id=0, method="item/tool/call", params=msgspec.Raw(b"null")),
        ),
    ],
)
def test_every_kind_of_line_is_read(line: bytes, message: Incoming) -> None:
    assert jsonrpc.decode_line(line) == message


@pytest.mark.parametrize("line", [b"WARN: no JSON", b"[1]", b'{"id":{}}', b'{"method":"\xff"}', b'{"id":1'])
def test_a_line_that_is_no_message_is_an_error_that_the_reader_expects(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        jsonrpc.decode_line(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            jsonrpc.encode_request(1, "turn/start", {"input": []}),
            b'{"id":1,"method":"turn/start","params":{"input":[]}}\n',
        ),
        (jsonrpc.encode_request("a", "account/read", None), b'{"id":"a","method":"account/read","params":null}\n'),
        (jsonrpc.encode_notification("initialized"), b'{"method":"initialized"}\n'),
        (jsonrpc.encode_result(7, {"text": "a\nb"}), b'{"id":7,"result":{"text":"a\\nb"}}\n'),
        (jsonrpc.encode_refusal(7, "No."), b'{"id":7,"error":{"code":-32601,"message":"No."}}\n'),
    ],
)
def test_every_message_is_written_as_one_line(line: bytes, expected: bytes) -> None:
    assert line == expected
