"""The tools of MCP servers in one turn: lists them, calls them for the model, and asks the client for approval.

To the model they are functions, so that Codex needs no connection of its own. Calls that the client need not answer are
run here, and the turn goes on in the same thread.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256

from turnbridge.engine.ports import Batches, Conversation, Judge, ToolServers, ToolSession
from turnbridge.turn.errors import ToolServerFailed
from turnbridge.turn.events import (
    CallsAwaited,
    FunctionCallDone,
    ItemEvent,
    McpApprovalAsked,
    McpCallDone,
    McpCallStarted,
    McpToolsListed,
    Terminal,
    TextDelta,
    Usage,
)
from turnbridge.turn.fair_shares import FairShares
from turnbridge.turn.items import FunctionCallOutput, Item, canonical_json, replace, size, visible
from turnbridge.turn.mcp import ApprovedCall, McpResult, McpServer, McpTool
from turnbridge.turn.request import Namespace, Tool, TurnRequest

MOST_CALLS = 128
"""Calls in one turn, so that a model that never stops calling ends."""
CALLS_AT_ONCE = 8
MOST_APPROVED, MOST_APPROVED_CHARACTERS = 1024, 16 * 2**20

TOO_MANY_CALLS = "Not run: there were too many tool calls in this answer."
NOT_OFFERED = "Not run: there is no such tool."


class ApprovedResults:
    """What approved calls gave: a client that repeats its request, since the model failed, does not repeat them."""

    def __init__(self) -> None:
        self._results: dict[bytes, McpResult] = {}
        self._shares: FairShares[bytes] = FairShares(most=MOST_APPROVED, most_bytes=MOST_APPROVED_CHARACTERS)

    def find(self, key: bytes) -> McpResult | None:
        """Return what a call has given, if it was run before."""
        return self._results.get(key)

    def keep(self, client: str, key: bytes, result: McpResult) -> None:
        """Keep what a call gave."""
        self._results[key] = result
        self._shares.add(client, key, size(result))
        while (excess := self._shares.excess()) is not None:
            self._shares.remove(excess)
            del self._results[excess]


def _key(request: TurnRequest, call: ApprovedCall) -> bytes:
    """Return what is the same for a call of a request that is repeated; ids alone need not be unique."""
    return sha256(canonical_json([request.spec, list(map(visible, request.items)), call])).digest()


def declared_tools(server: McpServer, found: Sequence[McpTool]) -> list[Tool]:
    """Return the tools of a server as the model is given them."""
    namespace = Namespace(name=server.namespace, description=server.description)
    return [
        Tool(
            name=tool.name,
            description=tool.description or "",
            parameters=tool.input_schema,
            namespace=namespace,
            kind="mcp",
        )
        for tool in found
    ]


class ToolServing:
    """The MCP servers of one turn."""

    def __init__(self, servers: ToolServers, judge: Judge, approved: ApprovedResults, request: TurnRequest) -> None:
        """Raise `InvalidRequest` if one of the servers may not be asked."""
        self._judge = judge
        self._results = approved
        self._servers: dict[str, McpServer] = {server.namespace: server for server in request.spec.servers}
        self._sessions: dict[str, ToolSession] = {
            namespace: servers.session(server) for namespace, server in self._servers.items()
        }
        self._tools: dict[str, dict[str, McpTool]] = {}
        self._left = MOST_CALLS if request.max_tool_calls is None else min(request.max_tool_calls, MOST_CALLS)
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE if request.parallel_calls else 1)
        self.unmatched = False
        """Whether calls were run beside others that wait for the client, which no history can repeat as it was."""
        self.prelude: list[ItemEvent] = []
        """What happened before the model was asked."""

    def close(self) -> None:
        """End the sessions."""
        for session in self._sessions.values():
            session.close()

    async def ready(self, request: TurnRequest) -> TurnRequest:
        """Return a request that declares the servers' tools, and has the outputs of the calls that it approves."""
        if not self._servers:
            return request
        tools = [tool for found in await self._all_tools(request) for tool in found]
        spec = replace(request.spec, tools=(*request.spec.tools, *tools))
        if not request.approved:
            return replace(request, spec=spec)
        outputs = {output.call_id: output async for output in self._run_approved(request)}
        items = tuple(_with_output(item, outputs) for item in request.items)
        return replace(request, spec=spec, items=items, approved=())

    async def _all_tools(self, request: TurnRequest) -> list[list[Tool]]:
        listings = [self._listed(server, request.listed.get(server.label)) for server in self._servers.values()]
        lists = await asyncio.gather(*listings)
        return [self._declared(server, found) for server, found in zip(self._servers.values(), lists, strict=True)]

    async def _listed(self, server: McpServer, known: tuple[McpTool, ...] | None) -> tuple[McpTool, ...]:
        """Return the tools that may be called; a list that the client's history has is not asked for again."""
        found = known if known is not None else await self._sessions[server.namespace].list_tools()
        tools = tuple(tool for tool in found if server.allowed.matches(tool))
        if (flaw := await self._judge.first_flaw([tool.input_schema for tool in tools])) is not None:
            name = "" if flaw.which is None else f" '{tools[flaw.which].name[:64]}'"
            problem = f"The schema of the tool{name} of MCP server '{server.label}' cannot be used: {flaw.why}"
            raise ToolServerFailed(problem, param="tools")
        if known is None:
            self.prelude.append(McpToolsListed(server.label, tools))
        return tools

    def _declared(self, server: McpServer, found: Sequence[McpTool]) -> list[Tool]:
        self._tools[server.namespace] = {tool.name: tool for tool in found}
        return declared_tools(server, tuple(self._tools[server.namespace].values()))

    async def _run_approved(self, request: TurnRequest) -> AsyncIterator[FunctionCallOutput]:
        namespaces = {server.label: namespace for namespace, server in self._servers.items()}
        for call in request.approved:
            # A history may be megabytes.
            key = await asyncio.to_thread(_key, request, call) if request.large else _key(request, call)
            if (result := self._results.find(key)) is None:
                result = await self._call(namespaces[call.label], call.name, call.arguments)
                self._results.keep(request.spec.client, key, result)
            started = McpCallStarted(call.call_id, call.label, call.name, call.arguments, approved=True)
            self.prelude += [started, McpCallDone(call.call_id, result)]
            yield FunctionCallOutput(call_id=call.call_id, output=result.shown)

    async def _call(self, namespace: str, name: str, arguments: str) -> McpResult:
        if name not in self._tools[namespace]:
            return McpResult(error={"type": "mcp_protocol_error", "code": -32602, "message": NOT_OFFERED})
        if self._left <= 0:
            return McpResult(error={"type": "mcp_protocol_error", "code": -32600, "message": TOO_MANY_CALLS})
        self._left -= 1
        async with self._slots:
            return await self._sessions[namespace].call(name, arguments)

    def is_served(self, call: FunctionCallDone) -> bool:
        """Tell whether a call is of a server's tool."""
        return call.namespace in self._servers

    def asked(self, call: FunctionCallDone) -> McpApprovalAsked | None:
        """Return the question for the client's approval of a call, if there is one."""
        server = self._servers[call.namespace or ""]
        tool = self._tools[server.namespace].get(call.name)
        if tool is None or not server.needs_approval(tool):
            return None
        return McpApprovalAsked(call.item_id, call.call_id, server.label, call.name, call.arguments)

    async def run(self, calls: Sequence[FunctionCallDone], outputs: list[FunctionCallOutput]) -> Batches:
        """Call tools, yield what happens, and add their outputs in the order of the calls."""
        if not calls:
            return
        yield [
            McpCallStarted(call.call_id, self._label(call), call.name, call.arguments, parallel=place > 0)
            for place, call in enumerate(calls)
        ]
        running = [asyncio.ensure_future(self._call(call.namespace or "", call.name, call.arguments)) for call in calls]
        try:
            for call, result in zip(calls, running, strict=True):
                given = await result
                outputs.append(FunctionCallOutput(call_id=call.call_id, output=given.shown))
                yield [McpCallDone(call.call_id, given)]
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _label(self, call: FunctionCallDone) -> str:
        return self._servers[call.namespace or ""].label


