"""`turnbridge trace`: one request as a person reads it."""

import shutil
from pathlib import Path

import click

from turnbridge.bootstrap import trace_path
from turnbridge.commands.refusal import refuse, usable_settings
from turnbridge.trace import timeline

# How wide a timeline is where there is no terminal to tell it.
PIPE_COLUMNS = 160
COLOURS = {
    "http_ingress": "cyan",
    "backend_submission": "yellow",
    "backend_io": "magenta",
    "client_egress": "green",
}


@click.command()
@click.argument("request_id", help="The `x-request-id` of its answer.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="The file of the trace (PROTO_LOG_PATH).")
@click.option("--full", is_flag=True, help="Every delta by itself, and payloads as a whole.")
def trace(*, request_id: str, file: Path | None, full: bool) -> None:
    """Show one request as a timeline across both wires, from the trace that PROXY_LOG_PROTO=true writes."""
    path = file or trace_path(usable_settings())
    lines = timeline.lines_of(path, request_id)
    if not lines:
        refuse(f"There is no request {request_id} in {path}. {timeline.advice(path)}", status=1)
    click.secho("\n".join(timeline.heading(lines)) + "\n", bold=True)
    width = shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns
    for row, text in timeline.told(timeline.rows(lines, full=full), width=width, full=full):
        click.secho(text, fg="red" if row.failed else COLOURS[row.first.phase])
