"""Takes the pictures of the page for the documentation, with the demo: `python -m tools.pictures` (needs Chromium)."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Literal, TypeAlias

import httpx2
from playwright.async_api import Browser, Page

from tests.support.gateway import API_KEY
from tests.support.page import Shown, chromium, opened, page_shown, tab

Scheme: TypeAlias = Literal["light", "dark"]

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
WEATHER = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

TOOLS = [{"type": "function", "function": WEATHER}]


async def take(directory: Path) -> None:
    """Take every picture."""
    with tempfile.TemporaryDirectory() as data:
        async with page_shown(Path(data), PROXY_LOG_PROTO=True) as shown, chromium() as browser:
            await _some_requests(shown)
            await shown.gateway.meter.flush()
            await _page(browser, shown, "light", directory / "page-light.png")
            await _page(browser, shown, "dark", directory / "page-dark.png", at="#connect")
            await _phone(browser, shown, directory / "page-phone.png")
            await _request(browser, shown, directory / "page-request.png")


async def _page(browser: Browser, shown: Shown, scheme: Scheme, file: Path, at: str = "") -> None:
    async with tab(browser, color_scheme=scheme, viewport={"width": 1080, "height": 980}) as one:
        page = await opened(one, shown)
        await one.says("#state", "The demo has no plan")
        await _talk(page)
        await one.says(".turn.model .foot", "thread: parked")
        await page.get_by_role("button", name="OpenAI SDK").click()
        await one.says("#connect pre", "OPENAI_BASE_URL")
        await _show(page, at, file)


async def _phone(browser: Browser, shown: Shown, file: Path) -> None:
    async with tab(browser, color_scheme="light", viewport={"width": 360, "height": 740}) as one:
        page = await opened(one, shown)
        await page.get_by_role("button", name="Say hello").click()
        await one.says(".turn.model .foot", "thread:")
        await _show(page, "#playground", file)


async def _request(browser: Browser, shown: Shown, file: Path) -> None:
    async with tab(browser, color_scheme="light", viewport={"width": 1180, "height": 900}) as one:
        page = await opened(one, shown)
        told = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
        async with httpx2.AsyncClient(base_url=shown.url, headers={"authorization": f"Bearer {API_KEY}"}) as client:
            await client.post("/v1/chat/completions", json={"model": "codex-5", "messages": told, "tools": TOOLS})
        await one.says("#live tbody tr:first-child", "python-httpx")
        await page.get_by_role("button", name="Timeline of the request at").first.click()
        await one.says("dialog td", "turn/start")
        await page.screenshot(path=file)


async def _talk(page: Page) -> None:
    """Let the model call a function, and answer it by hand."""
    await page.locator("details.more summary").click()
    await page.get_by_label("Functions (JSON)").fill(json.dumps(WEATHER))
    await page.locator("details.more summary").click()
    await page.fill("#prompt", "What is the weather? Use get_weather.")
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.get_by_label("Result of get_weather").fill('{"sky": "clear", "celsius": 21}')
    await page.get_by_role("button", name="Send the result").click()


async def _some_requests(shown: Shown) -> None:
    """Send what clients would, for the list of requests."""
    async with httpx2.AsyncClient(base_url=shown.url, headers={"authorization": f"Bearer {API_KEY}"}) as client:
        for agent, route, body in (
            ("OpenAI/Python 3.49.0", "/v1/responses", {"model": "gpt-5.5", "input": "Hello!"}),
            (
                "opencode/1.18",
                "/v1/chat/completions",
                {"model": "codex-5", "messages": [{"role": "user", "content": "Hi"}]},
            ),
            ("OpenAI/JS 6.49.0", "/v1/responses", {"model": "gpt-9", "input": "Hello!"}),
        ):
            await client.post(route, json=body, headers={"user-agent": agent})


async def _show(page: Page, at: str, file: Path) -> None:
    """Scroll to a block, and take the picture."""
    await page.evaluate("document.activeElement?.blur()")
    await page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    await page.evaluate("document.querySelector('.conversation').scrollTo(0, 0)")
    await page.evaluate("(at) => at ? document.querySelector(at).scrollIntoView() : scrollTo(0, 0)", at)
    file.parent.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=file)


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES))
