"""The listener for Ollama's clients: who may use it without a key, and as which client."""

import json
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.support.gateway import API_KEY, Bridge
from tests.support.issued_keys import issued, known, revoked, unknown
from tests.support.logs import logged_requests
from tests.support.ollama_client import OllamaBridge, running_ollama
from tests.web.asgi_driver import Answer, call
from turnbridge.scripted_model.replies import answer, message
from turnbridge.store.schema import store_url
from turnbridge.turn.clients import ClientLimits
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ASK: JsonObject = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}], "stream": False}
KEY = {"authorization": f"Bearer {API_KEY}"}
HERE, ELSEWHERE = ("127.0.0.1", 50000), ("192.0.2.7", 50000)


async def asked(running: OllamaBridge, *, client: tuple[str, int] = HERE, **headers: Any) -> Answer:
    """Ask for a chat from an address."""
    sent = {"host": "127.0.0.1:11434", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await call(
        running.bridge.gateway.others["ollama"],
        "POST",
        "/api/chat",
        headers=sent,
        body=[json.dumps(ASK).encode()],
        client=client,
    )


@pytest.mark.promise("ollama.listener.keys")
@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer ollama"}, {"host": "localhost:11434"}, {"host": "host.docker.internal:11434"}],
    ids=["nothing", "just any key", "localhost", "a container"],
)
async def test_a_program_on_this_machine_needs_no_key(ollama_bridge: OllamaBridge, headers: dict[str, Any]) -> None:
    ollama_bridge.bridge.says("hello")
    answered = await asked(ollama_bridge, **headers)
    assert (answered.status, json.loads(answered.body)["message"]["content"]) == (200, "hello")


@pytest.mark.promise("ollama.listener.keys")
@pytest.mark.parametrize(
    ("client", "headers"),
    [(ELSEWHERE, {}), (HERE, {"x_forwarded_for": "192.0.2.7"}), (HERE, {"forwarded": "for=192.0.2.7"})],
    ids=["another machine", "behind a proxy", "behind a newer proxy"],
)
async def test_whoever_comes_from_elsewhere_needs_the_key(
    ollama_bridge: OllamaBridge, client: tuple[str, int], headers: dict[str, Any]
) -> None:
    ollama_bridge.bridge.script()
    refused = await asked(ollama_bridge, client=client, **headers)
    assert (refused.status, list(json.loads(refused.body))) == (401, ["error"])
    assert ollama_bridge.bridge.model.requests == []
    ollama_bridge.bridge.says("hello")
    named = await asked(ollama_bridge, client=client, host="gateway.example", **headers, **KEY)
    assert named.status == 200


@pytest.mark.promise("ollama.listener.pages")
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:11434"},
        {"host": "evil.example", "authorization": f"Bearer {API_KEY}"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "https://evil.example", "content_type": "text/plain"},
    ],
    ids=["a name that was bound again", "with the key of another port", "a page", "a file", "a form"],
)
async def test_a_page_from_elsewhere_is_refused_and_runs_nothing(
    ollama_bridge: OllamaBridge, headers: dict[str, Any]
) -> None:
    ollama_bridge.bridge.script()
    refused = await asked(ollama_bridge, **headers)
    assert (refused.status, list(json.loads(refused.body))) == (403, ["error"])
    assert refused.header("access-control-allow-origin") is None
    assert ollama_bridge.bridge.model.requests == []


@pytest.mark.promise("ollama.listener.pages")
@pytest.mark.parametrize("origin", ["app://obsidian.md", "http://localhost:3000"])
async def test_pages_of_this_machine_and_of_known_apps_are_served(ollama_bridge: OllamaBridge, origin: str) -> None:
    ollama_bridge.bridge.says("hello")
    answered = await asked(ollama_bridge, origin=origin)
    assert (answered.status, answered.header("access-control-allow-origin")) == (200, origin)
    app = ollama_bridge.bridge.gateway.others["ollama"]
    wishes = {"origin": origin, "access-control-request-method": "POST", "host": "127.0.0.1"}
    assert (await call(app, "OPTIONS", "/api/chat", headers=wishes)).status == 204
    refused = await call(app, "OPTIONS", "/api/chat", headers={**wishes, "origin": "https://evil.example"})
    assert refused.status == 403


