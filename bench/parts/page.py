"""What a turn costs while the page is open in a browser, beside a gateway whose page nobody looks at."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx2

from bench.client import API_KEY, DELTAS, Client
from bench.processes import gateway_alone
from bench.report import Section, at_most, table
from bench.rounds import Side, interleaved, warm_up

TITLE = "The page, open and closed"
REQUESTS, ROUNDS = 100, 6
# A turn is told to the page once, when it ends; this is what two equal gateways differ by.
MOST_MORE = 1.05
HEAD = ("", "CPU ms per turn")


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure the same turns on two gateways in turn; the events of one are read as by the page."""
    async with gateway_alone(directory / "closed") as closed, gateway_alone(directory / "open") as opened:
        sides, clients = [], []
        for name, running in (("page closed", closed), ("page open", opened)):
            client = Client(running.url)
            request = client.says(json.dumps({"deltas": DELTAS}))
            clients.append(client)
            ask = partial(client.ask, request, deltas=DELTAS)
            sides.append(Side(name=name, ask=ask, own=[running.pid]))
        async with _watched(opened.url):
            await warm_up(sides, requests=2)
            turns = await interleaved(
                sides, at_once=1, requests=5 if quick else REQUESTS, rounds=1 if quick else ROUNDS
            )
        for client in clients:
            client.close()
    rows = [[side.name, f"{turn.own_ms:.2f}"] for side, turn in zip(sides, turns, strict=True)]
    goal = at_most("page: CPU per turn, open : closed", turns[1].own_ms / turns[0].own_ms, MOST_MORE, "")
    introduction = f"Two gateways alone, on app-servers of recorded shapes; turns of {DELTAS} deltas."
    return Section(title=TITLE, lines=[introduction, "", *table(HEAD, rows)], goals=[goal])


@contextlib.asynccontextmanager
async def _watched(url: str) -> AsyncIterator[None]:
    """Read the page's events while the context lasts."""
    async with (
        httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {API_KEY}"}, timeout=None) as client,
        client.stream("GET", "/turnbridge/api/live") as events,
    ):
        assert events.status_code == 200, await events.aread()

        async def read() -> None:
            async for _ in events.aiter_bytes():
                pass

        reading = asyncio.ensure_future(read())
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
