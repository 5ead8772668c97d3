"""`turnbridge config`: the effective settings, and where each of them comes from."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from msgspec import structs

from turnbridge.cli.api_key import KEY_FILE
from turnbridge.cli.console import print_json, usable_settings, warn
from turnbridge.codex.process.home import WITHHELD_VARIABLES
from turnbridge.settings.fields import Settings, config_file, known_names, unknown_settings
from turnbridge.turn.items import Json

MASK = "********"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One setting as it is shown: a secret is masked."""

    name: str
    value: Json
    source: str

    @property
    def text(self) -> str:
        """Return the value as it would be written into the environment."""
        match self.value:
            case None:
                return "-"
            case bool(value):
                return str(value).lower()
            case dict(pairs):
                return ",".join(f"{name}={value}" for name, value in pairs.items()) or "-"
            case list(values):
                return ",".join(map(str, values)) or "-"
            case value:
                return str(value)


def config(*, names: tuple[str, ...], changed: bool, as_json: bool) -> None:
    """Show the effective settings, and where each comes from: default, environment or file. Secrets are masked."""
    settings = usable_settings()
    if missing := [name for name in names if name not in known_names()]:
        raise click.UsageError(f"There is no setting {', '.join(missing)}.")
    file = config_file(os.environ)
    shown = [
        one
        for one in effective_settings(settings, os.environ, file)
        if (not names or one.name in names) and not (changed and one.source == "default")
    ]
    if as_json:
        listed: list[Json] = [{"name": one.name, "value": one.value, "source": one.source} for one in shown]
        print_json({"file": str(file), "file_exists": file.is_file(), "settings": listed})
    else:
        names_width = max((len(one.name) for one in shown), default=0)
        values_width = max((len(one.text) for one in shown), default=0)
        for one in shown:
            click.echo(f"{one.name:{names_width}}  {one.text:{values_width}}  {one.source}")
        if not names:
            click.echo(f"\nFile: {file}{'' if file.is_file() else ' (does not exist)'}")
    for warning in unknown_settings(os.environ):
        warn(warning)


def effective_settings(settings: Settings, environment: Mapping[str, str], file: Path) -> list[Shown]:
    """Return every setting; the environment takes precedence over the file, and empty values count as unset."""
    in_file = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    shown = []
    for one in structs.fields(Settings):
        name = one.encode_name
        sources = {"environment": environment.get(name), str(file): in_file.get(name)}
        source = next((source for source, value in sources.items() if value not in (None, "")), "default")
        shown.append(Shown(name=name, value=_value(name, getattr(settings, one.name), settings), source=source))
    return shown


def _value(name: str, value: object, settings: Settings) -> Json:
    if name == "PROXY_API_KEY" and value is None:
        return f"generated, in {settings.data_dir / KEY_FILE}"
    match value:
        case str(text) if name in WITHHELD_VARIABLES:
            return masked(text)
        case dict(pairs):
            return {str(key): str(each) for key, each in pairs.items()}
        case tuple(values):
            return [str(each) for each in values]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def masked(secret: str) -> str:
    """Return the scheme, host and path of a URL, and of any other secret nothing."""
    scheme, separator, rest = secret.partition("://")
    if not separator:
        return secret if secret == "memory" else MASK
    credentials, at, place = rest.partition("?")[0].rpartition("@")
    return f"{scheme}://{MASK if credentials else ''}{at}{place}"
