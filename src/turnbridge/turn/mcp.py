"""Remote MCP servers as plain values: which of their tools may be called, with whose approval, and what a call gave."""

import base64
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import MsgspecError, Struct, json

from turnbridge.turn.images import MAX_PIXELS, image_pixels, image_type
from turnbridge.turn.items import ImagePart, Json, JsonObject, Part, TextPart

# The namespace of a server's tools; Codex keeps names with two underscores for itself.
NAMESPACE_PREFIX = "mcp_"

# What Codex says of images that a tool gives: with the same detail, a history shows the model what it saw.
IMAGE_DETAIL = "high"
# In the JSON of a content with images, and rarely elsewhere.
IMAGE_MARK = '"type":"image"'

Shown: TypeAlias = str | tuple[Part, ...]

Approval: TypeAlias = Literal["always", "never"]


class McpTool(Struct, frozen=True, kw_only=True):
    """A tool that a server has listed."""

    name: str
    description: str | None = None
    input_schema: JsonObject
    annotations: JsonObject | None = None

    @property
    def read_only(self) -> bool:
        """Tell whether the server says that the tool changes nothing."""
        return self.annotations is not None and self.annotations.get("readOnlyHint") is True


class McpFilter(Struct, frozen=True, kw_only=True):
    """Some tools of a server: by name, by whether they only read, or by both."""

    names: tuple[str, ...] | None = None
    read_only: bool | None = None

    def matches(self, tool: McpTool) -> bool:
        """Tell whether a tool is one of them."""
        named = self.names is None or tool.name in self.names
        return named and (self.read_only is None or tool.read_only is self.read_only)


class McpServer(Struct, frozen=True, kw_only=True):
    """A server that the gateway connects to for one client. Its headers are secrets of that client."""

    label: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    description: str = ""
    allowed: McpFilter = McpFilter()
    always: McpFilter | None = None
    """The tools whose calls need approval, if the client has named them."""
    never: McpFilter | None = None
    """The tools whose calls need none, if the client has named them."""
    otherwise: Approval = "always"
    """Whether the calls of all other tools need approval."""
    param: str
    """Where the client wrote it, so that an error can name it."""

    def __repr__(self) -> str:
        # Whatever is logged or raised: neither a path nor a header may be in it.
        return f"McpServer(label={self.label!r})"

    @property
    def namespace(self) -> str:
        """Return the namespace of its tools."""
        return f"{NAMESPACE_PREFIX}{self.label}"

    def needs_approval(self, tool: McpTool) -> bool:
        """Tell whether the client wants to approve calls of a tool. Of two filters that match, the stricter wins."""
        if self.always is not None and self.always.matches(tool):
            return True
        if self.never is not None and self.never.matches(tool):
            return False
        return self.otherwise == "always"


class ApprovedCall(Struct, frozen=True, kw_only=True):
    """A call that the client has approved and nobody has run."""

    call_id: str
    label: str
    name: str
    arguments: str


class McpResult(Struct, frozen=True, kw_only=True):
    """What a call gave: an output, or an error as OpenAI writes it."""

    output: str | None = None
    """A text; the content as JSON if there are images in it, since an `mcp_call` has room for a text only."""
    error: JsonObject | None = None

    @property
    def shown(self) -> Shown:
        """Return what the model is shown; the same is made of a history that has the result."""
        return shown_result(self.output, self.error)


def shown_result(output: str | None, error: JsonObject | None) -> Shown:
    """Return what the model is shown of a call with this output, or this error."""
    if error is None:
        return _with_images(output or "") or output or ""
    content = error.get("content")
    if isinstance(content, list):
        return content_text(content) or "The tool failed."
    message = error.get("message")
    return f"The tool could not be called: {message}" if isinstance(message, str) else "The tool failed."


def content_output(content: Sequence[JsonObject], structured: Json = None) -> str:
    """Return the content of a result as the output of an `mcp_call`, from which `shown_result` has the images again."""
    if any(_image(block) is not None for block in content):
        return json.encode(list(content)).decode()
    return content_text(content, structured)


def _with_images(output: str) -> tuple[Part, ...] | None:
    if not output.startswith("[{") or IMAGE_MARK not in output:
        return None
    try:
        blocks = json.decode(output, type=list[JsonObject])
    except MsgspecError:
        return None
    parts = tuple(_image(block) or TextPart(text=_block_text(block)) for block in blocks)
    return parts if any(isinstance(part, ImagePart) for part in parts) else None


def _image(block: JsonObject) -> ImagePart | None:
    """Return the image in a block, if the model can be shown it."""
    match block:
        case {"type": "image", "data": str(encoded)}:
            try:
                data = base64.b64decode(encoded, validate=True)
            except ValueError:
                return None
        case _:
            return None
    kind = image_type(data)
    if kind is None or image_pixels(data) > MAX_PIXELS:
        return None
    # No part of the request is to blame for it.
    return ImagePart(url=f"data:{kind};base64,{encoded}", detail=IMAGE_DETAIL, param="")


def content_text(content: Sequence[Json], structured: Json = None) -> str:
    """Return the content of a result as text; what is no text is named, since an `mcp_call` has only a text."""
    texts = [_block_text(block) for block in content if isinstance(block, dict)]
    if not texts and structured is not None:
        return json.encode(structured).decode()
    return "\n".join(texts)


def _block_text(block: JsonObject) -> str:
    resource = block.get("resource")
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource"} if isinstance(resource, dict) and isinstance(inside := resource.get("text"), str):
            return inside
        case {"type": "resource_link", "uri": str(uri)}:
            return uri
        case {"type": str(kind), "mimeType": str(mime_type)}:
            return f"[{kind} of type {mime_type}: not shown]"
        case {"type": str(kind)}:
            return f"[{kind}: not shown]"
        case _:
            return ""
