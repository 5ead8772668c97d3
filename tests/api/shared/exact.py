"""Items compared by everything in them: their own equality leaves out ids and places, which tests want to see."""

from collections.abc import Iterable

from turnbridge.turn.items import Item


def exact(items: Iterable[Item]) -> list[str]:
    """Return items as values that compare by all of their fields."""
    return [repr(item) for item in items]
