"""A login from the page, with the real Codex and a scripted authorization server on loopback."""

import time
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.support.login_server import EMAIL, USER_CODE, LoginServer, login_server
from tests.support.page import Tab, page_shown, tab

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.mark.promise("page.login", "page.state", "page.accounts")
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
            await one.page.get_by_role("button", name="Log in with a code").click()
            await one.says("#state .code", USER_CODE)
            assert await one.page.locator("#state .login a").get_attribute("href") == f"{issuer.url}/codex/device"
            await one.page.get_by_role("button", name="Cancel").click()
            await one.page.get_by_role("button", name="Log in with a code").click()
            await one.says("#state .code", USER_CODE)
            issuer.approved.set()
            await one.says("#state .account", EMAIL)
            await one.says("#state .state-line", "Ready. Turns run.")
            meters = one.page.get_by_role("meter")
            assert [await meters.nth(at).get_attribute("aria-valuenow") for at in (0, 1)] == ["42", "7"]
            # The metrics show the same windows.
            windows = shown.gateway.pool.plan.windows(time.time())
            assert [windows[name].used_percent for name in ("primary", "secondary")] == [42, 7]
            assert await one.page.get_by_role("button", name="Log in with a code").count() == 0
            await _another_account(one, issuer, data)


async def _another_account(one: Tab, issuer: LoginServer, data: Path) -> None:
    """Log in to a second account, make a key for it, and log out of it again; add a third."""
    page = one.page
    # Its directory is all that an account is, and the page notices it.
    issuer.write_config(data / "accounts" / "work")
    work = page.get_by_label("Account work")
    await work.get_by_role("button", name="Log in with a code").click()
    await work.get_by_text(f"{EMAIL}, ChatGPT Plus").wait_for()
    meters = work.get_by_role("meter")
    assert [await meters.nth(at).get_attribute("aria-valuenow") for at in (0, 1)] == ["42", "7"]
    await page.get_by_text("New key").click()
    await page.get_by_label("Name", exact=True).last.fill("bob")
    await page.get_by_label("Codex account").select_option("work")
    await page.get_by_role("button", name="Create a key").click()
    await one.says("#keys td", "account work")
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Log out of work").click()
    await work.get_by_text("nobody is logged in").wait_for()
    assert (len(issuer.revoked), (data / "accounts" / "work" / "auth.json").exists()) == (1, False)
    await page.get_by_text("Add an account").click()
    await page.locator("#account-name").fill("billed")
    await page.get_by_role("button", name="Log in to it").click()
    billed = page.get_by_label("Account billed")
    await billed.get_by_text("a new account").wait_for()
    assert not (data / "accounts" / "billed").exists()
    await billed.get_by_text("With an OpenAI API key").click()
    await billed.get_by_label("API key").fill("sk-1")
    await billed.get_by_role("button", name="Log in", exact=True).click()
    await billed.get_by_text("An API key is billed by use, and has no windows.").wait_for()
    # Somebody logs in elsewhere, and out again, and the page notices.
    file = data / "accounts" / "work" / "auth.json"
    file.write_text('{"OPENAI_API_KEY": "sk-2"}', encoding="utf-8")
    await work.get_by_text("OpenAI API key", exact=True).wait_for()
    file.unlink()
    await work.get_by_text("nobody is logged in").wait_for()
    await page.get_by_role("button", name="Log out of default").wait_for()
