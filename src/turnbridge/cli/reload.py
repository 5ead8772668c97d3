"""SIGHUP: reload what can be reloaded, and cut no stream; a terminal that closes stops the gateway instead."""

import os
from collections.abc import Mapping

import structlog
from msgspec import structs

from turnbridge.bootstrap import Gateway
from turnbridge.settings.fields import Settings, load_settings

log = structlog.get_logger(__name__)

ALIASES = "PROXY_MODEL_ALIASES"


def has_terminal() -> bool:
    """Tell whether this process was started from a terminal, which sends SIGHUP when it closes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def reload(gateway: Gateway, settings: Settings, chosen: Mapping[str, object]) -> None:
    """Read the settings file and Codex's configuration anew; `chosen` are the options of the command.

    New app-servers read the configuration; running turns finish in the old ones. Wrong settings change nothing.
    """
    try:
        found = load_settings(**chosen)
    except ValueError as error:
        log.error("not_reloaded", reason=str(error))
        return
    changed = [
        field.encode_name
        for field in structs.fields(Settings)
        if getattr(found, field.name) != getattr(settings, field.name)
    ]
    # Everybody has the same mapping. Catalogues are made anew with the models of a new app-server.
    settings.model_aliases.clear()
    settings.model_aliases.update(found.model_aliases)
    gateway.backend.reload()
    log.info("reloaded", settings=[name for name in changed if name == ALIASES])
    if waiting := [name for name in changed if name != ALIASES]:
        log.warning("restart_needed", settings=waiting)
