"""The page in a real Chromium, in front of the real Codex and the demo model."""

import asyncio
import contextlib
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Page

from tests.support.gateway import API_KEY
from tests.support.page import Shown, opened, tab
from tests.support.tool_clients import bare
from tests.support.waiting import until
from turnbridge.scripted_model.persona import respond
from turnbridge.scripted_model.replies import answer, function_call, message
from turnbridge.scripted_model.server import in_order
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

AXE = Path(__file__).parents[1] / "node" / "node_modules" / "axe-core" / "axe.min.js"
WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
MARKUP = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

# Longer than any program takes on a busy machine.
BOUND_S = 60
# The difference of two texts has both of them in it, and nothing else.
COMPARED = """async () => {
  const { difference } = await import('/turnbridge/page/seen.js');
  const texts = ['', 'a', 'b', 'ab', 'ba', 'abc', 'acb', 'cab', 'aab', 'abab', 'xaby'];
  const pairs = texts.flatMap((one) => texts.map((other) => [one, other]));
  return pairs.filter(([one, other]) => {
    const found = difference([...one], [...other]);
    const without = (mark) => found.filter(([each]) => each !== mark).map(([, line]) => line).join('');
    return without('+') !== one || without('-') !== other || (one === other && found.some(([mark]) => mark !== ' '));
  });
}"""

DROP = """([pixel, notes]) => {
  const bytes = Uint8Array.from(atob(pixel), (each) => each.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], 'pixel.png', {type: 'image/png'}));
  for (const note of notes) data.items.add(new File([note], 'note.txt', {type: 'text/plain'}));
  const dropped = new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
  document.querySelector('.composer').dispatchEvent(dropped);
}"""


async def ask(page: Page, text: str) -> None:
    await page.fill("#prompt", text)
    await page.get_by_role("button", name="Send", exact=True).click()


@pytest.mark.promise("page.served", "page.state", "page.code", "page.policy")
async def test_a_link_opens_the_page_once(browser: Browser, shown: Shown) -> None:
    link = shown.link()
    async with tab(browser) as one:
        await one.page.goto(link)
        await one.says("#state", "Ready. This is the demo")
        await one.says("#state", "exact: the model sees just what clients send")
        await one.says("#state", "The demo has no plan")
        assert "code" not in one.page.url
        cookie, *others = await one.page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], others) == (True, "Strict", [])
        await one.page.reload()
        await one.says("#state", "Ready.")
        await one.page.get_by_role("button", name="Sign out").click()
        await one.says(".door", "You are signed out.")
    async with tab(browser) as another:
        await another.page.goto(link)
        await another.says(".door", "This link was used already, or is too old.")
        # A new link works where the page is open already.
        await another.page.evaluate("link => { location.href = link; }", shown.link())
        await another.says("#state", "Ready.")


@pytest.mark.promise("page.session")
async def test_a_key_opens_the_page(browser: Browser, shown: Shown) -> None:
    async with tab(browser) as one:
        await one.page.goto(shown.url)
        await one.page.get_by_label("API key").fill("sk-wrong-0123456789")
        await one.page.keyboard.press("Enter")
        await one.says(".door", "Incorrect API key provided")
        await one.page.get_by_label("API key").fill(API_KEY)
        await one.page.keyboard.press("Enter")
        await one.says("#state", "Ready.")
        assert API_KEY not in json.dumps(await one.page.evaluate("({...localStorage, ...sessionStorage})"))


@pytest.mark.promise("page.playground", "page.live")
async def test_an_answer_streams_and_the_next_turn_is_warm(browser: Browser, shown: Shown) -> None:
    async with tab(browser) as one:
        page = await opened(one, shown)
        await page.locator("details.more summary").click()
        await page.get_by_label("Instructions", exact=True).fill("Be brief.")
        await ask(page, "Hello, bridge!")
        await one.says(".turn.model .foot", "thread: fresh")
        await one.says(".turn.model .text", "You said: “Hello, bridge!”. I was given instructions of 2 words.")
        await one.says(".turn.model .foot", "first token:")
        assert await page.locator("details.reasoning").get_attribute("open") is None
        await page.locator("details.reasoning summary").click()
        await one.says(".reasoning .text", "I look at what arrived")
        await ask(page, "And again?")
        await one.says(".turn.model .foot", "thread: warm")
        await one.says(".turn.model .text", "the conversation had 1 answer of mine")
        await one.says("#live tbody tr", "this page")
        await one.says("#live tbody tr", "warm")
        assert "bridge" not in await page.locator("#live").inner_text()


