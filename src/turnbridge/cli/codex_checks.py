"""Checks of Codex for `turnbridge doctor`: binary, fidelity, home, login, provider and clock."""

import asyncio
import os
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from ssl import SSLCertVerificationError
from urllib.parse import urlsplit

from turnbridge.cli.account import account_of
from turnbridge.cli.finding import Finding
from turnbridge.cli.plan import described_account, described_limits
from turnbridge.codex import self_check
from turnbridge.codex.account import Identity, PlanLimit
from turnbridge.codex.process.binary import examine
from turnbridge.codex.process.home import LOOPBACK
from turnbridge.codex.process.worker import CodexSpec
from turnbridge.codex.setup import codex_with
from turnbridge.settings.accounts import login_command, named_accounts
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError

USED_UP_PERCENT = 100
REACH_TIMEOUT_S = 5.0
# Tokens and certificates tolerate a little; a clock that is further off breaks logins.
MOST_CLOCK_SKEW_S = 120
# Codex's own providers, where the configuration has no address for them.
BUILT_IN_URLS = {
    "openai": "https://api.openai.com/v1",
    "ollama": "http://localhost:11434/v1",
    "lmstudio": "http://localhost:1234/v1",
}
CHATGPT_URL = "https://chatgpt.com/backend-api/"


@dataclass(slots=True, kw_only=True)
class CodexChecks:
    """The checks that ask Codex; later ones use what earlier ones learned."""

    settings: Settings
    identity: Identity | None = None
    server_time: datetime | None = None
    config: dict[str, object] | None = None
    """What Codex is configured with, once its home is prepared; without that it cannot be asked."""

    def check_home(self) -> Iterator[Finding]:
        """Check that the gateway's Codex home can be prepared from the user's."""
        spec, prepare = codex_with(self.settings, None)
        try:
            self.settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            prepare()
            spec.workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.config = tomllib.loads((spec.home / "config.toml").read_text(encoding="utf-8"))
        except GatewayError as error:
            yield Finding("home", "wrong", error.message, "Correct the file.")
        except OSError as error:
            remedy = "Choose another directory in PROXY_DATA_DIR."
            yield Finding("home", "wrong", f"{error.filename}: {error.strerror}", remedy)
        else:
            there = "" if self.settings.codex_home.exists() else ", which does not exist yet"
            yield Finding("home", "ok", f"{spec.home}, with login and models of {self.settings.codex_home}{there}")

    def check_binary(self) -> Iterator[Finding]:
        """Check that the binary runs, and what the self-check has found of it."""
        if self.config is None:
            return
        spec = codex_with(self.settings, None)[0]
        try:
            binary = asyncio.run(examine(spec.binary, home=spec.home, cwd=spec.workdir, cache=spec.cache_dir))
        except (GatewayError, OSError) as error:
            yield Finding("binary", "wrong", str(error), self._other_codex())
            return
        dialect = binary.capabilities.dialect
        text = f"Codex {binary.version} speaks {dialect}: {spec.binary}"
        if dialect == "v2":
            yield Finding("binary", "ok", text)
        else:
            yield Finding("binary", "warning", f"{text}. Histories are flattened.", self._other_codex())
        yield from _fidelity(spec, binary.name, remedy=self._other_codex())

    def check_login(self) -> Iterator[Finding]:
        """Check that turns can run with the login, or without one."""
        if self.config is None:
            return
        try:
            identity, limits, problem = account_of(self.settings)
        except (GatewayError, OSError) as error:
            yield Finding("login", "wrong", f"Codex cannot be asked: {error}", "See the checks above.")
            return
        self.identity = identity
        who = described_account(identity)
        if not identity.usable:
            yield Finding("login", "wrong", who, login_command())
        elif identity.offline:
            yield Finding("login", "warning", who, "Check the network and the proxy.")
        else:
            yield Finding("login", "ok", who)
        yield from _plan(limits, problem)
        for account in named_accounts(self.settings):
            yield from self._named_login(account)

    def _named_login(self, account: str) -> Iterator[Finding]:
        """Check a named account, which only the clients of its keys need."""
        try:
            identity, limits, problem = account_of(self.settings, account)
        except (GatewayError, OSError) as error:
            yield Finding("account", "wrong", f"{account}: {error}", "Correct it; only its own keys are affected.")
            return
        text = f"{account}: {described_account(identity)}"
        if identity.usable and not identity.offline:
            yield Finding("account", "ok", text)
        else:
            remedy = "Check the network and the proxy." if identity.offline else login_command(account)
            yield Finding("account", "warning", text, remedy)
        yield from _plan(limits, problem, of=f"{account}: ")

    def check_provider(self) -> Iterator[Finding]:
        """Check that the provider answers, and that its key is set; note the time of its clock."""
        if self.identity is None:
            return
        name = self.identity.provider
        provider = _table(_table(self.config).get("model_providers")).get(name)
        yield from self._provider_key(_table(provider))
        url = provider_url(name, _table(provider), _table(self.config), self.identity)
        if url is None:
            yield Finding("provider", "ok", f"`{name}`, whose address only Codex knows")
            return
        problem, self.server_time = _reach(url)
        if problem is None:
            yield Finding("provider", "ok", f"`{name}` answers at {url}")
        else:
            remedy = "Check the network, HTTPS_PROXY, and the address in the Codex configuration."
            yield Finding("provider", "wrong", f"`{name}` cannot be reached at {url}: {problem}", remedy)

    def check_clock(self) -> Iterator[Finding]:
        """Compare the clock with the provider's."""
        remedy = "Set the clock, for example by NTP."
        if self.server_time is None:
            installed = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
            if datetime.now(UTC) < installed:
                yield Finding("clock", "wrong", f"before the installation of Turnbridge at {installed:%F %R}", remedy)
            else:
                yield Finding("clock", "ok", "plausible; no provider told its time")
            return
        off_s = round(abs((datetime.now(UTC) - self.server_time).total_seconds()))
        if off_s <= MOST_CLOCK_SKEW_S:
            yield Finding("clock", "ok", "agrees with the provider's")
        else:
            yield Finding("clock", "wrong", f"{off_s} seconds off the provider's", remedy)

    def _other_codex(self) -> str:
        """Return how to use the Codex that was tested with this version."""
        own = f"Use the Codex that comes with Turnbridge: {own_command('codex', 'use', 'bundled')}"
        return "Unset CODEX_BIN, to use the Codex that comes with Turnbridge." if self.settings.codex_bin else own

    def _provider_key(self, provider: dict[str, object]) -> Iterator[Finding]:
        variable = provider.get("env_key")
        if not isinstance(variable, str) or os.environ.get(variable):
            return
        if not _names_variable(self.settings.codex_home / ".env", variable):
            remedy = f"Set {variable} for the gateway, or write it into {self.settings.codex_home / '.env'}."
            yield Finding("provider", "wrong", f"its key {variable} is not set", remedy)


