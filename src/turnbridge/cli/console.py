"""What commands print for a person: errors, warnings, and the banner of `serve`."""

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import click
import msgspec
from click.exceptions import Exit

from turnbridge import __version__
from turnbridge.codex.process.home import NO_PROXY_VARIABLES, hosts_without_proxy
from turnbridge.logs.output import may_colour, print_to
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import DEFAULT_PORT, Settings, load_settings
from turnbridge.turn.items import Json

# EX_CONFIG of sysexits.h: service managers can be told not to restart after it.
EXIT_CONFIG = 78
# EX_UNAVAILABLE: something that the program needs is missing.
EXIT_UNAVAILABLE = 69
# Whoever waits longer than this wants to know what for.
NOTICE_AFTER_S = 1.0


def refuse(message: str, *, status: int = EXIT_CONFIG) -> NoReturn:
    """Exit with an error message."""
    _print_error(message, "red")
    raise Exit(status)


def warn(message: str) -> None:
    _print_error(f"warning: {message}", "yellow")


def _print_error(message: str, colour: str) -> None:
    print_to(sys.stderr, f"{click.style(message, fg=colour) if may_colour(sys.stderr) else message}\n")


def print_json(value: Json) -> None:
    """Print a JSON value on a line, at once: a program may be waiting for it."""
    click.echo(msgspec.json.encode(value))
    sys.stdout.flush()


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Say on a terminal what takes longer than a second."""
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(NOTICE_AFTER_S, print_to, (sys.stderr, f"{text}\n"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def usable_settings(**chosen: object) -> Settings:
    """Return the settings, or exit with a line for each invalid one."""
    try:
        return load_settings(**chosen)
    except ValueError as error:
        refuse(str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownKey:
    """How the banner shows the API key, and how its examples use it."""

    text: str
    in_shell: str
    in_python: str


def shown_key(key: str, *, chosen: bool, file: Path) -> ShownKey:
    """Return how to show a key. A generated one is printed to a terminal only, since a service's log would keep it."""
    if chosen:
        return ShownKey(text="as configured", in_shell="YOUR_KEY", in_python='"YOUR_KEY"')
    if sys.stdout.isatty():
        return ShownKey(text=key, in_shell=key, in_python=f'"{key}"')
    quoted = shlex.quote(str(file))
    return ShownKey(text=f"in {file}", in_shell=f"$(cat {quoted})", in_python=f"open({str(file)!r}).read().strip()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """The banner of `serve`: one part at the start, and one once it is known whether Codex is logged in."""

    host: str
    port: int
    key: ShownKey
    key_file: Path | None
    """The file that holds a generated key."""
    demo: bool
    code: str | None = None
    """Opens the page without a key, once."""
    has_page: bool = True

    @property
    def page(self) -> str:
        """Return a line that tells where the page is."""
        if not self.has_page:
            return ""
        root = self.base_url.removesuffix("v1")
        # A fragment is sent to no server, and stands in no log.
        where = f"{root}  (asks for the key)" if self.code is None else f"{root}#code={self.code}"
        return f"  Page      {where}\n"

    @property
    def base_url(self) -> str:
        """Return the base URL for clients on this machine."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/v1"

    def opening(self) -> str:
        mode = "  (demo: a scripted model, no account)" if self.demo else ""
        return f"""
Turnbridge {__version__} listens on {self.base_url}{mode}

  Base URL  {self.base_url}
  API key   {self.key.text}
{self._where_the_key_is()}{self.page}
"""

    def _where_the_key_is(self) -> str:
        """Return the path of the key, unless it stands in place of the key."""
        if self.key_file is None or str(self.key_file) in self.key.text:
            return ""
        return f"  Key file  {self.key_file}\n"

    def first_steps(self, *, login_command: str | None) -> str:
        """Return examples, preceded by the login command if Codex is not logged in."""
        if login_command is None:
            # A port that an option has chosen is in no setting that another command reads.
            port = "" if self.port == DEFAULT_PORT else f"PORT={self.port} "
            return f"Try it:\n\n{self._examples()}\nThe settings of your client: {port}{own_command('connect')}\n"
        return f"""Codex is not logged in. Log in, in another terminal:

{login_command}

Without a browser, add --device; for an API key, add --api-key. No restart is needed. Then try it:

{self._examples()}"""

    def _examples(self) -> str:
        model = "gpt-5.5" if self.demo else "codex-5"
        return f"""{self._no_proxy()}curl {self.base_url}/chat/completions \
-H "Authorization: Bearer {self.key.in_shell}" -H "Content-Type: application/json" \\
  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'

from openai import OpenAI
client = OpenAI(base_url="{self.base_url}", api_key={self.key.in_python})
print(client.responses.create(model="{model}", input="Hello!").output_text)
"""

    def _no_proxy(self) -> str:
        """Return the command that excludes this host from the proxy, if one is set in the environment."""
        if not getproxies_environment().keys() & {"http", "all"} or proxy_bypass_environment(self.host):
            return ""
        hosts = shlex.quote(hosts_without_proxy(os.environ))
        return f"export {' '.join(f'{name}={hosts}' for name in NO_PROXY_VARIABLES)}\n"
