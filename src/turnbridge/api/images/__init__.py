"""OpenAI's Images API, as far as Codex makes images."""
