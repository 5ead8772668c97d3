"""The JSON-RPC protocol of `codex app-server`."""
