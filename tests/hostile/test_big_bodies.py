"""Bodies of up to 16 MB, of every shape: none of them keeps another client waiting."""

from collections.abc import Iterator

import pytest

from tests.hostile.site import Site
from turnbridge.wire.body_budget import MAX_VALUES, MOST_ITEMS, MOST_PARTS
from turnbridge.wire.tools import MOST_TOOLS

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MOST_BYTES = 16 * 2**20 - 1024
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SAID = b'{"role":"user","content":"hi"}'


def filled(before: bytes, unit: bytes, after: bytes, *, most: int = MOST_BYTES) -> bytes:
    """Return a body in which the unit is repeated as often as there is room."""
    return before + unit * ((most - len(before) - len(after)) // len(unit)) + after


def numbered(before: bytes, unit: bytes, after: bytes, count: int) -> bytes:
    """Return a body with a list of units, `%d` in each of which is its number."""
    return before + b",".join(unit.replace(b"%d", b"%d" % number) for number in range(count)) + after


def asked(member: bytes) -> bytes:
    """Return the beginning of a Responses request whose last member begins so."""
    return b'{"model":"gpt-5.5","input":"hi",' + member


def shapes() -> Iterator[tuple[str, str, bytes]]:
    """Yield what it is, where it is sent, and the body."""
    chat = b'{"model":"gpt-5.5","messages":['
    listed = b'{"model":"gpt-5.5","input":['
    text = b'{"model":"gpt-5.5","messages":[{"role":"user","content":"'
    then = b'"},' + SAID + b"]}"
    yield "one text", CHAT, filled(text, b"x", then)
    yield "escapes", CHAT, filled(text, b"\\u00e9", then)
    yield "quotation marks", CHAT, filled(text, b'\\"', then)
    yield "control characters", CHAT, filled(text, b"\\u0001", then)
    yield "messages", CHAT, filled(chat, SAID + b",", SAID + b"]}")
    yield "items", RESPONSES, filled(listed, SAID + b",", SAID + b"]}")
    yield (
        "parts",
        CHAT,
        filled(chat + b'{"role":"user","content":[', b'{"type":"text","text":"x"},', b'{"type":"text","text":"x"}]}]}'),
    )
    yield "text parts", RESPONSES, filled(listed + b'{"role":"user","content":[', b'"x",', b'"x"]}]}')
    yield "numbers", RESPONSES, filled(asked(b'"u":['), b"0,", b"0]}")
    yield "empty arrays", RESPONSES, filled(asked(b'"u":['), b"[],", b"[]]}")
    yield "empty objects", RESPONSES, filled(asked(b'"u":['), b"{},", b"{}]}")
    yield "long numbers", RESPONSES, filled(asked(b'"u":['), b"9" * 4000 + b",", b"0]}")
    yield "long decimals", RESPONSES, filled(asked(b'"u":['), b"0." + b"9" * 700 + b"e-300,", b"0]}")
    yield "one long number", RESPONSES, filled(asked(b'"max_output_tokens":'), b"9", b"}")
    yield "open brackets", RESPONSES, filled(asked(b'"u":'), b"[", b"")
    yield "deep", RESPONSES, asked(b'"u":') + b"[" * 900 + b"]" * 900 + b"}"
    yield "duplicate keys", RESPONSES, filled(asked(b""), b'"u":1,', b'"u":1}')
    yield "unknown parameters", RESPONSES, numbered(asked(b""), b'"u%d":1', b"}", 100_000)
    yield "a long key", RESPONSES, filled(asked(b'"'), b"k", b'":1}')
    yield "tools", RESPONSES, numbered(asked(b'"tools":['), b'{"type":"function","name":"f%d"}', b"]}", 100_000)
    call = b'{"type":"function_call","call_id":"c%d","name":"f","arguments":"{}"},'
    output = b'{"type":"function_call_output","call_id":"c%d","output":"x"}'
    yield "calls", RESPONSES, numbered(listed, call + output, b"]}", 100_000)
    calls = b'{"role":"assistant","tool_calls":['
    one = b'{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}'
    yield "calls of one message", CHAT, numbered(chat + calls, one, b"]}]}", 60_000)
    thought = b'{"type":"reasoning","summary":['
    yield "thoughts", RESPONSES, filled(listed + thought, b'{"text":"x"},', b'{"text":"x"}]}]}', most=2_000_000)
    yield "white space", RESPONSES, filled(b'{"model":"gpt-5.5",', b" ", b'"input":"hi"}')
    yield "a long model", RESPONSES, filled(b'{"input":"hi","model":"', b"m", b'"}')
    yield "a long role", CHAT, filled(chat + b'{"content":"hi","role":"', b"r", b'"}]}')
    yield "a long stop", RESPONSES, filled(asked(b'"stop":"'), b"s", b'"}')
    yield "a long tool name", RESPONSES, filled(asked(b'"tools":[{"type":"function","name":"'), b"a.", b'"}]}')
    instructions = filled(asked(b'"instructions":"'), b"i", b'"}')
    yield "instructions", RESPONSES, instructions
    yield (
        "a description",
        RESPONSES,
        filled(asked(b'"tools":[{"type":"function","name":"f","description":"'), b"d", b'"}]}'),
    )


def largest() -> Iterator[tuple[str, str, bytes]]:
    """Yield bodies that reach a limit and do not exceed it: all of the work on them is done."""
    chat = b'{"model":"gpt-5.5","store":true,"messages":['
    listed = b'{"model":"gpt-5.5","input":['
    yield "most messages", CHAT, numbered(chat, SAID, b"]}", MOST_ITEMS)
    yield "most items", RESPONSES, numbered(listed, SAID, b"]}", MOST_ITEMS)
    parts = b'{"role":"user","content":['
    yield "most parts", RESPONSES, numbered(listed + parts, b'{"type":"input_text","text":"%d"}', b"]}]}", MOST_PARTS)
    call = b'{"type":"function_call","call_id":"c%d","name":"f","arguments":"{\\"n\\": %d}"},'
    output = b'{"type":"function_call_output","call_id":"c%d","output":"x"}'
    yield "most calls", RESPONSES, numbered(listed, call + output, b"]}", MOST_ITEMS // 2)
    yield (
        "most tools",
        RESPONSES,
        numbered(asked(b'"tools":['), b'{"type":"function","name":"f.%d"}', b"]}", MOST_TOOLS),
    )
    same = b'{"type":"function","name":"' + b"." * 200 + b'%d"}'
    yield "tools of one name", RESPONSES, numbered(asked(b'"tools":['), same, b"]}", MOST_TOOLS)
    raw = b'{"type":"web_search_call","id":"ws","status":"completed","action":{"type":"search","queries":['
    yield "most values", RESPONSES, numbered(listed + raw, b'"%d"', b"]}}," + SAID + b"]}", MAX_VALUES - 100)


def media() -> Iterator[tuple[str, str, bytes]]:
    """Yield the same for images and files."""
    part = b'{"model":"gpt-5.5","messages":[{"role":"user","content":[{"type":'
    end = b'"}}]},' + SAID + b"]}"
    image = part + b'"image_url","image_url":{"url":"'
    yield "a long image URL", CHAT, filled(image + b"https://example.invalid/", b"x", end)
    yield "a long host", CHAT, filled(image + b"https://", "é".encode(), end)
    yield "image data", CHAT, filled(image + b"data:image/png;base64,", b"AAAA", end)
    yield "image data in pieces", CHAT, filled(image + b"data:image/png;base64,", b"A ", end)
    file = part + b'"file","file":{"filename":"'
    yield "a long file name", CHAT, filled(file, b".", b'","file_data":"AAAA' + end)
    yield "text file", CHAT, filled(file + b'a.txt","file_data":"', b"eHh4", end)
    yield "untold file in pieces", CHAT, filled(file + b'a","file_data":"', b"e H h 4 ", end)
    yield "control characters in a file", CHAT, filled(file + b'a.txt","file_data":"', b"AQEB", end)


SHAPES = {name: (route, body) for name, route, body in (*shapes(), *largest(), *media())}


@pytest.mark.parametrize("name", SHAPES)
async def test_no_body_keeps_others_waiting(site: Site, name: str) -> None:
    route, body = SHAPES[name]

    async def send() -> None:
        reply = await site.hostile.post(route, content=body, headers={"content-type": "application/json"})
        print(name, reply.status_code, reply.text[:200])
        assert reply.status_code in (200, 400, 404, 413), reply.text[:500]
        assert len(reply.content) < MOST_BYTES // 2 or reply.status_code == 200

    await site.assert_undisturbed(send)
