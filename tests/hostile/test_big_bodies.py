"""Bodies of up to 16 MB, of every shape: none of them keeps another client waiting."""

import random
from collections.abc import Iterator

import pytest

from tests.hostile.site import Site
from turnbridge.api.shared.body_budget import MAX_ITEMS, MAX_PARTS, MAX_VALUES
from turnbridge.api.shared.tools import MAX_TOOLS

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


def texts() -> Iterator[tuple[str, str, bytes]]:
    """Yield what it is, where it is sent, and the body: with one long text."""
    text = b'{"model":"gpt-5.5","messages":[{"role":"user","content":"'
    then = b'"},' + SAID + b"]}"
    yield "one text", CHAT, filled(text, b"x", then)
    yield "escapes", CHAT, filled(text, b"\\u00e9", then)
    yield "quotation marks", CHAT, filled(text, b'\\"', then)
    instructions = filled(asked(b'"instructions":"'), b"i", b'"}')
    yield "instructions", RESPONSES, instructions
    tool = b'"tools":[{"type":"function","name":"'
    yield "a description", RESPONSES, filled(asked(tool + b'f","description":"'), b"d", b'"}]}')
    yield "a long model", RESPONSES, filled(b'{"input":"hi","model":"', b"m", b'"}')
    yield "a long role", CHAT, filled(b'{"model":"gpt-5.5","messages":[{"content":"hi","role":"', b"r", b'"}]}')
    yield "a long stop", RESPONSES, filled(asked(b'"stop":"'), b"s", b'"}')
    yield "a long tool name", RESPONSES, filled(asked(tool), b"a.", b'"}]}')
    yield "a long key", RESPONSES, filled(asked(b'"'), b"k", b'":1}')


def lists() -> Iterator[tuple[str, str, bytes]]:
    """Yield the same with more values than are read."""
    chat = b'{"model":"gpt-5.5","messages":['
    listed = b'{"model":"gpt-5.5","input":['
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
    yield "duplicate keys", RESPONSES, filled(asked(b""), b'"u":1,', b'"u":1}')
    yield "unknown parameters", RESPONSES, numbered(asked(b""), b'"u%d":1', b"}", 100_000)
    yield "tools", RESPONSES, numbered(asked(b'"tools":['), b'{"type":"function","name":"f%d"}', b"]}", 100_000)
    call = b'{"type":"function_call","call_id":"c%d","name":"f","arguments":"{}"},'
    output = b'{"type":"function_call_output","call_id":"c%d","output":"x"}'
    yield "calls", RESPONSES, numbered(listed, call + output, b"]}", 100_000)
    calls = b'{"role":"assistant","tool_calls":['
    one = b'{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}'
    yield "calls of one message", CHAT, numbered(chat + calls, one, b"]}]}", 60_000)
    thought = b'{"type":"reasoning","summary":['
    yield "thoughts", RESPONSES, filled(listed + thought, b'{"text":"x"},', b'{"text":"x"}]}]}', most=2_000_000)


def oddities() -> Iterator[tuple[str, str, bytes]]:
    """Yield the same with what is no JSON, or looks like little."""
    yield "one long number", RESPONSES, filled(asked(b'"max_output_tokens":'), b"9", b"}")
    yield "a long number", RESPONSES, filled(asked(b'"max_output_tokens":'), b"9", b"}", most=2**20)
    yield "open brackets", RESPONSES, filled(asked(b'"u":'), b"[", b"")
    yield "deep", RESPONSES, asked(b'"u":') + b"[" * 900 + b"]" * 900 + b"}"
    yield "white space", RESPONSES, filled(b'{"model":"gpt-5.5",', b" ", b'"input":"hi"}')
    yield "no JSON", RESPONSES, filled(b"", b"\xff", b"")
    yield "backslashes", RESPONSES, filled(asked(b'"u":"'), b"\\", b"")


