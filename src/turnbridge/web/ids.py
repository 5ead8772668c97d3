"""Ids in OpenAI's style."""

import os


def new_id(prefix: str) -> str:
    """Return a fresh id."""
    return prefix + os.urandom(16).hex()
