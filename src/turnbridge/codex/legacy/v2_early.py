"""The early v2 dialect (v2-early), without item injection: the history is sent as one flat input.

Its turns are parked like those of current versions. A thread is closed when its turn ends: the model has the history in
another form there than the client.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from turnbridge.codex.legacy.flat_text import (
    NO_WORKSPACE,
    check_tools,
    developer_instructions,
    flat_config,
    flat_history,
    tool_names,
)
from turnbridge.codex.process.thread import CodexThread
from turnbridge.codex.process.worker import Worker
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.capabilities import Capabilities
from turnbridge.codex.protocol.decode import TurnDecoder
from turnbridge.codex.protocol.encode import STRICT, HostRules, image_of, tool_output, turn_start_params
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.codex.protocol.tools import dynamic_tools, with_whole_schema
from turnbridge.turn.events import TurnEvent
from turnbridge.turn.items import FunctionCallOutput, Item, Json, JsonObject, Part, TextPart
from turnbridge.turn.request import Tool, TurnRequest

# Some versions with environments but without raw responses (0.125 to 0.142) report the end of a model call only after
# its functions are answered: every call waits this long there. What a model calls later, it has to call again.
UNCOUNTED_CALLS_S = 2.0

# The schema language of early versions: they drop the rest, and turn integers into numbers.
PLAIN_TYPES = ("string", "number", "boolean", "object", "array")
PLAIN_KEYWORDS = frozenset({"type", "description", "properties", "required", "additionalProperties", "items"})


def early_thread_params(
    request: TurnRequest,
    developer: Iterable[str],
    names: ToolNames,
    capabilities: Capabilities,
    *,
    logged_in: bool,
    rules: HostRules = STRICT,
) -> JsonObject:
    """Return a thread with the client's instructions and tools, and as little of Codex's own as possible."""
    # Without the setting, Codex keeps tools of its own.
    notes = () if capabilities.environments else (NO_WORKSPACE,)
    params: JsonObject = {
        "model": request.spec.model,
        "baseInstructions": request.spec.instructions or "",
        "developerInstructions": developer_instructions((*notes, *developer)) or None,
        "approvalPolicy": rules.approval_policy,
        "sandbox": rules.sandbox,
        "experimentalRawEvents": True,
        "dynamicTools": early_tools(request.spec.tools, names, typed=capabilities.typed_tool_specs),
        "config": flat_config(request, logged_in=logged_in),
    }
    if capabilities.ephemeral:
        params["ephemeral"] = True
    if capabilities.environments:
        params["environments"] = []
    return params


def early_turn_params(
    thread_id: str, parts: Sequence[Part], request: TurnRequest, capabilities: Capabilities
) -> JsonObject:
    """Return a turn with this input."""
    content: list[Json] = [
        {"type": "text", "text": part.text, "text_elements": []}
        if isinstance(part, TextPart)
        else {"type": "image", "url": image_of(part).url}
        for part in parts
    ]
    # Early versions request summaries by themselves.
    params = {**turn_start_params(thread_id, request), "input": content, "summary": request.spec.summary or "none"}
    return capabilities.supported("turn/start", params)


def early_tools(tools: Sequence[Tool], names: ToolNames, *, typed: bool) -> list[Json]:
    """Return the declarations of the client's functions; a schema that Codex would cut is added to the description."""
    declared = dynamic_tools(tools, names)
    if typed:
        return declared
    return [_early_tool(tool, spec) for tool, spec in zip(tools, declared, strict=True) if isinstance(spec, dict)]


def early_output(output: str | tuple[Part, ...], capabilities: Capabilities) -> JsonObject:
    """Return the answer to `item/tool/call`."""
    if capabilities.tool_reply == "contentItems":
        return tool_output(output)
    parts = (TextPart(text=output),) if isinstance(output, str) else output
    return {"output": "\n".join(part.text for part in parts if isinstance(part, TextPart)), "success": True}


def _early_tool(tool: Tool, spec: JsonObject) -> JsonObject:
    schema = spec["inputSchema"]
    return {
        "name": spec["name"],
        "description": spec["description"] if is_plain(tool.parameters) else with_whole_schema(tool),
        # An early version reads a schema without a type as a string.
        "inputSchema": {"type": "object", "properties": {}, **(schema if isinstance(schema, dict) else {})},
    }


