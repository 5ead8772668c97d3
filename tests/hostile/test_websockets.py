"""What a hostile client can send over WebSockets: one clear error each, and nothing lost for the neighbour."""

import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from websockets.frames import Frame, Opcode

from tests.hostile.site import HOSTILE_KEY, TIMEOUT_S, Site
from tests.support.sockets import connected, error_of, text_of
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

HANDSHAKE = (
    "GET /v1/responses HTTP/1.1\r\nhost: here\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    f"authorization: Bearer {HOSTILE_KEY}\r\n\r\n"
).encode()
MB = 2**20


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


@pytest.mark.promise("websocket.undisturbed", "websocket.errors")
async def test_a_megabyte_of_garbage_is_one_error_each(site: Site) -> None:
    garbage: list[str | bytes] = [
        "x" * MB,
        "[" * MB,
        '{"type": "response.create", "input": ' + "[" * MB,
        b"\xff" * MB,
        "{}" * (MB // 2),
    ]

    async def attack() -> None:
        async with connected(site.gateway.url, key=HOSTILE_KEY) as client:
            for message in garbage:
                await client.send(message)
            errors = [error_of(await client.response())[:2] for _ in garbage]
            assert errors == [(400, "invalid_json")] * len(garbage)
            assert text_of(await client.ask("still here")) == "still here"

    await site.assert_undisturbed(attack)


@pytest.mark.promise("websocket.undisturbed", "websocket.lane-limits")
async def test_ten_thousand_lanes_are_refused_one_by_one(site: Site) -> None:
    async def attack() -> None:
        async with connected(site.gateway.url, key=HOSTILE_KEY) as client:

            async def send() -> None:
                for number in range(10_000):
                    await client.create("hi", stream_id=f"lane-{number}", generate=False)

            sending = asyncio.ensure_future(send())
            ended: Counter[object] = Counter()
            while ended.total() < 10_000:
                event: JsonObject = await client.event()
                if event["type"] == "error":
                    ended[error_of([event])[1]] += 1
                elif event["type"] == "response.completed":
                    ended["completed"] += 1
            await sending
            assert ended == {"completed": 32, "websocket_stream_limit_reached": 10_000 - 32}

    await site.assert_undisturbed(attack)


@pytest.mark.promise("websocket.undisturbed")
async def test_a_long_queue_in_one_lane_is_refused_at_its_limit(site: Site) -> None:
    async def attack() -> None:
        async with connected(site.gateway.url, key=HOSTILE_KEY) as client:
            for _ in range(400):
                await client.create("hi", generate=False)
            codes: Counter[object] = Counter()
            for _ in range(400):
                events = await client.response()
                codes["ok" if "response" in events[-1] else error_of(events)[1]] += 1
            assert codes["ok"] + codes["queue_full"] == 400
            assert codes["ok"] >= 256

    await site.assert_undisturbed(attack)


async def flood(site: Site, data: bytes, *, times: int, half_close: bool = False) -> None:
    """Open a WebSocket, send data over and over, and read nothing but the handshake."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, site.address)
        await loop.sock_sendall(client, HANDSHAKE)
        assert (await loop.sock_recv(client, 12)).endswith(b"101")
        # The gateway may cut it off, or stop reading.
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(3):
                for _ in range(times):
                    await loop.sock_sendall(client, data)
        if half_close:
            client.shutdown(socket.SHUT_WR)


CREATE = json.dumps({"type": "response.create", "model": "gpt-5.5", "input": "x" * 1000}).encode()
FLOODS: dict[str, Callable[[Site], Awaitable[None]]] = {
    "empty messages": lambda site: flood(site, frame(Opcode.TEXT) * 20_000, times=20),
    "empty fragments": lambda site: flood(
        site, frame(Opcode.TEXT, fin=False) + frame(Opcode.CONT, fin=False) * 20_000, times=1
    ),
    "pings": lambda site: flood(site, frame(Opcode.PING, b"x" * 100) * 5_000, times=20),
    "large messages": lambda site: flood(site, frame(Opcode.TEXT, b"x" * 15 * MB), times=3),
    "responses that nobody reads": lambda site: flood(site, frame(Opcode.TEXT, CREATE) * 100, times=1),
    "half closed": lambda site: flood(site, frame(Opcode.TEXT, CREATE) * 5, times=1, half_close=True),
}


@pytest.mark.promise("websocket.undisturbed")
@pytest.mark.parametrize("kind", FLOODS)
async def test_a_client_that_sends_and_never_reads_disturbs_nobody(site: Site, kind: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await site.assert_undisturbed(lambda: FLOODS[kind](site))


@pytest.mark.promise("websocket.undisturbed", "websocket.bounds")
@pytest.mark.parametrize(
    ("data", "code"), [(frame(Opcode.TEXT, b"x" * 17 * MB), 1009), (b"x" * MB, 1002)], ids=["too large", "no frames"]
)
async def test_a_client_that_breaks_the_rules_is_told_so(site: Site, data: bytes, code: int) -> None:
    async def attack() -> None:
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        closing = await reader.read()
        writer.close()
        assert (closing[0], int.from_bytes(closing[2:4])) == (0x88, code)

    await site.assert_undisturbed(attack)
