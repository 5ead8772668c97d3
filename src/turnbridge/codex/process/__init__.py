"""Codex processes, their pipes, and turns run on them."""