def is_plain(schema: Json) -> bool:
    """Tell whether early versions of Codex keep a schema whole."""
    if not isinstance(schema, dict) or not schema.keys() <= PLAIN_KEYWORDS or schema.get("type") not in PLAIN_TYPES:
        return False
    properties = schema.get("properties", {})
    inner = [*properties.values()] if isinstance(properties, dict) else []
    inner += [schema[key] for key in ("items", "additionalProperties") if not isinstance(schema.get(key, True), bool)]
    return all(map(is_plain, inner))


class EarlyDecoder(TurnDecoder):
    """Decodes older notifications: the end of a model call shows in the thread's total of tokens.

    A web search is reported by its completed item, since its raw item has no id.
    """

    total = schema.TokenUsage()
    """The thread's tokens so far, its earlier turns included."""

    def read(self, notes: Sequence[schema.Note]) -> list[TurnEvent]:
        """Return the events of notifications."""
        return super().read([current for note in notes if (current := self._current(note)) is not None])

    def _current(self, note: schema.Note) -> schema.Note | None:
        """Return the notification that a current Codex would have sent, if any."""
        if isinstance(note, schema.TokenUsageUpdated):
            before, self.total = self.total, note.token_usage.total
            used = {field: getattr(self.total, field) - getattr(before, field) for field in before.__struct_fields__}
            # It is sent again when the plan's limits change.
            if not any(used.values()):
                return None
            return schema.RawResponseCompleted(note.thread_id, note.turn_id, schema.TokenUsage(**used))
        if isinstance(note, schema.ItemCompleted):
            raw = self._raw_item_of(note.item)
            item = None if raw is None else msgspec.Raw(msgspec.json.encode(raw))
            return None if item is None else schema.RawItemCompleted(note.thread_id, note.turn_id, item)
        return note

    def _raw_item_of(self, item: schema.CompletedItem) -> JsonObject | None:
        if item.type == "webSearch":
            return {"type": "web_search_call", "id": item.id, "action": {"type": "search", "query": item.query}}
        return None


async def open_v2_early(worker: Worker, request: TurnRequest) -> "EarlyThread":
    """Start a thread of the early v2 dialect."""
    check_tools(request)
    names = tool_names(request)
    params = partial(
        early_thread_params,
        request,
        flat_history(request.items).developer,
        names,
        worker.capabilities,
        logged_in=worker.login is not None,
        rules=worker.spec.rules,
    )
    started = await worker.connection.call("thread/start", await asyncio.to_thread(params), schema.ThreadStartResult)
    return EarlyThread(worker, started.thread.id, request, names)


class EarlyThread(CodexThread):
    """A thread with one turn of the client; only the gateway itself may add others."""

    def __init__(self, worker: Worker, thread_id: str, request: TurnRequest, names: ToolNames) -> None:
        super().__init__(worker, thread_id, request, names)
        self._unsent: Sequence[Item] = ()
        self._early = EarlyDecoder()
        if worker.capabilities.environments and not worker.capabilities.raw_usage:
            self.rest_of_calls_s = UNCOUNTED_CALLS_S

    @property
    def alive(self) -> bool:
        """Tell whether the parked turn is still waiting."""
        return self._started is not None and super().alive

    async def inject(self, items: Sequence[Item]) -> None:
        """Keep items for the input of the turn."""
        self._unsent = items

    def _new_decoder(self, request: TurnRequest) -> TurnDecoder:
        total = self._early.total
        self._early = self._make_decoder(EarlyDecoder, request)
        self._early.total = total
        return self._early

    def _start_turn(self) -> asyncio.Future[msgspec.Raw]:
        parts = flat_history(self._unsent, self._names).parts
        self._unsent = ()
        params = early_turn_params(self._thread_id, parts, self._request, self._worker.capabilities)
        return self._connection.send("turn/start", params)

    def _encode_output(self, output: FunctionCallOutput) -> JsonObject:
        return early_output(output.output, self._worker.capabilities)
