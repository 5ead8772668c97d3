"""A key of a client's own for `connect --own-key`: named after the client, made once, kept in a private file."""

import time
from pathlib import Path

from turnbridge.cli.console import refuse
from turnbridge.cli.store import refuse_store, with_store
from turnbridge.codex.process.home import write_private
from turnbridge.engine.keys import create_key, key_digest
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings
from turnbridge.store.sql_store import SqlStore
from turnbridge.turn.clients import NO_LIMITS
from turnbridge.turn.errors import GatewayError, InvalidRequest, RequestError

EXIT_FAILED = 1


def own_key_file(settings: Settings, folder: Path, name: str) -> Path:
    """Return the file with the key of a client, which is made if there is none; exit if it cannot be used."""
    file = folder / f"{name}.key"
    try:
        key = file.read_text(encoding="utf-8").strip() if file.is_file() else None
        made = with_store(settings, lambda store: _made(store, name, key))
        if made is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(file, f"{made}\n")
    except RequestError as error:
        refuse(error.message, status=EXIT_FAILED)
    except GatewayError as error:
        refuse_store(error)
    except OSError as error:
        refuse(f"Cannot use {error.filename or file}: {error.strerror}.", status=EXIT_FAILED)
    return file


async def _made(store: SqlStore, name: str, key: str | None) -> str | None:
    """Return a new key of this name, or nothing if the one that is known works."""
    now = int(time.time())
    _, records = await store.keys()
    record = next((each for each in records if each.name == name), None)
    if record is None:
        return (await create_key(store, name, limits=NO_LIMITS, admin=False, expires_at=None, now=now)).key
    if key is not None and record.ended(now) is None and record.digest == key_digest(key.encode()).hex():
        return None
    state = record.ended(now) or "not the one that was made here"
    raise InvalidRequest(
        f"There is a key `{name}`, but it is {state}. Replace it, and use the new one: "
        f"{own_command('keys', 'rotate', name)} > FILE, then `connect {name} --key-file FILE`."
    )
