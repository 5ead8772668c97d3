"""The messages of a request → items: blocks of text, images and documents, thinking, calls and their results.

A string is the same as one block of text, and `cache_control` is not read: Claude Code sends one message in both forms,
and kept threads are found by equal items.
"""

import base64
from collections.abc import Iterator, Sequence

import msgspec

from turnbridge.api.anthropic import schema
from turnbridge.api.anthropic.thinking import opened
from turnbridge.api.shared.history import (
    MAX_NAME_CHARS,
    MAX_URL_CHARS,
    WHITE_SPACE,
    PartsDecoder,
    Wording,
    check_image_data_url,
)
from turnbridge.api.shared.validation import check_length, convert, invalid, missing, unknown_value
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import MAX_TOTAL_PIXELS
from turnbridge.turn.items import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Json,
    JsonObject,
    Message,
    Part,
    RawItem,
    TextPart,
)
from turnbridge.turn.json_schema import unreadable

ROLES = ("user", "assistant", "system")

IN_BLOCKS = Wording(
    "messages",
    "`tool_use` ids were found without `tool_result` blocks immediately after: {call_ids}. "
    "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    "unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. "
    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
)

SEARCH_ID = "srvtoolu_tb_"
"""Before the id of a web search of the provider, in the blocks that tell of it."""
FAILED = "[The tool reported an error.]"
"""Before what a tool said that failed: the model has no field for it."""
UNPARSED = "unparsed_arguments"
"""The only member of an `input` that stands for arguments which are not a JSON object."""

# Blocks of tools that ran at Anthropic, in histories that began there.
FOREIGN_RESULT = "_tool_result"
FOREIGN_BLOCKS = ("server_tool_use", "mcp_tool_use", "container_upload")


