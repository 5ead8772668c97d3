"""MCP servers that clients name, asked over streamable HTTP."""
