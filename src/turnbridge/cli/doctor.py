"""`turnbridge doctor`: checks everything that a gateway needs, and says how to correct what is wrong."""

import http.client
import os
import time
from collections.abc import Callable, Iterator

import click
from click.exceptions import Exit

from turnbridge.cli.ask import through_gateway
from turnbridge.cli.codex_checks import CodexChecks
from turnbridge.cli.console import print_json, progress
from turnbridge.cli.finding import COLOURS, Finding, show
from turnbridge.cli.gateway_client import Endpoint, decoded, error_message
from turnbridge.cli.host_checks import (
    check_disk,
    check_key,
    check_packages,
    check_permissions,
    check_port,
    check_proxy,
    check_shared_login,
    check_store,
)
from turnbridge.settings.fields import Settings, load_settings, unknown_settings
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import Json, JsonObject

EXIT_WRONG = 1
QUESTION = "Answer with the single word: ready"
SHOWN_CHARACTERS = 60


def doctor(*, turn: bool, model: str, as_json: bool) -> None:
    """Check everything that a gateway needs, and say how to correct what is wrong."""
    found: list[Finding] = []
    for finding in _findings(turn=turn, model=model):
        found.append(finding)
        if not as_json:
            show(finding)
    count = {state: sum(finding.state == state for finding in found) for state in COLOURS}
    if as_json:
        checks: list[Json] = [finding._asdict() for finding in found]
        print_json({"ok": count["wrong"] == 0, "checks": checks})
    else:
        warnings = "1 warning" if count["warning"] == 1 else f"{count['warning']} warnings"
        click.echo(f"\n{count['ok']} ok, {warnings}, {count['wrong']} wrong")
    if count["wrong"]:
        raise Exit(EXIT_WRONG)


def _findings(*, turn: bool, model: str) -> Iterator[Finding]:
    """Run the checks one after another."""
    try:
        settings = load_settings()
        warnings = unknown_settings(os.environ)
    except ValueError as error:
        for line in str(error).splitlines():
            yield Finding("settings", "wrong", line, "Correct it; the other checks need valid settings.")
        return
    for warning in warnings:
        yield Finding("settings", "warning", warning, "Remove or rename it; docs/configuration.md lists all settings.")
    if not warnings:
        yield Finding("settings", "ok", "valid")
    codex = CodexChecks(settings=settings)
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "home": codex.check_home,
        "binary": codex.check_binary,
        "login": codex.check_login,
        "login file": lambda: check_shared_login(settings),
        "proxy": lambda: check_proxy(os.environ),
        "provider": codex.check_provider,
        "clock": codex.check_clock,
        "port": lambda: check_port(settings),
        "key": lambda: check_key(settings),
        "permissions": lambda: check_permissions(settings),
        "disk": lambda: check_disk(settings),
        "store": lambda: check_store(settings),
        "packages": check_packages,
    }
    for name, check in checks.items():
        try:
            with progress(f"Checking {name} ..."):
                found = list(check())
            yield from found
        except OSError as error:
            yield Finding(name, "wrong", str(error), "Give this user access to it, or choose other directories.")
    if turn:
        with progress("Asking the model ..."):
            finding = _check_turn(settings, model)
        yield finding


def _check_turn(settings: Settings, model: str) -> Finding:
    """Run a whole turn, as a client would."""
    body: JsonObject = {"model": model, "input": QUESTION, "store": False}

    def send(endpoint: Endpoint) -> str:
        with endpoint.request("POST", "/v1/responses", body) as response:
            data = response.read()
        if response.status != http.client.OK:
            raise GatewayError(error_message(response.status, data))
        return _text(decoded(data))

    began = time.perf_counter()
    try:
        text = through_gateway(settings, send)
    except (GatewayError, OSError, http.client.HTTPException) as error:
        return Finding("turn", "wrong", str(error), "See the checks above, and the log of `serve`.")
    took_s = time.perf_counter() - began
    return Finding("turn", "ok", f"{model} answered in {took_s:.1f} s: {text[:SHOWN_CHARACTERS]}")


def _text(answer: Json) -> str:
    """Return the text of a response; raises a `GatewayError` if there is none."""
    match answer:
        case {"error": {"message": str(message)}}:
            raise GatewayError(message)
        case {"output": list(items)}:
            contents = [item.get("content") for item in items if isinstance(item, dict)]
            parts = [part for content in contents if isinstance(content, list) for part in content]
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            if text := " ".join(text for text in texts if isinstance(text, str)):
                return text
    raise GatewayError("The response came without a text.")
