"""`turnbridge connect`: the settings of a client, shown, written, taken back and tried."""

import http.client
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from turnbridge.cli.api_key import FOLDER, HIDDEN_KEY, KEY_FILE, known_key, stored_key
from turnbridge.cli.clients.files import Change, NotWritten, SettingsFile
from turnbridge.cli.clients.table import BY_NAME, CLIENTS
from turnbridge.cli.clients.trial import Arrival, try_call
from turnbridge.cli.clients.values import Client, OfferedModel, Places, Values
from turnbridge.cli.console import EXIT_UNAVAILABLE, print_json, progress, refuse, usable_settings, warn
from turnbridge.cli.gateway_client import Endpoint, NotTurnbridge, configured_endpoint
from turnbridge.codex.process.home import write_private
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError, InvalidApiKey
from turnbridge.turn.items import JsonObject, replace

EXIT_FAILED = 1
# The default model, which every gateway serves, and its sizes where none runs that could be asked.
DEFAULT = OfferedModel(name="codex-5", window=272_000, output=128_000)
PROSE_COLUMNS = 80
# A gateway accepts a key that was just made within a second; on a busy machine, a little later.
NEW_KEY_S, RETRY_S = 2.0, 0.3


def connect(
    *,
    client: str | None,
    model: str | None,
    key_file: Path | None,
    own_key: bool,
    write: bool,
    test: bool,
    undo: bool,
    as_json: bool,
) -> None:
    """Show or write the settings of a client, and try them; without a client, list them."""
    others = bool(write or test or model or key_file or own_key)
    if undo and others:
        raise click.UsageError("--undo goes alone.")
    if own_key and key_file:
        raise click.UsageError("Choose one of --own-key and --key-file.")
    settings = usable_settings()
    if client is None:
        if undo or others:
            raise click.UsageError(f"Name a client: {', '.join(BY_NAME)}.")
        _list_clients(settings, as_json=as_json)
        return
    chosen = _chosen(client)
    if own_key:
        # With the store, which nothing else here needs.
        from turnbridge.cli.own_key import own_key_file  # noqa: PLC0415

        key_file = own_key_file(settings, settings.data_dir / FOLDER, chosen.name)
    settings = settings if key_file is None else replace(settings, api_key=_key_in(key_file))
    if undo:
        _undo(chosen, settings, as_json=as_json)
    else:
        _connect(chosen, settings, model, key_file, write=write, test=test, as_json=as_json)


def _connect(
    chosen: Client,
    settings: Settings,
    model: str | None,
    key_file: Path | None,
    *,
    write: bool,
    test: bool,
    as_json: bool,
) -> None:
    models = _served_models(configured_endpoint(settings), NEW_KEY_S if key_file is not None else 0)
    values = _values(chosen, settings, models or (), model, key_file)
    shown = _as_json(chosen, values, settings)
    if write:
        change = _write(chosen, settings, values)
        shown |= {"written": change.changed, "backup": None if change.backup is None else str(change.backup)}
        if not as_json:
            _tell_change(chosen, change)
    if test:
        arrival = _try(chosen, settings, values, serving=models is not None)
        shown["test"] = arrival.as_json()
        if not as_json:
            click.echo(f"{chosen.title}: {arrival.told()}")
    if as_json:
        print_json(shown)
    elif not (write or test):
        _print_settings(chosen, values, settings, serving=models is not None)


def _chosen(name: str) -> Client:
    """Return a client by its name, or by the beginning of it; hyphens and case do not count."""
    wanted = _plain(name)
    exact = [one for one in CLIENTS if wanted in (_plain(one.name), _plain(one.title))]
    found = exact or [one for one in CLIENTS if wanted and _plain(one.name).startswith(wanted)]
    if len(found) != 1:
        raise click.UsageError(f"There is no client `{name}`. Choose one of: {', '.join(BY_NAME)}.")
    return found[0]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _list_clients(settings: Settings, *, as_json: bool) -> None:
    rows: list[tuple[Client, bool]] = [
        (one, one.written is not None and _file(one, settings).is_written) for one in CLIENTS
    ]
    if as_json:
        print_json(
            [
                {"client": one.name, "title": one.title, "writable": one.written is not None, "written": written}
                for one, written in rows
            ]
        )
        return
    width = max(len(one.name) for one in CLIENTS)
    for one, written in rows:
        state = "written" if written else ("can be written" if one.written is not None else "")
        click.echo(f"  {one.name:{width}}  {one.title:17} {state}".rstrip())
    click.echo(f"\nThe settings of one: {own_command('connect', 'claude-code')}")
    click.echo("Add --write to write them, --test to send a call, --undo to take them back.")


