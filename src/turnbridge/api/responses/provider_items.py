"""Items of the tools that the provider runs, and the events that tell of them: web searches and images."""

from typing import TypeAlias, assert_never

from turnbridge.turn.events import ImageDone, ImageStarted, WebSearchDone
from turnbridge.turn.items import JsonObject, image_item

ProviderEvent: TypeAlias = WebSearchDone | ImageStarted | ImageDone


def provider_item(event: ProviderEvent) -> JsonObject:
    """Return an item as it is known after an event."""
    match event:
        case WebSearchDone(item_id, action):
            return {"type": "web_search_call", "id": item_id, "status": "completed", "action": dict(action)}
        case ImageStarted(item_id):
            return {**image_item(item_id, "", None), "status": "in_progress"}
        case ImageDone(item_id, prompt, image):
            return image_item(item_id, prompt, image)
        case _:
            assert_never(event)


def provider_steps(event: ProviderEvent) -> tuple[str, ...]:
    """Return the names of the events that tell of an item besides those that every item has."""
    match event:
        case WebSearchDone():
            return ("in_progress", "searching", "completed")
        case ImageStarted():
            return ("in_progress", "generating")
        case ImageDone():
            return ("completed",)
        case _:
            assert_never(event)
