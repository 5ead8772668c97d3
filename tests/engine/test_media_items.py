"""What a request only points at is brought in within bounds, and no longer than somebody waits for it."""

import asyncio

import pytest

from tests.engine.scripted_backend import ScriptedMedia
from tests.support.turn_requests import turn_request
from turnbridge.codex.protocol.jsonrpc import LONGEST_LINE_BYTES
from turnbridge.engine import media_items as module
from turnbridge.engine.media_items import CONCURRENT_LOADS, ready_items
from turnbridge.engine.ports import LoadedImage
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import MAX_TOTAL_PIXELS
from turnbridge.turn.items import FilePart, FunctionCallOutput, ImagePart, Item, Message, Part, TextPart
from turnbridge.turn.request import TurnRequest

pytestmark = pytest.mark.anyio

REFUSED = InvalidRequest("no such image", param="p")
HANGS = "https://example.test/hangs"
MISSING = "https://example.test/missing"


class SizedMedia(ScriptedMedia):
    """An image is as long as its URL, and a file says what its name says."""

    async def image(self, url: str, *, param: str) -> LoadedImage:
        del param
        return LoadedImage("x" * len(url), 1)

    async def file_text(self, part: FilePart) -> str:
        return part.filename or ""


class SlowMedia(ScriptedMedia):
    """One image hangs, one is missing, and all others take their time; it notes how many are fetched at once."""

    def __init__(self) -> None:
        self.running = 0
        self.peak = 0
        self.began = asyncio.Event()

    async def image(self, url: str, *, param: str) -> LoadedImage:
        self.running += 1
        self.peak = max(self.peak, self.running)
        self.began.set()
        try:
            await asyncio.sleep(0)
            if url == MISSING:
                raise REFUSED
            if url == HANGS:
                await asyncio.Event().wait()
            return await super().image(url, param=param)
        finally:
            # To close a connection takes a moment too.
            await asyncio.sleep(0)
            self.running -= 1


def image(url: str, param: str = "p") -> ImagePart:
    return ImagePart(url=url, param=param)


def file(text: str, param: str = "p") -> FilePart:
    return FilePart(filename=text, mime_type=None, data=b"", param=param)


def said(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def asking(*items: Item) -> TurnRequest:
    return turn_request(model="m", items=items)


def test_what_is_brought_in_fits_a_line_of_codex_beside_the_body() -> None:
    assert module.LOADED_LIMIT * 2 <= LONGEST_LINE_BYTES


@pytest.mark.parametrize(
    ("items", "size", "code"),
    [
        pytest.param([said(image("12345"), image("1234", "last"))], 9, "image_too_large", id="images"),
        pytest.param([said(image("12345")), said(image("1234", "last"))], 9, "image_too_large", id="two messages"),
        pytest.param(
            [said(image("12345")), FunctionCallOutput(call_id="c", output=(image("1", "last"),))],
            6,
            "image_too_large",
            id="the output of a function",
        ),
        pytest.param([said(image("12345"), file("ab", "last"))], 5 + len('"ab"'), "file_too_large", id="a file"),
        pytest.param([said(file("\1", "last"))], len(r'"\u0001"'), "file_too_large", id="as JSON"),
        pytest.param([said(file("é", "last"))], 4, "file_too_large", id="as UTF-8"),
    ],
)
async def test_images_and_files_are_taken_up_to_their_limit_together_and_not_one_byte_more(
    monkeypatch: pytest.MonkeyPatch, items: list[Item], size: int, code: str
) -> None:
    monkeypatch.setattr(module, "LOADED_LIMIT", size)
    assert len((await ready_items(asking(*items), SizedMedia())).items) == len(items)
    monkeypatch.setattr(module, "LOADED_LIMIT", size - 1)
    with pytest.raises(InvalidRequest) as caught:
        await ready_items(asking(*items), SizedMedia())
    assert (caught.value.error_code, caught.value.param) == (code, "last")


async def test_the_text_of_files_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [said(image("12345"), file("ab"), file("cd", "last"))]
    monkeypatch.setattr(module, "TEXT_LIMIT", 2 * len('"ab"'))
    assert len((await ready_items(asking(*items), SizedMedia())).items) == len(items)
    monkeypatch.setattr(module, "TEXT_LIMIT", 2 * len('"ab"') - 1)
    with pytest.raises(InvalidRequest) as caught:
        await ready_items(asking(*items), SizedMedia())
    assert caught.value.error_code == "file_too_large"


async def test_what_the_body_carries_itself_is_bounded_by_the_bodys_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOADED_LIMIT", 0)
    inline = said(TextPart(text="see"), image("data:image/png;base64,AA=="))
    assert await ready_items(asking(inline), SizedMedia()) == ((inline,), {})


async def test_many_images_are_fetched_few_at_once() -> None:
    media = SlowMedia()
    urls = [f"https://example.test/{number}" for number in range(3 * CONCURRENT_LOADS)]
    ready, _ = await ready_items(asking(said(*map(image, urls))), media)
    assert ready == (said(*(image(f"data:image/png;base64,{url}@p") for url in urls)),)
    assert media.peak == CONCURRENT_LOADS


async def test_one_refused_part_ends_the_fetching_of_all_others() -> None:
    media = SlowMedia()
    waiting = [image(HANGS)] * CONCURRENT_LOADS
    with pytest.raises(InvalidRequest) as caught:
        await ready_items(asking(said(image(HANGS), image(MISSING), *waiting)), media)
    assert (caught.value, media.running) == (REFUSED, 0)


async def test_nothing_is_fetched_for_a_client_that_has_left() -> None:
    media = SlowMedia()
    turn = asyncio.create_task(ready_items(asking(said(image(HANGS), image(HANGS))), media))
    await media.began.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert media.running == 0


async def test_images_that_take_too_long_together_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_TIMEOUT_S", 0.05)
    image = ImagePart(url=HANGS, param="messages[0]")
    request = turn_request(model="m", items=(Message(role="user", parts=(image,)),))
    media = SlowMedia()
    with pytest.raises(InvalidRequest, match=r"within 0\.05 seconds") as refused:
        await asyncio.wait_for(ready_items(request, media), 10)
    assert (refused.value.error_code, refused.value.param) == ("invalid_image_url", "messages[0]")
    assert media.running == 0


async def test_uploaded_images_and_files_are_those_of_the_client() -> None:
    picture = ImagePart(file_id="file-1", param="input[0].content[0]")
    notes = FilePart(filename=None, file_id="file-2", param="input[0].content[1]")
    request = turn_request(items=(said(picture, notes),), client="me")
    items, linked = await ready_items(request, ScriptedMedia())
    shown = ImagePart(url="data:image/png;base64,file-1 of me@input[0].content[0]", param="")
    assert items == (said(shown, TextPart(text="text of file-2 of me")),)
    assert linked == {picture.param: shown, notes.param: TextPart(text="text of file-2 of me")}


class VastMedia(ScriptedMedia):
    """Every image has half of the pixels that a request may link to."""

    async def image(self, url: str, *, param: str) -> LoadedImage:
        return LoadedImage(f"data:{url}@{param}", MAX_TOTAL_PIXELS / 2)


async def test_links_lead_to_so_many_pixels_together() -> None:
    await ready_items(asking(said(image("https://a.test/1"), image("https://a.test/2"))), VastMedia())
    with pytest.raises(InvalidRequest) as refused:
        await ready_items(asking(said(*(image(f"https://a.test/{number}") for number in range(3)))), VastMedia())
    assert (refused.value.error_code, refused.value.param) == ("image_too_large", "p")
