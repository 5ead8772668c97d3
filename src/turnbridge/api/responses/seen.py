"""Items as the model saw them: what they link to, images and files, stands in them.

A stored item keeps both forms. Lists show what the client sent; a response that continues it shows the model what it
saw before, whatever has become of the link.
"""

import re
from collections.abc import Mapping, Sequence

from turnbridge.turn.items import ImagePart, JsonObject, Part, TextPart

MOST_SEEN = 16 * 1024 * 1024
"""Characters of all parts of one request that are kept: as many as its body may have by default.

If there are more, none is kept, and the links are loaded again when the response is continued.
"""

_PLACE = re.compile(r"(input|history)\[(\d+)\]\.(content|output)\[(\d+)\]")


def seen_items(items: Sequence[JsonObject], place: str, linked: Mapping[str, Part]) -> dict[int, JsonObject]:
    """Return the items with links as the model saw them, by their number.

    `items` stand at `place` of the request, `input` or `history`; `linked` is what each link has become.
    """
    if sum(map(_length, linked.values())) > MOST_SEEN:
        return {}
    seen: dict[int, JsonObject] = {}
    for param, part in linked.items():
        found = _PLACE.fullmatch(param)
        if found is None or found[1] != place:
            continue
        index, field, number = int(found[2]), found[3], int(found[4])
        item = seen.get(index, items[index])
        parts = item[field]
        if isinstance(parts, list):
            seen[index] = {**item, field: [*parts[:number], _part_object(part), *parts[number + 1 :]]}
    return seen


def _length(part: Part) -> int:
    return len(part.url) if isinstance(part, ImagePart) else len(part.text) if isinstance(part, TextPart) else 0


def _part_object(part: Part) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, ImagePart):
        image: JsonObject = {"type": "input_image", "image_url": part.url}
        return image if part.detail is None else {**image, "detail": part.detail}
    raise AssertionError("A file has become text.")
