"""Bodies of up to 16 MB to Ollama's API, and floods without a key: none of them keeps another client waiting."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.hostile.site import TIMEOUT_S, Site, running_site
from tests.hostile.test_big_bodies import MOST_BYTES, SAID, filled, numbered
from tests.support.ports import free_port
from turnbridge.api.shared.body_budget import MAX_ITEMS, MAX_VALUES

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CHAT, GENERATE = "/api/chat", "/api/generate"
ASKED = b'{"model":"gpt-5.5","stream":false,'
HI = b'"messages":[' + SAID + b"],"
CALLS = b'{"role":"assistant","tool_calls":['


@pytest.fixture(scope="module")
async def port() -> int:
    """Return a free port."""
    return free_port()


@pytest.fixture(scope="module")
async def site(
    tmp_path_factory: pytest.TempPathFactory, learned: Path, anyio_backend: object, port: int
) -> AsyncIterator[Site]:
    """Return a gateway with a listener for Ollama's clients."""
    del anyio_backend
    directory = tmp_path_factory.mktemp("site")
    shutil.copytree(learned, directory / "data" / "binaries")
    async with running_site(directory, {"PROXY_OLLAMA": f"127.0.0.1:{port}", "PROXY_KEY_MAX_TURNS": 4}) as running:
        yield running


@pytest.fixture
async def keyless(port: int) -> AsyncIterator[httpx2.AsyncClient]:
    """Return a client without a key."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S) as client:
        yield client


def texts() -> Iterator[tuple[str, str, bytes]]:
    """Yield what it is, where it is sent, and the body: with one long text."""
    yield "one text", CHAT, filled(ASKED + b'"messages":[{"role":"user","content":"', b"x", b'"},' + SAID + b"]}")
    # The model repeats it.
    yield "a prompt", GENERATE, filled(ASKED + b'"prompt":"', b"x", b'"}', most=2**20)
    yield "a system prompt", GENERATE, filled(ASKED + b'"prompt":"hi","system":"', b"x", b'"}')
    yield "a model", CHAT, filled(b'{"messages":[' + SAID + b'],"model":"', b"m", b'"}')
    yield "a model of colons", CHAT, filled(b'{"messages":[' + SAID + b'],"model":"', b":", b'"}')
    yield "a model to show", "/api/show", filled(b'{"model":"', b"m", b'"}')
    yield "a stop sequence", CHAT, filled(ASKED + HI + b'"options":{"stop":"', b"s", b'"}}')
    yield "a format", CHAT, filled(ASKED + HI + b'"format":"', b"j", b'"}')
    yield "an image", GENERATE, filled(ASKED + b'"images":["', b"AAAA", b'"]}')
    yield "the name of a result", CHAT, filled(ASKED + b'"messages":[{"role":"tool","tool_name":"', b"n", b'"}]}')


def lists() -> Iterator[tuple[str, str, bytes]]:
    """Yield the same with as many values as are read, and more."""
    said = ASKED + b'"messages":['
    yield "messages", CHAT, filled(said, SAID + b",", SAID + b"]}")
    yield "most messages", CHAT, said + b",".join([SAID] * (MAX_ITEMS - 1)) + b"]}"
    call, result = b'{"function":{"name":"f","arguments":{"n":%d}}}', b'{"role":"tool","content":"x"}'
    half = MAX_ITEMS // 2 - 1
    many = numbered(said + CALLS, call, b"]},", half) + b",".join([result] * half) + b"]}"
    yield "most calls of one message", CHAT, many
    named = b'{"role":"tool","content":"x","tool_name":"f%d"}'
    backwards = b",".join(named.replace(b"%d", b"%d" % number) for number in reversed(range(half)))
    calls = numbered(said + CALLS, b'{"function":{"name":"f%d"}}', b"]},", half)
    yield "results in reverse", CHAT, calls + backwards + b"]}"
    yield "images", GENERATE, numbered(ASKED + b'"images":[', b'"%d"', b"]}", MAX_VALUES - 100)
    yield "options", CHAT, numbered(ASKED + HI + b'"options":{', b'"o%d":1', b"}}", MAX_VALUES // 2 - 100)
    yield "stop sequences", CHAT, numbered(ASKED + HI + b'"options":{"stop":[', b'"%d"', b"]}}", MAX_VALUES - 100)
    deep = said + CALLS + b'{"function":{"name":"f","arguments":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}}]}]}"
    yield "deep arguments", CHAT, deep


KINDS = {make.__name__: make for make in (texts, lists)}


@pytest.mark.promise("ollama.bounds", "limits.body")
@pytest.mark.parametrize("kind", KINDS)
async def test_no_body_keeps_others_waiting(site: Site, keyless: httpx2.AsyncClient, kind: str) -> None:
    bodies = list(KINDS[kind]())

    async def send() -> None:
        for name, route, body in bodies:
            assert len(body) <= MOST_BYTES, name
            reply = await keyless.post(route, content=body)
            assert reply.status_code in (200, 400, 404), (name, reply.text[:500])
            # What was sent is not sent back.
            assert reply.status_code == 200 or len(reply.content) < 8192, name

    await site.assert_undisturbed(send)


@pytest.mark.promise("ollama.bounds", "ollama.listener.client")
async def test_a_flood_without_a_key_has_limits_and_harms_nobody_with_one(
    site: Site, keyless: httpx2.AsyncClient
) -> None:
    async def flood() -> None:
        body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}], "stream": False}
        replies = await asyncio.gather(*(keyless.post(CHAT, json=body) for _ in range(40)))
        statuses = {reply.status_code for reply in replies}
        assert statuses <= {200, 429}
        assert 429 in statuses

    await site.assert_undisturbed(flood)
