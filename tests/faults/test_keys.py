"""Keys while their store does not answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.store.postgres_server import running_postgres
from tests.support.gateway import running_bridge
from tests.support.hanging_store import hanging
from tests.support.issued_keys import bearer, issued, known, revoked, unknown
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CHAT = "/v1/chat/completions"
HI = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Return the URL of a Postgres."""
    with running_postgres() as url:
        yield url


@pytest.mark.promise("keys.store-away")
async def test_known_keys_are_accepted_while_the_store_hangs(postgres: str, tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_DATABASE_URL=postgres) as bridge:
        key = await issued(postgres, "alice")
        await known(bridge, key)
        with capture_logs() as logs:
            with await hanging(postgres):
                await until(lambda: any(line["event"] == "keys_not_renewed" for line in logs))
                bridge.says("still here")
                answered = await bridge.http.post(CHAT, json=HI, headers=bearer(key))
                assert answered.json()["choices"][0]["message"]["content"] == "still here"
            await until(lambda: any(line["event"] == "keys_renewed" for line in logs))
        await revoked(postgres, "alice")
        await unknown(bridge, key)


@pytest.mark.promise("keys.store-away")
async def test_a_gateway_that_cannot_read_its_keys_does_not_call_them_wrong(tmp_path: Path) -> None:
    nobody = "postgresql://nobody@127.0.0.1:9/none"
    async with running_bridge(tmp_path, PROXY_DATABASE_URL=nobody) as bridge:
        bridge.says("mine")
        assert (await bridge.http.post(CHAT, json=HI)).status_code == 200
        for _ in range(30):
            other = await bridge.http.get("/v1/models", headers=bearer("sk-turnbridge-made-before"))
            assert (other.status_code, other.json()["error"]["code"]) == (503, "store_unavailable")
            assert int(other.headers["retry-after"]) > 0
        wrong = await bridge.http.get("/v1/models", headers=bearer("sk-guessed"))
        assert wrong.status_code == 401