class History:
    """Decodes the messages of one request within its budget, and lists what of them is ignored."""

    def __init__(self, *, strict: bool) -> None:
        """`strict` refuses what version 2026-10-21 of the API no longer takes."""
        self._strict = strict
        self._budget = PartsDecoder()
        self._pixels = 0.0
        self.ignored: dict[str, None] = {}

    def items(self, messages: Sequence[schema.InputMessage]) -> Iterator[Item]:
        """Yield the items of all messages."""
        for index, message in enumerate(messages):
            blocks, param = self._blocks(message.content, f"messages[{index}].content"), f"messages[{index}]"
            match message.role:
                case "user":
                    yield from self._user(blocks, param)
                case "assistant":
                    yield from self._assistant(blocks, param)
                case "system":
                    parts = (self._text(block, f"{param}.content[{i}]") for i, block in enumerate(blocks))
                    yield Message(role="developer", parts=tuple(parts))
                case _:
                    raise unknown_value(message.role, ROLES, param=f"{param}.role")

    def system(self, content: schema.Content) -> list[str]:
        """Return the texts of a system prompt."""
        blocks = self._blocks(content, "system")
        return [self._text(block, f"system[{index}]").text for index, block in enumerate(blocks)]

    def _blocks(self, content: schema.Content, param: str) -> list[JsonObject]:
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        self._budget.count(len(content), param=param)
        return content

    def _user(self, blocks: list[JsonObject], param: str) -> Iterator[Item]:
        if not blocks:
            raise invalid(f"{param}.content", "user messages must have non-empty content.")
        parts: list[Part] = []
        for index, block in enumerate(blocks):
            place = f"{param}.content[{index}]"
            if block.get("type") != "tool_result":
                parts += self._parts(block, place)
                continue
            if parts:
                yield Message(role="user", parts=tuple(parts))
                parts = []
            yield self._output(convert(block, schema.ToolResultBlock, param=place), place)
        if parts:
            yield Message(role="user", parts=tuple(parts))

    def _assistant(self, blocks: list[JsonObject], param: str) -> Iterator[Item]:
        for index, block in enumerate(blocks):
            place, kind = f"{param}.content[{index}]", block.get("type")
            match kind:
                case "text":
                    if (part := self._text(block, place, of_model=True)).text:
                        yield Message(role="assistant", parts=(part,))
                case "thinking" | "redacted_thinking":
                    given = convert(block, schema.ThinkingBlock, param=place)
                    if (item := opened(given.signature or given.data, given.thinking)) is not None:
                        yield item
                case "tool_use":
                    yield _call(convert(block, schema.ToolUseBlock, param=place), place)
                case "document" if not self._strict:
                    yield Message(role="assistant", parts=tuple(self._parts(block, place)))
                case str() if kind in FOREIGN_BLOCKS or kind.endswith(FOREIGN_RESULT):
                    yield from self._searched(block, kind, place)
                case _:
                    raise _unknown_tag(kind, place, "'text', 'thinking', 'redacted_thinking', 'tool_use'")

    def _searched(self, block: JsonObject, kind: str, place: str) -> Iterator[Item]:
        """Yield the provider's search that a block stands for; blocks of Anthropic's own tools are left out."""
        if str(block.get("id") or block.get("tool_use_id")).startswith(SEARCH_ID):
            if kind == "server_tool_use":
                call = convert(block, schema.ToolUseBlock, param=place)
                found: JsonObject = {"type": "web_search_call", "id": call.id.removeprefix(SEARCH_ID)}
                found |= {"status": "completed", "action": call.input}
                if (problem := unreadable(found)) is not None:
                    raise invalid(f"{place}.input", f"{problem}.")
                yield RawItem(item=found)
            return
        self.ignored[f"messages[].content[].{kind}"] = None

    def _output(self, result: schema.ToolResultBlock, param: str) -> FunctionCallOutput:
        blocks, place = self._blocks(result.content or [], f"{param}.content"), f"{param}.content"
        parts = tuple(part for i, block in enumerate(blocks) for part in self._parts(block, f"{place}[{i}]"))
        # One text is the same to the model as a string.
        only = parts[0] if len(parts) == 1 else None
        output = only.text if isinstance(only, TextPart) else parts or ""
        if result.is_error:
            told = (TextPart(text=FAILED), *parts)
            output = "\n".join(filter(None, (FAILED, output))) if isinstance(output, str) else told
        return FunctionCallOutput(call_id=result.tool_use_id, output=output)

    def _parts(self, block: JsonObject, param: str) -> Iterator[Part]:
        """Yield the parts of a block that a user or a tool may send."""
        kind = block.get("type")
        match kind:
            case "text":
                yield self._text(block, param)
            case "image":
                yield self._image(convert(block, schema.ImageBlock, param=param).source, f"{param}.source")
            case "document":
                yield from self._document(convert(block, schema.DocumentBlock, param=param), param)
            case "search_result":
                found = convert(block, schema.SearchResultBlock, param=param)
                self._budget.count(len(found.content), param=param)
                texts = [self._text(each, f"{param}.content[{i}]").text for i, each in enumerate(found.content)]
                yield TextPart(text="\n".join((found.title, found.source, *texts)))
            case "tool_reference":
                yield TextPart(text=convert(block, schema.ToolReferenceBlock, param=param).tool_name)
            case _:
                raise _unknown_tag(kind, param, "'text', 'image', 'document', 'search_result', 'tool_result'")

    def _text(self, block: JsonObject, param: str, *, of_model: bool = False) -> TextPart:
        if (kind := block.get("type")) != "text":
            raise _unknown_tag(kind, param, "'text'")
        given = convert(block, schema.TextBlock, param=param)
        if given.citations and self._strict and not of_model:
            raise invalid(f"{param}.citations", "only blocks of assistant messages may have citations.")
        return TextPart(text=given.text)

    def _image(self, source: schema.Source, param: str) -> ImagePart:
        if source.type == "file" and source.file_id is not None:
            return ImagePart(file_id=_file_id(source.file_id, param), param=param)
        if source.type == "url" and source.url is not None:
            if source.url[:5].lower() != "data:":
                check_length(source.url, MAX_URL_CHARS, param=param)
                return ImagePart(url=source.url, param=param)
            given = source.url
        elif source.type == "base64" and source.data is not None:
            given = f"data:{source.media_type or 'image/png'};base64,{source.data}"
        else:
            raise _unknown_source(source, param, "'base64', 'url', 'file'")
        url, pixels = check_image_data_url(given, param)
        self._pixels += pixels
        if self._pixels > MAX_TOTAL_PIXELS:
            most = f"more than {MAX_TOTAL_PIXELS // 1_000_000} million pixels together"
            message = f"The images of the request have {most}. Send fewer, or smaller ones."
            raise InvalidRequest(message, code="image_too_large", param=param)
        return ImagePart(url=url, param=param)

    def _document(self, block: schema.DocumentBlock, param: str) -> Iterator[Part]:
        source, place = block.source, f"{param}.source"
        check_length(block.title or "", MAX_NAME_CHARS, param=f"{param}.title")
        if block.context:
            yield TextPart(text=block.context)
        match source:
            case schema.Source(type="base64", data=str(data)):
                yield _file(block.title, source.media_type, _bytes(data, f"{place}.data"), place)
            case schema.Source(type="text", data=str(data)):
                encoded = data.encode("utf-8", "surrogatepass")
                yield _file(block.title, source.media_type or "text/plain", encoded, place)
            case schema.Source(type="url", url=str(url)):
                check_length(url, MAX_URL_CHARS, param=place)
                yield FilePart(filename=block.title, mime_type=None, url=url, param=place)
            case schema.Source(type="file", file_id=str(file_id)):
                yield FilePart(filename=block.title, file_id=_file_id(file_id, place), param=place)
            case schema.Source(type="content", content=content) if content is not None:
                for index, inner in enumerate(self._blocks(content, place)):
                    if inner.get("type") not in ("text", "image"):
                        raise _unknown_tag(inner.get("type"), f"{place}.content[{index}]", "'text', 'image'")
                    yield from self._parts(inner, f"{place}.content[{index}]")
            case _:
                raise _unknown_source(source, place, "'base64', 'text', 'url', 'file', 'content'")