def _places(settings: Settings) -> Places:
    """Return where clients keep their settings."""
    try:
        home = Path.home()
    except RuntimeError:
        refuse("This user has no home directory, in which clients keep their settings. Set HOME.")
    return places_in(home, settings.codex_home, os.environ)


def places_in(home: Path, codex_home: Path, environment: Mapping[str, str]) -> Places:
    """Return the directories of a home; some clients let a variable choose another one."""
    return Places(
        home=home,
        config=Path(environment.get("XDG_CONFIG_HOME") or home / ".config"),
        codex_home=codex_home,
        claude_home=Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude"),
    )


def _file(client: Client, settings: Settings) -> SettingsFile:
    assert client.written is not None
    return SettingsFile(
        settings=client.written, places=_places(settings), kept=settings.data_dir / FOLDER / client.name
    )


def _key_in(file: Path) -> str:
    """Return the key that a file holds, as `keys create` prints it."""
    try:
        words = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"Cannot read {file}: {getattr(error, 'strerror', None) or 'it is not text'}.")
    if len(words) != 1:
        refuse(f"{file} should hold one key and nothing else: {own_command('keys', 'create', 'NAME')} > {file}")
    return words[0]


def _copied_key_file(settings: Settings) -> Path:
    """Return the file for a key that is a setting: it may be in the environment only, and clients read files."""
    return settings.data_dir / FOLDER / KEY_FILE


def _values(
    client: Client, settings: Settings, models: Sequence[JsonObject], model: str | None, given: Path | None
) -> Values:
    """Return what is to be set; the key is in the `given` file, or else one of the settings."""
    key_file = given.absolute() if given is not None else settings.data_dir / KEY_FILE
    try:
        key = known_key(settings) or stored_key(settings.data_dir)
        if settings.api_key is not None and given is None:
            key_file = _copied_key_file(settings)
    except OSError as error:
        refuse(f"Cannot use {error.filename or key_file}: {error.strerror}.", status=EXIT_UNAVAILABLE)
    chosen, native = offered_model(models, model)
    values = Values(
        base_url=configured_endpoint(settings).base_url,
        key=key,
        key_file=key_file,
        model=chosen,
        native_model=native,
    )
    if key_file == _copied_key_file(settings) and str(key_file) in client.settings.text(values):
        key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(key_file, f"{key}\n")
    return values


def offered_model(models: Sequence[JsonObject], model: str | None) -> tuple[OfferedModel, str]:
    """Return the model to set, and its name in Codex's catalogue; without a gateway there is no list."""
    by_name = {str(entry.get("id")): entry for entry in models}
    name = model or DEFAULT.name
    # A name may end in an effort, as `gpt-5.5-high`, which is not listed.
    listed = next((one for one in by_name if name == one), None)
    listed = listed or next((one for one in by_name if name.startswith(f"{one}-")), None)
    if listed is None and by_name:
        refuse(f"The gateway does not serve a model `{name}`. See: {own_command('models')}", status=EXIT_FAILED)
    entry = by_name.get(listed or "", {})
    window, output = entry.get("context_window"), entry.get("max_output_tokens")
    offered = OfferedModel(
        name=name,
        window=window if isinstance(window, int) else DEFAULT.window,
        output=output if isinstance(output, int) else DEFAULT.output,
    )
    # The default has the description of the model that it stands for.
    told = entry.get("description")
    same = (one for one, other in by_name.items() if one != name and other.get("description") == told)
    return offered, model or next(same, name)


