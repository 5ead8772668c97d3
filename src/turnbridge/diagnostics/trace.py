"""`turnbridge trace`: shows one request of the wire trace, or lists the latest."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from turnbridge.cli.console import print_json, refuse, usable_settings
from turnbridge.diagnostics.recent import TracedRequest, recent_requests
from turnbridge.diagnostics.timeline import advice, cropped, harmless, heading, lines_of, rows, told
from turnbridge.diagnostics.view import view
from turnbridge.settings.command_line import own_command

# How wide a timeline is where there is no terminal to tell it.
PIPE_COLUMNS = 160
COLOURS = {
    "http_ingress": "cyan",
    "backend_submission": "yellow",
    "backend_io": "magenta",
    "client_egress": "green",
}


def trace(
    *, request_id: str | None, last: bool, listed: bool, file: Path | None, full: bool, as_json: bool, as_view: bool
) -> None:
    """Show one request as a timeline across both wires, from the trace that PROXY_LOG_PROTO=true writes."""
    if sum((request_id is not None, last, listed)) != 1:
        raise click.UsageError("Give the id of a request, --last or --list.")
    path = file or usable_settings().trace_path
    try:
        if request_id is None:
            recent = recent_requests(path)
            if not recent:
                refuse(f"There is no request in {path}. {advice(path)}", status=1)
            if listed:
                _show_list(recent, as_json=as_json)
                return
            request_id = next((one for one in reversed(recent) if one.asks_model), recent[-1]).request_id
        lines = lines_of(path, request_id)
    except OSError as error:
        refuse(f"Cannot read {error.filename or path}: {error.strerror}.", status=1)
    if not lines:
        refuse(f"There is no request {request_id} in {path}. {advice(path)}", status=1)
    if as_view:
        print_json(view(lines))
        return
    if as_json:
        for line in lines:
            click.echo(msgspec.json.encode(line))
        return
    click.secho("\n".join(heading(lines)) + "\n", bold=True, color=_colour())
    width = shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns
    for row, text in told(rows(lines, full=full), width=width, full=full):
        click.secho(text, fg="red" if row.failed else COLOURS[row.first.phase], color=_colour())


def _colour() -> bool | None:
    """Return whether to colour; None leaves it to click, which looks whether this is a terminal."""
    return False if os.environ.get("NO_COLOR") else None


def _show_list(recent: Sequence[TracedRequest], *, as_json: bool) -> None:
    if as_json:
        for one in recent:
            click.echo(msgspec.json.encode(one))
        return
    width = max(len(one.request_id) for one in recent)
    columns = shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns
    for one in recent:
        first = "" if one.first_byte_ms is None else f"{one.first_byte_ms:.0f} ms"
        shown = f"{one.time[11:19]} {one.status or '---'} {first:>8} {one.request_id:{width}} {one.method}"
        click.echo(cropped(shown, columns) if len(shown) > columns else harmless(shown))
    click.echo(f"\nOne of them as a timeline: {own_command('trace', 'REQUEST_ID')}")