def _call(block: schema.ToolUseBlock, param: str) -> FunctionCall:
    unparsed = block.input.get(UNPARSED)
    if isinstance(unparsed, str) and len(block.input) == 1:
        return FunctionCall(call_id=block.id, name=block.name, arguments=unparsed)
    try:
        arguments = msgspec.json.encode(block.input).decode()
    except (UnicodeEncodeError, RecursionError):
        what = "it is nested too deeply, or has text that is not Unicode."
        raise invalid(f"{param}.input", what) from None
    return FunctionCall(call_id=block.id, name=block.name, arguments=arguments)


def _file(title: str | None, mime_type: str | None, data: bytes, param: str) -> FilePart:
    kind = None if mime_type is None else mime_type[:MAX_NAME_CHARS]
    return FilePart(filename=title, mime_type=kind, data=data, param=param)


def _file_id(file_id: str, param: str) -> str:
    check_length(file_id, MAX_NAME_CHARS, param=f"{param}.file_id")
    return file_id


def _bytes(data: str, param: str) -> bytes:
    try:
        return base64.b64decode(data.encode("ascii").translate(None, WHITE_SPACE), validate=True)
    except ValueError as error:
        raise invalid(param, "it is not valid base64.", code="invalid_file_data") from error


def _unknown_source(source: schema.Source, param: str, known: str) -> InvalidRequest:
    if f"'{source.type}'" in known:
        field = {"url": "url", "file": "file_id"}.get(source.type, "data")
        return missing(f"{param}.{field}")
    return _unknown_tag(source.type, param, known)


def _unknown_tag(kind: Json, param: str, known: str) -> InvalidRequest:
    problem = f"Input tag '{kind}' found using 'type' does not match any of the expected tags: {known}"
    return InvalidRequest(f"{param}: {problem}", code="unsupported_content_part", param=param)
