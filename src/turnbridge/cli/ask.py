"""`turnbridge ask` and `turnbridge models`: requests to the running gateway, or to one that ends with the command."""

import contextlib
import http.client
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import click

from turnbridge.cli.console import EXIT_UNAVAILABLE, print_json, progress, refuse, usable_settings
from turnbridge.cli.gateway_client import Endpoint, NotTurnbridge, configured_endpoint, decoded, error_message
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import Json, JsonObject

T = TypeVar("T")

EXIT_FAILED = 1


def ask(*, words: tuple[str, ...], model: str, demo: bool, as_json: bool) -> None:
    """Ask the model, and print its answer as it comes."""
    question = "\n\n".join(filter(None, (" ".join(words), _piped())))
    if not question:
        raise click.UsageError("There is no question: give it as arguments, or pipe it into the command.")
    body: JsonObject = {"model": model, "input": question, "stream": not as_json, "store": False}

    def send(endpoint: Endpoint) -> None:
        with contextlib.ExitStack() as stack:
            with progress("Waiting for the model ..."):
                response = stack.enter_context(endpoint.request("POST", "/v1/responses", body))
            if response.status != http.client.OK:
                raise GatewayError(error_message(response.status, response.read()))
            if as_json:
                _print_whole(response.read())
            else:
                _print_stream(response)

    _through_gateway(usable_settings(), send, demo=demo)


def models(*, demo: bool, as_json: bool) -> None:
    """List the models that clients can name."""
    settings = usable_settings()
    with progress("Asking for the models ..."):
        listed = _through_gateway(settings, lambda endpoint: endpoint.get("/v1/models"), demo=demo)
    if as_json:
        print_json(listed)
        return
    rows = list(_model_rows(listed))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _through_gateway(settings: Settings, send: Callable[[Endpoint], T], *, demo: bool) -> T:
    """Return the result of a request; exit if it fails."""
    try:
        return through_gateway(settings, send, demo=demo)
    except GatewayError as error:
        refuse(error.message, status=EXIT_FAILED)
    except BrokenPipeError:
        raise  # Nobody reads the answer any more, as in `ask ... | head`: click ends the command without a word.
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.filename is not None:
            refuse(f"Cannot use {error.filename}: {error.strerror}.", status=EXIT_UNAVAILABLE)
        refuse(f"The gateway did not answer: {error or type(error).__name__}.", status=EXIT_FAILED)


def through_gateway(settings: Settings, send: Callable[[Endpoint], T], *, demo: bool = False) -> T:
    """Return the result of a request to the running gateway, or to a short-lived one."""
    if not demo and _is_served(settings):
        return send(configured_endpoint(settings))
    # The server takes half a second to import, and is not needed while another one runs.
    from turnbridge.cli.own_gateway import with_own_gateway  # noqa: PLC0415

    return with_own_gateway(settings, send, demo=demo)


def _is_served(settings: Settings) -> bool:
    try:
        return configured_endpoint(settings).readiness() is not None
    except NotTurnbridge:
        return False


def _piped() -> str:
    return "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read().strip()


def _print_stream(response: http.client.HTTPResponse) -> None:
    """Print the text of a stream as it comes; raises a `GatewayError` if it fails, or breaks off."""
    said = False
    try:
        for event in _events(response):
            match event:
                case {"type": "response.output_text.delta" | "response.refusal.delta", "delta": str(text)}:
                    said = True
                    click.echo(text, nl=False)
                    sys.stdout.flush()
                case {"type": "response.completed"}:
                    return
                case {"type": "response.incomplete"}:
                    raise GatewayError("The answer is incomplete.")
                case {"type": "response.failed", "response": {"error": {"message": str(message)}}}:
                    raise GatewayError(message)
                case {"type": "error", "message": str(message)}:
                    raise GatewayError(message)
        raise GatewayError("The connection to the gateway broke off.")
    finally:
        if said:
            click.echo()


def _events(response: http.client.HTTPResponse) -> Iterator[Json]:
    """Yield the events of a stream; the gateway writes the data of each on one line."""
    for line in response:
        if line.startswith(b"data: {"):
            yield decoded(line.removeprefix(b"data: "))


def _print_whole(data: bytes) -> None:
    answer = decoded(data)
    print_json(answer)
    match answer:
        case {"error": {"message": str(message)}}:
            raise GatewayError(message)


def _model_rows(listed: Json) -> Iterator[tuple[str, str, str, str]]:
    yield "MODEL", "CONTEXT", "EFFORTS", "DESCRIPTION"
    entries = listed.get("data") if isinstance(listed, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            efforts = entry.get("reasoning_efforts")
            yield (
                str(entry.get("id")),
                str(entry.get("context_window") or "-"),
                ",".join(map(str, efforts)) if isinstance(efforts, list) and efforts else "-",
                str(entry.get("description") or ""),
            )
