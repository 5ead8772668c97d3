"""An estimate of how many tokens of input a turn has, before it is run or when it was cut off.

Text is counted by the tokenizer, images by OpenAI's published rules, and what is between them by the format that OpenAI
publishes for its open models (harmony): tokens around each message, and functions as TypeScript. OpenAI's own published
counts are met with that to the token, or nearly (docs/parameters.md).
"""

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import assert_never

from turnbridge.engine.admission import Admission
from turnbridge.engine.image_tokens import image_tokens
from turnbridge.engine.media_items import ready_items
from turnbridge.engine.ports import MediaLoader, Tokenizer, ToolServers
from turnbridge.engine.tool_serving import declared_tools
from turnbridge.turn.events import ReasoningDelta, SummaryDelta, TextDelta, TurnEvent, Usage
from turnbridge.turn.images import image_size
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Json,
    JsonObject,
    Message,
    RawItem,
    Reasoning,
    TextPart,
    parts_of,
    replace,
    size,
)
from turnbridge.turn.request import JsonOfSchema, ThreadSpec, Tool, TurnRequest

# The beginning, the role, the end of the head, and the end of the message.
AROUND_MESSAGE = 4
# The channel of what the model said.
CHANNEL = 2
# The recipient and the format of a call, and the sender and the recipient of its output.
AROUND_CALL = 5
# The beginning of the answer.
REPLY = 2

MANY_CHARACTERS = 65_536
"""Beyond this many, all texts are counted as one, which the tokenizer estimates in a bounded time."""

# Encrypted reasoning is base64 of a text of four characters per token, with so many bytes around it, as far as Codex
# itself assumes.
ENCRYPTION_BYTES = 650
CHARACTERS_PER_TOKEN = 4

# Deeper types are counted as JSON.
DEEPEST_TYPE = 30
SIMPLE_TYPES = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}


class InputCounter:
    """Counts the input of turns, a few at a time: images and files that a request links to are loaded for that."""

    # Text is counted in milliseconds, so these are for images and files of slow hosts, each of which may take 128 MB.
    at_once = 4
    most_waiting = 64
    patience_s = 30.0

    def __init__(
        self, media: MediaLoader, tokenizer: Tokenizer, servers: ToolServers, *, clients: Callable[[], int] = lambda: 1
    ) -> None:
        self._media = media
        self._servers = servers
        self._tokenizer = tokenizer
        self._queue = Admission(
            clients=clients, turns=self.at_once, waiting=self.most_waiting, patience_s=self.patience_s
        )

    async def count(self, request: TurnRequest) -> int:
        """Return about how many tokens the model would see.

        Raises what the turn would for a wrong image or file, or a server that may not be asked.
        """
        for server in request.spec.servers:
            # It connects to nothing.
            self._servers.session(server).close()
        async with self._queue.admitted(request.spec.client, size=partial(size, request)):
            items = (await ready_items(request, self._media)).items
            await self._tokenizer.ready()
            spec = replace(request.spec, tools=(*request.spec.tools, *_listed_tools(request)))
            # The request may be megabytes.
            return await asyncio.to_thread(counted, spec, items, self._tokenizer)


def uncounted(request: TurnRequest) -> tuple[str, ...]:
    """Return what a count leaves out: what the provider adds for a web search, and tools that no server has listed."""
    unlisted = tuple(f"mcp:{server.label}" for server in request.spec.servers if server.label not in request.listed)
    return ("web_search", *unlisted) if request.spec.web_search is not None else unlisted


def _listed_tools(request: TurnRequest) -> list[Tool]:
    """Return the tools of MCP servers that the history has a list of: servers are not asked only to count."""
    return [
        tool
        for server in request.spec.servers
        for tool in declared_tools(server, list(filter(server.allowed.matches, request.listed.get(server.label, ()))))
    ]


def counted(spec: ThreadSpec, items: Sequence[Item], tokenizer: Tokenizer) -> int:
    """Return about how many tokens these items have in a thread; images must be loaded."""
    tokens, texts = REPLY, list[str]()
    if spec.instructions:
        tokens += AROUND_MESSAGE
        texts.append(spec.instructions)
    if spec.tools:
        texts.append(functions_text(spec.tools))
    if isinstance(spec.output, JsonOfSchema) and spec.output.enforced:
        texts.append(_format_text(spec.output))
    for item in items:
        tokens += _around(item)
        texts += _texts(item)
        tokens += sum(_image(part, spec.model) for part in parts_of(item) if isinstance(part, ImagePart))
    tokens += sum(map(_thoughts, _unanswered_reasoning(items)))
    if sum(map(len, texts)) > MANY_CHARACTERS:
        return tokens + tokenizer.count("\n".join(texts))
    return tokens + sum(map(tokenizer.count, texts))


