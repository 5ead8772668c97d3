"""A data directory that is removed while the gateway runs: it is made again, or the reason is told."""

import shutil
from pathlib import Path

import pytest

from tests.faults.leftovers import is_whole
from tests.support.gateway import Bridge, running_bridge
from tests.support.plain_http import CHAT, Ending, ask
from tests.support.waiting import until
from turnbridge.scripted_model.replies import answer, message
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ASK: JsonObject = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]}
WELL = Ending(status=200, text="Well.")


async def told(bridge: Bridge) -> str | None:
    """Return why the gateway is not ready, if it is not."""
    reason: str | None = (await bridge.http.get("/readyz")).json().get("reason")
    return reason


@pytest.mark.promise("faults.data-removed")
async def test_a_home_that_was_removed_is_made_again_for_the_next_request(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
        bridge.model.respond = lambda _: answer(message("Well."))
        await until(lambda: is_whole(bridge.gateway.pool))
        before = bridge.gateway.pool.workers
        shutil.rmtree(tmp_path / "data")
        assert await ask(bridge.http, CHAT, ASK) == WELL
        await until(lambda: is_whole(bridge.gateway.pool))
        assert not set(before) & set(bridge.gateway.pool.workers)
        assert await told(bridge) is None


@pytest.mark.promise("faults.data-removed")
async def test_a_home_that_cannot_be_made_again_is_told_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    async with running_bridge(data) as bridge:
        bridge.model.respond = lambda _: answer(message("Well."))
        await until(lambda: is_whole(bridge.gateway.pool))
        # Its only request that waits for a start is one that waits in vain.
        monkeypatch.setattr(bridge.gateway.pool, "start_timeout_s", 0.5)
        shutil.rmtree(data)
        data.touch()
        # Nobody has to ask first.
        await until(lambda: "could not be started" in bridge.gateway.pool.readiness().reason)
        assert str(data) in (await told(bridge) or "")
        assert await ask(bridge.http, CHAT, ASK) == Ending(status=503, code="backend_unavailable")
        data.unlink()
        await until(lambda: bridge.gateway.pool.readiness().ready)
        assert await ask(bridge.http, CHAT, ASK) == WELL