def _fidelity(spec: CodexSpec, binary: str, *, remedy: str) -> Iterator[Finding]:
    seen = self_check.stored_result(spec, binary)
    if seen is None:
        text = "it is not known yet whether this Codex changes requests"
        yield Finding("fidelity", "warning", text, f"{own_command('serve')} checks it at its first start.")
    elif seen.host_tools:
        text = f"this Codex offers the model tools that act on this machine: {', '.join(seen.host_tools)}"
        yield Finding("fidelity", "wrong", text, remedy)
    elif seen.findings:
        text = f"this Codex changes requests: {', '.join(seen.findings)}"
        yield Finding("fidelity", "warning", text, remedy)
    else:
        yield Finding("fidelity", "ok", "exact: the model sees what clients send, and nothing else")


def _plan(limits: tuple[PlanLimit, ...], problem: str | None, *, of: str = "") -> Iterator[Finding]:
    if problem is not None:
        yield Finding(
            "plan", "warning", f"{of}its limits cannot be read: {problem}", "Check the network and the proxy."
        )
    for limit in limits:
        used_up = any(window.used_percent >= USED_UP_PERCENT for window in limit.windows)
        text = "; ".join(" ".join(line.split()) for line in described_limits([limit]))
        if used_up:
            yield Finding("plan", "warning", of + text, "Wait until it resets, or log in with another account.")
        elif text:
            yield Finding("plan", "ok", of + text)


def provider_url(name: str, provider: dict[str, object], config: dict[str, object], identity: Identity) -> str | None:
    """Return the address at which Codex calls the provider."""
    chosen = provider.get("base_url")
    if name == "openai" and chosen is None:
        by_chatgpt = identity.account is not None and identity.account.type == "chatgpt"
        chosen = config.get("openai_base_url") or (by_chatgpt and (config.get("chatgpt_base_url") or CHATGPT_URL))
    return chosen if isinstance(chosen, str) else BUILT_IN_URLS.get(name)


def _reach(url: str) -> tuple[str | None, datetime | None]:
    """Return why a server cannot be reached, and its time; every answer counts, also a refusal."""
    # As Codex, which reaches this machine without a proxy.
    proxies: dict[str, str] | None = {} if urlsplit(url).hostname in LOOPBACK else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        with opener.open(urllib.request.Request(url, method="HEAD"), timeout=REACH_TIMEOUT_S) as response:
            date = response.headers.get("date")
    except urllib.error.HTTPError as refused:
        date = refused.headers.get("date")
        refused.close()
    except urllib.error.URLError as error:
        if isinstance(error.reason, SSLCertVerificationError):
            # Python's certificates may be others than Codex's.
            return None, None
        return str(error.reason), None
    except (OSError, ValueError) as error:
        return str(error), None
    try:
        return None, parsedate_to_datetime(date) if date else None
    except ValueError:
        return None, None


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _names_variable(file: Path, variable: str) -> bool:
    """Tell whether a file of variables, as `.env`, sets this one."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(line.removeprefix("export ").strip().startswith(f"{variable}=") for line in lines)
