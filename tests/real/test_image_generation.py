"""Images that Codex makes, behind a ChatGPT login that nobody signed: its provider is on this machine."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from starlette.types import Scope

from tests.support.gateway import API_KEY, Bridge, listening, official_client, plain_client, settings_for_tests
from tests.support.login import chatgpt_login
from tests.support.waiting import until
from turnbridge.bootstrap import running_gateway
from turnbridge.codex.protocol.images import FOLDER
from turnbridge.scripted_model.replies import HttpReply, Reply, answer, function_call, message
from turnbridge.scripted_model.server import in_order
from turnbridge.scripted_model.websocket import WebSocketModel
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
TOOL: JsonObject = {"type": "image_generation"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
PROMPT = "A red cat."
ACCOUNT: JsonObject = {
    "accounts": [
        {
            "id": "a",
            "account_id": "a",
            "workspace_backend_origin": "https://127.0.0.1",
            "account_routing_override": "NO_CONSTRAINT",
        }
    ],
    "account_ordering": ["a"],
}


class ImageProvider(WebSocketModel):
    """A provider that makes images of one pixel, or none."""

    def __init__(self) -> None:
        super().__init__(in_order(), record=True)
        self.painted: list[JsonObject] = []
        self.paints = True

    def _reply(self, scope: Scope, body: bytes) -> Reply:
        if scope["path"].endswith("/accounts/check"):
            return HttpReply(status=200, body=ACCOUNT)
        if scope["path"] != "/v1/images/generations":
            return super()._reply(scope, body)
        self.painted.append(msgspec.json.decode(body, type=dict))
        if not self.paints:
            return HttpReply(status=400, body={"error": {"message": "No.", "type": "x", "code": "moderation_blocked"}})
        return HttpReply(status=200, body={"created": 1, "data": [{"b64_json": PIXEL}]})


@contextlib.asynccontextmanager
async def logged_in(directory: Path, login: str | None) -> AsyncIterator[tuple[Bridge, ImageProvider]]:
    """Run a gateway whose Codex uses OpenAI's own provider, which is on this machine."""
    home = directory / "user-codex"
    home.mkdir()
    if login is not None:
        (home / "auth.json").write_text(login, encoding="utf-8")
    async with ImageProvider() as provider:
        urls = {"openai_base_url": provider.base_url, "chatgpt_base_url": provider.base_url.replace("/v1", "/account")}
        (home / "config.toml").write_text("".join(f'{key} = "{url}"\n' for key, url in urls.items()), encoding="utf-8")
        settings = settings_for_tests(directory)
        async with running_gateway(settings, api_key=API_KEY) as gateway, listening(gateway) as url:
            await gateway.pool.worker()
            async with official_client(url) as client, plain_client(url) as http:
                yield Bridge(url=url, gateway=gateway, model=provider, client=client, http=http), provider


@pytest.fixture
async def painting(tmp_path: Path) -> AsyncIterator[tuple[Bridge, ImageProvider]]:
    async with logged_in(tmp_path, chatgpt_login()) as running:
        yield running


def paints(**arguments: object) -> Reply:
    """Return a reply in which the model asks for an image."""
    written = msgspec.json.encode({"prompt": PROMPT, **arguments}).decode()
    call = function_call("imagegen", written, call_id="call_1")
    return answer(replace(call, item={**call.item, "namespace": "image_gen"}))


def items_seen(bridge: Bridge, number: int) -> list[Any]:
    seen = bridge.model.requests[number].body["input"]
    assert isinstance(seen, list)
    return seen


@pytest.mark.promise("tools.image-generation")
async def test_an_image_is_streamed_as_an_item_and_its_file_removed(
    painting: tuple[Bridge, ImageProvider], tmp_path: Path
) -> None:
    bridge, provider = painting
    bridge.script(paints(), answer(message("Here.")))
    wanted: Any = [TOOL]
    stream: Any = await bridge.client.responses.create(model=MODEL, input="Draw.", tools=wanted, stream=True)
    events = [event async for event in stream]
    told = [event.type.removeprefix("response.") for event in events if "image" in event.type or "item" in event.type]
    assert told[:5] == [
        "output_item.added",
        "image_generation_call.in_progress",
        "image_generation_call.generating",
        "image_generation_call.completed",
        "output_item.done",
    ]
    image, said = events[-1].response.output
    assert (image.type, image.status, image.result) == ("image_generation_call", "completed", PIXEL)
    assert said.content[0].text == "Here."
    assert [request["prompt"] for request in provider.painted] == [PROMPT]
    # Of Codex's own tools, the model is given this one and no other.
    tools: Any = bridge.model.requests[0].body["tools"]
    assert [(tool["type"], tool["name"]) for tool in tools] == [("namespace", "image_gen")]
    await until(lambda: not list(tmp_path.rglob(f"{FOLDER}/*/*.png")))


