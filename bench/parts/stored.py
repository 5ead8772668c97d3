"""How the cost of a request grows with the responses that are stored already."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from bench.client import ASK, DELTAS, RESPONSES, Client, response_id
from bench.curves import Curve
from bench.processes import cpu_seconds, gateway_alone
from tests.support.gateway_process import GatewayProcess

SIZES, QUICK_SIZES = (1000, 10_000, 100_000, 1_000_000), (100, 1000, 10_000)
REQUESTS, QUICK_REQUESTS = 60, 3
# Which responses are gone on from is the same in every run.
SEED = 7
# No bound of the store's: what grows is to grow.
MANY_MB = 1_000_000

# Everything that the store has of one response, as often as wanted; its own JSON, which no request here reads, is left
# out, since a million of them would fill the disk.
COPIES = (
    """
    INSERT INTO segments (id, owner, size)
    SELECT :key + n, owner, size FROM numbers, segments WHERE id = :segment
    """,
    """
    INSERT INTO items (segment, position, is_output, owner, id, call_id, body)
    SELECT :key + n, position, is_output, owner, id || '_' || n, call_id, body
    FROM numbers, items WHERE segment = :segment
    """,
    """
    INSERT INTO responses (id, owner, created_at, status, background, segment, size, body)
    SELECT id || '_' || n, owner, created_at, status, background, :key + n, size, '{}'
    FROM numbers, responses WHERE id = :response
    """,
)
NUMBERS = "WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last) "


async def stored_curve(directory: Path, *, steepest: float, quick: bool) -> Curve:
    """Measure requests that go on from a stored response, and are stored themselves."""
    curve = Curve("stored responses", "CPU ms", steepest)
    settings = {"PROXY_STORE_MAX_MB": MANY_MB, "PROXY_WARM_THREADS_MAX": 0}
    async with gateway_alone(directory, **settings) as running:
        client = Client(running.url, RESPONSES)
        model = response_id(await client.ask(client.says(ASK), deltas=DELTAS))
    have = 0
    for size in QUICK_SIZES if quick else SIZES:
        _fill(directory / "data" / "store.db", model, have, size)
        have = size
        async with gateway_alone(directory, **settings) as running:
            curve.add(size, await _cost_ms(running, model, size, QUICK_REQUESTS if quick else REQUESTS))
    return curve


async def _cost_ms(running: GatewayProcess, model: str, size: int, requests: int) -> float:
    client = Client(running.url, RESPONSES)
    await client.ask(client.says(ASK), deltas=DELTAS)
    chance = random.Random(SEED)
    before = cpu_seconds([running.pid])
    for _ in range(requests):
        previous = f"{model}_{chance.randrange(size)}"
        await client.ask(client.request({"input": ASK, "previous_response_id": previous}), deltas=DELTAS)
    return (cpu_seconds([running.pid]) - before) / requests * 1000


def _fill(file: Path, response: str, have: int, size: int) -> None:
    """Store a response again and again, until there are so many; nobody else has the file open."""
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")
        (segment,) = database.execute("SELECT segment FROM responses WHERE id = ?", [response]).fetchone()
        (last_key,) = database.execute("SELECT max(id) FROM segments").fetchone()
        key = last_key + 1 - have
        values = {"key": key, "segment": segment, "response": response, "first": have, "last": size - 1}
        database.execute("BEGIN")
        for copy in COPIES:
            database.execute(NUMBERS + copy, values)
        database.execute("COMMIT")