def _served_models(endpoint: Endpoint, patience_s: float) -> list[JsonObject] | None:
    """Return what the running gateway serves, which may not know a new key yet; None if none runs."""
    end = time.monotonic() + patience_s
    try:
        if endpoint.readiness() is None:
            return None
        if endpoint.key is None:
            warn(f"a gateway runs on {endpoint.base_url}, but this user does not have its key.")
            return []
        with progress("Asking the gateway for its models ..."):
            while True:
                try:
                    listed = endpoint.get("/v1/models")
                    break
                except InvalidApiKey:
                    if time.monotonic() > end:
                        raise
                    time.sleep(RETRY_S)
    except NotTurnbridge as error:
        refuse(f"{error.message} Start the gateway on another one: {own_command('serve', '--port', '11436')}")
    except GatewayError as error:
        warn(f"the gateway does not list its models: {error.message}")
        return []
    entries = listed.get("data") if isinstance(listed, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _hidden(text: str, values: Values) -> str:
    """Return settings without the key, unless a terminal shows them."""
    return text if sys.stdout.isatty() else text.replace(values.key, HIDDEN_KEY)


def _print_settings(client: Client, values: Values, settings: Settings, *, serving: bool) -> None:
    text = _hidden(client.settings.text(values), values)
    path = None if client.written is None else _file(client, settings).path
    click.echo(f"{client.title}{'' if path is None else f', in {path}'}:\n\n{text}\n")
    if HIDDEN_KEY in text:
        where = "PROXY_API_KEY" if values.key_file == _copied_key_file(settings) else str(values.key_file)
        click.echo(f"{HIDDEN_KEY} stands for the key, which is in {where}.")
    for line in filter(None, (client.then, *client.notes)):
        click.echo(click.wrap_text(line, width=PROSE_COLUMNS))
    if path is not None:
        click.echo(f"Write it: {own_command('connect', client.name, '--write')}")
    click.echo(f"Key of its own, with its own usage and end: {own_command('connect', client.name, '--own-key')}")
    if serving:
        click.echo(f"Try it:   {own_command('connect', client.name, '--test')}")
    else:
        click.echo(f"No gateway runs on {values.base_url}. Start it: {own_command('serve')}")


def _write(client: Client, settings: Settings, values: Values) -> Change:
    if client.written is None:
        refuse(f"The settings of {client.title} cannot be written: {client.then or client.where}", status=EXIT_FAILED)
    try:
        return _file(client, settings).write(values)
    except NotWritten as error:
        refuse(str(error), status=EXIT_FAILED)
    except OSError as error:
        refuse(f"Cannot write {error.filename}: {error.strerror}.", status=EXIT_FAILED)


def _tell_change(client: Client, change: Change) -> None:
    if not change.changed:
        click.echo(f"{change.file} has these settings already.")
        return
    click.echo(f"Wrote {change.file}.")
    if change.backup is not None:
        click.echo(f"Backup: {change.backup}")
    if change.made_private:
        click.echo("It holds the key, so now only you can read it.")
    click.echo(f"Undo: {own_command('connect', client.name, '--undo')}")
    if client.then:
        click.echo(client.then)
    for name in client.overriding:
        if os.environ.get(name):
            warn(f"{name} is set in this environment, and takes precedence. Unset it.")


def _undo(client: Client, settings: Settings, *, as_json: bool) -> None:
    change = None
    if client.written is not None:
        try:
            change = _file(client, settings).undo()
        except NotWritten as error:
            refuse(str(error), status=EXIT_FAILED)
        except OSError as error:
            refuse(f"Cannot restore {error.filename}: {error.strerror}.", status=EXIT_FAILED)
    if as_json:
        file = None if change is None else str(change.file)
        print_json({"client": client.name, "undone": change is not None, "file": file})
    elif change is None:
        click.echo(f"Nothing was written for {client.title}.")
    elif not change.changed:
        click.echo(f"{change.file} is gone already.")
    elif change.exact:
        click.echo(f"{change.file} is as it was before.")
    else:
        click.echo(f"Took the settings out of {change.file}. It was changed since, and the changes stay.")
    if not as_json and (settings.data_dir / FOLDER / f"{client.name}.key").is_file():
        click.echo(f"Its key goes on working, until: {own_command('keys', 'revoke', client.name)}")


def _try(client: Client, settings: Settings, values: Values, *, serving: bool) -> Arrival:
    endpoint = configured_endpoint(settings)
    if not serving:
        refuse(
            f"No gateway runs on {endpoint.base_url}. Start it: {own_command('serve')}",
            status=EXIT_UNAVAILABLE,
        )
    try:
        with progress("Waiting for the model ..."):
            return try_call(endpoint, client, values.model.name)
    except GatewayError as error:
        refuse(f"The test call failed: {error.message}", status=EXIT_FAILED)
    except (OSError, http.client.HTTPException) as error:
        refuse(f"The gateway did not answer: {error or type(error).__name__}.", status=EXIT_FAILED)


def _as_json(client: Client, values: Values, settings: Settings) -> JsonObject:
    return {
        "client": client.name,
        "title": client.title,
        "base_url": values.base_url,
        "model": values.model.name,
        "api_key_file": None if values.key_file == _copied_key_file(settings) else str(values.key_file),
        "file": None if client.written is None else str(_file(client, settings).path),
        "settings": _hidden(client.settings.text(values), values),
        "then": client.then,
        "notes": list(client.notes),
        "written": None,
        "backup": None,
        "test": None,
    }
