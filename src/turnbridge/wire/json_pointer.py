"""References of a JSON Schema into itself: `#`, or `#/` and the steps that lead from its root to a place."""

import re
from urllib.parse import unquote

from turnbridge.turn.items import Json, JsonObject


def target(root: JsonObject, reference: str) -> Json:
    """Return what a reference into the schema itself points to; nothing for any other."""
    start, *steps = unquote(reference).split("/")
    found: Json = root if start == "#" else None
    for step in steps:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and re.fullmatch("[0-9]{1,6}", key) and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found