@pytest.mark.promise("page.playground")
async def test_a_schema_an_image_and_a_file_reach_the_model(browser: Browser, shown: Shown) -> None:
    async with tab(browser) as one:
        page = await opened(one, shown)
        await page.locator("details.more summary").click()
        await page.get_by_label("JSON Schema of the answer").fill("{")
        await ask(page, "Look.")
        await one.says("#playground .problem", "The schema: this is not JSON.")
        schema = {"type": "object", "properties": {"seen": {"type": "boolean"}}}
        closed: dict[str, Any] = {**schema, "required": ["seen"], "additionalProperties": False}
        await page.get_by_label("JSON Schema of the answer").fill(json.dumps(closed))
        await page.evaluate(DROP, [PIXEL, ["words of a file"]])
        await page.locator(".attached li").nth(1).wait_for()
        shown.model.requests.clear()
        await page.get_by_role("button", name="Send", exact=True).click()
        await one.says(".turn.model .text", '{"seen":')
        sent = json.dumps(shown.model.requests[-1].body)
        assert PIXEL in sent
        assert "words of a file" in sent


@pytest.mark.promise("page.playground")
async def test_a_turn_can_be_stopped(browser: Browser, shown: Shown) -> None:
    async with tab(browser) as one:
        page = await opened(one, shown)
        await ask(page, "word " * 300)
        await page.locator(".answer > .text").wait_for()
        await page.get_by_role("button", name="Stop").click()
        await one.says(".turn.model .foot", "Stopped.")
        await one.says("#live tbody tr", "client_gone")


@pytest.mark.promise("page.connect")
async def test_a_client_is_connected(browser: Browser, shown: Shown) -> None:
    async with tab(browser) as one:
        page = await opened(one, shown)
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.get_by_role("button", name="OpenAI SDK").click()
        await one.says("#connect pre", f"export OPENAI_BASE_URL={shown.url}/v1")
        await one.says("#connect pre", "OPENAI_API_KEY=YOUR_KEY")
        await page.get_by_role("button", name="Copy with the key").click()
        await one.says("#connect", "Copied")
        assert f"OPENAI_API_KEY={API_KEY}" in await page.evaluate("navigator.clipboard.readText()")
        await one.says(".waiting", "Waiting for the first request of OpenAI SDK")
        headers = {"authorization": f"Bearer {API_KEY}", "user-agent": "OpenAI/Python 3.49"}
        async with httpx2.AsyncClient(base_url=shown.url, headers=headers) as client:
            assert (await client.get("/v1/models")).status_code == 200
        await one.says(".waiting", "OpenAI SDK is connected")


@pytest.mark.promise("page.state")
async def test_models_doctor_and_settings_are_shown(browser: Browser, shown: Shown) -> None:
    async with tab(browser) as one:
        page = await opened(one, shown)
        await one.says("#models td", "gpt-5.5")
        await page.locator("#settings input").check()
        await one.says("#settings td", "PROXY_MAX_TURNS")
        assert API_KEY not in await page.content()
        await page.get_by_role("button", name="Check now").click()
        await one.says("#doctor .findings", "binary")


def seen(body: JsonObject) -> Json:
    """Return what the model was shown; clients do not send its reasoning back, nor all of them the spaces of a call."""
    items: Any = bare(body["input"])
    tools: Any = body["tools"]
    for item in items:
        if item["type"] == "function_call":
            item["arguments"] = json.loads(item["arguments"])
        # Ollama's client for Python drops the ids of calls, and what else it does not know.
        item.pop("call_id", None)
    return [
        *[item for item in items if item["type"] != "reasoning"],
        *[(tool["name"], tool["parameters"]["properties"]) for tool in tools],
    ]


async def program(page: Page, api: str, language: str) -> str:
    """Return the last request as a program."""
    await page.get_by_role("tab", name=api, exact=True).click()
    await page.get_by_role("tab", name=language, exact=True).click()
    return await page.locator(".snippet code").inner_text()


