"""What the content of a tool's result becomes: the output of a call, and what the model is shown of it."""

import base64

import pytest

from tests.real.test_images import png
from turnbridge.turn.images import MAX_PIXELS
from turnbridge.turn.items import ImagePart, Json, JsonObject, TextPart
from turnbridge.turn.mcp import content_output, shown_result

PICTURE = base64.b64encode(png(4, 4)).decode()
IMAGE: JsonObject = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
TEXT: JsonObject = {"type": "text", "text": "Look:"}
SEEN = ImagePart(url=f"data:image/png;base64,{PICTURE}", detail="high", param="")


def huge() -> str:
    """Return a picture that says that it has more pixels than Codex should decode."""
    data = bytearray(png(4, 4))
    data[16:20] = (MAX_PIXELS + 1).to_bytes(4, "big")
    return base64.b64encode(data).decode()


@pytest.mark.promise("mcp.images")
@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ([TEXT, IMAGE], (TextPart(text="Look:"), SEEN)),
        (
            [IMAGE, {"type": "audio", "mimeType": "audio/wav"}],
            (SEEN, TextPart(text="[audio of type audio/wav: not shown]")),
        ),
        ([TEXT], "Look:"),
        ([], ""),
        ([{**IMAGE, "data": "not base64"}], "[image of type image/png: not shown]"),
        ([{**IMAGE, "data": base64.b64encode(b"hello").decode()}], "[image of type image/png: not shown]"),
        ([{**IMAGE, "data": huge()}], "[image of type image/png: not shown]"),
    ],
)
def test_an_output_says_what_the_model_is_shown(content: list[JsonObject], shown: object) -> None:
    assert shown_result(content_output(content), None) == shown


@pytest.mark.promise("mcp.images")
@pytest.mark.parametrize(
    "text",
    [
        '[{"type":"image"}]',
        '[{"type":"image","data":"x"}]',
        '[{"type":"image","da',
        '[{"a":1}]',
        '[{"x":"\\"type\\":\\"image\\""}]',
    ],
)
def test_a_text_that_only_looks_like_images_stays_a_text(text: str) -> None:
    content: list[JsonObject] = [{"type": "text", "text": text}]
    assert shown_result(content_output(content), None) == text


@pytest.mark.promise("mcp.calls")
def test_without_content_the_structured_one_is_shown() -> None:
    structured: Json = {"degrees": 21}
    assert shown_result(content_output([], structured), None) == '{"degrees":21}'