def _with_output(item: Item, outputs: Mapping[str, FunctionCallOutput]) -> Item:
    return outputs.get(item.call_id, item) if isinstance(item, FunctionCallOutput) else item


class ServedThread:
    """A thread whose calls of MCP servers are answered here; the others are passed on."""

    def __init__(self, thread: Conversation, serving: ToolServing) -> None:
        self._thread = thread
        self._serving = serving
        self._outputs: list[FunctionCallOutput] = []

    def run(self, items: Sequence[Item] = (), request: TurnRequest | None = None) -> Batches:
        """Let the model answer."""
        return self._events(self._thread.run(items, request))

    def resume(self, outputs: Sequence[FunctionCallOutput]) -> Batches:
        """Give the outputs that the turn waits for, with those that are known here."""
        known, self._outputs = self._outputs, []
        return self._events(self._thread.resume([*outputs, *known]))

    async def _events(self, source: Batches) -> Batches:
        """Yield what happens until the turn ends, or waits for the client. Usage is of all model calls together."""
        spent = Usage()
        following: Batches | None = source
        while following is not None:
            current, following = following, None
            async with aclosing(current) as batches:
                async for batch in batches:
                    ending = batch[-1]
                    if isinstance(ending, TextDelta) or not isinstance(ending, Terminal):
                        yield batch
                        continue
                    calls = [event for event in batch if isinstance(event, FunctionCallDone)]
                    served = [call for call in calls if self._serving.is_served(call)]
                    usage = spent + ending.usage
                    if not served or not isinstance(ending, CallsAwaited):
                        yield [*batch[:-1], replace(ending, usage=usage)]
                        continue
                    before = [event for event in batch[:-1] if not isinstance(event, FunctionCallDone)]
                    if before:
                        yield before
                    asked = [question for call in served if (question := self._serving.asked(call)) is not None]
                    waiting = {question.call_id for question in asked}
                    at_once = [call for call in served if call.call_id not in waiting]
                    async with aclosing(self._serving.run(at_once, self._outputs)) as happening:
                        async for events in happening:
                            yield events
                    others = [call for call in calls if call not in served]
                    if not asked and not others:
                        spent = usage
                        outputs, self._outputs = self._outputs, []
                        following = self._thread.resume(outputs)
                        break
                    self._serving.unmatched = bool(at_once)
                    yield [*others, *asked, CallsAwaited(usage, ending.order)]
