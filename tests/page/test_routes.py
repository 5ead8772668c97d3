"""The page's files and data over HTTP, without a browser."""

import json
import re
from pathlib import Path

import httpx2
import pytest

from tests.support.gateway import API_KEY, Bridge, running_bridge, settings_for_tests
from tests.support.issued_keys import bearer, issued, known, revoked
from tests.support.page import Shown
from tests.support.waiting import until
from tests.web.asgi_driver import call
from turnbridge.bootstrap import running_gateway
from turnbridge.page.assets import ASSETS, load_assets
from turnbridge.scripted_model.replies import answer, message
from turnbridge.store.schema import store_url
from turnbridge.web.http import PAGE_TOKEN

pytestmark = [pytest.mark.anyio, pytest.mark.real]

API = "/turnbridge/api"
FIRST_PAINT_BYTES = 100_000
FOR_OWNERS = ("/accounts", "/settings", "/key")


def visitor(url: str) -> httpx2.AsyncClient:
    """Return a client without a key, as a browser is at first."""
    return httpx2.AsyncClient(base_url=url, verify=False)


@pytest.mark.promise("page.served", "page.policy")
async def test_browsers_get_a_page_and_programs_links(shown: Shown) -> None:
    async with visitor(shown.url) as client:
        page = await client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        links = (await client.get("/", headers={"accept": "application/json"})).json()
        assert links["links"]["models"] == "/v1/models"
        assert (await client.get("/")).json() == links
        again = await client.get("/", headers={"accept": "text/html", "if-none-match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.get("/turnbridge/page/../routes.py")).status_code == 401


@pytest.mark.promise("page.served")
def test_the_page_is_small_and_names_no_other_host() -> None:
    assets = load_assets()
    painted = {f"{ASSETS}/index.html"}
    while (
        more := {
            f"{ASSETS}/{name}"
            for path in painted
            for name in re.findall(r"""(?:from '\./|"/turnbridge/page/)([\w.]+)""", assets[path].plain.decode())
        }
        - painted
    ):
        painted |= more
    assert f"{ASSETS}/words.js" in painted
    assert sum(len(assets[path].plain) for path in painted) < FIRST_PAINT_BYTES
    for name, asset in assets.items():
        text = asset.plain.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text.replace("^https?:\\/\\/", ""), name
        assert "https://" not in text, name
        assert "innerHTML" not in text, name


@pytest.mark.promise("page.session", "page.code")
async def test_a_session_needs_its_cookie_and_its_token(shown: Shown) -> None:
    assert shown.gateway.page is not None
    code = shown.gateway.page.new_code()
    async with visitor(shown.url) as client:
        crossed = await client.post(f"{API}/code", json={"code": code}, headers={"sec-fetch-site": "same-site"})
        assert crossed.status_code == 403
        opened = await client.post(f"{API}/code", json={"code": code}, headers={"origin": "https://a.example"})
        assert opened.status_code == 200
        cookie = opened.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Secure", "Path=/"} <= set(cookie.split("; "))
        assert (await client.post(f"{API}/code", json={"code": code})).status_code == 401
        assert (await client.post(f"{API}/code", content=b"x" * 20_000)).status_code == 413
    async with visitor(shown.url) as client:
        client.headers["cookie"] = cookie.partition(";")[0]
        token = {PAGE_TOKEN.decode(): opened.json()["token"]}
        assert (await client.get(f"{API}/state", headers=token)).json()["owner"] is True
        assert (await client.get("/v1/models", headers=token)).status_code == 200
        assert (await client.get(f"{API}/state")).status_code == 401
        assert (await client.get("/v1/models")).status_code == 401
        elsewhere = {**token, "host": "evil.example"}
        assert (await client.get(f"{API}/state", headers=elsewhere)).status_code == 403
        assert (await client.delete(f"{API}/session", headers=token)).status_code == 200
        assert (await client.get(f"{API}/state", headers=token)).status_code == 401


@pytest.mark.promise("page.host")
async def test_there_is_no_page_under_another_name(shown: Shown) -> None:
    async with visitor(shown.url) as client:
        for path in ("/", "/turnbridge/page/main.js"):
            assert (await client.get(path, headers={"host": "evil.example"})).status_code == 401
        assert (await client.post(f"{API}/code", json={}, headers={"host": "evil.example"})).status_code == 401
        with_key = {"host": "evil.example", "authorization": f"Bearer {API_KEY}"}
        assert (await client.get(f"{API}/state", headers=with_key)).status_code == 403


async def live(client: httpx2.AsyncClient, wanted: str) -> str:
    """Return the events up to the one that has this text."""
    seen = ""
    async with client.stream("GET", f"{API}/live") as stream:
        async for text in stream.aiter_text():
            seen += text
            if wanted in seen:
                return seen
    raise AssertionError(seen)


@pytest.mark.promise("page.guests", "page.uncounted", "page.live", "page.off")
async def test_guests_see_their_own_requests_and_nothing_of_others(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_LOG_PROTO=True) as bridge:
        store = store_url(tmp_path)
        guest = await issued(store, "guest")
        await known(bridge, guest)
        bridge.script(answer(message("of the owner")), answer(message("of the guest")))
        for key, text in ((API_KEY, "secret of the owner"), (guest, "secret of the guest")):
            sent = await bridge.http.post(
                "/v1/responses", json={"model": "codex-5", "input": text, "store": False}, headers=bearer(key)
            )
            assert sent.status_code == 200
        async with visitor(bridge.url) as client:
            client.headers.update(bearer(guest))
            state = (await client.get(f"{API}/state")).json()
            assert (state["owner"], state["client"]) == (False, "guest")
            for path in FOR_OWNERS:
                refused = await client.get(f"{API}{path}")
                assert refused.status_code in (403, 404), path
            seen = await live(client, "event: gauges")
            assert '"client":"guest"' in seen
            assert "key-" not in seen
            assert "running" not in seen
        everything = await live(bridge.http, "event: gauges")
        assert everything.count('"route":"POST /v1/responses"') == 2
        assert "secret" not in everything
        assert API not in everything
        await _uncounted(bridge, tmp_path)
        await _ends_with_its_key(bridge, store, guest)
    settings = settings_for_tests(tmp_path / "off", PROXY_PAGE="off")
    async with running_gateway(settings, api_key=API_KEY, provider="http://127.0.0.1:9/v1") as off:
        for path in ("/", f"{API}/state", "/turnbridge/page/main.js"):
            headers = {"accept": "text/html", **bearer(API_KEY)}
            assert (await call(off.app, "GET", path, headers=headers)).status == 404
        assert API not in (await call(off.app, "GET", "/openapi.json", headers=bearer(API_KEY))).body.decode()


async def _uncounted(bridge: Bridge, directory: Path) -> None:
    metrics = (await bridge.http.get("/metrics")).text
    assert "/turnbridge/" not in metrics
    assert "turnbridge_active_requests 1.0" in metrics
    trace = (directory / "trace" / "wire.ndjson").read_text()
    assert "/v1/responses" in trace
    assert API not in trace


async def _ends_with_its_key(bridge: Bridge, store: str, guest: str) -> None:
    async with visitor(bridge.url) as client:
        opened = await client.post(f"{API}/session", headers=bearer(guest))
        token = {PAGE_TOKEN.decode(): opened.json()["token"]}
        assert (await client.get(f"{API}/state", headers=token)).json()["client"] == "guest"
        await revoked(store, "guest")
        await until(lambda: bridge.gateway.keyring.find(guest.encode()) is None)
        assert (await client.get(f"{API}/state", headers=token)).status_code == 401


async def test_data_are_json_that_no_cache_keeps(shown: Shown) -> None:
    async with visitor(shown.url) as client:
        client.headers.update(bearer(API_KEY))
        answered = await client.get(f"{API}/models")
        assert json.loads(answered.content)["object"] == "list"
        assert answered.headers["cache-control"] == "no-store"
        assert (await client.get(f"{API}/connect?origin=javascript:x")).status_code == 400
        assert (await client.get(f"{API}/key")).json() == {"key": API_KEY}
