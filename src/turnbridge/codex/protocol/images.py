"""Codex's own image tool: a function that the model calls, and that Codex answers itself.

Codex posts the prompt to its provider, writes the image to a file in its home, and shows the model the image and the
path. To a client this is an `image_generation_call`. The tool exists with a ChatGPT login only; it could also read
images from files, but not in a thread without environments.
"""

import msgspec

from turnbridge.codex.protocol.messages import RawItem
from turnbridge.turn.events import ImageDone, ImageStarted
from turnbridge.turn.items import Json, JsonObject

IMAGE_FEATURE = "image_generation"
NAMESPACE, NAME = "image_gen", "imagegen"
# The ids of items begin with it, those of calls do not.
ID_PREFIX = "ig_"
DATA_URL = "data:image/png;base64,"
FOLDER = "generated_images"
"""Where Codex writes them in its home, in a folder for each thread."""
LOGIN_NEEDED = (
    "Codex makes images (`image_generation`) with a ChatGPT login only. Log in by `turnbridge login`, or use a "
    "provider with an images API."
)


class _Arguments(msgspec.Struct):
    prompt: str = ""


class ImageCalls:
    """The images that a model asks for in one turn."""

    def __init__(self) -> None:
        self._prompts: dict[str, str] = {}

    def read(self, item: RawItem) -> ImageStarted | ImageDone | None:
        """Return what an item says of an image: its call begins one, the output of the call ends it."""
        call_id = item.call_id or ""
        if item.type == "function_call" and (item.namespace, item.name) == (NAMESPACE, NAME):
            self._prompts[call_id] = _prompt(item)
            return ImageStarted(ID_PREFIX + call_id)
        if item.type == "function_call_output" and call_id in self._prompts:
            urls = [part.image_url for part in item.parts() if part.image_url is not None]
            image = urls[0].removeprefix(DATA_URL) if urls else None
            return ImageDone(ID_PREFIX + call_id, self._prompts.pop(call_id), image)
        return None


def as_called(raw: Json) -> list[Json]:
    """Return an item; of an image that Codex has made, the call and the output as the model saw them."""
    if not isinstance(raw, dict) or raw.get("type") != "image_generation_call" or not raw.get("result"):
        return [raw]
    call_id = str(raw.get("id", "")).removeprefix(ID_PREFIX)
    arguments = msgspec.json.encode({"prompt": raw.get("revised_prompt") or ""}).decode()
    call: JsonObject = {"type": "function_call", "call_id": call_id, "name": NAME, "namespace": NAMESPACE}
    image: JsonObject = {"type": "input_image", "image_url": f"{DATA_URL}{raw['result']}", "detail": "high"}
    return [
        {**call, "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": [image]},
    ]


def _prompt(item: RawItem) -> str:
    try:
        return msgspec.json.decode(msgspec.json.decode(item.arguments, type=str), type=_Arguments).prompt
    except msgspec.DecodeError:
        return ""
