"""`turnbridge service`: the gateway as a service of this user, by systemd or launchd."""

import getpass
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
from click.exceptions import Exit

from turnbridge.cli.console import EXIT_UNAVAILABLE, print_json, progress, refuse, usable_settings, warn
from turnbridge.cli.gateway_client import NotTurnbridge, configured_endpoint
from turnbridge.cli.units import LABEL, MARK, UNIT, launchd_agent, systemd_unit
from turnbridge.codex.process.home import WITHHELD_VARIABLES
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings, config_file, known_names
from turnbridge.turn.items import JsonObject

EXIT_FAILED = 1
# A service manager answers at once, except that it waits for the end of running turns.
MANAGER_TIMEOUT_S = 60.0
START_PATIENCE_S = 20.0
POLL_S = 0.2
# Variables that Codex and Python read: how to reach the provider.
NETWORK_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
LINGER = Path("/var/lib/systemd/linger")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """The service manager of this system, and the commands that it understands."""

    kind: Literal["systemd", "launchd"]
    file: Path
    start: tuple[tuple[str, ...], ...]
    restart: tuple[str, ...]
    stop: tuple[str, ...]
    forget: tuple[tuple[str, ...], ...]
    is_active: tuple[str, ...]
    log: str
    """The command that shows the log."""

    def is_written(self) -> bool:
        """Tell whether the file is there; refuse one that somebody else has written."""
        try:
            text = self.file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        if MARK not in text:
            refuse(f"{self.file} was not written by this command. Move it away first.", status=EXIT_FAILED)
        return True

    def is_running(self) -> bool:
        return _ran(self.is_active) is None


def _systemd(home: Path) -> Manager:
    call = ("systemctl", "--user")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return Manager(
        kind="systemd",
        file=config / "systemd" / "user" / UNIT,
        start=((*call, "daemon-reload"), (*call, "enable", "--now", UNIT)),
        restart=(*call, "restart", UNIT),
        stop=(*call, "disable", "--now", UNIT),
        forget=((*call, "daemon-reload"),),
        is_active=(*call, "is-active", "--quiet", UNIT),
        log=f"journalctl --user -u {UNIT} -f",
    )


def _launchd(home: Path) -> Manager:
    domain = f"gui/{os.getuid()}"
    file = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    log = home / "Library" / "Logs" / "turnbridge.log"
    return Manager(
        kind="launchd",
        file=file,
        start=(("launchctl", "bootstrap", domain, str(file)),),
        restart=("launchctl", "kickstart", "-k", f"{domain}/{LABEL}"),
        stop=("launchctl", "bootout", f"{domain}/{LABEL}"),
        forget=(),
        is_active=("launchctl", "print", f"{domain}/{LABEL}"),
        log=f"tail -f '{log}'",
    )


def _manager() -> Manager:
    try:
        home = Path.home()
    except RuntimeError:
        refuse("This user has no home directory, in which services are kept. Set HOME.")
    return _launchd(home) if sys.platform == "darwin" else _systemd(home)


def install(*, allow_root: bool, as_json: bool) -> None:
    """Write the service, start it, and start it again at each login."""
    if os.geteuid() == 0 and not allow_root:
        refuse(
            "Refusing to install a service for root: the gateway needs no privileges. Run this as the user whose Codex "
            "login it is to use, or see docs/how-to/service.md for a service of the whole system. "
            "--allow-root does it anyway."
        )
    settings = usable_settings()
    manager = _manager()
    text = _file_text(manager, settings)
    before = manager.file.read_text(encoding="utf-8") if manager.is_written() else None
    if before != text:
        _write(manager.file, text)
    problem = _start(manager, changed=before not in (None, text))
    answers = problem is None and _answers(settings)
    if as_json:
        told: JsonObject = {"file": str(manager.file), "changed": before != text, "problem": problem}
        print_json({**told, "answers": answers, "log": manager.log})
    else:
        click.echo(f"{'Wrote' if before != text else 'Already there:'} {manager.file}")
        _tell_start(manager, settings, problem, answers=answers)
    if problem is not None:
        raise Exit(EXIT_UNAVAILABLE)


def _file_text(manager: Manager, settings: Settings) -> str:
    command = (sys.executable, "-m", "turnbridge", "serve")
    environment = _environment(settings, os.environ)
    if manager.kind == "systemd":
        return systemd_unit(command, environment)
    return launchd_agent(command, environment, Path.home() / "Library" / "Logs" / "turnbridge.log")


