"""A gateway under attack, in a process of its own, and a neighbour whose latency and data are the judge."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.latency import LatencyWatch
from tests.support.plain_http import client
from turnbridge.scripted_model.replies import Reply, answer, message
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.items import JsonObject

HOSTILE_KEY = "sk-hostile-0123456789abcdef"
NEIGHBOUR_KEY = "sk-neighbour-0123456789abcdef"

LONGEST_WAIT_S = 0.25
"""The promise: nothing that one client sends keeps another client's `/healthz` waiting longer."""
TRIES = 5
"""A stall that an attack causes comes every time; one that a busy machine causes does not."""
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running gateway with two clients. The model repeats the last text that it was sent."""

    gateway: GatewayProcess
    model: ScriptedModel
    hostile: httpx2.AsyncClient
    neighbour: httpx2.AsyncClient

    @property
    def address(self) -> tuple[str, int]:
        """Return where it listens, for raw sockets."""
        parts = urlsplit(self.gateway.url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    async def longest_wait_s(self, attack: Callable[[], Awaitable[object]]) -> float:
        """Return the longest time that `/healthz` took while the attack went on."""
        async with asyncio.timeout(TIMEOUT_S):
            watch = await LatencyWatch.start(self.gateway.url)
            try:
                await attack()
                return (await watch.read()).longest_s
            finally:
                await watch.stop()

    async def assert_undisturbed(self, attack: Callable[[], Awaitable[object]]) -> None:
        """Run the attack; fail if it keeps `/healthz` waiting too long, or the neighbour from its own answer."""
        waits = []
        for _ in range(TRIES):
            waits.append(await self.longest_wait_s(attack))
            if waits[-1] <= LONGEST_WAIT_S:
                break
        else:
            raise AssertionError(f"/healthz took up to {min(waits):.2f} s in the best of {TRIES} tries.")
        await self.assert_neighbour_is_served()

    async def assert_neighbour_is_served(self, text: str = "Is anybody there?") -> None:
        """Let the neighbour ask something, and fail unless it gets its own answer."""
        body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": text}]}
        reply = await self.neighbour.post("/v1/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        assert reply.json()["choices"][0]["message"]["content"] == text


@contextlib.asynccontextmanager
async def running_site(
    directory: Path, settings: Mapping[str, object] | None = None, *, wrapper: Sequence[str] = ()
) -> AsyncIterator[Site]:
    """Run a gateway with the settings that users have, and these, until the context ends."""
    keys = {"PROXY_API_KEY": f"{HOSTILE_KEY},{NEIGHBOUR_KEY}"}
    async with (
        ScriptedModel(repeat) as model,
        gateway_process(
            directory, model.base_url, {**keys, "WORKER_COUNT": 1, **(settings or {})}, wrapper=wrapper
        ) as gateway,
        client(gateway.url, HOSTILE_KEY, timeout_s=TIMEOUT_S) as hostile,
        client(gateway.url, NEIGHBOUR_KEY, timeout_s=TIMEOUT_S) as neighbour,
    ):
        site = Site(gateway=gateway, model=model, hostile=hostile, neighbour=neighbour)
        await gateway.ready()
        yield site


def repeat(request: JsonObject) -> Reply:
    """Answer with the last text of the request."""
    items = request["input"]
    assert isinstance(items, list)
    texts = [
        part["text"]
        for item in items
        if isinstance(item, dict) and isinstance(parts := item.get("content"), list)
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]
    return answer(message(str(texts[-1]) if texts else "Nothing was said."))
