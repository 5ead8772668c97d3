"""`turnbridge schema`: the protocol that a Codex binary describes, and what changed between two binaries."""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import click
import msgspec
from click.exceptions import Exit
from msgspec import inspect

from turnbridge.cli.console import refuse, usable_settings
from turnbridge.codex import legacy
from turnbridge.codex.process.binary import Binary, examine
from turnbridge.codex.protocol import messages as ours
from turnbridge.codex.protocol.capabilities import Protocol, read_capabilities
from turnbridge.codex.protocol.encode import DECLINES
from turnbridge.codex.setup import user_spec
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import Json, JsonObject

# Every method that is called in any dialect: the protocol's name of its answer, and the type that reads it.
CALLS: dict[str, tuple[str, type[msgspec.Struct] | None]] = {
    "initialize": ("InitializeResponse", None),
    "account/read": ("GetAccountResponse", ours.AccountReadResult),
    "account/login/start": ("LoginAccountResponse", None),
    "account/login/cancel": ("CancelLoginAccountResponse", None),
    "account/logout": ("LogoutAccountResponse", None),
    "account/rateLimits/read": ("GetAccountRateLimitsResponse", ours.RateLimitsReadResult),
    "config/read": ("ConfigReadResponse", ours.ConfigReadResult),
    "model/list": ("ModelListResponse", ours.ModelListResult),
    "thread/start": ("ThreadStartResponse", ours.ThreadStartResult),
    "thread/inject_items": ("ThreadInjectItemsResponse", None),
    "thread/loaded/list": ("ThreadLoadedListResponse", None),
    "thread/unsubscribe": ("ThreadUnsubscribeResponse", None),
    "server/diagnostics": ("ServerDiagnosticsResponse", ours.DiagnosticsResult),
    "turn/start": ("TurnStartResponse", ours.TurnStartResult),
    "turn/interrupt": ("TurnInterruptResponse", None),
    "newConversation": ("NewConversationResponse", legacy.NewConversationResult),
    "addConversationListener": ("AddConversationSubscriptionResponse", legacy.ListenerResult),
    "removeConversationListener": ("RemoveConversationSubscriptionResponse", None),
    "sendUserTurn": ("SendUserTurnResponse", None),
    "sendUserMessage": ("SendUserMessageResponse", None),
    "interruptConversation": ("InterruptConversationResponse", None),
}

# The gateway sends nothing deeper inside the parameters of a method.
MOST_LEVELS = 3
REQUIRED = "required"

