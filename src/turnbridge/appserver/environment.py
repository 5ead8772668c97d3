"""The environment variables of Codex: the gateway's own, without its secrets, and with loopback reached directly."""

import os
from collections.abc import Mapping
from pathlib import Path

# The gateway's own secrets are none of Codex's business.
WITHHELD_VARIABLES = ("PROXY_API_KEY", "PROXY_DATABASE_URL", "PROXY_METRICS_TOKEN", "PROXY_RATE_LIMIT_STORAGE")

# The scripted models of the demo and of the self-check listen here, and so may a provider of the user's. No proxy
# reaches them: it would look for them on its own machine.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Programs read one spelling or the other, and some only the first that is set.
NO_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")


def codex_environment(home: Path) -> dict[str, str]:
    """Return the variables that a Codex in this home gets."""
    environment = {key: value for key, value in os.environ.items() if key not in WITHHELD_VARIABLES}
    direct = hosts_without_proxy(environment)
    return {**environment, **dict.fromkeys(NO_PROXY_VARIABLES, direct), "CODEX_HOME": str(home)}


def hosts_without_proxy(environment: Mapping[str, str]) -> str:
    """Return the hosts that are reached without a proxy: those that the user lists, and loopback."""
    listed = (host.strip() for name in NO_PROXY_VARIABLES for host in environment.get(name, "").split(","))
    return ",".join(dict.fromkeys((*filter(None, listed), *LOOPBACK)))