def estimated_usage(request: TurnRequest, said: Iterable[Sequence[TurnEvent]], tokenizer: Tokenizer) -> Usage:
    """Return about how many tokens a turn had that was cut off after it said this."""
    events = [event for batch in said for event in batch]
    answer = "".join(event.text for event in events if isinstance(event, TextDelta))
    # Of what the model thought, only this is known.
    thoughts = "".join(event.text for event in events if isinstance(event, SummaryDelta | ReasoningDelta))
    reasoning = tokenizer.count(thoughts)
    return Usage(
        input=counted(request.spec, request.items, tokenizer),
        output=tokenizer.count(answer) + reasoning,
        reasoning=reasoning,
        estimated=True,
    )


def _around(item: Item) -> int:
    match item:
        case Message(role="assistant"):
            return AROUND_MESSAGE + CHANNEL
        case Message():
            return AROUND_MESSAGE
        case FunctionCall() | FunctionCallOutput() | RawItem():
            return AROUND_MESSAGE + CHANNEL + AROUND_CALL
        case Reasoning():
            return 0
        case _:
            assert_never(item)


def _texts(item: Item) -> Iterator[str]:
    match item:
        case Message():
            yield from (part.text for part in item.parts if isinstance(part, TextPart))
        case FunctionCall():
            yield item.name
            yield item.arguments
        case FunctionCallOutput(output=str(output)):
            yield output
        case FunctionCallOutput():
            yield from (part.text for part in parts_of(item) if isinstance(part, TextPart))
        case RawItem():
            yield json.dumps(item.item, ensure_ascii=False)
        case Reasoning():
            pass
        case _:
            assert_never(item)


def _image(part: ImagePart, model: str) -> int:
    # What does not tell its size is not an image that Codex is given.
    width, height = image_size(base64.b64decode(part.url.partition(",")[2])) or (0, 0)
    return image_tokens(model, width, height, part.detail)


def _unanswered_reasoning(items: Sequence[Item]) -> list[Reasoning]:
    """Return the reasoning since the user's last message: the provider drops what is older."""
    users = (place for place, item in enumerate(items) if isinstance(item, Message) and item.role == "user")
    return [item for item in items[max(users, default=0) :] if isinstance(item, Reasoning)]


def _thoughts(item: Reasoning) -> int:
    """Return about how many tokens the model thought, by the size of what it thought."""
    thought = sum(map(len, item.content or item.summary))
    if item.encrypted is not None:
        thought = max(0, len(item.encrypted) * 3 // 4 - ENCRYPTION_BYTES)
    return AROUND_MESSAGE + CHANNEL + thought // CHARACTERS_PER_TOKEN


def functions_text(tools: Sequence[Tool]) -> str:
    """Return functions as a model is shown them: TypeScript types in a namespace."""
    types = "\n\n".join(_function_type(tool) for tool in tools)
    return f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{types}\n\n}} // namespace functions"


def _function_type(tool: Tool) -> str:
    schema, about = tool.parameters, _comment(tool.description)
    shared = [schema.get(name) for name in ("$defs", "definitions")]
    named = "".join(
        f"type {name} = {_type(given, DEEPEST_TYPE)};\n"
        for given_types in shared
        if isinstance(given_types, dict)
        for name, given in given_types.items()
    )
    if not schema.get("properties"):
        return f"{named}{about}type {tool.name} = () => any;"
    return f"{named}{about}type {tool.name} = (_: {_object_type(schema, DEEPEST_TYPE)}) => any;"


def _type(schema: Json, depth: int) -> str:
    """Return a schema as a type; each part of it is written once, whatever it holds."""
    if not isinstance(schema, dict):
        return "any"
    if depth == 0:
        return json.dumps(schema, ensure_ascii=False)
    if isinstance(values := schema.get("enum"), list):
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
    if isinstance(options := schema.get("anyOf") or schema.get("oneOf"), list):
        return " | ".join(_type(option, depth - 1) for option in options)
    if isinstance(reference := schema.get("$ref"), str):
        return reference.rpartition("/")[2]
    kind = schema.get("type")
    kinds = dict.fromkeys(str(one) for one in (kind if isinstance(kind, list) else [kind]))
    return " | ".join(_one_type(one, schema, depth) for one in kinds)


def _one_type(kind: str, schema: JsonObject, depth: int) -> str:
    if kind == "array":
        return f"{_type(schema.get('items'), depth - 1)}[]"
    if kind == "object":
        return _object_type(schema, depth)
    return SIMPLE_TYPES.get(kind, "any")


def _object_type(schema: JsonObject, depth: int) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set[str]()
    lines = ["{"]
    for name, given in properties.items() if isinstance(properties, dict) else ():
        about = given.get("description") if isinstance(given, dict) else None
        optional = "" if name in needed else "?"
        lines.append(f"{_comment(about)}{name}{optional}: {_type(given, depth - 1)},")
    return "\n".join([*lines, "}"])


def _comment(text: Json) -> str:
    return "".join(f"// {line}\n" for line in text.splitlines()) if isinstance(text, str) else ""


def _format_text(output: JsonOfSchema) -> str:
    schema = json.dumps(output.schema, ensure_ascii=False, separators=(",", ":"))
    return f"# Response Formats\n\n## {output.name}\n\n{_comment(output.description)}{schema}"
