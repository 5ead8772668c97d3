"""`POST /v1/images/generations`: a turn in which the model has nothing to do but ask for the image.

Codex has no other way to make one. So the model may word the prompt anew, and Codex chooses size and quality.
"""

import time
from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.types import ASGIApp

from turnbridge.api.generation import Generation
from turnbridge.api.shared.parameters import unsupported
from turnbridge.api.shared.validation import check_length, convert, missing, within
from turnbridge.engine.models import DEFAULT_MODEL
from turnbridge.turn.errors import UpstreamFailed
from turnbridge.turn.events import ImageDone, Terminal, TurnEvent, TurnFailed, Usage
from turnbridge.turn.items import Json, JsonObject, Message, TextPart
from turnbridge.turn.request import ThreadSpec, TurnRequest
from turnbridge.web.http import OPENAI, RouteOf

MOST_IMAGES = 4
LONGEST_PROMPT = 32_000
INSTRUCTIONS = (
    "Make one image with the image generation tool. Its prompt is the user's message, word for word. Do not ask back, "
    "and say nothing else."
)
# The models that make images, which Codex chooses itself.
IMAGE_MODELS = ("gpt-image", "chatgpt-image", "dall-e")
IGNORED = ("size", "quality", "style", "background", "moderation", "output_compression", "output_format", "user")


class ImagesRequest(Struct):
    """The body of a request for images."""

    prompt: str | None = None
    model: str | None = None
    n: int | None = None
    stream: bool | None = None
    partial_images: int | None = None
    response_format: str | None = None
    size: Json = None
    quality: Json = None
    style: Json = None
    background: Json = None
    moderation: Json = None
    output_compression: Json = None
    output_format: Json = None
    user: Json = None


class ImagesEncoder:
    """Collects the images of an answer, which is sent whole."""

    content_type = "application/json"

    def __init__(self, created: int) -> None:
        self._created = created
        self._images: dict[int, JsonObject] = {}
        self._usage: dict[int, Usage] = {}
        self.failure: TurnFailed | None = None

    @property
    def usage(self) -> Usage:
        """Return the tokens of the turns; Codex does not tell those of images."""
        return sum(self._usage.values(), Usage())

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        """Take the images of a turn; nothing of them is streamed."""
        for event in events:
            if isinstance(event, ImageDone) and event.image is not None:
                self._images[index] = {"b64_json": event.image, "revised_prompt": event.prompt}
            elif isinstance(event, Terminal):
                self._end(index, event)
        return b""

    def _end(self, index: int, event: Terminal) -> None:
        self._usage[index] = event.usage
        if isinstance(event, TurnFailed):
            self.failure = event
        elif index not in self._images:
            problem = "The provider did not make the image. Its rules may forbid it; word the prompt otherwise."
            self.failure = TurnFailed(UpstreamFailed(problem), event.usage)

    def whole(self) -> JsonObject:
        """Return the images."""
        return {"created": self._created, "data": [image for _, image in sorted(self._images.items())]}

    def admitted(self) -> bytes:
        """Return nothing, as do the others: this answer has no frames."""
        return b""

    opening = closing = keepalive = admitted

    def note(self, name: str, value: str) -> bytes:
        """Return nothing."""
        del name, value
        return b""


class Images:
    """Handlers of `/v1/images`."""

    dialect = OPENAI

    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        return [RouteOf("POST", "/images/generations", self.create, generates=True)]

    async def create(self, request: Request) -> ASGIApp:
        """Answer with images."""
        generation = self._generation
        body, large = await generation.body(request)
        turn, count = decode(body, large=large)
        settled = await generation.settle(
            request, turn, (), store=None, mode="openai-json", effort_param="reasoning_effort"
        )
        run = generation.run(request, settled, ImagesEncoder(int(time.time())), choices=count)
        return generation.answer(request, run, settled, None)


def decode(body: JsonObject, *, large: bool = False) -> tuple[TurnRequest, int]:
    """Return the turn that makes an image, and how often to run it."""
    asked = convert(body, ImagesRequest)
    if not asked.prompt:
        raise missing("prompt")
    check_length(asked.prompt, LONGEST_PROMPT, param="prompt")
    count = within(asked.n, 1, MOST_IMAGES, param="n") or 1
    if asked.stream or asked.partial_images:
        raise unsupported("stream" if asked.stream else "partial_images", "Codex gives an image when it is whole.")
    if asked.response_format not in (None, "b64_json"):
        raise unsupported("response_format", "Images are not kept here, so they have no URL; 'b64_json' can be had.")
    model = DEFAULT_MODEL if asked.model is None or asked.model.startswith(IMAGE_MODELS) else asked.model
    unread = [name for name in body if name not in ImagesRequest.__struct_fields__]
    turn = TurnRequest(
        spec=ThreadSpec(model=model, instructions=INSTRUCTIONS, image_generation=True),
        items=(Message(role="user", parts=(TextPart(text=asked.prompt),)),),
        must_call=True,
        large=large,
        ignored=(*(name for name in IGNORED if getattr(asked, name) is not None), *unread),
    )
    return turn, count
