"""The Chat Completions API."""
