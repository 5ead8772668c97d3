"""Tools for a Codex that takes none: told to the model as text, and its calls read out of its text."""
