"""Tools of MCP servers in a turn, on a conversation and a server that do as they are told."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from tests.engine.scripted_backend import ScriptedBackend, Turn, runner_on, saying
from tests.support.turn_requests import changed, turn_request
from turnbridge.engine.tool_serving import MOST_APPROVED, MOST_CALLS, ApprovedResults
from turnbridge.turn.errors import ToolServerFailed
from turnbridge.turn.events import (
    CallsAwaited,
    FunctionCallDone,
    McpApprovalAsked,
    McpCallDone,
    McpCallStarted,
    McpToolsListed,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    Usage,
)
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Message, TextPart, replace
from turnbridge.turn.mcp import ApprovedCall, McpFilter, McpResult, McpServer, McpTool
from turnbridge.turn.request import Tool, TurnRequest

pytestmark = pytest.mark.anyio

USAGE = Usage(input=10, output=5)
LOOK = McpTool(name="look", input_schema={"type": "object"}, annotations={"readOnlyHint": True})
SERVER = McpServer(label="wx", url="https://mcp.example", otherwise="never", param="tools[0]")
ASKED = turn_request(
    model="m", items=(Message(role="user", parts=(TextPart(text="hi"),)),), servers=(SERVER,), streamed=True
)


@dataclass(slots=True)
class ScriptedServers:
    """Servers that list these tools, and note what was called; or fail to."""

    tools: tuple[McpTool, ...] = (LOOK,)
    failure: ToolServerFailed | None = None
    listed: int = 0
    called: list[str] = field(default_factory=list)
    closed: int = 0
    hangs: bool = False
    running: int = 0
    most_at_once: int = 0

    def session(self, server: McpServer) -> "ScriptedServers":
        assert server.label == "wx"
        return self

    async def list_tools(self) -> tuple[McpTool, ...]:
        self.listed += 1
        if self.failure is not None:
            raise self.failure
        return self.tools

    async def call(self, name: str, arguments: str) -> McpResult:
        self.called.append(arguments)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await asyncio.sleep(3600 if self.hangs else 0)
        finally:
            self.running -= 1
        return McpResult(output=f"{name} {arguments}")

    def close(self) -> None:
        self.closed += 1


def calls(*arguments: str, namespace: str | None = "mcp_wx") -> Turn:
    """Return a turn that ends in calls."""
    made = [FunctionCallDone(f"fc_{one}", f"call_{one}", "look", one, namespace) for one in arguments]
    return [[*made, CallsAwaited(USAGE, tuple(call.item_id for call in made))]]


async def run(
    request: TurnRequest, *turns: Turn, servers: ScriptedServers | None = None
) -> tuple[list[TurnEvent], ScriptedBackend, ScriptedServers]:
    """Run a request; return its events without the first, and what was asked of both sides."""
    backend, asked = ScriptedBackend(list(turns)), servers or ScriptedServers()
    runner = runner_on(backend, servers=asked)
    events = [event async for batch in runner.start(request).events() for event in batch]
    return events[1:], backend, asked


def kinds(events: Sequence[TurnEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_calls_are_run_and_the_turn_goes_on() -> None:
    events, backend, servers = await run(ASKED, calls("1", "2"), saying("Done."))
    assert events[0] == McpToolsListed("wx", (LOOK,))
    assert events[1:5] == [
        McpCallStarted("call_1", "wx", "look", "1"),
        McpCallStarted("call_2", "wx", "look", "2", parallel=True),
        McpCallDone("call_1", McpResult(output="look 1")),
        McpCallDone("call_2", McpResult(output="look 2")),
    ]
    ended = events[-1]
    assert isinstance(ended, TurnCompleted)
    assert ended.usage == USAGE + Usage(input=10, cached=2, output=5, reasoning=1)
    (tool,) = backend.opened[0].spec.tools
    assert (tool.key, tool.kind) == (("mcp_wx", "look"), "mcp")
    assert backend.added[1] == [
        FunctionCallOutput(call_id="call_1", output="look 1"),
        FunctionCallOutput(call_id="call_2", output="look 2"),
    ]
    assert (servers.listed, servers.closed) == (1, 1)


async def test_a_list_that_is_known_is_not_asked_for() -> None:
    events, backend, servers = await run(changed(ASKED, listed={"wx": (LOOK,)}), saying("Done."))
    assert "McpToolsListed" not in kinds(events)
    assert [tool.name for tool in backend.opened[0].spec.tools] == ["look"]
    assert servers.listed == 0


async def test_a_server_that_does_not_list_ends_the_turn_before_it_begins() -> None:
    failure = ToolServerFailed("no")
    backend = ScriptedBackend([])
    runner = runner_on(backend, servers=ScriptedServers(failure=failure))
    (ended,) = [event async for batch in runner.start(ASKED).events() for event in batch]
    assert isinstance(ended, TurnFailed)
    assert (ended.error, backend.opened) == (failure, [])


async def test_a_call_that_needs_approval_waits_for_the_client() -> None:
    server = McpServer(label="wx", url="https://mcp.example", param="tools[0]")
    events, _, servers = await run(changed(ASKED, servers=(server,)), calls("1"))
    assert events[1:] == [McpApprovalAsked("fc_1", "call_1", "wx", "look", "1"), CallsAwaited(USAGE, ("fc_1",))]
    assert servers.called == []


async def test_an_approved_call_is_run_first_and_only_once() -> None:
    items = (
        *ASKED.items,
        FunctionCall(call_id="call_1", name="look", arguments="1", namespace="mcp_wx"),
        FunctionCallOutput(call_id="call_1", output=""),
    )
    approved = ApprovedCall(call_id="call_1", label="wx", name="look", arguments="1")
    request = changed(ASKED, items=items, approved=(approved,))
    backend, servers = ScriptedBackend([saying("Done."), saying("Done.")]), ScriptedServers()
    runner = runner_on(backend, servers=servers)
    for _ in range(2):
        events = [event async for batch in runner.start(request).events() for event in batch]
        assert events[2:4] == [
            McpCallStarted("call_1", "wx", "look", "1", approved=True),
            McpCallDone("call_1", McpResult(output="look 1")),
        ]
        assert backend.opened[-1].items[-1] == FunctionCallOutput(call_id="call_1", output="look 1")
    assert servers.called == ["1"]


async def test_calls_beyond_the_limit_fail() -> None:
    events, _, servers = await run(changed(ASKED, max_tool_calls=1), calls("1", "2"), saying("Done."))
    done = [event.result for event in events if isinstance(event, McpCallDone)]
    assert [result.error is None for result in done] == [True, False]
    assert servers.called == ["1"]


async def test_a_model_that_never_stops_calling_runs_out_of_calls() -> None:
    endless = [calls(str(number)) for number in range(MOST_CALLS + 2)]
    _, _, servers = await run(ASKED, *endless, saying("Done."))
    assert len(servers.called) == MOST_CALLS


async def test_a_required_call_may_be_one_of_a_server() -> None:
    events, _, _ = await run(changed(ASKED, must_call=True), calls("1"), saying("Done."))
    assert isinstance(events[-1], TurnCompleted)


async def test_what_was_said_beside_the_calls_of_a_server_is_told_before_them() -> None:
    (ended,) = calls("1")
    events, _, _ = await run(ASKED, [[*saying("Well.")[0], *saying("Well.")[1], *ended]], saying("Done."))
    assert kinds(events)[1:5] == ["MessageStarted", "TextDelta", "McpCallStarted", "McpCallDone"]


async def test_each_leg_is_given_the_outputs_of_its_own_calls() -> None:
    _, backend, _ = await run(ASKED, calls("1"), calls("2"), saying("Done."))
    outputs = [[FunctionCallOutput(call_id=f"call_{one}", output=f"look {one}")] for one in "12"]
    assert [*map(list, backend.added)] == [[], *outputs]


async def test_a_correction_of_the_clients_call_comes_with_the_output_of_the_servers() -> None:
    own = Tool(name="look", description="", parameters={"type": "object"}, strict=True)
    wrong = [[*calls("1")[0][:-1], *calls("2", namespace=None)[0]]]
    _, backend, _ = await run(changed(ASKED, tools=(own,)), wrong, wrong, saying("Done."))
    for corrected in backend.added[1:]:
        invalid, answered = corrected
        assert isinstance(invalid, FunctionCallOutput)
        assert "Invalid arguments" in str(invalid.output)
        assert answered == FunctionCallOutput(call_id="call_1", output="look 1")


@pytest.mark.parametrize(("parallel", "most"), [(True, 2), (False, 1)])
async def test_a_client_without_parallel_calls_has_the_calls_of_servers_run_one_by_one(
    parallel: bool, most: int
) -> None:
    _, _, servers = await run(changed(ASKED, parallel_calls=parallel), calls("1", "2"), saying("Done."))
    assert (servers.called, servers.most_at_once) == (["1", "2"], most)


async def test_a_client_that_leaves_ends_the_calls_that_run_for_it() -> None:
    servers, backend = ScriptedServers(hangs=True), ScriptedBackend([calls("1", "2"), saying("never")])

    async def read() -> None:
        async with aclosing(runner_on(backend, servers=servers).start(ASKED).events()) as batches:
            [batch async for batch in batches]

    reading = asyncio.ensure_future(read())
    async with asyncio.timeout(20):
        while servers.running < 2:  # noqa: ASYNC110 - Until the very step in which it changes.
            await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait((reading,), timeout=20)
    assert (servers.running, servers.closed, backend.running) == (0, 1, 0)


async def test_only_the_tools_that_the_client_allows_are_declared_and_called() -> None:
    server = replace(SERVER, allowed=McpFilter(names=("look",)))
    servers = ScriptedServers(tools=(LOOK, replace(LOOK, name="burn")))
    burnt: Turn = [[FunctionCallDone("fc", "call", "burn", "{}", "mcp_wx"), CallsAwaited(USAGE)]]
    events, backend, _ = await run(changed(ASKED, servers=(server,)), burnt, saying("Done."), servers=servers)
    assert [tool.name for tool in backend.opened[0].spec.tools] == ["look"]
    (done,) = [event for event in events if isinstance(event, McpCallDone)]
    assert done.result.error is not None
    assert servers.called == []


async def test_an_approved_call_is_run_anew_for_another_client() -> None:
    items = (
        FunctionCall(call_id="call_1", name="look", arguments="1", namespace="mcp_wx"),
        FunctionCallOutput(call_id="call_1", output=""),
    )
    approved = (ApprovedCall(call_id="call_1", label="wx", name="look", arguments="1"),)
    backend, servers = ScriptedBackend([saying("Done."), saying("Done.")]), ScriptedServers()
    runner = runner_on(backend, servers=servers)
    for client in "ab":
        request = changed(ASKED, items=(*ASKED.items, *items), approved=approved, client=client)
        assert [event async for batch in runner.start(request).events() for event in batch]
    assert servers.called == ["1", "1"]


async def test_the_results_of_approved_calls_are_bounded() -> None:
    results = ApprovedResults()
    for number in range(MOST_APPROVED + 1):
        results.keep("a", b"%d" % number, McpResult(output="x"))
    assert (results.find(b"0"), results.find(b"1")) == (None, McpResult(output="x"))


async def test_calls_of_a_server_and_of_the_client_in_one_response() -> None:
    mixed = [[*calls("1")[0][:-1], *calls("2", namespace=None)[0][:-1], CallsAwaited(USAGE, ("fc_1", "fc_2"))]]
    events, backend, servers = await run(ASKED, mixed)
    assert kinds(events) == ["McpToolsListed", "McpCallStarted", "McpCallDone", "FunctionCallDone", "CallsAwaited"]
    assert servers.called == ["1"]
    assert backend.running == 0, "no history can repeat this leg, so that nobody could go on with it"