def largest() -> Iterator[tuple[str, str, bytes]]:
    """Yield bodies that reach a limit and do not exceed it: all of the work on them is done."""
    chat = b'{"model":"gpt-5.5","store":true,"messages":['
    listed = b'{"model":"gpt-5.5","input":['
    yield "most messages", CHAT, numbered(chat, SAID, b"]}", MAX_ITEMS)
    yield "most items", RESPONSES, numbered(listed, SAID, b"]}", MAX_ITEMS)
    parts = b'{"role":"user","content":['
    yield "most parts", RESPONSES, numbered(listed + parts, b'{"type":"input_text","text":"%d"}', b"]}]}", MAX_PARTS)
    call = b'{"type":"function_call","call_id":"c%d","name":"f","arguments":"{\\"n\\": %d}"},'
    output = b'{"type":"function_call_output","call_id":"c%d","output":"x"}'
    yield "most calls", RESPONSES, numbered(listed, call + output, b"]}", MAX_ITEMS // 2)
    full = b'{"type":"function_call","call_id":"c%d","name":"f","arguments":"[' + b"[]," * 1000 + b'0]"},'
    yield "calls full of JSON", RESPONSES, numbered(listed, full + output, b"," + SAID + b"]}", 4900)
    one = b'{"type":"function_call","call_id":"c0","name":"f","arguments":"['
    end = b'0]"},' + output.replace(b"%d", b"0") + b"," + SAID + b"]}"
    yield "a call full of JSON", RESPONSES, filled(listed + one, b"[],", end)
    long = b'{"type":"function_call_output","call_id":"c0","output":"'
    asking = b'{"type":"function_call","call_id":"c0","name":"f","arguments":"{}"},'
    yield "a long output", RESPONSES, filled(listed + asking + long, b"x", b'"},' + SAID + b"]}")
    tool = b'{"type":"function","name":"f.%d"}'
    yield "most tools", RESPONSES, numbered(asked(b'"tools":['), tool, b"]}", MAX_TOOLS)
    same = b'{"type":"function","name":"' + b"." * 200 + b'%d"}'
    yield "tools of one name", RESPONSES, numbered(asked(b'"tools":['), same, b"]}", MAX_TOOLS)
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


def random_shapes() -> Iterator[tuple[str, str, bytes]]:
    """Yield bodies of pieces that somebody might think of, in places where they might be put: always the same ones."""
    chance = random.Random(17)
    places: tuple[str, ...] = (
        '"u":[',
        '"tools":[',
        '"include":[',
        '"metadata":{"a":[',
        '"text":{"format":{"a":[',
        '"stop":[',
    )
    places += ('"input":[', '"input":[{"role":"user","content":[', '"tool_choice":{"tools":[', '"instructions":[')
    atoms = ("0", "[]", "{}", '""', '"\\u0000"', "null", "1e99", "[[[[]]]]", '{"type":"function"}', '"\\ud800"')
    closing = str.maketrans("[{", "]}", '":,abcdefghijklmnopqrstuvwxyz_')
    for number in range(12):
        units = [chance.choice(atoms) for _ in range(chance.randint(1, 5))]
        place = chance.choice(places)
        end = f"0{place.translate(closing)[::-1]}}}"
        most = 2 ** chance.randint(15, 24) - 1024
        yield (
            f"random {number}",
            RESPONSES,
            filled(asked(place.encode()), f"{','.join(units)},".encode(), end.encode(), most=most),
        )


KINDS = {make.__name__: make for make in (texts, lists, oddities, largest, media, random_shapes)}


@pytest.mark.promise("limits.body")
@pytest.mark.parametrize("kind", KINDS)
async def test_no_body_keeps_others_waiting(site: Site, kind: str) -> None:
    bodies = list(KINDS[kind]())

    async def send() -> None:
        for name, route, body in bodies:
            assert len(body) <= MOST_BYTES, name
            reply = await site.hostile.post(route, content=body, headers={"content-type": "application/json"})
            assert reply.status_code in (200, 400, 404), (name, reply.text[:500])
            # What was sent is not sent back.
            assert reply.status_code == 200 or len(reply.content) < 8192, name

    await site.assert_undisturbed(send)
