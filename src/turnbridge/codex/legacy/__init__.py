"""Older versions of Codex: the v1 and early v2 dialects, and tools described in text."""
