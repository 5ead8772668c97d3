"""Bodies of up to 16 MB to the Messages API: none of them keeps another client waiting."""

from collections.abc import Iterator

import pytest

from tests.hostile.site import Site
from tests.hostile.test_big_bodies import MOST_BYTES, SAID, filled, numbered
from turnbridge.api.anthropic.thinking import VERSION
from turnbridge.api.shared.body_budget import MAX_ITEMS, MAX_PARTS, MAX_VALUES

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ASKED = b'{"model":"claude-gpt-5.5","max_tokens":50000,'
HI = b'"messages":[' + SAID + b"],"
ROUTES = ("/v1/messages", "/v1/messages/count_tokens")


def texts() -> Iterator[tuple[str, bytes]]:
    """Yield what it is, and the body: with one long text."""
    said, then = ASKED + b'"messages":[{"role":"user","content":"', b'"},' + SAID + b"]}"
    yield "one text", filled(said, b"x", then)
    yield "a word without an end", filled(said, "漢".encode(), then, most=2**21)
    yield "system", filled(ASKED + HI + b'"system":"', b"i", b'"}')


def fields() -> Iterator[tuple[str, bytes]]:
    """Yield the same for what is not shown to the model."""
    yield "a model", filled(b'{"max_tokens":9,' + HI + b'"model":"claude-', b"m", b'"}')
    yield "a kind of tool", filled(ASKED + HI + b'"tools":[{"type":"', b"t", b'"}]}')
    yield "a user", filled(ASKED + HI + b'"metadata":{"user_id":"', b"u", b'"}}')
    yield "a stop sequence", filled(ASKED + HI + b'"stop_sequences":["', b"s", b'"]}')
    of_model = ASKED + b'"messages":[{"role":"assistant","content":[{"type":'
    thinking = of_model + b'"thinking","thinking":"","signature":"' + VERSION.encode()
    yield "a signature", filled(thinking, b"e30A", b'"}]},' + SAID + b"]}")
    yield "a signature of brackets", filled(thinking, b"W1tb", b'"}]},' + SAID + b"]}")


def media() -> Iterator[tuple[str, bytes]]:
    """Yield the same for images and files."""
    part = ASKED + b'"messages":[{"role":"user","content":[{"type":'
    source = b',"source":{"type":"base64","data":"'
    yield "image data", filled(part + b'"image"' + source, b"AAAA", b'"}}]}]}')
    yield "a file of text", filled(part + b'"document"' + source, b"eHh4", b'"}}]},' + SAID + b"]}")


def lists() -> Iterator[tuple[str, bytes]]:
    """Yield the same with as many values as are read, and more."""
    said = ASKED + b'"messages":['
    yield "messages", filled(said, SAID + b",", SAID + b"]}")
    yield "most messages", said + b",".join([SAID] * (MAX_ITEMS - 1)) + b"]}"
    blocks = said + b'{"role":"user","content":['
    yield "most blocks", numbered(blocks, b'{"type":"text","text":"%d"}', b"]}]}", MAX_PARTS)
    call = b'{"role":"assistant","content":[{"type":"tool_use","id":"c%d","name":"f","input":{"n":%d}}]},'
    result = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":"x"}]}'
    yield "most calls", numbered(said, call + result, b"]}", MAX_ITEMS // 2 - 1)
    one = b'{"role":"assistant","content":[{"type":"tool_use","id":"c0","name":"f","input":{"a":['
    end = b"0]}}]}," + result.replace(b"%d", b"0") + b"]}"
    yield "a call full of JSON", numbered(said + one, b"[]", b"," + end, MAX_VALUES - 100)
    yield "deep arguments", said + one + b"[" * 100_000 + b"]" * 100_000 + b"," + end
    yield "unknown fields", numbered(ASKED + HI, b'"u%d":1', b"}", MAX_VALUES // 2)
    sequences = ASKED + HI + b'"stop_sequences":['
    yield "stop sequences", numbered(sequences, b'"%d"', b"]}", MAX_VALUES - 100)


KINDS = {make.__name__: make for make in (texts, fields, media, lists)}


@pytest.mark.promise("anthropic.bounds", "limits.body")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_body_keeps_others_waiting(site: Site, kind: str, route: str) -> None:
    bodies = list(KINDS[kind]())
    # The vocabulary is loaded once in the life of a gateway.
    counted = await site.hostile.post(ROUTES[1], content=ASKED + HI.rstrip(b",") + b"}")
    assert counted.status_code == 200, counted.text

    async def send() -> None:
        for name, body in bodies:
            assert len(body) <= MOST_BYTES, name
            reply = await site.hostile.post(route, content=body, headers={"content-type": "application/json"})
            assert reply.status_code in (200, 400, 404), (name, reply.text[:500])
            # What was sent is not sent back.
            assert reply.status_code == 200 or len(reply.content) < 8192, name

    await site.assert_undisturbed(send)
