"""MCP servers over streamable HTTP, real and bad ones, without Codex."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.mcp_server import McpSite, running_mcp_server, serving
from turnbridge.engine.ports import ToolServers
from turnbridge.mcp import exchange, servers
from turnbridge.mcp.off import NoToolServers
from turnbridge.mcp.servers import HttpToolServers
from turnbridge.outbound.guard import Endpoint
from turnbridge.turn.errors import InvalidRequest, ToolServerFailed
from turnbridge.turn.items import JsonObject
from turnbridge.turn.mcp import McpFilter, McpResult, McpServer, McpTool, content_text, shown_result

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site() -> AsyncIterator[McpSite]:
    """Return a real server."""
    async with running_mcp_server() as running:
        yield running


def server(url: str) -> McpServer:
    return McpServer(label="wx", url=url, headers=(("x-a", "b"),), param="tools[0]")


async def test_a_session_lists_calls_and_ends(site: McpSite) -> None:
    asked = HttpToolServers(f"hosts:{site.origin}")
    session = asked.session(server(site.url))
    tools = await session.list_tools()
    assert [tool.name for tool in tools] == ["look", "store", "photo", "fail"]
    assert [tool.read_only for tool in tools] == [True, False, False, False]
    looked, stored = await asyncio.gather(
        session.call("look", '{"city": "Oslo"}'), session.call("store", '{"city": "Bern"}')
    )
    assert (looked, stored) == (McpResult(output="sunny in Oslo"), McpResult(output="stored Bern for 3 days"))
    failed = await session.call("fail", '{"city": "Bern"}')
    assert (failed.output, "no weather in Bern" in failed.shown) == (None, True)
    unknown = await session.call("gone", "{}")
    assert unknown.error is not None
    unreadable = await session.call("look", "[")
    assert unreadable.error == {
        "type": "mcp_protocol_error",
        "code": -32602,
        "message": "The arguments or the result could not be read.",
    }
    session.close()
    await asked.aclose()
    assert site.requests[-1][":method"] == "DELETE"
    assert all(request["x-a"] == "b" for request in site.requests)
    assert len({request.get("mcp-session-id") for request in site.requests[1:]}) == 1


async def test_a_name_is_checked_by_the_address_that_is_connected_to(site: McpSite) -> None:
    port = int(site.origin.rpartition(":")[2])

    async def rebinding(host: str, _: int) -> Sequence[Endpoint]:
        return [Endpoint(ip_address("127.0.0.1"), port)] if host == "inside.example" else []

    asked = HttpToolServers("public", resolver=rebinding)
    for host in ("inside.example", "unknown.example"):
        with pytest.raises(ToolServerFailed, match="not on the public internet"):
            await asked.session(server(f"https://{host}/mcp")).list_tools()
    assert site.requests == []
    await asked.aclose()


@pytest.mark.parametrize(
    ("servers", "code"),
    [
        (NoToolServers(), "mcp_not_enabled"),
        (HttpToolServers("public"), "mcp_host_not_allowed"),
        (HttpToolServers("hosts:a.example"), "mcp_host_not_allowed"),
    ],
)
def test_a_server_that_is_not_allowed_gets_no_session(servers: ToolServers, code: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        servers.session(server("http://127.0.0.1:9/mcp"))
    assert raised.value.error_code == code


class BadServer:
    """A server that answers each request with the next of these: status, content type, body."""

    def __init__(self, *answers: tuple[int, str, bytes]) -> None:
        self.answers = list(answers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await receive()
        status, kind, body = self.answers.pop(0)
        headers = [(b"content-type", kind.encode()), (b"location", b"http://127.0.0.1:9/")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": body == HANG})
        while body == HANG and (await receive())["type"] != "http.disconnect":
            pass


HANG = b" "
JSON, EVENTS = "application/json", "text/event-stream"
LATER = range(2, 30)
TOOL = b'{"name":"a","inputSchema":{}}'
OPENED = [(200, JSON, b'{"id":1,"result":{"protocolVersion":"2025-06-18"}}'), (202, "text/plain", b"")]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ([(401, JSON, b"")], r"Http status code: 401 \(Unauthorized\)"),
        ([(599, JSON, b"")], r"Http status code: 599 \(unknown\)"),
        ([(302, JSON, b"")], "It redirects"),
        ([(200, JSON, b"{")], "not a JSON-RPC message"),
        ([(200, JSON, b"[" * 100_000)], "not a JSON-RPC message"),
        ([(200, "text/html", b"<p>")], "without a result"),
        ([(200, EVENTS, b"data: {}\n\n: x\n\n")], "without a result"),
        ([(200, JSON, b" " * (exchange.MOST_BYTES + 1))], "larger than 4 MB"),
        ([*OPENED, (200, JSON, b'{"id":2,"error":{"code":-1,"message":"no"}}')], "no"),
        ([*OPENED, (200, JSON, b'{"id":2,"result":{}}')], "list of tools could not be read"),
        (
            [*OPENED, *[(200, JSON, b'{"id":%d,"result":{"tools":[],"nextCursor":"x"}}' % n) for n in LATER]],
            "pages",
        ),
        (
            [
                *OPENED,
                (200, JSON, b'{"id":2,"result":{"tools":[%b]}}' % b",".join([TOOL] * 513)),
            ],
            "512 tools",
        ),
    ],
)
async def test_a_server_that_does_not_list_its_tools_is_one_error(
    answers: list[tuple[int, str, bytes]], problem: str
) -> None:
    async with serving(BadServer(*answers)) as origin:
        asked = HttpToolServers(f"hosts:{origin}")
        with pytest.raises(ToolServerFailed, match=problem) as raised:
            await asked.session(server(f"{origin}/mcp")).list_tools()
        assert raised.value.message.startswith("Error retrieving tool list from MCP server: 'wx'.")
        assert origin not in raised.value.message
        await asked.aclose()


async def test_a_server_that_hangs_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "LIST_SECONDS", 0.2)
    monkeypatch.setattr(servers, "CALL_SECONDS", 0.2)
    async with serving(BadServer((200, JSON, HANG), *OPENED, (200, JSON, HANG), (200, JSON, b""))) as origin:
        asked = HttpToolServers(f"hosts:{origin}")
        with pytest.raises(ToolServerFailed, match="longer than"):
            await asked.session(server(f"{origin}/mcp")).list_tools()
        result = await asked.session(server(f"{origin}/mcp")).call("look", "{}")
        assert result.error is not None
        assert result.error["type"] == "http_error"
        await asked.aclose()


async def test_events_are_read_in_any_pieces() -> None:
    listed = b'{"id":2,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}}'
    events = b'event: message\r\ndata: {"method":"ping","id":2}\r\n\r\nid: 1\r\ndata: ' + listed + b"\r\n\r\n"
    async with serving(BadServer(*OPENED, (200, f"{EVENTS}; charset=utf-8", events))) as origin:
        asked = HttpToolServers(f"hosts:{origin}")
        tools = await asked.session(server(f"{origin}/mcp")).list_tools()
        assert tools == (McpTool(name="a", input_schema={"type": "object"}),)
        await asked.aclose()


@pytest.mark.parametrize(
    ("content", "structured", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None, "a\nb"),
        ([{"type": "resource", "resource": {"uri": "x", "text": "inside"}}], None, "inside"),
        ([{"type": "resource_link", "uri": "file:///x"}], None, "file:///x"),
        ([{"type": "image", "data": "AAAA", "mimeType": "image/png"}], None, "[image of type image/png: not shown]"),
        ([{"type": "new"}, {}], None, "[new: not shown]\n"),
        ([], {"a": 1}, '{"a":1}'),
    ],
)
def test_content_becomes_text(content: list[JsonObject], structured: JsonObject | None, text: str) -> None:
    assert content_text(content, structured) == text


def test_a_result_is_shown_as_its_output_or_its_error() -> None:
    failed: JsonObject = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}
    assert McpResult(error=failed).shown == "no"
    assert shown_result(None, {"type": "http_error", "code": 500, "message": "x"}) == "The tool could not be called: x"
    assert shown_result(None, {}) == "The tool failed."
    assert shown_result("out", None) == "out"


def test_a_server_shows_neither_its_url_nor_its_headers() -> None:
    assert repr(server("https://a.example/secret")) == "McpServer(label='wx')"


def test_of_two_filters_that_match_the_stricter_wins() -> None:
    tool = McpTool(name="a", input_schema={})
    both = McpServer(label="x", url="", param="", always=McpFilter(names=("a",)), never=McpFilter(), otherwise="never")
    assert both.needs_approval(tool)
    assert not both.needs_approval(McpTool(name="b", input_schema={}))
