"""A login from the page, with the real Codex and a scripted authorization server on loopback."""

import time
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.support.login_server import EMAIL, USER_CODE, login_server
from tests.support.page import page_shown, tab

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.mark.promise("page.login", "page.state")
async def test_a_device_code_logs_in_and_the_page_turns_green(
    browser: Browser, started_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = started_before / "data"
    with login_server(started_before) as issuer:
        issuer.write_config(data / "user-codex")
        for name, value in issuer.variables().items():
            monkeypatch.setenv(name, value)
        async with page_shown(data, demo=False) as shown, tab(browser) as one:
            await one.page.goto(shown.link())
            await one.says("#state", "Not ready. Codex is not logged in")
            await one.says("#state", "nobody is logged in")
            await one.says("#state .plan", "This login has no plan windows.")
            await one.page.get_by_role("button", name="Log in with a code").click()
            await one.says("#state .code", USER_CODE)
            assert await one.page.locator("#state .login a").get_attribute("href") == f"{issuer.url}/codex/device"
            await one.page.get_by_role("button", name="Cancel").click()
            await one.page.get_by_role("button", name="Log in with a code").click()
            await one.says("#state .code", USER_CODE)
            issuer.approved.set()
            await one.says("#state .facts", EMAIL)
            await one.says("#state .state-line", "Ready. Turns run.")
            meters = one.page.get_by_role("meter")
            assert [await meters.nth(at).get_attribute("aria-valuenow") for at in (0, 1)] == ["42", "7"]
            # The metrics show the same windows.
            windows = shown.gateway.pool.plan.windows(time.time())
            assert [windows[name].used_percent for name in ("primary", "secondary")] == [42, 7]
            assert await one.page.get_by_role("button", name="Log in with a code").count() == 0
