"""Ollama's API, as VS Code, Home Assistant, Open WebUI and others look for it, on a listener of its own."""
