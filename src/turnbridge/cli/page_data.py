"""What the page for browsers shows of what commands know: settings, how clients are connected, the doctor, the key."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnbridge.cli.api_key import FOLDER, HIDDEN_KEY, KEY_FILE
from turnbridge.cli.config import effective_settings
from turnbridge.page.owner import CommandData
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings, config_file
from turnbridge.turn.items import Json, JsonObject

if TYPE_CHECKING:
    from turnbridge.cli.clients.values import Client, Values

# Guests are not told where the owner keeps files.
SOME_KEY_FILE = Path("/path/to/your/key")


def command_data(settings: Settings, api_key: str, *, port: int, others: Mapping[str, str]) -> CommandData:
    """Return it for a gateway that runs with these settings; `others` has URLs of its other listeners."""
    file = settings.data_dir / KEY_FILE if settings.api_key is None else settings.data_dir / FOLDER / KEY_FILE

    def effective() -> Json:
        shown = effective_settings(settings, os.environ, config_file(os.environ))
        return [{"name": one.name, "value": one.text, "source": one.source} for one in shown]

    def clients(base_url: str, models: Sequence[JsonObject], *, owner: bool) -> list[Json]:
        # The start does not wait for the table.
        from turnbridge.cli.clients.table import CLIENTS  # noqa: PLC0415
        from turnbridge.cli.clients.values import Values  # noqa: PLC0415
        from turnbridge.cli.connect import offered_model  # noqa: PLC0415

        model, native = offered_model(models, None)
        values = Values(
            base_url=base_url,
            key=HIDDEN_KEY,
            key_file=file if owner else SOME_KEY_FILE,
            model=model,
            native_model=native,
        )
        return [_shown(one, values, owner=owner) for one in CLIENTS]

    return CommandData(
        settings=effective,
        clients=clients,
        environment=_environment(settings, port),
        key=api_key.split(",", maxsplit=1)[0].strip(),
        hidden_key=HIDDEN_KEY,
        others=others,
    )


def _shown(client: "Client", values: "Values", *, owner: bool) -> Json:
    written = owner and client.written is not None
    return {
        "name": client.name,
        "title": client.title,
        "where": client.where,
        "text": client.settings.text(values),
        "then": client.then,
        "notes": list(client.notes),
        "api": client.api,
        "command": own_command("connect", client.name, "--write") if written else None,
    }


def _environment(settings: Settings, port: int) -> dict[str, str]:
    """Return what commands have to know to be about this gateway: options of `serve` stand in no environment."""
    return {
        "PORT": str(port),
        "PROXY_HOST": settings.host,
        "PROXY_DATA_DIR": str(settings.data_dir),
        "CODEX_HOME": str(settings.codex_home),
    }
