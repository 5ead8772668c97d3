"""`turnbridge codex`: which Codex is used, and how to use another one."""

import asyncio
from dataclasses import replace
from pathlib import Path

import click
import codex_cli_bin

from turnbridge.cli.console import EXIT_UNAVAILABLE, refuse, usable_settings
from turnbridge.cli.options import BUNDLED
from turnbridge.codex import versions
from turnbridge.codex.process.home import prepare_home
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError


def show_codex() -> None:
    """Show which Codex is used."""
    settings = usable_settings()
    click.echo(f"Codex     {settings.codex_bin or versions.binary(settings.data_dir)}")
    click.echo(f"Chosen    {_how_chosen(settings)}")
    if settings.codex_bin is None and versions.chosen(settings.data_dir) is None:
        click.echo(
            f"\nCodex {versions.RECOMMENDED} needs less memory: it unloads unused conversations after a minute instead "
            f"of half an hour. To use it: {own_command('codex', 'use', versions.RECOMMENDED)}"
        )


def use(*, version: str) -> None:
    """Install a version of Codex from PyPI or npm, check it, and use it from the next start of the gateway on."""
    settings = usable_settings()
    if settings.codex_bin is not None:
        refuse(f"CODEX_BIN is set to {settings.codex_bin}, which comes first. Unset it, then try again.")
    if version == BUNDLED:
        versions.choose(settings.data_dir, None)
        click.echo("From the next start on, the gateway uses the Codex that is installed with Turnbridge.")
        return
    try:
        click.echo(f"Installing Codex {version} (some hundred megabytes) ...", err=True)
        binary = versions.install(settings.data_dir, version)
        click.echo("Checking what it shows the model ...", err=True)
        fidelity = asyncio.run(_checked(settings, binary))
    except (GatewayError, OSError) as error:
        refuse(f"{error} Nothing was changed.", status=EXIT_UNAVAILABLE)
    versions.choose(settings.data_dir, versions.Chosen(version=version, binary=str(binary)))
    click.echo(f"From the next start on, the gateway uses Codex {version} (fidelity: {fidelity}).")
    click.echo(f"To go back: {own_command('codex', 'use', BUNDLED)}")


async def _checked(settings: Settings, binary: Path) -> str:
    """Return how faithfully a binary shows requests to the model; raises `BackendUnavailable` if it is unsafe."""
    # To show which one is used takes none of this.
    from turnbridge.codex import self_check  # noqa: PLC0415
    from turnbridge.codex.process.worker import fidelity_of, start_worker  # noqa: PLC0415
    from turnbridge.codex.setup import user_spec  # noqa: PLC0415

    spec = replace(user_spec(settings), binary=binary)
    prepare_home(spec.home, settings.codex_home)
    worker = await start_worker(spec)
    try:
        worker.extras = (await self_check.check(spec, worker)).findings
        return fidelity_of([worker])
    finally:
        await worker.process.stop()


def _how_chosen(settings: Settings) -> str:
    if settings.codex_bin is not None:
        return "by CODEX_BIN"
    found = versions.chosen(settings.data_dir)
    if found is not None:
        return f"by `turnbridge codex use {found.version}`"
    return "installed with Turnbridge" if codex_cli_bin.bundled_codex_path().exists() else "missing"
