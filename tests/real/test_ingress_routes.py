"""The HTTP side of the whole gateway: routes, probes, request ids, CORS, metrics."""

import re

import httpx2
import openai
import pytest
import structlog
from dirty_equals import IsStr
from openai.types.chat import ChatCompletionMessageParam

from tests.support.gateway import Bridge
from tests.support.logs import logged_requests
from turnbridge.api.unserved import UNSERVED
from turnbridge.scripted_model.replies import (
    JsonObject,
    Usage,
    answer,
    error_reply,
    message,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
ASK: dict[str, JsonObject] = {
    "/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    "/responses": {"model": MODEL, "input": "hi"},
}
FRESH_ID = IsStr(regex="req_[0-9a-f]{32}")


@pytest.mark.promise("ingress.routes")
@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_every_route_is_served_with_and_without_v1(bridge: Bridge, prefix: str) -> None:
    bridge.script(answer(message("hello")), answer(message("hello")))
    served = [
        await bridge.http.post(f"{prefix}/chat/completions", json=ASK["/chat/completions"]),
        await bridge.http.post(f"{prefix}/responses", json=ASK["/responses"]),
        await bridge.http.get(f"{prefix}/models"),
        await bridge.http.get(f"{prefix}/models/{MODEL}"),
    ]
    assert [(response.status_code, response.json()["object"]) for response in served] == [
        (200, "chat.completion"),
        (200, "response"),
        (200, "list"),
        (200, "model"),
    ]


@pytest.mark.promise("ingress.unserved")
@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("path", UNSERVED)
async def test_what_only_openai_can_serve_is_refused_with_the_reason(bridge: Bridge, prefix: str, path: str) -> None:
    refused = [
        await bridge.http.post(f"{prefix}{path}", json={}),
        await bridge.http.get(f"{prefix}{path}/some_id/content"),
    ]
    assert [(each.status_code, each.json()["error"]) for each in refused] == [
        (
            404,
            {
                "message": IsStr(regex=rf"{method} {prefix}{path}\S* is not served here\. {re.escape(UNSERVED[path])}"),
                "type": "invalid_request_error",
                "param": None,
                "code": "not_served",
            },
        )
        for method in ("POST", "GET")
    ]


HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@pytest.mark.promise("ingress.websockets")
async def test_a_websocket_is_refused_on_a_route_that_does_not_serve_it(bridge: Bridge) -> None:
    route = "/v1/responses/{response_id}/cancel"
    with structlog.testing.capture_logs() as logs:
        response = await bridge.http.get(route.format(response_id="resp_1"), headers=HANDSHAKE)
        lines = await logged_requests(logs, 1)
    assert (response.status_code, response.headers["upgrade"], response.headers["connection"]) == (
        426,
        "HTTP/1.1",
        "upgrade",
    )
    assert response.json()["error"] == {
        "message": f"WebSockets are served on /v1/responses only. Send the same over HTTP: POST {route}.",
        "type": "invalid_request_error",
        "param": None,
        "code": "websocket_not_served",
    }
    assert [(line["route"], line["status"]) for line in lines] == [(route, 426)]


@pytest.mark.promise("websocket.handshake")
async def test_a_handshake_that_is_not_valid_is_refused(bridge: Bridge) -> None:
    response = await bridge.http.get("/v1/responses", headers={**HANDSHAKE, "sec-websocket-version": "8"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_handshake")


@pytest.mark.promise("websocket.handshake", "ingress.key")
async def test_a_websocket_without_the_key_is_refused_like_anything_else(bridge: Bridge) -> None:
    response = await bridge.http.get("/v1/responses", headers={**HANDSHAKE, "authorization": "Bearer wrong"})
    assert (response.status_code, "upgrade" in response.headers) == (401, False)


@pytest.mark.promise("ingress.unknown-routes")
async def test_a_get_without_a_handshake_is_still_not_allowed(bridge: Bridge) -> None:
    response = await bridge.http.get("/v1/responses")
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


@pytest.mark.promise("ingress.log")
@pytest.mark.parametrize("path", ASK)
async def test_a_request_that_is_refused_is_logged_with_what_it_asked_for(bridge: Bridge, path: str) -> None:
    wrong = {**ASK[path], "stream": True, "tools": [{"type": "code_interpreter"}]}
    with structlog.testing.capture_logs() as logs:
        assert (await bridge.http.post(f"/v1{path}", json=wrong)).status_code == 400
        (line,) = await logged_requests(logs, 1)
    assert (line["model"], line["stream"], line["error_code"]) == (MODEL, True, "unsupported_tool")


@pytest.mark.promise("models.retrieve")
async def test_the_sdk_lists_the_models_and_retrieves_each(bridge: Bridge) -> None:
    listed = [model async for model in bridge.client.models.list()]
    assert MODEL in [model.id for model in listed]
    for model in listed:
        assert await bridge.client.models.retrieve(model.id) == model


@pytest.mark.promise("ingress.probes")
@pytest.mark.parametrize(
    ("path", "state"),
    [
        ("/healthz", {"status": "ok"}),
        ("/livez", {"status": "ok"}),
        ("/readyz", {"status": "ready", "fidelity": "exact"}),
    ],
)
async def test_probes_need_no_key(bridge: Bridge, path: str, state: JsonObject) -> None:
    async with httpx2.AsyncClient(base_url=bridge.url) as stranger:
        response = await stranger.get(path)
    assert (response.status_code, response.json()) == (200, state)


@pytest.mark.promise("ingress.request-id")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", ASK)
async def test_a_clients_request_id_comes_back(bridge: Bridge, path: str, stream: bool) -> None:
    bridge.says("hello")
    response = await bridge.http.post(
        f"/v1{path}", json={**ASK[path], "stream": stream}, headers={"x-request-id": "mine-1"}
    )
    assert (response.status_code, response.headers["x-request-id"]) == (200, "mine-1")


@pytest.mark.promise("ingress.request-id")
async def test_every_answer_has_a_request_id_that_the_sdk_can_tell(bridge: Bridge) -> None:
    bridge.script(answer(message("hello")), answer(message("hello")), error_reply(429, "Too fast."))
    response = await bridge.client.responses.create(model=MODEL, input="hi")
    completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI)
    failed = await bridge.http.post("/v1/responses", json=ASK["/responses"])
    unknown = await bridge.http.get("/nowhere")
    ids = [response._request_id, completion._request_id]
    ids += [failed.headers["x-request-id"], unknown.headers["x-request-id"]]
    assert (failed.status_code, unknown.status_code) == (429, 404)
    assert ids == [FRESH_ID] * 4
    assert len(set(ids)) == 4


@pytest.mark.promise("ingress.key")
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/responses"), ("POST", "/chat/completions"), ("GET", "/models")]
)
async def test_a_wrong_key_is_an_authentication_error(bridge: Bridge, method: str, path: str) -> None:
    stranger = bridge.client.with_options(api_key="sk-wrong")
    send = stranger.get if method == "GET" else stranger.post
    with pytest.raises(openai.AuthenticationError) as caught:
        await send(path, cast_to=httpx2.Response)
    assert (caught.value.type, caught.value.code) == ("invalid_request_error", "invalid_api_key")


@pytest.mark.promise("ingress.unknown-routes")
@pytest.mark.parametrize(
    ("method", "path", "status", "code", "allow"),
    [
        ("PUT", "/v1/chat/completions", 405, "method_not_allowed", "GET, HEAD, POST"),
        ("DELETE", "/v1/responses", 405, "method_not_allowed", "GET, HEAD, POST"),
        ("POST", "/v1/models", 405, "method_not_allowed", "GET, HEAD"),
        ("POST", "/v1/audio/speech", 404, "not_served", None),
        ("GET", "/nowhere", 404, "not_found", None),
    ],
)
async def test_a_wrong_route_or_verb_is_an_openai_error(
    bridge: Bridge, method: str, path: str, status: int, code: str, allow: str | None
) -> None:
    response = await bridge.http.request(method, path)
    error = {"message": IsStr(min_length=10), "type": "invalid_request_error", "param": None, "code": code}
    assert (response.status_code, response.json()) == (status, {"error": error})
    assert response.headers.get("allow") == allow


STAINLESS = (
    "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
    "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout"
)


@pytest.mark.promise("ingress.cors.preflight")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/models"])
async def test_obsidian_may_preflight_with_the_sdks_headers_and_no_key(bridge: Bridge, path: str) -> None:
    async with httpx2.AsyncClient(base_url=bridge.url) as electron:
        response = await electron.options(
            path,
            headers={
                "origin": "app://obsidian.md",
                "access-control-request-method": "POST",
                "access-control-request-headers": STAINLESS,
            },
        )
    assert (response.status_code, response.content) == (204, b"")
    allowed = {name: value for name, value in response.headers.items() if name.startswith("access-control-")}
    assert allowed == {
        "access-control-allow-origin": "app://obsidian.md",
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS, HEAD",
        "access-control-allow-headers": STAINLESS.replace(",", ", "),
        "access-control-max-age": "600",
    }


@pytest.mark.promise("ingress.cors.preflight")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_obsidian_may_read_the_answer_and_what_its_headers_say(bridge: Bridge, stream: bool) -> None:
    bridge.says("hello")
    response = await bridge.http.post(
        "/v1/responses",
        json={**ASK["/responses"], "stream": stream, "temperature": 0},
        headers={"origin": "app://obsidian.md"},
    )
    assert response.headers["access-control-allow-origin"] == "app://obsidian.md"
    exposed = set(response.headers["access-control-expose-headers"].split(", "))
    told = {name for name in response.headers if name.startswith("x-turnbridge-")} | {"x-request-id", "retry-after"}
    assert told >= {"x-turnbridge-ignored", "x-turnbridge-model"}
    assert exposed >= told


@pytest.mark.promise("ingress.cors")
async def test_another_page_may_not_even_preflight(bridge: Bridge) -> None:
    response = await bridge.http.options(
        "/v1/responses", headers={"origin": "https://example.com", "access-control-request-method": "POST"}
    )
    assert (response.status_code, response.headers.get("access-control-allow-origin")) == (403, None)


SERIES = {
    'turnbridge_requests_total{outcome="ok",route="/v1/responses",status_class="2xx"}': 1,
    'turnbridge_requests_total{outcome="client_error",route="/v1/responses",status_class="4xx"}': 1,
    'turnbridge_request_seconds_count{route="/v1/responses"}': 2,
    'turnbridge_first_output_seconds_count{model="gpt-5.5"}': 1,
    'turnbridge_tokens_total{kind="input",model="gpt-5.5"}': 100,
    'turnbridge_tokens_total{kind="cached",model="gpt-5.5"}': 40,
    'turnbridge_tokens_total{kind="output",model="gpt-5.5"}': 50,
    'turnbridge_tokens_total{kind="reasoning",model="gpt-5.5"}': 20,
    'turnbridge_errors_total{code="rate_limit_exceeded",source="provider"}': 1,
}
"""By how much each grows with one answer and one failure."""


async def counted(bridge: Bridge) -> dict[str, float]:
    """Return every series."""
    lines = (await bridge.http.get("/metrics")).text.splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


@pytest.mark.promise("ingress.metrics")
async def test_metrics_count_requests_times_tokens_and_errors(bridge: Bridge) -> None:
    usage = Usage(input_tokens=100, cached_tokens=40, output_tokens=50, reasoning_tokens=20)
    bridge.script(answer(message("hello"), usage=usage), error_reply(429, "Too fast."))
    before = await counted(bridge)
    for _ in range(2):
        await bridge.http.post("/v1/responses", json=ASK["/responses"])
    after = await counted(bridge)
    assert {name: after.get(name, 0) - before.get(name, 0) for name in SERIES} == SERIES