@pytest.mark.promise("tools.image-generation")
async def test_a_history_with_an_image_shows_the_model_what_it_saw(painting: tuple[Bridge, ImageProvider]) -> None:
    bridge, _ = painting
    bridge.script(paints(), answer(message("Here.")), answer(message("A cat.")))
    tools: Any = [TOOL]
    first = await bridge.client.responses.create(model=MODEL, input="Draw.", tools=tools)
    await bridge.client.responses.create(
        model=MODEL, input="What is it?", previous_response_id=first.id, tools=tools, store=False
    )
    first_seen, later_seen = items_seen(bridge, 1), items_seen(bridge, 2)
    kinds = [item["type"] for item in later_seen]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]
    for before, after in zip(first_seen[1:3], later_seen[1:3], strict=True):
        assert {name: after[name] for name in ("type", "call_id")} == {
            name: before[name] for name in ("type", "call_id")
        }
    assert later_seen[2]["output"][0]["image_url"] == first_seen[2]["output"][0]["image_url"]
    assert later_seen[1]["arguments"] == msgspec.json.encode({"prompt": PROMPT}).decode()


@pytest.mark.promise("tools.image-generation")
async def test_an_image_that_cannot_be_made_is_a_failed_item(painting: tuple[Bridge, ImageProvider]) -> None:
    bridge, provider = painting
    provider.paints = False
    bridge.script(paints(), answer(message("Sorry.")))
    tools: Any = [TOOL]
    answered: Any = await bridge.client.responses.create(model=MODEL, input="Draw.", tools=tools)
    image, said = answered.output
    assert (image.type, image.status, image.result) == ("image_generation_call", "failed", None)
    assert said.type == "message"


@pytest.mark.promise("tools.image-generation", "safety.built-ins")
async def test_the_model_cannot_have_a_file_of_this_machine_shown(
    painting: tuple[Bridge, ImageProvider], tmp_path: Path
) -> None:
    bridge, provider = painting
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"secret")
    bridge.script(paints(referenced_image_paths=[str(secret)]), answer(message("Sorry.")))
    tools: Any = [TOOL]
    answered: Any = await bridge.client.responses.create(model=MODEL, input="Draw.", tools=tools)
    image = answered.output[0]
    assert (image.type, image.status, provider.painted) == ("image_generation_call", "failed", [])


@pytest.mark.promise("tools.image-generation")
async def test_without_a_chatgpt_login_the_tool_is_refused(tmp_path: Path) -> None:
    key = msgspec.json.encode({"auth_mode": "apikey", "OPENAI_API_KEY": "sk-none"}).decode()
    async with logged_in(tmp_path, key) as (bridge, _):
        tools: Any = [TOOL]
        with pytest.raises(openai.BadRequestError) as refused:
            await bridge.client.responses.create(model=MODEL, input="Draw.", tools=tools)
        with pytest.raises(openai.BadRequestError) as not_made:
            await bridge.client.images.generate(prompt=PROMPT)
    for error in (refused.value, not_made.value):
        # A request for images has no tools that it could name.
        assert (error.code, error.param, "ChatGPT login" in error.message) == ("unsupported_tool", None, True)


@pytest.mark.promise("tools.images-api")
async def test_the_images_api_makes_an_image(painting: tuple[Bridge, ImageProvider]) -> None:
    bridge, provider = painting
    bridge.script(paints(), answer(message("Here.")))
    made = await bridge.client.images.with_raw_response.generate(prompt=PROMPT, model="gpt-image-2", size="1024x1024")
    (image,) = made.parse().data or []
    assert (image.b64_json, image.revised_prompt) == (PIXEL, PROMPT)
    assert made.headers["x-turnbridge-ignored"] == "size"
    shown = items_seen(bridge, 0)
    assert [part["text"] for part in shown[-1]["content"]] == [PROMPT]
    assert provider.painted[0]["prompt"] == PROMPT


@pytest.mark.promise("tools.images-api")
async def test_an_image_that_the_provider_refuses_is_an_error(painting: tuple[Bridge, ImageProvider]) -> None:
    bridge, provider = painting
    provider.paints = False
    bridge.script(paints(), answer(message("Sorry.")))
    with pytest.raises(openai.InternalServerError, match="did not make the image") as failed:
        await bridge.client.images.generate(prompt=PROMPT)
    assert failed.value.status_code == 502
