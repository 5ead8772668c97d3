"""Turnbridge: the OpenAI API in front of the official Codex app-server."""

__version__ = "0.1.0"
