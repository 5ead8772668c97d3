"""`turnbridge status`, which `turnbridge` alone runs too: the gateway, the account, and what to do next."""

import contextlib
from collections.abc import Sequence

import click

from turnbridge import __version__
from turnbridge.cli.account import account_of
from turnbridge.cli.console import print_json, usable_settings
from turnbridge.cli.gateway_client import NotTurnbridge, configured_endpoint
from turnbridge.cli.plan import described_account, described_limits
from turnbridge.codex.account import Identity, PlanLimit, identity_as_json, limits_as_json
from turnbridge.settings.accounts import named_accounts
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import JsonObject

READY, NOT_READY, ABSENT, OTHER = "ready", "not_ready", "absent", "other"


def status(*, as_json: bool) -> None:
    """Show the gateway, the account, and what to do next: as `turnbridge` without a command."""
    settings = usable_settings()
    endpoint = configured_endpoint(settings)
    state, reason = _gateway_state(settings)
    identity: Identity | None = None
    limits: tuple[PlanLimit, ...] = ()
    problem = None
    try:
        identity, limits, _ = account_of(settings)
    except GatewayError as error:
        problem = error.message
    except OSError as error:
        problem = f"cannot use {error.filename or settings.data_dir}: {error.strerror}"
    steps, others = _next_steps(state, identity), _other_accounts(settings)
    if as_json:
        gateway: JsonObject = {"url": endpoint.base_url, "state": state, "reason": reason}
        account = None if identity is None else {**identity_as_json(identity), "limits": limits_as_json(limits)}
        print_json(
            {
                "version": __version__,
                "gateway": gateway,
                "account": account,
                "accounts": {name: identity_as_json(other) for name, other in others.items()},
                "problem": problem,
                "next": [{"command": command, "purpose": purpose} for purpose, command in steps],
            }
        )
        return
    if state == NOT_READY and identity is not None and not identity.usable:
        reason = "it waits for a login"
    who = f"unknown: {problem}" if identity is None else described_account(identity)
    gateway_line = _described_gateway(state, reason, endpoint.base_url)
    click.echo(f"Turnbridge {__version__}\n\n  Gateway  {gateway_line}\n  Account  {who}")
    for line in described_limits(limits):
        click.echo(f"         {line}")
    for name, other in others.items():
        click.echo(f"           {name}: {described_account(other)}")
    click.echo("\nNext:\n")
    for number, (purpose, command) in enumerate(steps, 1):
        click.echo(f"  {number}. {purpose}:\n     {command}")


def _described_gateway(state: str, reason: str, url: str) -> str:
    sentences = {
        READY: f"ready on {url}",
        NOT_READY: f"running on {url}, but not ready: {reason}",
        ABSENT: f"not running on {url}",
        OTHER: reason,
    }
    return sentences[state]


def _other_accounts(settings: Settings) -> dict[str, Identity]:
    """Return who is logged in to each named account; one whose Codex cannot be asked is left to `doctor`."""
    found: dict[str, Identity] = {}
    for name in named_accounts(settings):
        with contextlib.suppress(GatewayError, OSError):
            found[name] = account_of(settings, name)[0]
    return found


def _gateway_state(settings: Settings) -> tuple[str, str]:
    """Return whether a gateway serves on the configured port, and the reason if it does not."""
    try:
        readiness = configured_endpoint(settings).readiness()
    except NotTurnbridge as error:
        return OTHER, f"{error.message} Choose another port: PORT, or `serve --port`."
    if readiness is None:
        return ABSENT, ""
    return (READY, "") if readiness.status == READY else (NOT_READY, readiness.reason)


def _next_steps(state: str, identity: Identity | None) -> Sequence[tuple[str, str]]:
    """Return three things to do, each with its command."""
    log_in = ("Log in", own_command("login"))
    serve = ("Start the gateway", own_command("serve"))
    demo = ("Try it without an account", own_command("serve", "--demo"))
    ask = ("Ask the model", own_command("ask", "Hello!"))
    doctor = ("See what is wrong", own_command("doctor"))
    models = ("See the models that clients can name", own_command("models"))
    connect = ("Connect a client", own_command("connect"))
    logged_in = identity is not None and identity.usable
    match state:
        case "ready" if logged_in or identity is None:
            return ask, models, connect
        case "ready":  # Without a login: the demo.
            return ask, log_in, connect
        case "not_ready":
            return (doctor, ask, connect) if logged_in else (log_in, doctor, connect)
        case _ if identity is None:
            return doctor, demo, log_in
        case _:
            return (serve, ask, doctor) if logged_in else (log_in, serve, demo)
