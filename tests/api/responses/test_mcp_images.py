"""Images in the outputs of MCP calls that a history has."""

import base64

import pytest

from tests.api.responses.decoded import decode
from tests.real.test_images import png
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import MAX_PIXELS, MAX_TOTAL_PIXELS
from turnbridge.turn.items import FunctionCallOutput, JsonObject
from turnbridge.turn.mcp import content_output


def call(number: int, picture: bytes) -> JsonObject:
    """Return a call that gave a picture."""
    block: JsonObject = {"type": "image", "data": base64.b64encode(picture).decode(), "mimeType": "image/png"}
    about: JsonObject = {"type": "mcp_call", "id": f"mcp_{number}", "server_label": "x", "name": "photo"}
    return {**about, "arguments": "{}", "output": content_output([block])}


def with_pixels(pixels: int) -> bytes:
    """Return a small picture that says that it has so many pixels."""
    data = bytearray(png(4, 4))
    data[16:24] = pixels.to_bytes(4, "big") + (1).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.promise("mcp.images", "media.image.pixels")
def test_images_of_servers_count_like_those_of_the_client() -> None:
    most = MAX_TOTAL_PIXELS // MAX_PIXELS
    calls = [call(number, with_pixels(MAX_PIXELS)) for number in range(most + 1)]
    body: JsonObject = {"model": "gpt-5.5", "input": [*calls[:most], {"role": "user", "content": "Hi"}]}
    outputs = [item for item in decode(body).turn.items if isinstance(item, FunctionCallOutput)]
    assert [isinstance(output.output, tuple) for output in outputs] == [True] * most
    with pytest.raises(InvalidRequest) as refused:
        decode({**body, "input": [*calls]})
    assert (refused.value.error_code, refused.value.param) == ("image_too_large", f"input[{most}]")
