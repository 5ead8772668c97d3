"""Images reach the model as images, with their detail; what Codex cannot show is refused, and the part is named."""

import asyncio
import base64
import ssl
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import trustme

from tests.real.fidelity_cases import (
    CUSTOM_CALL,
    call,
    result,
    said,
    text,
)
from tests.support.gateway import Bridge, running_bridge
from turnbridge import parts
from turnbridge.media.fetch import GuardedFetcher
from turnbridge.media.loader import HttpMediaLoader
from turnbridge.outbound.guard import Endpoint
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def bridge(either_bridge: Bridge) -> Bridge:
    """Return a gateway for each transport to the provider."""
    return either_bridge


LOOPBACK = IPv4Address("127.0.0.1")
# One pixel more than Codex leaves as it is.
WIDE = 2049


def png(width: int, height: int) -> bytes:
    """Return a black picture."""
    rows = zlib.compress(bytes((width + 1) * height))
    parts = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def jpeg() -> bytes:
    """Return a grey square whose only code is "nothing changes"."""
    code = bytes([1] + [0] * 16)
    segments = (
        (0xDB, b"\x00" + b"\x01" * 64),
        (0xC0, bytes([8, 0, 8, 0, 8, 1, 1, 0x11, 0])),
        (0xC4, b"\x00" + code),
        (0xC4, b"\x10" + code),
        (0xDA, bytes([1, 1, 0, 0, 63, 0])),
    )
    body = b"".join(b"\xff%c%b%b" % (marker, struct.pack(">H", len(data) + 2), data) for marker, data in segments)
    return b"\xff\xd8" + body + b"\x3f\xff\xd9"


GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
WEBP = base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")


def data_url(data: bytes, mime_type: str = "image/png") -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def image(url: str, **detail: Json) -> JsonObject:
    return {"type": "input_image", "image_url": url, **detail}


DOT = image(data_url(png(1, 1)))
BROKEN = image(data_url(png(1, 1)[:40]))
TOOL_OUTPUT: JsonObject = {"type": "custom_tool_call_output", "call_id": "c1"}


async def shown(bridge: Bridge, part: JsonObject) -> tuple[Json, str | None]:
    """Return what the model saw of a message with this part, and what the gateway says it could not honour."""
    bridge.says("A dot.")
    answered = await bridge.http.post("/v1/responses", json={"model": "gpt-5.5", "input": [said("user", part)]})
    assert answered.status_code == 200, answered.text
    match bridge.seen()["input"]:
        case [{"content": [only]}]:
            return only, answered.headers.get("x-turnbridge-ignored")
        case other:
            pytest.fail(f"The model saw {other}")


async def refusal(bridge: Bridge, route: str, body: JsonObject) -> tuple[str, str]:
    """Return code and param of the 400 for a request that must not reach the model."""
    bridge.says("A dot.")
    refused = await bridge.http.post(f"/v1/{route}", json={"model": "gpt-5.5", **body})
    assert (refused.status_code, bridge.model.requests) == (400, [])
    error = refused.json()["error"]
    return error["code"], error["param"]


@pytest.mark.promise("media.image.data-url")
@pytest.mark.parametrize(
    "url",
    [
        pytest.param(data_url(png(3, 2)), id="png"),
        pytest.param(data_url(jpeg(), "image/jpeg"), id="jpeg"),
        pytest.param(data_url(WEBP, "image/webp"), id="webp"),
    ],
)
async def test_an_image_reaches_the_model_byte_for_byte(bridge: Bridge, url: str) -> None:
    assert await shown(bridge, image(url)) == (image(url), None)


@pytest.mark.promise("media.image.data-url")
async def test_codex_shows_a_gif_as_png(bridge: Bridge) -> None:
    part, ignored = await shown(bridge, image(data_url(GIF, "image/gif")))
    assert (size_of(part), ignored) == ((1, 1), None)


@pytest.mark.promise("media.image.true-type")
@pytest.mark.parametrize(
    "url",
    [
        pytest.param(data_url(png(3, 2), "image/jpeg"), id="of another type"),
        pytest.param(data_url(png(3, 2)).replace("data:", "DATA:"), id="in capitals"),
    ],
)
async def test_an_image_called_by_a_wrong_name_is_shown_under_its_own(bridge: Bridge, url: str) -> None:
    assert await shown(bridge, image(url)) == (image(data_url(png(3, 2))), None)


@pytest.mark.promise("media.image.detail")
@pytest.mark.parametrize("detail", ["auto", "high", "original"])
async def test_the_detail_is_kept(bridge: Bridge, detail: str) -> None:
    part = image(data_url(png(3, 2)), detail=detail)
    assert await shown(bridge, part) == (part, None)


@pytest.mark.promise("media.image.detail")
async def test_a_low_detail_is_named_as_ignored_and_the_image_is_shown(bridge: Bridge) -> None:
    low = image(data_url(png(3, 2)), detail="low")
    assert await shown(bridge, low) == (image(data_url(png(3, 2))), "input[0].content[0].detail")


