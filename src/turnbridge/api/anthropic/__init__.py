"""Anthropic's Messages API, as Claude Code and the anthropic SDKs speak it."""
