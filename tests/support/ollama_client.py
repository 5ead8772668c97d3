"""A gateway with its listener for Ollama's clients, and the official client pointed at it."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import ollama

from tests.support.gateway import NO_CERTIFICATES, TIMEOUT_S, Bridge, listening_with, running_bridge
from turnbridge.turn.items import JsonObject

MEASURED = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaBridge:
    """A running gateway, seen by clients of Ollama's; none of them sends a key."""

    bridge: Bridge
    url: str
    client: ollama.AsyncClient
    """The official client."""
    http: httpx2.AsyncClient
    """A plain HTTP client."""

    async def lines(self, path: str, asked: JsonObject) -> list[dict[str, Any]]:
        """Return the lines of a stream, every one of which must be an object."""
        answered = await self.http.post(path, json=asked)
        assert (answered.status_code, answered.headers["content-type"]) == (200, "application/x-ndjson"), answered.text
        assert answered.content.endswith(b"\n")
        return [json.loads(each) for each in answered.content.removesuffix(b"\n").split(b"\n")]


@contextlib.asynccontextmanager
async def running_ollama(data_dir: Path, **chosen: object) -> AsyncIterator[OllamaBridge]:
    """Run a gateway that keeps threads, with its second listener, until the context ends."""
    usual: dict[str, Any] = {"PROXY_OLLAMA": "on", "PROXY_WARM_THREADS_MAX": 64}
    async with (
        running_bridge(data_dir, **{**usual, **chosen}) as bridge,
        listening_with(bridge.gateway.others["ollama"]) as url,
        httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_S, verify=NO_CERTIFICATES) as http,
    ):
        client = ollama.AsyncClient(host=url, timeout=TIMEOUT_S, verify=NO_CERTIFICATES)
        yield OllamaBridge(bridge=bridge, url=url, client=client, http=http)
        await client._client.aclose()


def unmeasured(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without its times, which must be nanoseconds."""
    measured = {name: answer[name] for name in MEASURED if name in answer}
    assert all(type(value) is int and value > 0 for value in measured.values()), measured
    assert answer["created_at"].endswith("Z")
    return {name: value for name, value in answer.items() if name not in (*MEASURED, "created_at")}