@pytest.mark.promise("ollama.listener.pages")
async def test_origins_are_allowed_by_name_and_never_all_at_once(tmp_path: Path) -> None:
    allowed = {"PROXY_CORS_ALLOWED_ORIGINS": "*,https://mine.example"}
    async with running_ollama(tmp_path, **allowed) as running:
        running.bridge.says("hello")
        assert (await asked(running, origin="https://mine.example")).status == 200
        assert (await asked(running, origin="https://evil.example")).status == 403


@pytest.mark.promise("ollama.listener", "ollama.listener.client")
async def test_the_other_apis_are_there_too_under_the_same_client(ollama_bridge: OllamaBridge) -> None:
    http, bridge = ollama_bridge.http, ollama_bridge.bridge
    bridge.script(*[answer(message("hello"))] * 3)
    with structlog.testing.capture_logs() as logs:
        chat = await http.post("/v1/chat/completions", json=ASK)
        stored = await http.post("/v1/responses", json={"model": "gpt-5.5", "input": "hi"})
        said = await http.post("/v1/messages", json={**ASK, "max_tokens": 100})
        lines = await logged_requests(logs, 3)
    assert (chat.status_code, stored.status_code, said.status_code) == (200, 200, 200)
    assert [line["client"] for line in lines] == ["ollama"] * 3
    # Each error has the shape of its route.
    assert (await http.post("/v1/responses", json={})).json()["error"]["code"] == "missing_required_parameter"
    assert (await http.post("/v1/messages", json={})).json()["type"] == "error"
    assert (await http.get("/v1/no-such")).json()["error"]["type"] == "invalid_request_error"
    # What it stores is its own.
    found = f"/v1/responses/{stored.json()['id']}"
    assert (await http.get(found)).status_code == 200
    assert (await bridge.http.get(found)).status_code == 404


@pytest.mark.promise("ollama.listener.client", "page.live")
async def test_its_limits_are_its_own(tmp_path: Path) -> None:
    async with running_ollama(tmp_path, PROXY_RATE_LIMIT="2/hour") as running:
        running.bridge.script(*[answer(message("hello"))] * 3)
        with structlog.testing.capture_logs() as logs:
            statuses = [(await running.http.post("/api/chat", json=ASK)).status_code for _ in range(3)]
            key = await running.bridge.http.post("/v1/chat/completions", json=ASK)
            lines = await logged_requests(logs, 4)
        async with running.bridge.http.stream("GET", "/turnbridge/api/live") as events:
            live = await anext(events.aiter_text())
        # A key of this name has its limits, and its end.
        url = store_url(tmp_path)
        made = await issued(url, "ollama", ClientLimits(models=("gpt-5.4",)))
        await known(running.bridge, made)
        assert (await running.http.post("/api/chat", json=ASK)).status_code == 404
        await revoked(url, "ollama")
        await unknown(running.bridge, made)
        refused = await running.http.post("/api/chat", json=ASK)
        assert (refused.status_code, "was revoked" in refused.text) == (401, True)
    assert live.count('"client":"ollama"') == live.count('"route":"POST /api/chat"') == 3
    assert (statuses, key.status_code) == ([200, 200, 429], 200)
    assert [line["client"] for line in lines[:3]] == ["ollama"] * 3
    assert lines[3]["client"].startswith("key-")


@pytest.mark.promise("ollama.listener")
async def test_there_is_none_unless_it_is_asked_for(bridge: Bridge) -> None:
    assert not bridge.gateway.others
    assert (await bridge.http.get("/api/tags")).status_code == 404
