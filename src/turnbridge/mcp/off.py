"""`engine.ports.ToolServers` where the operator allows none: then no HTTP client is loaded."""

from typing import NoReturn

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.mcp import McpServer

NOT_ENABLED = (
    "This gateway does not connect to MCP servers: its operator has not set PROXY_MCP. "
    "Ask for `PROXY_MCP=public`, or declare the tools as functions and run them yourself."
)


class NoToolServers:
    """Refuses every server."""

    def session(self, server: McpServer) -> NoReturn:
        """Raise what a client is told."""
        raise InvalidRequest(NOT_ENABLED, code="mcp_not_enabled", param=server.param)
