"""What the model saw behind a link is shown again when a stored response is continued, whatever the link has become."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.real.fidelity_cases import result, said, text
from tests.real.test_images import LOOPBACK, data_url, png
from tests.support.gateway import Bridge, running_bridge
from tests.support.tool_clients import inputs, weather_call
from turnbridge import parts
from turnbridge.api.responses import seen as seen_module
from turnbridge.media.fetch import GuardedFetcher
from turnbridge.media.loader import HttpMediaLoader
from turnbridge.outbound.guard import Endpoint
from turnbridge.scripted_model.replies import answer, message
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LINK = "https://images.example/a.png"
NOTES = "https://images.example/notes.txt"
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@dataclass
class Links:
    """A site whose picture is another one each time, and how often each path was fetched."""

    fetched: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        self.fetched.append(path)
        content = png(len(self.fetched), 1) if path.endswith("png") else b"note %d" % len(self.fetched)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content))
        writer.close()


@pytest.fixture
async def links(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Links]:
    """Return a site that every gateway of the test fetches from."""
    authority, trust = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trust)
    certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("images.example").configure_cert(certificate)
    links = Links()
    site = await asyncio.start_server(links.serve, str(LOOPBACK), 0, ssl=certificate)
    here = Endpoint(LOOPBACK, site.sockets[0].getsockname()[1])

    async def resolve(_host: str, _port: int) -> Sequence[Endpoint]:
        return [here]

    fetcher = partial(GuardedFetcher, resolver=resolve, allowed=lambda address: address == LOOPBACK, ssl_context=trust)
    monkeypatch.setattr(
        parts, "HttpMediaLoader", lambda helpers, files: HttpMediaLoader(helpers, fetcher(), files=files)
    )
    yield links
    site.close()


def picture(**more: Any) -> Any:
    return {"type": "input_image", "image_url": LINK, **more}


def question(*parts: JsonObject) -> Any:
    return [{"role": "user", "content": [text("What is this?"), *parts]}]


def shown(bridge: Bridge) -> Any:
    return inputs(bridge)[-1]


@pytest.mark.promise("state.seen", "state.restart")
@pytest.mark.parametrize("way", ["foreground", "streamed", "background"])
async def test_a_continued_response_shows_the_picture_that_was_seen(tmp_path: Path, links: Links, way: str) -> None:
    notes: Any = {"type": "input_file", "file_url": NOTES}
    async with running_bridge(tmp_path) as bridge:
        bridge.says("A line.")
        responses = bridge.client.responses
        options: Any = {"stream": way != "foreground", "background": way == "background"}
        made: Any = await responses.create(model="gpt-5.5", input=question(picture(detail="high"), notes), **options)
        if way != "foreground":
            made = [event.response async for event in made if event.type == "response.completed"][-1]
        (first,) = shown(bridge)
    fetched = list(links.fetched)
    assert sorted(fetched) == ["/a.png", "/notes.txt"]
    async with running_bridge(tmp_path) as bridge:
        bridge.says("Red.")
        await bridge.client.responses.create(model="gpt-5.5", input="Which colour?", previous_response_id=made.id)
        assert shown(bridge) == [first, said("assistant", "A line."), said("user", "Which colour?")]
        listed = (await bridge.client.responses.input_items.list(made.id)).data
    assert links.fetched == fetched
    parts: Any = listed[0].model_dump(exclude_none=True)["content"]
    assert [parts[1]["image_url"], parts[2]["file_url"]] == [LINK, NOTES]


@pytest.mark.promise("state.seen")
async def test_a_link_in_a_conversation_is_loaded_once(tmp_path: Path, links: Links) -> None:
    async with running_bridge(tmp_path) as bridge:
        talk = await bridge.client.conversations.create(items=question(picture()))
        for words in ("One?", "Two?"):
            bridge.says("Yes.")
            await bridge.client.responses.create(model="gpt-5.5", input=words, conversation=talk.id)
            assert shown(bridge)[0]["content"][1]["image_url"] == data_url(png(1, 1))
        items = (await bridge.client.conversations.items.list(talk.id, order="asc")).data
        item: Any = items[0].model_dump(exclude_none=True)
        assert item["content"][1]["image_url"] == LINK
        bridge.says("Yes.")
        reference: Any = [{"type": "item_reference", "id": items[0].id}, {"role": "user", "content": "Three?"}]
        referring = await bridge.client.responses.create(model="gpt-5.5", input=reference)
        assert shown(bridge)[0]["content"][1]["image_url"] == data_url(png(1, 1))
        listed: Any = (await bridge.client.responses.input_items.list(referring.id, order="asc")).data[0]
        assert listed.content[1].image_url == LINK
    assert links.fetched == ["/a.png"]


@pytest.mark.promise("state.seen")
async def test_a_link_in_the_output_of_a_function_is_loaded_once(tmp_path: Path, links: Links) -> None:
    async with running_bridge(tmp_path) as bridge:
        bridge.script(answer(weather_call("Rome", "call_1")), answer(message("Sunny.")), answer(message("Warm.")))
        create: Any = partial(bridge.client.responses.create, model="gpt-5.5", tools=[TOOL])
        first = await create(input="weather?")
        second = await create(input=[result("call_1", [picture()])], previous_response_id=first.id)
        await create(input="And?", previous_response_id=second.id)
        histories: Any = inputs(bridge)[1:]
        outputs = [items[2] for items in histories]
    assert outputs[0] == outputs[1]
    assert outputs[0]["output"][0]["image_url"] == data_url(png(1, 1))
    assert links.fetched == ["/a.png"]


@pytest.mark.promise("state.seen")
async def test_an_uploaded_file_that_is_deleted_stays_in_the_response_that_used_it(bridge: Bridge) -> None:
    file = await bridge.client.files.create(file=("list.txt", b"buy milk"), purpose="user_data")
    bridge.says("Milk.")
    part: Any = {"type": "input_file", "file_id": file.id}
    made = await bridge.client.responses.create(model="gpt-5.5", input=question(part))
    (first,) = shown(bridge)
    await bridge.client.files.delete(file.id)
    bridge.says("Two.")
    await bridge.client.responses.create(model="gpt-5.5", input="How much?", previous_response_id=made.id)
    assert shown(bridge)[0] == first
    listed: Any = (await bridge.client.responses.input_items.list(made.id)).data[0]
    assert listed.content[1].file_id == file.id


@pytest.mark.promise("state.seen")
async def test_more_than_is_kept_is_loaded_again(tmp_path: Path, links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "MOST_SEEN", 10)
    async with running_bridge(tmp_path) as bridge:
        bridge.says("A line.")
        made = await bridge.client.responses.create(model="gpt-5.5", input=question(picture()))
        bridge.says("Red.")
        await bridge.client.responses.create(model="gpt-5.5", input="Which colour?", previous_response_id=made.id)
    assert links.fetched == ["/a.png", "/a.png"]
