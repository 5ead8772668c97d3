"""What a client's settings are made of: an address, a key, models; and the kinds of settings that clients have."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from turnbridge.turn.items import Json, JsonObject

# What YAML reads as it stands.
PLAIN_SCALAR = re.compile(r"[A-Za-z][\w./:\[\]@-]*")

Api: TypeAlias = Literal["chat", "responses", "messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedModel:
    """A model that the gateway serves."""

    name: str
    window: int
    output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What is to be set in a client."""

    base_url: str
    key: str
    key_file: Path
    """The file that holds the key, for clients that can read it from there."""
    model: OfferedModel
    native_model: str
    """The model's name in Codex's catalogue, from which Codex CLI knows its tools."""

    @property
    def root(self) -> str:
        """Return the base URL for clients that append `/v1` themselves."""
        return self.base_url.removesuffix("/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The directories in which clients keep their settings."""

    home: Path
    config: Path
    codex_home: Path
    claude_home: Path


@dataclass(frozen=True, slots=True)
class JsonSettings:
    """Values in a JSON settings file that holds others, too."""

    file: Callable[[Places], Path]
    entries: Callable[[Values], dict[tuple[str, ...], Json]]
    language: str = "json"
    has_key: bool = False

    def text(self, values: Values) -> str:
        """Return the values as they stand in the file."""
        whole: JsonObject = {}
        for path, value in self.entries(values).items():
            inner = whole
            for name in path[:-1]:
                below = inner.setdefault(name, {})
                assert isinstance(below, dict)
                inner = below
            inner[path[-1]] = value
        return json.dumps(whole, indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class LineSettings:
    """Top-level lines of a YAML settings file that holds others, too."""

    file: Callable[[Places], Path]
    entries: Callable[[Values], dict[str, str]]
    language: str = "yaml"
    has_key: bool = True

    def text(self, values: Values) -> str:
        """Return the lines."""
        return "\n".join(f"{name}: {yaml_scalar(value)}" for name, value in self.entries(values).items())


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file that belongs to the gateway's settings alone."""

    file: Callable[[Places], Path]
    contents: Callable[[Values], str]
    language: str
    has_key: bool

    def text(self, values: Values) -> str:
        """Return the file's contents."""
        return self.contents(values)


@dataclass(frozen=True, slots=True)
class Shown:
    """Settings that are not written: a command, code, or what is typed into a dialog."""

    contents: Callable[[Values], str]
    language: str

    def text(self, values: Values) -> str:
        """Return the settings."""
        return self.contents(values)


def yaml_scalar(value: str) -> str:
    """Return a string as YAML; a JSON string is one, too."""
    return value if PLAIN_SCALAR.fullmatch(value) else json.dumps(value, ensure_ascii=False)


Written: TypeAlias = JsonSettings | LineSettings | OwnFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client, and how it is connected to the gateway."""

    name: str
    title: str
    where: str
    """Where the settings go, in a few words."""
    settings: Written | Shown
    api: Api
    """The API that it calls."""
    has_tools: bool = False
    """Whether it declares tools."""
    then: str = ""
    """What is left to do."""
    notes: tuple[str, ...] = ()
    overriding: tuple[str, ...] = ()
    """Environment variables that would take precedence over what is written."""
    seen: str = ""
    """The version that was seen working with these settings; without one, they are those of its documentation."""
    page: str | None = None
    """A page of the documentation with more."""

    @property
    def written(self) -> Written | None:
        """Return the settings that can be written to a file."""
        return None if isinstance(self.settings, Shown) else self.settings
