"""What replicas say of themselves: their metrics, and which one served a request."""

import json
import re
from collections.abc import Mapping

import httpx2

from tests.replicas.cluster import Fleet, Replica
from tests.support.gateway_process import API_KEY
from tests.support.plain_http import client
from tests.support.waiting import until, until_told


async def gauge(http: httpx2.AsyncClient, name: str) -> float:
    """Return the sum of a metric over its labels."""
    text = (await http.get("/metrics")).text
    values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, flags=re.MULTILINE)
    assert values, name
    return sum(map(float, values))


async def until_gauge(http: httpx2.AsyncClient, name: str, value: float, *, within_s: float) -> None:
    """Return once a metric has a value."""

    async def has_it() -> bool:
        return await gauge(http, name) == value

    await until_told(has_it, within_s=within_s)


def served_by(fleet: Fleet, request_id: str) -> Replica | None:
    """Return the replica that has logged a request."""
    mark = f'"request_id":"{request_id}"'
    return next((replica for replica in fleet.replicas.values() if replica.process and mark in replica.log()), None)


async def serving(fleet: Fleet, headers: Mapping[str, str]) -> Replica:
    """Return the replica to which HAProxy sends requests with these headers."""
    async with client(fleet.balancer.url, API_KEY) as http:
        request_id = (await http.get("/v1/models", headers=dict(headers))).headers["x-request-id"]
    await until(lambda: served_by(fleet, request_id) is not None)
    found = served_by(fleet, request_id)
    assert found is not None
    return found


def events(replica: Replica, name: str) -> list[dict[str, object]]:
    """Return the log lines of a kind."""
    lines = (json.loads(line) for line in replica.log().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == name]
