"""The judge itself: it must notice a gateway that stalls, and must not blame one that does not."""

import asyncio
import signal

import pytest

from tests.hostile.site import LONGEST_WAIT_S, Site

pytestmark = [pytest.mark.anyio, pytest.mark.real]


async def test_an_ordinary_request_disturbs_nobody(site: Site) -> None:
    async def ask() -> None:
        body = {"model": "gpt-5.5", "input": "Hello"}
        assert (await site.hostile.post("/v1/responses", json=body)).status_code == 200

    await site.assert_undisturbed(ask)


async def test_a_gateway_that_stalls_is_noticed(site: Site) -> None:
    async def stall() -> None:
        site.gateway.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(2 * LONGEST_WAIT_S)
        finally:
            site.gateway.send(signal.SIGCONT)

    assert await site.longest_wait_s(stall) > LONGEST_WAIT_S