def _environment(settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the service: a manager starts it with few of those that a shell has."""
    secrets = [name for name in WITHHELD_VARIABLES if given.get(name)]
    file = config_file(given)
    for name in secrets:
        warn(f"{name} is set here, but a service file is no place for it. Write it into {file}.")
    names = [*known_names(), *NETWORK_VARIABLES, *(name.lower() for name in NETWORK_VARIABLES)]
    kept = {name: given[name] for name in names if given.get(name) and name not in WITHHELD_VARIABLES}
    # Paths as they are now: another environment has other defaults, and another working directory.
    kept |= {"PROXY_DATA_DIR": str(settings.data_dir), "CODEX_HOME": str(settings.codex_home)}
    if settings.codex_bin is not None:
        kept["CODEX_BIN"] = str(settings.codex_bin)
    if file.is_file():
        kept["PROXY_CONFIG"] = str(file.absolute())
    return kept


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
    except OSError as error:
        refuse(f"Cannot write {file}: {error.strerror}.", status=EXIT_FAILED)


def _start(manager: Manager, *, changed: bool) -> str | None:
    """Start the service, or start it anew if its file has changed; return why that failed."""
    if manager.kind == "launchd" and manager.is_running():
        _ran(manager.stop)
    for command in manager.start:
        if (problem := _ran(command)) is not None:
            return problem
    return _ran(manager.restart) if changed else None


def _ran(command: tuple[str, ...]) -> str | None:
    """Run a command of the service manager; return why it failed."""
    try:
        with progress(f"Waiting for {command[0]} ..."):
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=MANAGER_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
    except FileNotFoundError:
        return f"there is no {command[0]} on this system"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    said = (done.stderr or done.stdout).strip().splitlines()
    return said[-1] if said else f"`{' '.join(command)}` ended with status {done.returncode}"


def _answers(settings: Settings) -> bool:
    """Wait until the gateway answers its probe, ready or not."""
    deadline = time.monotonic() + START_PATIENCE_S
    with progress("Waiting for the gateway ..."):
        while time.monotonic() < deadline:
            try:
                if configured_endpoint(settings).readiness() is not None:
                    return True
            except NotTurnbridge:
                return False
            time.sleep(POLL_S)
    return False


def _tell_start(manager: Manager, settings: Settings, problem: str | None, *, answers: bool) -> None:
    if problem is not None:
        commands = " && ".join(" ".join(command) for command in manager.start)
        warn(f"it was not started: {problem}. Start it in a session of this user: {commands}")
        return
    base_url = configured_endpoint(settings).base_url
    click.echo(f"The gateway answers on {base_url}." if answers else f"Nothing answers on {base_url} yet: see its log.")
    click.echo(f"Log:    {manager.log}")
    click.echo(f"Status: {own_command('service', 'status')}")
    user = getpass.getuser()
    if manager.kind == "systemd" and not (LINGER / user).exists():
        click.echo(f"It ends when you log out. To keep it running: loginctl enable-linger {user}")


def service_status(*, as_json: bool) -> None:
    """Show whether the service is installed and runs; the exit status is 1 if it does not run."""
    settings = usable_settings()
    manager = _manager()
    written = manager.is_written()
    problem = _ran(manager.is_active) if written else "it is not installed"
    try:
        readiness = configured_endpoint(settings).readiness()
    except NotTurnbridge as error:
        readiness, problem = None, error.message
    state = "absent" if readiness is None else readiness.status
    if as_json:
        file = str(manager.file) if written else None
        print_json({"file": file, "running": problem is None, "gateway": state, "log": manager.log})
    else:
        click.echo(f"Service  {manager.file if written else 'not installed'}")
        click.echo(f"State    {'running' if problem is None else f'not running: {problem}'}")
        click.echo(f"Gateway  {state} on {configured_endpoint(settings).base_url}")
        click.echo(f"Log      {manager.log}" if written else f"Install  {own_command('service', 'install')}")
    if problem is not None:
        raise Exit(EXIT_FAILED)


def remove(*, as_json: bool) -> None:
    """Stop the service and delete its file; data, keys and the login stay."""
    manager = _manager()
    written = manager.is_written()
    problem = None
    if written:
        problem = _ran(manager.stop)
        try:
            manager.file.unlink()
        except OSError as error:
            refuse(f"Cannot delete {manager.file}: {error.strerror}.", status=EXIT_FAILED)
        for command in manager.forget:
            _ran(command)
    if as_json:
        print_json({"file": str(manager.file), "removed": written, "problem": problem})
    elif not written:
        click.echo("The service is not installed.")
    else:
        click.echo(f"Deleted {manager.file}. Data, keys and the login stay.")
        if problem is not None:
            warn(f"it was not stopped: {problem}. It may still run until you log out.")
