"""Items as the model saw them, made from what their links have become."""

import pytest

from turnbridge.api.responses import seen as module
from turnbridge.api.responses.seen import seen_items
from turnbridge.turn.items import ImagePart, JsonObject, Part, TextPart

URL = "data:image/png;base64,AAAA"
WORDS: JsonObject = {"type": "input_text", "text": "What is this?"}
LINK: JsonObject = {"type": "input_image", "image_url": "https://a.example/a.png"}
FILE: JsonObject = {"type": "input_file", "file_id": "file-1"}
ITEMS: list[JsonObject] = [
    {"role": "user", "content": "Hi"},
    {"role": "user", "content": [WORDS, LINK, FILE]},
    {"type": "function_call_output", "call_id": "c", "output": [LINK]},
]


def image(detail: str | None = None) -> ImagePart:
    return ImagePart(url=URL, detail=detail, param="")


def test_each_link_is_replaced_in_its_place_and_the_item_stays_as_it_was() -> None:
    linked: dict[str, Part] = {
        "input[1].content[1]": image("high"),
        "input[1].content[2]": TextPart(text="milk"),
        "input[2].output[0]": image(),
        "history[0].content[0]": TextPart(text="of another list"),
    }
    shown: JsonObject = {"type": "input_image", "image_url": URL}
    assert seen_items(ITEMS, "input", linked) == {
        1: {"role": "user", "content": [WORDS, {**shown, "detail": "high"}, {"type": "input_text", "text": "milk"}]},
        2: {**ITEMS[2], "output": [shown]},
    }
    assert ITEMS[1]["content"] == [WORDS, LINK, FILE]


def test_without_links_nothing_was_seen_otherwise() -> None:
    assert seen_items(ITEMS, "input", {}) == {}


@pytest.mark.parametrize(("most", "kept"), [(len(URL) + 4, 1), (len(URL) + 3, 0)])
def test_all_links_together_are_kept_up_to_a_size_or_none_is(
    monkeypatch: pytest.MonkeyPatch, most: int, kept: int
) -> None:
    monkeypatch.setattr(module, "MOST_SEEN", most)
    linked: dict[str, Part] = {"input[1].content[1]": image(), "input[1].content[2]": TextPart(text="milk")}
    assert len(seen_items(ITEMS, "input", linked)) == kept
