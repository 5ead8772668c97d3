"""A soak of three replicas: `python -m soak.replicas --minutes 5`, or `make soak-replicas`.

Clients send requests through HAProxy, each with an `Idempotency-Key`, and again if they fail, while replicas are killed
and paused, Redis and Postgres are killed, connections are cut, and a replica hears nothing of either for a while. In
the end every request must have had its answer, an answer that was told must not be made again, and nothing may be left
behind: no slot, no running response.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from redis.asyncio import from_url

from tests.replicas.cluster import MODEL, Fleet, Replica, running_fleet
from tests.support.gateway_process import API_KEY
from tests.support.plain_http import RESPONSES, client
from turnbridge.codex import self_check
from turnbridge.codex.process.worker import start_worker
from turnbridge.codex.setup import codex_with
from turnbridge.replicas.slots import RUNNING
from turnbridge.scripted_model.replies import Reply, answer, message
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.settings.fields import load_settings
from turnbridge.turn.items import JsonObject

CLIENTS = 6
FAULT_EVERY_S = 6.0
# How long a replica may take to use a Redis again that is back.
BACK_S = 5.0
# A replica that is started again needs some seconds, and a lease lapses after half a minute.
TRIES, BETWEEN_TRIES_S, REQUEST_S = 60, 1.0, 90.0
# The share of requests that are sent again after their answer.
REPEATED = 0.2
# How long everything may take to come to rest: a lease, the grace after it, and the next look.
REST_S = 90.0


@dataclass(slots=True)
class Book:
    """What happened."""

    answered: int = 0
    problems: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    """Why requests were sent again."""
    faults: Counter[str] = field(default_factory=Counter)
    redis_whole_from: float = 0.0
    """Since when no replica was without Redis, or will be; what was asked before may be made again."""


async def ask(http: httpx2.AsyncClient, key: str, book: Book) -> JsonObject | None:
    """Send a request until it is answered; return the answer."""
    body: JsonObject = {"model": MODEL, "input": key}
    for _ in range(TRIES):
        try:
            response = await http.post(RESPONSES, json=body, headers={"idempotency-key": key})
        except httpx2.HTTPError as error:
            book.failures[type(error).__name__] += 1
        else:
            if response.status_code == 200:
                found: JsonObject = response.json()
                return found
            book.failures[str(response.status_code)] += 1
            if response.status_code < 429:
                book.problems.append(f"{key}: {response.status_code} {response.text[:200]}")
                return None
        await asyncio.sleep(BETWEEN_TRIES_S)
    book.problems.append(f"{key}: no answer after {TRIES} tries")
    return None


def _text(response: JsonObject) -> str | None:
    match response:
        case {"output": [*_, {"content": [{"text": str(text)}, *_]}]}:
            return text
        case _:
            return None


async def converse(fleet: Fleet, number: int, end: float, book: Book) -> None:
    """Send one request after another, and at times one that was answered once more, to any replica."""
    chance = random.Random(number)
    async with client(fleet.balancer.url, API_KEY, timeout_s=REQUEST_S) as http:
        for count in range(1_000_000):
            if time.monotonic() > end:
                return
            key, began = f"client {number} request {count}", time.monotonic()
            told = await ask(http, key, book)
            if told is None:
                continue
            book.answered += 1
            if not (_text(told) or "").endswith(key):
                book.problems.append(f"{key}: answered with {_text(told)!r}")
            if chance.random() < REPEATED:
                await _repeat(http, key, told, began, book)


async def _repeat(http: httpx2.AsyncClient, key: str, told: JsonObject, began: float, book: Book) -> None:
    """Send a request again that was answered: it must not run again, unless a replica was without Redis."""
    again = await ask(http, key, book)
    if again is not None and again["id"] != told["id"]:
        book.failures["made again"] += 1
        if book.redis_whole_from < began:
            book.problems.append(f"{key}: told as {told['id']}, and made again as {again['id']}")


async def disturb(fleet: Fleet, end: float, book: Book, seed: int) -> None:
    """Do something bad every few seconds."""
    chance = random.Random(seed)
    while time.monotonic() < end:
        await asyncio.sleep(FAULT_EVERY_S)
        replica = chance.choice(list(fleet.replicas.values()))
        fault = chance.choice(("kill", "pause", "redis", "cut", "postgres", "partition"))
        book.faults[fault] += 1
        if fault in ("redis", "partition", "pause"):
            book.redis_whole_from = float("inf")
        await _fault(fleet, replica, fault)
        if book.redis_whole_from == float("inf"):
            book.redis_whole_from = time.monotonic() + BACK_S


async def _start_again(replica: Replica) -> None:
    """Start a replica at its port, which a connection to another place may have taken for a moment."""
    for _ in range(TRIES):
        try:
            await replica.start()
        except AssertionError:
            await asyncio.sleep(BETWEEN_TRIES_S)
        else:
            return
    raise TimeoutError(f"{replica.name} does not start again.")


async def _fault(fleet: Fleet, replica: Replica, fault: str) -> None:
    match fault:
        case "kill":
            await replica.kill()
            await _start_again(replica)
        case "pause":
            with replica.paused():
                await asyncio.sleep(3)
        case "redis":
            await fleet.redis.kill()
            await asyncio.sleep(2)
            await fleet.redis.start()
        case "cut":
            await fleet.cut_database()
        case "partition":
            # Its clients still reach it, and it reaches the model.
            with replica.cut_off():
                await asyncio.sleep(4)
        case _:
            async with fleet.without_database():
                await asyncio.sleep(2)


async def check_rest(fleet: Fleet, book: Book) -> None:
    """Wait until nothing runs, and note what does not come to rest."""
    await fleet.mend()
    left, redis = "?", from_url(fleet.redis.url)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REST_S):
            while True:
                running = await fleet.query(
                    "SELECT count(*) FROM turnbridge.responses WHERE status IN ('queued', 'in_progress')"
                )
                slots = await redis.zcard(RUNNING)
                left = f"{running} running responses, {slots} slots, {fleet.model.active} streams of the model"
                if not running and not int(slots) and not fleet.model.active:
                    return
                await asyncio.sleep(1)
    book.problems.append(f"left behind: {left}")


async def learned(directory: Path) -> Path:
    """Return what a gateway knows of its Codex after its first start, so that replicas need not find it out."""
    spec, prepare = codex_with(load_settings(PROXY_DATA_DIR=directory), provider="http://127.0.0.1:9/v1")
    prepare()
    worker = await start_worker(spec)
    try:
        await self_check.check(spec, worker)
    finally:
        await worker.process.stop()
    return spec.cache_dir


def respond(request: JsonObject) -> Reply:
    """Answer with the last thing that was said."""
    match request:
        case {"input": [*_, {"content": [*_, {"text": str(text)}]}]}:
            return answer(message(f"You said: {text}"))
        case _:
            return answer(message("?"))


async def soak(minutes: float, seed: int) -> int:
    """Run it; return 0 if nothing was wrong."""
    book = Book()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with (
            ScriptedModel(respond, record=False) as model,
            running_fleet(directory, await learned(directory / "learned"), model, relays=True) as fleet,
        ):
            await fleet.balanced()
            end = time.monotonic() + minutes * 60
            talking = [converse(fleet, number, end, book) for number in range(CLIENTS)]
            await asyncio.gather(disturb(fleet, end, book, seed), *talking)
            await check_rest(fleet, book)
            asked = model.received
    print(f"{book.answered} answers, the model was asked {asked} times; faults: {dict(book.faults)}")
    print(f"sent again because of: {dict(book.failures)}")
    print("\n".join(book.problems) or "Nothing was lost, wrong or left behind.")
    return 1 if book.problems else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    sys.exit(asyncio.run(soak(chosen.minutes, chosen.seed)))
