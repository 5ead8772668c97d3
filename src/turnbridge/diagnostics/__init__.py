"""Commands for debugging Codex and the gateway. The server never imports this package."""
