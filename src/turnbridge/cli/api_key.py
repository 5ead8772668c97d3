"""The API key of this installation: generated at the first start, and used by the commands that call the gateway."""

import contextlib
from pathlib import Path

from turnbridge.codex.process.home import write_private
from turnbridge.engine.keys import new_key
from turnbridge.settings.fields import Settings

KEY_FILE = "api-key"
# What clients are shown in its place, and the folder of what `connect` writes.
HIDDEN_KEY = "YOUR_KEY"
FOLDER = "connect"


def stored_key(data_dir: Path) -> str:
    """Return the generated key, which only its user can read; it is generated if there is none."""
    if (kept := _kept_key(data_dir)) is not None:
        return kept
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = new_key()
    write_private(data_dir / KEY_FILE, f"{key}\n")
    return key


def known_key(settings: Settings) -> str | None:
    """Return a key that the gateway with these settings accepts: the first chosen one, or the generated one."""
    chosen = (key.strip() for key in (settings.api_key or "").split(","))
    with contextlib.suppress(PermissionError):  # Another user's: the gateway then says that the key is missing.
        return next(filter(None, chosen), None) or _kept_key(settings.data_dir)
    return None


def _kept_key(data_dir: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return (data_dir / KEY_FILE).read_text(encoding="utf-8").strip() or None
    return None
