"""A real MCP server on loopback, which notes what it is asked, and one that misbehaves."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, TextContent, ToolAnnotations
from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/secret-path/mcp"


@dataclass(slots=True)
class McpSite:
    """A server that runs: where, and what it was asked."""

    url: str
    requests: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request, with its `:method`."""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    """The tools that were called, with what they were given."""
    images: list[str] = field(default_factory=list)
    """What it has pictures of, as base64."""

    @property
    def posted(self) -> list[dict[str, str]]:
        """Return the requests that are no ends of sessions, which may come late."""
        return [request for request in self.requests if request[":method"] != "DELETE"]

    @property
    def origin(self) -> str:
        """Return the server's origin, as the operator allows it."""
        return self.url.removesuffix(PATH)

    def tool(self, **fields: Any) -> dict[str, Any]:
        """Return this server as a tool that needs no approval."""
        return {"type": "mcp", "server_label": "wx", "server_url": self.url, "require_approval": "never", **fields}


def weather_server(site: McpSite) -> MCPServer:
    """Return a server with tools that read, write, fail, and take as long as they are told."""
    server = MCPServer("weather", instructions="Weather of cities.", log_level="ERROR")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    def look(city: str) -> str:
        """Look up the weather."""
        site.calls.append(("look", city))
        return f"sunny in {city}"

    @server.tool(structured_output=False)
    def store(city: str, days: int = 3) -> str:
        """Store a city."""
        site.calls.append(("store", city))
        return f"stored {city} for {days} days"

    @server.tool(structured_output=False)
    def photo(city: str) -> list[TextContent | ImageContent]:
        """Take a picture."""
        site.calls.append(("photo", city))
        images = [ImageContent(data=data, mime_type="image/png") for data in site.images]
        return [TextContent(text=f"This is {city}:"), *images]

    @server.tool(structured_output=False)
    def fail(city: str) -> str:
        """Fail."""
        site.calls.append(("fail", city))
        raise ToolError(f"no weather in {city}")

    return server


@contextlib.asynccontextmanager
async def running_mcp_server() -> AsyncIterator[McpSite]:
    """Run the weather server until the context ends."""
    site = McpSite("")
    app = weather_server(site).streamable_http_app(streamable_http_path=PATH)

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            site.requests.append({":method": scope["method"], **headers})
        await app(scope, receive, send)

    async with serving(noting) as origin:
        site.url = f"{origin}{PATH}"
        yield site


@contextlib.asynccontextmanager
async def serving(app: ASGIApp | Callable[[Scope, Receive, Send], Awaitable[None]]) -> AsyncIterator[str]:
    """Serve an application on a free loopback port, and yield its origin."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        running = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running