@pytest.mark.promise("items.fields")
async def test_a_low_detail_in_the_output_of_a_custom_tool_is_named_as_ignored_too(bridge: Bridge) -> None:
    bridge.says("ok")
    output: JsonObject = {**TOOL_OUTPUT, "output": [image(data_url(png(3, 2)), detail="low")]}
    answered = await bridge.http.post("/v1/responses", json={"model": "gpt-5.5", "input": [CUSTOM_CALL, output]})
    assert answered.headers.get("x-turnbridge-ignored") == "input[1].output[0].detail"
    match bridge.seen()["input"]:
        case [_, {"output": seen}]:
            assert seen == [image(data_url(png(3, 2)))]
        case other:
            pytest.fail(f"The model saw {other}")


@pytest.mark.promise("media.image.detail")
async def test_codex_scales_a_large_image_down_unless_its_detail_is_original(bridge: Bridge) -> None:
    large = data_url(png(WIDE, 8))
    scaled, _ = await shown(bridge, image(large, detail="high"))
    assert size_of(scaled) == (2048, 8)
    original = image(large, detail="original")
    assert await shown(bridge, original) == (original, None)


def size_of(part: Json) -> tuple[int, int]:
    """Return width and height of a PNG part."""
    match part:
        case {"type": "input_image", "image_url": str(url)}:
            data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
            assert data.startswith(b"\x89PNG")
            width, height = struct.unpack(">II", data[16:24])
            return width, height
        case _:
            pytest.fail(f"Not an image: {part}")


@pytest.mark.promise("media.image.broken")
@pytest.mark.parametrize(
    ("items", "param"),
    [
        pytest.param([said("user", BROKEN)], "input[0].content[0]", id="in a message"),
        pytest.param([said("user", DOT), said("user", DOT, BROKEN)], "input[1].content[1]", id="after whole ones"),
        pytest.param([call("c1"), result("c1", [BROKEN])], "input[1].output[0]", id="in an output"),
        pytest.param([CUSTOM_CALL, {**TOOL_OUTPUT, "output": [BROKEN]}], "input[1].output[0]", id="in a custom output"),
        pytest.param(
            [said("user", BROKEN), CUSTOM_CALL, {**TOOL_OUTPUT, "output": [DOT]}],
            "input[0].content[0]",
            id="beside a whole one in a custom output",
        ),
    ],
)
async def test_a_broken_image_is_refused_and_named(bridge: Bridge, items: list[Json], param: str) -> None:
    assert await refusal(bridge, "responses", {"input": items}) == ("invalid_image", param)


@pytest.mark.promise("media.image.broken")
async def test_a_broken_image_among_others_is_named_in_the_words_of_the_chat_route(bridge: Bridge) -> None:
    parts: list[Json] = [{"type": "image_url", "image_url": {"url": part["image_url"]}} for part in (DOT, BROKEN)]
    sent: JsonObject = {"messages": [{"role": "user", "content": parts}]}
    assert await refusal(bridge, "chat/completions", sent) == ("invalid_image", "messages[0].content[1]")


@pytest.mark.promise("media.image.true-type", "media.file.uploaded")
@pytest.mark.parametrize(
    ("part", "code"),
    [
        pytest.param(image(data_url(b"<svg/>", "image/svg+xml")), "invalid_image_format", id="svg"),
        pytest.param(image(data_url(b"%PDF-1.7", "image/png")), "invalid_image_format", id="not an image"),
        pytest.param(image("data:image/png;base64,%%%"), "invalid_image_url", id="not base64"),
        pytest.param(image("http://example.com/a.png"), "invalid_image_url", id="http"),
        pytest.param(image("https://127.0.0.1/a.png"), "invalid_image_url", id="loopback"),
        pytest.param(image("https://localhost/a.png"), "invalid_image_url", id="localhost"),
        pytest.param(image("https://10.0.0.1/a.png"), "invalid_image_url", id="private"),
        pytest.param(image("https://[::ffff:169.254.169.254]/a.png"), "invalid_image_url", id="link-local"),
        pytest.param(image("file:///etc/hostname"), "invalid_image_url", id="file"),
        pytest.param(image("/etc/hostname"), "invalid_image_url", id="path"),
    ],
)
async def test_what_is_no_image_that_may_be_shown_is_refused(bridge: Bridge, part: JsonObject, code: str) -> None:
    sent: JsonObject = {"input": [said("user", text("What is this?"), part)]}
    assert await refusal(bridge, "responses", sent) == (code, "input[0].content[1]")


@pytest.mark.promise("media.image.https")
async def test_an_image_behind_an_https_url_is_fetched_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, trust = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trust)
    certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("images.example").configure_cert(certificate)
    picture = png(3, 2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(picture), picture))
        writer.close()

    site = await asyncio.start_server(serve, str(LOOPBACK), 0, ssl=certificate)
    here = Endpoint(LOOPBACK, site.sockets[0].getsockname()[1])

    async def resolve(_host: str, _port: int) -> Sequence[Endpoint]:
        return [here]

    fetcher = GuardedFetcher(resolver=resolve, allowed=lambda address: address == LOOPBACK, ssl_context=trust)
    monkeypatch.setattr(parts, "HttpMediaLoader", partial(HttpMediaLoader, fetcher=fetcher))
    async with running_bridge(tmp_path) as bridge:
        part = image("https://images.example/a.png", detail="high")
        assert await shown(bridge, part) == (image(data_url(picture), detail="high"), None)
    site.close()
