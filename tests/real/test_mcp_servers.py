"""MCP servers that may not be asked, and servers that fail: one clear error, in a bounded time, for one client."""

import asyncio
import re
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.types import Receive, Scope, Send

from tests.support.gateway import Bridge, running_bridge
from tests.support.mcp_server import running_mcp_server, serving
from turnbridge.mcp import exchange, servers

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def server(url: str, **fields: Any) -> Any:
    return {"type": "mcp", "server_label": "wx", "server_url": url, "require_approval": "never", **fields}


async def refusal(bridge: Bridge, tool: Any) -> Any:
    """Return the error that a request with this tool gets; the model must not have been asked."""
    bridge.script()
    with pytest.raises(openai.APIStatusError) as caught:
        await bridge.client.responses.create(model="gpt-5.5", input="?", tools=[tool])
    assert bridge.model.requests == []
    return caught.value


@pytest.mark.promise("mcp.allowed")
async def test_no_server_is_asked_unless_the_operator_allows_it(bridge: Bridge) -> None:
    async with running_mcp_server() as site:
        error = await refusal(bridge, site.tool())
        assert (error.status_code, error.code, error.param) == (400, "mcp_not_enabled", "tools[0]")
        assert "PROXY_MCP" in error.message
        tools: Any = [site.tool()]
        for stream in (True, False):
            with pytest.raises(openai.BadRequestError, match="PROXY_MCP"):
                await bridge.client.responses.create(
                    model="gpt-5.5", input="?", tools=tools, stream=stream, background=True
                )
        assert site.requests == []


@pytest.mark.promise("mcp.allowed")
async def test_public_servers_are_https_on_public_addresses(tmp_path: Path) -> None:
    async with running_mcp_server() as site, running_bridge(tmp_path, PROXY_MCP="public") as bridge:
        for url in (site.url, "https://example.com:8443/mcp", "http://example.com/mcp"):
            error = await refusal(bridge, server(url))
            assert (error.status_code, error.code) == (400, "mcp_host_not_allowed")
        for url in ("https://user:word@example.com/", "ftp://example.com/", "https://exa mple.com/", "https://[::1"):
            error = await refusal(bridge, server(url))
            assert (error.status_code, error.param) == (400, "tools[0].server_url")
        for host in ("127.0.0.1", "localhost", "[::1]", "169.254.169.254", "2130706433"):
            error = await refusal(bridge, server(f"https://{host}/mcp"))
            assert (error.status_code, error.code, error.type) == (424, "http_error", "external_connector_error")
            assert "not on the public internet" in error.message
        assert site.requests == []


@pytest.mark.promise("mcp.allowed")
async def test_what_is_no_plain_server_is_refused(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_MCP="hosts:mcp.example") as bridge:
        url = "https://mcp.example/mcp"
        for tool, param in (
            ({"type": "mcp", "server_label": "x", "connector_id": "connector_gmail"}, "tools[0].connector_id"),
            ({"type": "mcp", "server_label": "x"}, "tools[0].server_url"),
            ({"type": "mcp", "server_label": "x", "command": "sh"}, "tools[0].server_url"),
            ({"type": "mcp", "server_url": url}, "tools[0].server_label"),
            (server(url, server_label="a b"), "tools[0].server_label"),
            (server(url, require_approval="maybe"), "tools[0].require_approval"),
            (server(url, headers={"host": "other"}), "tools[0].headers"),
            (server(url, headers={"x": "a\r\nb: c"}), "tools[0].headers"),
            (server(url, headers={"authorization": "a"}, authorization="b"), "tools[0].authorization"),
        ):
            error = await refusal(bridge, tool)
            assert (error.status_code, error.param) == (400, param)
        error = await refusal(bridge, server("https://other.example/mcp"))
        assert error.code == "mcp_host_not_allowed"


async def bad_server(scope: Scope, receive: Receive, send: Send) -> None:
    """Fail in the way that the path names."""
    if scope["type"] != "http":
        return
    await receive()
    kind, headers, status, body = scope["path"].strip("/"), [(b"content-type", b"application/json")], 200, b"{"
    while kind == "silent" and (await receive())["type"] != "http.disconnect":
        pass
    if kind == "denied":
        status = 401
    if kind == "moved":
        status, headers = 307, [(b"location", b"http://127.0.0.1:9/")]
    if kind == "huge":
        body = b"x" * (exchange.MOST_BYTES + 1)
    if kind == "endless":
        headers = [(b"content-type", b"text/event-stream")]
        body = b": nothing\n\n"
    if kind == "refusing":
        body = b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "go away"}}'
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": kind == "endless"})
    while kind == "endless" and (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.promise("mcp.unreachable")
async def test_a_server_that_fails_is_an_error_of_its_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "LIST_SECONDS", 1.0)
    async with serving(bad_server) as origin:
        allowed = f"hosts:{origin},http://127.0.0.1:9"
        async with running_bridge(tmp_path, PROXY_MCP=allowed) as bridge:
            for kind, problem in (
                ("denied", r"Http status code: 401 \(Unauthorized\)"),
                ("moved", "redirects"),
                ("huge", "larger than 4 MB"),
                ("broken", "not a JSON-RPC message"),
                ("refusing", "go away"),
            ):
                error = await refusal(bridge, server(f"{origin}/{kind}"))
                assert (error.status_code, error.code, error.param) == (424, "http_error", "tools")
                assert "MCP server: 'wx'" in error.message
                assert re.search(problem, error.message)
            error = await refusal(bridge, server("http://127.0.0.1:9/mcp"))
            assert (error.status_code, "does not answer" in error.message) == (424, True)
            bridge.says("Hello")
            hung = [
                asyncio.ensure_future(
                    bridge.client.responses.create(model="gpt-5.5", input="?", tools=[server(f"{origin}/{kind}")])
                )
                for kind in ("silent", "endless")
            ]
            other = await bridge.client.responses.create(model="gpt-5.5", input="Hi")
            assert other.output_text == "Hello"
            for ended in await asyncio.gather(*hung, return_exceptions=True):
                assert isinstance(ended, openai.APIStatusError)
                assert (ended.status_code, "longer than 1 seconds" in ended.message) == (424, True)
