"""What `serve` prints for a person: where it listens, the key, and what to do first."""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import structlog

from turnbridge import __version__
from turnbridge.codex.process.home import NO_PROXY_VARIABLES, hosts_without_proxy
from turnbridge.logs.output import print_to

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownKey:
    """The key, as it is told, and as it stands in the examples."""

    told: str
    in_shell: str
    in_python: str


def shown_key(key: str, *, chosen: bool, file: Path) -> ShownKey:
    """Return a generated key for a terminal only: what else takes our output keeps it, as a service's log does."""
    if chosen:
        return ShownKey(told="the one that you chose", in_shell="YOUR_KEY", in_python='"YOUR_KEY"')
    if sys.stdout.isatty():
        return ShownKey(told=key, in_shell=key, in_python=f'"{key}"')
    quoted = shlex.quote(str(file))
    return ShownKey(told=f"in {file}", in_shell=f"$(cat {quoted})", in_python=f"open({str(file)!r}).read().strip()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The two parts of the greeting: one for the start, and one for when it is known whether Codex is logged in."""

    host: str
    port: int
    key: ShownKey
    demo: bool

    @property
    def base_url(self) -> str:
        """Return the base URL for clients on this machine."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/v1"

    def opening(self) -> str:
        """Return where the gateway listens, and the key."""
        mode = "  (demo: a scripted model, no account)" if self.demo else ""
        return f"""
Turnbridge {__version__} listens on {self.base_url}{mode}

  Base URL  {self.base_url}
  API key   {self.key.told}

"""

    def first_steps(self, *, login_command: str | None) -> str:
        """Return what to try; before that, how to log in, if nobody is."""
        if login_command is None:
            return f"Try it:\n\n{self._examples()}"
        return f"""Nobody is logged in to Codex yet. Log in, in another terminal:

{login_command}

On a machine without a browser add --device-auth; for an API key add --with-api-key. Then try it, without a restart:

{self._examples()}"""

    def _examples(self) -> str:
        model = "gpt-5.5" if self.demo else "codex-5"
        return f"""{self._unproxied()}curl {self.base_url}/chat/completions \
-H "Authorization: Bearer {self.key.in_shell}" -H "Content-Type: application/json" \\
  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'

from openai import OpenAI
client = OpenAI(base_url="{self.base_url}", api_key={self.key.in_python})
print(client.responses.create(model="{model}", input="Hello!").output_text)
"""

    def _unproxied(self) -> str:
        """Return what keeps a client from asking its proxy for this machine, where one is set."""
        if not getproxies_environment().keys() & {"http", "all"} or proxy_bypass_environment(self.host):
            return ""
        hosts = shlex.quote(hosts_without_proxy(os.environ))
        return f"export {' '.join(f'{name}={hosts}' for name in NO_PROXY_VARIABLES)}\n"


def say(text: str) -> None:
    """Print a text; that nobody can read it is no reason not to serve."""
    if not print_to(sys.stdout, text):
        log.warning("greeting_not_printed")
