"""The files with which systemd and launchd run the gateway for a user. Pure."""

import plistlib
from collections.abc import Mapping, Sequence
from pathlib import Path

UNIT = "turnbridge.service"
LABEL = "org.turnbridge.gateway"
MARK = "Written by `turnbridge service install`; `turnbridge service remove` deletes it."

# Longer than `PROXY_DRAIN_S` and the end of Codex take by default.
STOP_TIMEOUT_S = 45
EXIT_CONFIG = 78
# systemd accepts these in arguments only.
NOT_IN_PROGRAM = frozenset("\"'\\$")


def systemd_unit(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a user unit."""
    variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in sorted(environment.items()))
    if NOT_IN_PROGRAM.intersection(command[0]):
        command = ("/usr/bin/env", *command)
    # systemd replaces `$NAME` in arguments, but not in the program and in variables.
    words = " ".join((_quoted(command[0]), *(_quoted(word.replace("$", "$$")) for word in command[1:])))
    return f"""# {MARK}
[Unit]
Description=Turnbridge, an OpenAI-compatible gateway to Codex
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
ExecStart={words}
ExecReload=/bin/kill -HUP $MAINPID
{variables}Restart=on-failure
RestartSec=2
# A mistake in the settings: starting again does not help.
RestartPreventExitStatus={EXIT_CONFIG}
# Running turns may finish; then Codex is ended.
TimeoutStopSec={STOP_TIMEOUT_S}
KillMode=mixed
NoNewPrivileges=yes
UMask=0077

[Install]
WantedBy=default.target
"""


def _quoted(word: str) -> str:
    """Return a word for a unit file: in quotes, since paths have spaces, and without specifiers."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{escaped}"'


def launchd_agent(command: Sequence[str], environment: Mapping[str, str], log: Path) -> str:
    """Return a launch agent."""
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "EnvironmentVariables": dict(environment),
        "RunAtLoad": True,
        # Only after a failure: `service remove` and a shutdown end it with 0.
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": STOP_TIMEOUT_S,
        "ProcessType": "Interactive",
        "Umask": 0o077,
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }
    text = plistlib.dumps(agent).decode()
    head, _, rest = text.partition("<plist")
    return f"{head}<!-- {MARK} -->\n<plist{rest}"