def run_python(text: str) -> str:
    """Return what a program prints."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, "snippet", "exec"), names)
    names["client"]._client.close()
    return printed.getvalue()


async def run_node(programs: Sequence[str]) -> str:
    """Return what programs print, with the packages of the tests: each import once, the rest one after another."""
    parts = [text.partition("\n") for text in programs]
    whole = "\n".join([*dict.fromkeys(first for first, _, _ in parts), *(f"{{{rest}}}" for _, _, rest in parts)])
    process = await asyncio.create_subprocess_exec(
        *("node", "--input-type=module"),
        cwd=AXE.parents[2],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BOUND_S):
        printed, _ = await process.communicate(whole.encode())
    return printed.decode()


async def run_curl(text: str) -> str:
    """Return the answer to a request that is written for curl, as its stream."""
    head, _, body = text.removesuffix("'").partition("-d '")
    headers = dict(re.findall(r'-H "([^:]+): ([^"]+)"', re.sub(r"\$\w+_API_KEY", API_KEY, head)))
    async with httpx2.AsyncClient(verify=False, timeout=BOUND_S) as client:
        url = head.split()[2]
        answered = await client.post(url, content=body.replace("'\\''", "'"), headers=headers)
    assert answered.status_code == 200, answered.text
    return answered.text


@pytest.mark.promise("page.playground", "page.snippets")
async def test_a_call_is_answered_by_hand_and_the_request_is_the_same_on_every_api(
    browser: Browser, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, API_KEY)
    async with tab(browser) as one:
        page = await opened(one, shown)
        await page.locator("details.more summary").click()
        await page.get_by_label("Functions (JSON)").fill(json.dumps(WEATHER))
        await page.evaluate(DROP, [PIXEL, []])
        await page.locator(".attached li").wait_for()
        await ask(page, 'It\'s "quoted": use get_weather, please.')
        await one.says(".call", "city")
        await page.get_by_label("Result of get_weather").fill("rain")
        await page.get_by_role("button", name="Send the result").click()
        await one.says(".turn.model .text", "get_weather answered: “rain”.")
        await one.says(".turn.model .foot", "thread: parked")
        told = seen(shown.model.requests[-1].body)
        await page.get_by_text("This request as curl").click()
        nodes = []
        shown.model.requests.clear()
        for api, text in (
            ("Responses", "response.output_text.delta"),
            ("Chat Completions", "chat.completion.chunk"),
            ("Messages (Anthropic)", "text_delta"),
            ("Ollama", '"done":true'),
        ):
            assert text in await run_curl(await program(page, api, "curl")), api
            assert "rain" in await asyncio.to_thread(run_python, await program(page, api, "Python")), api
            nodes.append(await program(page, api, "node"))
        if AXE.is_file():
            assert (await run_node(nodes)).count("rain") == 4
        assert len(shown.model.requests) == (12 if AXE.is_file() else 8)
        assert [seen(request.body) for request in shown.model.requests] == [told] * len(shown.model.requests)


@pytest.mark.promise("page.markup", "page.policy", "page.timeline", "page.usage")
async def test_nothing_that_others_say_becomes_markup(browser: Browser, shown: Shown) -> None:
    async with tab(browser) as one:
        page = await opened(one, shown)
        tool = {**WEATHER, "name": "get_weather", "description": MARKUP}
        shown.model.respond = in_order(
            answer(message(f"{MARKUP} done")), answer(function_call("get_weather", json.dumps({"city": MARKUP})))
        )
        try:
            await ask(page, MARKUP)
            await one.says(".turn.model .text", f"{MARKUP} done")
            await page.locator("details.more summary").click()
            await page.get_by_label("Functions (JSON)").fill(json.dumps(tool))
            await ask(page, "call it")
            await one.says(".call pre", "onerror")
        finally:
            shown.model.respond = respond
        await page.get_by_text("This request as curl").click()
        await one.says(".snippet code", "onerror")
        async with httpx2.AsyncClient(base_url=shown.url, headers={"user-agent": MARKUP}, verify=False) as client:
            client.headers.update({"authorization": f"Bearer {API_KEY}", "x-request-id": MARKUP})
            refused = await client.post("/v1/responses", json={"model": MARKUP, "input": "x"})
            assert refused.status_code == 404
            told = [{"role": "system", "content": MARKUP}, {"role": "user", "content": "שלום\n" + "long" * 400}]
            sent = await client.post("/v1/chat/completions", json={"model": "codex-5", "messages": told})
            assert sent.status_code == 200
        await one.says("#live tbody tr", "model_not_found")
        await one.says("#live tbody tr", MARKUP[:40])
        await page.get_by_role("button", name="Timeline of the request at").first.click()
        await one.says("dialog", "system: <img")
        await one.says("dialog .pane ins", f"+ developer: {MARKUP}")
        await one.says("dialog .pane del", f"- system: {MARKUP}")
        await page.keyboard.press("Escape")
        # What was used is stored some seconds later.
        await shown.gateway.meter.flush()
        await page.reload()
        await one.says("#usage td", "model_not_found")
        await one.says("#usage td", "gpt-")
        label = await page.locator("#usage svg").get_attribute("aria-label")
        assert (label or "").startswith("Tokens of the last 14 days: ")
        first_token = await page.get_by_role("region", name="Latency").locator("td").nth(2).inner_text()
        assert re.fullmatch(r"\d.* m?s", first_token)
        assert await page.title() == "Turnbridge"
        assert await page.locator("main img:not(.picture), main script, dialog img").count() == 0


@pytest.mark.promise("page.timeline", "page.access")
async def test_a_request_is_shown_across_both_wires_on_a_phone_in_light_and_dark(
    browser: Browser, shown: Shown
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run `make node`.")
    async with tab(browser, color_scheme="light", viewport={"width": 360, "height": 740}) as one:
        page = await opened(one, shown)
        await ask(page, "Trace me.")
        await one.says(".turn.model .foot", "thread:")
        await ask(page, "שלום " + "long" * 60)
        await one.says(".turn.model .foot", "thread: warm")
        await page.get_by_text("This request as curl").click()
        await page.get_by_role("button", name="Claude Code").click()
        await one.says("#connect pre", "ANTHROPIC_BASE_URL")
        await page.evaluate(AXE.read_text(encoding="utf-8"))
        assert await serious(page) == []
        await page.get_by_role("button", name="Timeline of the request at").first.click()
        await one.says("dialog td", "turn/start")
        waits = await page.locator("dialog .waits").get_attribute("aria-label")
        assert re.search("queue .*, thread of Codex .*, provider, to the first token .*, stream ", waits or "")
        codex, model = page.get_by_label("Codex was told").last, page.get_by_label("The model saw").last
        assert "- user: Trace me." in await codex.inner_text()
        assert "  user: שלום long" in await model.inner_text()
        for scheme in ("dark", "light"):
            await page.emulate_media(color_scheme=scheme)
            assert await serious(page) == [], scheme
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        assert await page.evaluate(COMPARED) == []
        await page.keyboard.press("Escape")
        await page.locator("dialog").wait_for(state="detached")
        await page.emulate_media(color_scheme="dark")
        assert await serious(page) == []


async def serious(page: Page) -> list[Any]:
    """Return what axe-core finds that is serious."""
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (each["id"], [node["html"] for node in each["nodes"]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.promise("page.keys", "page.markup")
async def test_a_key_is_created_limited_used_and_revoked(browser: Browser, shown: Shown) -> None:
    async with tab(browser) as one:
        page = await opened(one, shown)
        page.on("dialog", lambda dialog: dialog.accept())
        await page.get_by_text("New key").click()
        await page.get_by_label("Name", exact=True).fill(MARKUP)
        await page.get_by_role("button", name="Create a key").click()
        await one.says("#keys .problem", "A name has 1 to 64 letters")
        await page.get_by_label("Name", exact=True).fill("visitor")
        await page.get_by_label("Rate", exact=True).fill("60/minute")
        await page.get_by_role("button", name="Create a key").click()
        await one.says("#keys td", "60/minute")
        key = await page.locator("#keys .secret").inner_text()
        await until(lambda: shown.gateway.keyring.find(key.encode()) is not None)
        async with tab(browser) as guest:
            await guest.page.goto(shown.url)
            await guest.page.get_by_label("API key").fill(key)
            await guest.page.keyboard.press("Enter")
            await guest.says(".who", "visitor")
            await guest.page.locator("#model option[value='codex-5']").wait_for(state="attached")
            await ask(guest.page, "Hello from a guest")
            await guest.says("#live tbody tr", "this page")
            titles = await guest.page.locator("h2").all_inner_texts()
            assert titles == ["State", "Playground", "Connect", "Live", "Usage"]
            assert "Account" not in await guest.page.locator("#state").inner_text()
            await guest.page.get_by_role("button", name="Timeline of the request at").click()
            await guest.says("dialog .legend", "provider, to the first token")
            assert await guest.page.locator("dialog .pane").count() == 0
            await one.says("#live tbody tr", "this page")
            await page.get_by_role("button", name="Edit the limits of visitor").click()
            await page.locator("#edit-tokens").fill("many")
            await page.get_by_role("button", name="Save").click()
            await one.says("dialog .problem", "2M/day")
            await page.locator("#edit-tokens").fill("")
            await page.locator("#edit-rate").fill("")
            await page.locator("#edit-models").fill("gpt-5.5")
            await page.get_by_role("button", name="Save").click()
            await one.says("#keys td", "models gpt-5.5")
            assert "60/minute" not in await page.locator("#keys table").inner_text()
            await until(lambda: _limits_of(shown, key) == (("gpt-5.5",), None))
            await page.get_by_role("button", name="Revoke the key visitor").click()
            await one.says("#keys td", "revoked")
            await until(lambda: shown.gateway.keyring.find(key.encode()) is None)
            await guest.page.reload()
            await guest.says(".door", "This session")
        assert key not in await page.locator("#keys table").inner_text()


def _limits_of(shown: Shown, key: str) -> tuple[object, object] | None:
    client = shown.gateway.keyring.find(key.encode())
    return None if client is None else (client.limits.models, client.limits.rate)