Words: TypeAlias = frozenset[str]
"""The values that are allowed in a place."""
Places: TypeAlias = Mapping[str, Words]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place of the protocol before and after; None where it does not exist."""

    section: str
    place: str
    before: Words | None
    after: Words | None

    def __str__(self) -> str:
        """Return the difference as a line."""
        if self.before is None or self.after is None:
            sign, words = ("-", self.before) if self.after is None else ("+", self.after)
            return f"{sign} {self.place}: {' | '.join(sorted(words or ()))}"
        gained = [f"+{word}" for word in sorted(self.after - self.before)]
        lost = [f"-{word}" for word in sorted(self.before - self.after)]
        return f"~ {self.place}: {' '.join(gained + lost)}"


def differences(old: JsonObject, new: JsonObject) -> list[Difference]:
    """Return the differences by section; a section that was added or removed is one difference."""
    before, after = concerns(old), concerns(new)
    return [
        Difference(section, place, was.get(place), is_now.get(place))
        for section in dict.fromkeys((*before, *after))
        for was, is_now in [_comparable(before.get(section), after.get(section))]
        for place in sorted({*was, *is_now})
        if was.get(place) != is_now.get(place)
    ]


def concerns(schema: JsonObject) -> dict[str, Places]:
    """Return each part of a protocol that the gateway uses, as the values that each place allows."""
    protocol = Protocol(schema)
    sections: dict[str, Places] = {"capabilities": _capabilities(schema)}
    for method, (answer, struct) in CALLS.items():
        if method in protocol.requests:
            sections[f"what {method} takes"] = _places(protocol, protocol.requests[method])
            sections[f"what we read of the answer to {method}"] = _read(protocol, protocol.reference(answer), struct)
    for method, struct in {**ours.NOTIFICATIONS, **ours.OLDER_NOTIFICATIONS}.items():
        if method in protocol.notifications:
            sections[f"what we read of {method}"] = _read(protocol, protocol.notifications[method], struct)
    for question in protocol.questions:
        answered = _places(protocol, protocol.reply(question)) if question in DECLINES else {}
        sections[f"how {question} is answered"] = answered
    return sections


def _comparable(was: Places | None, is_now: Places | None) -> tuple[Places, Places]:
    if was is not None and is_now is not None:
        return was, is_now
    whole = {"all of it": frozenset({"there"})}
    return ({}, whole) if was is None else (whole, {})


def _capabilities(schema: JsonObject) -> Places:
    capabilities = read_capabilities(schema)
    plain = {field.name: getattr(capabilities, field.name) for field in fields(capabilities)}
    told = {name: frozenset({str(value)}) for name, value in plain.items() if isinstance(value, bool | str)}
    return {**told, "dialects": frozenset(capabilities.dialects), "items": capabilities.item_types}


def _read(protocol: Protocol, schema: Json, struct: type[msgspec.Struct] | None) -> Places:
    """Return the places that the gateway reads."""
    wanted = set(_fields_of(inspect.type_info(struct), "")) if struct is not None else set[str]()
    return {place: words for place, words in _places(protocol, schema).items() if place in wanted}


def _fields_of(info: inspect.Type, place: str) -> Iterator[str]:
    """Yield the places of all fields that a type reads."""
    match info:
        case inspect.StructType():
            for field in info.fields:
                inner = f"{place}.{field.encode_name}".removeprefix(".")
                yield inner
                yield from _fields_of(field.type, inner)
        case inspect.UnionType():
            for option in info.types:
                yield from _fields_of(option, place)
        case inspect.ListType() | inspect.VarTupleType():
            yield from _fields_of(info.item_type, f"{place}[]")


def _places(protocol: Protocol, schema: Json, inside: str = "", level: int = 0) -> dict[str, Words]:
    """Return the fields of a schema's objects, and of the objects inside them."""
    found: dict[str, Words] = {}
    for shape in protocol.shapes(schema) if level < MOST_LEVELS else ():
        required, properties = shape.get("required"), shape.get("properties")
        for name, inner in (properties if isinstance(properties, dict) else {}).items():
            place = f"{inside}.{name}".removeprefix(".")
            must = {REQUIRED} if isinstance(required, list) and name in required else set[str]()
            found[place] = found.get(place, frozenset()) | must | set(_kinds(protocol, inner))
            listed = [(f"{place}[]", one.get("items")) for one in protocol.shapes(inner)]
            for deeper, within in [(place, inner), *listed]:
                for where, words in _places(protocol, within, deeper, level + 1).items():
                    found[where] = found.get(where, frozenset()) | words
    return found


def _kinds(protocol: Protocol, schema: Json) -> Iterator[str]:
    """Yield the types and constants that a schema allows, in a word each."""
    if not isinstance(schema, dict):
        yield "anything"
    for shape in protocol.shapes(schema):
        match shape:
            case {"enum": [*values]}:
                yield from (msgspec.json.encode(value).decode() for value in values)
            case {"type": [*types]}:
                yield from map(str, types)
            case {"type": str(name)}:
                yield name
            case _:
                yield "anything"


EXIT_CHANGED = 1
COLOURS = {"+": "green", "-": "red", "~": "yellow"}


def schema(*, codex_bin: Path | None, diff: tuple[Path, Path] | None) -> None:
    """Print the protocol as a Codex binary describes it, or what changed; exit status 1 if something did."""
    spec = user_spec(usable_settings(CODEX_BIN=codex_bin))
    if diff is None:
        click.echo(json.dumps(_examined(spec.binary, spec.cache_dir).schema(), indent=2))
        return
    old, new = (_examined(path.expanduser().absolute(), spec.cache_dir) for path in diff)
    changed = differences(old.schema(), new.schema())
    _tell(old, new, changed)
    if changed:
        raise Exit(EXIT_CHANGED)


def _examined(path: Path, cache: Path) -> Binary:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        try:
            return asyncio.run(examine(path, home=home, cwd=home, cache=cache))
        except (GatewayError, OSError) as error:
            refuse(str(error))


def _tell(old: Binary, new: Binary, changed: list[Difference]) -> None:
    click.secho(f"{old.version} -> {new.version}", bold=True)
    if not changed:
        click.echo("Nothing that concerns us has changed.")
    for section, lines in groupby(changed, key=lambda difference: difference.section):
        click.secho(f"\n{section}", bold=True)
        for difference in lines:
            line = str(difference)
            click.secho(f"  {line}", fg=COLOURS[line[0]])
