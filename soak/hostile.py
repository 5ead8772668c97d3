"""Hostile clients among the others: they send what could cost a gateway more than it costs them.

They may be refused, answered or cut off; only an internal error or no end at all is a defect. The judges are the other
clients, whose answers must be right, and `/healthz`, which must be quick.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from soak.hostile_bodies import MB, bodies
from soak.load import body
from soak.model import Question
from tests.support.gateway_process import GatewayProcess
from tests.support.plain_http import CHAT, RESPONSES, client, unread

HOSTILE_KEY = "sk-hostile-0123456789abcdef"

# They are to be a burden, not to take all of a small machine by their own work.
PAUSE_S = 0.2
# A request that has not ended by then hangs; some of these may wait for a place behind all others.
REQUEST_TIMEOUT_S = 60.0
# How long what is only begun is held open.
HELD_S = 1.0
SOCKETS = 40
GUESSES = 40
HEADERS_MB = 40
# What the gateway is told to wait for and never gets.
PROMISED_BYTES = 8 * MB


@dataclass(frozen=True, slots=True)
class Attack:
    """How one hostile request ended."""

    kind: str
    ending: str
    """The status, with the code of the error; or `cut off`, or `hangs`."""

    @property
    def faulty(self) -> bool:
        """Tell whether no request may end so."""
        return self.ending.startswith(("500", "hangs"))


class HostileClients:
    """Clients with a key of their own that mean harm."""

    def __init__(self, gateway: GatewayProcess, chance: random.Random) -> None:
        self._gateway = gateway
        self._chance = chance
        self._kinds: dict[str, Callable[[], Awaitable[str]]] = {
            **{kind: self._sender(content) for kind, content in bodies().items()},
            "headers: large": self._large_headers,
            "headers: many": self._many_headers,
            "connections: idle": self._idle_sockets,
            "connections: half a body": self._half_bodies,
            "connections: unread": self._unread,
            "keys: guessed": self._guess_keys,
        }
        self._order = self._ordered()
        self.attacks: list[Attack] = []

    async def run(self, until: float) -> None:
        """Attack in one way after another until the time is up."""
        for kind in self._order:
            if time.monotonic() >= until:
                return
            await self.once(kind)
            await asyncio.sleep(PAUSE_S)

    def kinds(self) -> list[str]:
        """Return the name of each kind of attack."""
        return list(self._kinds)

    def _ordered(self) -> Iterator[str]:
        """Yield each kind once, in any order, then again in another, and so on."""
        kinds = self.kinds()
        while True:
            self._chance.shuffle(kinds)
            yield from kinds

    async def once(self, kind: str) -> None:
        """Attack once, and note how it ended."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                ending = await self._kinds[kind]()
        except TimeoutError:
            ending = "hangs"
        except (httpx2.HTTPError, OSError) as error:
            ending = f"cut off ({type(error).__name__})"
        self.attacks.append(Attack(kind, ending))

    def _sender(self, content: bytes) -> Callable[[], Awaitable[str]]:
        async def send() -> str:
            async with client(self._gateway.url, HOSTILE_KEY, timeout_s=REQUEST_TIMEOUT_S) as http:
                headers = {"content-type": "application/json"}
                return _told(await http.post(RESPONSES, content=content, headers=headers))

        return send

    async def _guess_keys(self) -> str:
        endings: Counter[str] = Counter()
        async with client(self._gateway.url, "", timeout_s=REQUEST_TIMEOUT_S) as http:
            for _ in range(GUESSES):
                guess = f"sk-{self._chance.getrandbits(128):032x}"
                answer = await http.get("/v1/models", headers={"authorization": f"Bearer {guess}"})
                endings[_told(answer)] += 1
        return ", ".join(sorted(endings))

    async def _unread(self) -> str:
        question = Question(mark="unread", words=300, letters=20_000, pause_ms=0)
        asked = body(CHAT, question, stream=True)
        async with unread(self._gateway.url, HOSTILE_KEY, CHAT, asked) as status:
            await asyncio.sleep(HELD_S)
        return str(status)

    async def _large_headers(self) -> str:
        def parts() -> Iterator[bytes]:
            yield b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx-large: "
            for _ in range(HEADERS_MB):
                yield b"x" * MB
            yield b"\r\n\r\n"

        return await self._raw(parts())

    async def _many_headers(self) -> str:
        def parts() -> Iterator[bytes]:
            yield b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n"
            for number in range(HEADERS_MB):
                yield b"".join(b"x-%d-%d: y\r\n" % (number, n) for n in range(MB // 16))
            yield b"\r\n"

        return await self._raw(parts())

    async def _idle_sockets(self) -> str:
        return await self._held(b"")

    async def _half_bodies(self) -> str:
        head = f"POST {RESPONSES} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {HOSTILE_KEY}\r\n"
        return await self._held(f'{head}content-length: {PROMISED_BYTES}\r\n\r\n{{"model": '.encode())

    async def _held(self, sent: bytes) -> str:
        """Open many connections, send the beginning of a request on each, and leave after a while."""
        writers = [await self._connected() for _ in range(SOCKETS)]
        try:
            for _, writer in writers:
                writer.write(sent)
            await asyncio.sleep(HELD_S)
        finally:
            for _, writer in writers:
                writer.close()
        return "left"

    async def _raw(self, parts: Iterator[bytes]) -> str:
        """Send these bytes for as long as the gateway takes them; return what it says."""
        reader, writer = await self._connected()
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
        except ConnectionError:
            # It may have said why before it closed the connection.
            pass
        try:
            line = await reader.readline()
        except ConnectionError:
            line = b""
        finally:
            writer.close()
        words = line.split()
        return words[1].decode() if len(words) > 1 else "cut off"

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(self._gateway.url)
        return await asyncio.open_connection(address.hostname, address.port)


def _told(answer: httpx2.Response) -> str:
    try:
        code = answer.json()["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    return f"{answer.status_code} {code}" if code else str(answer.status_code)


def endings_of(attacks: Sequence[Attack]) -> dict[str, Counter[str]]:
    """Return how often each kind ended how."""
    table: dict[str, Counter[str]] = {}
    for attack in attacks:
        table.setdefault(attack.kind, Counter())[attack.ending] += 1
    return dict(sorted(table.items()))
