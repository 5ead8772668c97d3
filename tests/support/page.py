"""A gateway with its page, and a real Chromium that looks at it."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from tests.support.gateway import API_KEY, listening, listening_with, settings_for_tests
from tests.support.ports import free_port
from turnbridge.bootstrap import Gateway, running_gateway
from turnbridge.cli.page_data import command_data
from turnbridge.scripted_model.persona import respond
from turnbridge.scripted_model.server import ScriptedModel

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Without these, Chromium calls other hosts in the background; the sandbox does not work for root.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
# Longer than anything takes on a busy machine.
PATIENCE_MS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A gateway whose page can be opened."""

    url: str
    gateway: Gateway
    model: ScriptedModel

    def link(self) -> str:
        """Return a link as `serve` prints it."""
        assert self.gateway.page is not None
        return f"{self.url}/#code={self.gateway.page.new_code()}"


@dataclass
class Tab:
    """A page in the browser; what goes wrong in it is noted."""

    page: Page
    wrong: list[str] = field(default_factory=list)

    def note(self, message: ConsoleMessage) -> None:
        # A request that the gateway refuses is a line, too.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.wrong.append(message.text)

    async def says(self, selector: str, text: str) -> None:
        """Wait until an element has this text."""
        await self.page.locator(selector).filter(has_text=text).first.wait_for(timeout=PATIENCE_MS)


@contextlib.asynccontextmanager
async def page_shown(data_dir: Path, *, demo: bool = True, **chosen: Any) -> AsyncIterator[Shown]:
    """Run a gateway with the demo model, or with the login of a user; with warm threads as in real life.

    The demo has the listener for Ollama's clients.
    """
    ollama = {"PROXY_OLLAMA": "on"} if demo else {}
    settings = settings_for_tests(data_dir, **{"PROXY_WARM_THREADS_MAX": 8, **ollama, **chosen})
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModel(respond, record=True))
        port = free_port()
        commands = command_data(
            settings, API_KEY, port=0, others={"ollama": f"http://127.0.0.1:{port}"} if demo else {}
        )
        gateway = await stack.enter_async_context(
            running_gateway(settings, api_key=API_KEY, provider=model.base_url if demo else None, commands=commands)
        )
        url = await stack.enter_async_context(listening(gateway))
        for app in gateway.others.values():
            await stack.enter_async_context(listening_with(app, port))
        await gateway.pool.any_worker()
        yield Shown(url=url, gateway=gateway, model=model)


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run the system's Chromium; skip the test where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("There is no Chromium on this machine: install the package `chromium`.")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def tab(browser: Browser, **options: Any) -> AsyncIterator[Tab]:
    """Open an empty page in a profile of its own; fail if anything went wrong in it."""
    context = await browser.new_context(**{"viewport": {"width": 1180, "height": 900}, **options})
    context.set_default_timeout(PATIENCE_MS)
    try:
        found = Tab(await context.new_page())
        found.page.on("console", found.note)
        found.page.on("pageerror", lambda error: found.wrong.append(str(error)))
        yield found
        assert found.wrong == []
    finally:
        await context.close()


async def opened(tab: Tab, shown: Shown) -> Page:
    """Open the page by a link, and wait until its playground can be used."""
    await tab.page.goto(shown.link())
    await tab.page.locator("#model option[value='codex-5']").wait_for(state="attached")
    return tab.page
