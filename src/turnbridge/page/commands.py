"""Commands that the page runs for the owner, each in a process of its own: doctor, keys, trace.

So there is one place that knows what a key's limit may be, or how a trace is read, and a command that hangs or crashes
harms no client.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnbridge.api.shared.validation import invalid
from turnbridge.page.openapi import KeyBody, KeyName, NewKeyBody
from turnbridge.page.routes import Entry, small_body
from turnbridge.page.sessions import Visitor
from turnbridge.turn.errors import BackendUnavailable, InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.web.http import json_response

# The doctor starts Codex, and asks the provider and the account's server.
TIMEOUT_S = 90.0
# As wide as a large screen; the page scrolls.
COLUMNS = "220"
LIMITS = ("models", "rate", "turns", "tokens", "expires")
LONGEST = 200


class Commands:
    """Runs the commands, one at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is what they have to know besides that of this process."""
        self._environment = {"COLUMNS": COLUMNS, "NO_COLOR": "1", **environment}
        self._alone = asyncio.Lock()

    def handlers(self) -> list[Entry]:
        """Return the handlers, by method and path; all are for the owner."""
        return [
            ("POST", "/doctor", self._doctor),
            ("GET", "/timeline", self._timeline),
            ("GET", "/keys", self._keys),
            ("POST", "/keys", self._create),
            ("POST", "/keys/limits", self._limit),
            ("POST", "/keys/rotate", self._rotate),
            ("POST", "/keys/revoke", self._revoke),
        ]

    async def _doctor(self, _: Request, __: Visitor) -> Response:
        return json_response(_object(await self._printed("doctor", "--json", failing=True)))

    async def _timeline(self, request: Request, _: Visitor) -> Response:
        """Show one request across both wires, from the wire trace."""
        request_id = _text(request.query_params.get("id", ""), "id")
        return json_response(_object(await self._printed("trace", "--view", "--", request_id)))

    async def _keys(self, _: Request, __: Visitor) -> Response:
        listed: Json = msgspec.json.decode(await self._printed("keys", "list", "--json"))
        return json_response({"keys": listed})

    async def _create(self, request: Request, _: Visitor) -> Response:
        """Make a key; it is in this answer, and nowhere else."""
        given = await small_body(request, NewKeyBody)
        words = [*_limits(given), *(["--admin"] if given.admin else [])]
        words += [] if given.account is None else [f"--account={_text(given.account, 'account')}"]
        return await self._changed("create", *words, "--", _text(given.name, "name"))

    async def _limit(self, request: Request, _: Visitor) -> Response:
        """Change the limits that are given; `none` removes one."""
        given = await small_body(request, KeyBody)
        admin = [] if given.admin is None else ["--admin" if given.admin else "--no-admin"]
        return await self._changed("limits", *_limits(given), *admin, "--", _text(given.name, "name"))

    async def _rotate(self, request: Request, _: Visitor) -> Response:
        return await self._changed("rotate", "--", _text((await small_body(request, KeyName)).name, "name"))

    async def _revoke(self, request: Request, _: Visitor) -> Response:
        return await self._changed("revoke", "--", _text((await small_body(request, KeyName)).name, "name"))

    async def _changed(self, command: str, *words: str) -> Response:
        return json_response(_object(await self._printed("keys", command, "--json", *words)))

    async def _printed(self, *words: str, failing: bool = False) -> str:
        """Return what a command prints; raises `InvalidRequest` with its complaint, unless it may be `failing`."""
        async with self._alone:
            status, printed, complaint = await _run([sys.executable, "-m", "turnbridge", *words], self._environment)
        if status != 0 and not failing:
            raise InvalidRequest(complaint.strip().splitlines()[-1] if complaint.strip() else "The command failed.")
        return printed


def _limits(given: KeyBody) -> list[str]:
    values = {name: getattr(given, name) for name in LIMITS}
    return [f"--{name}={_text(value, name)}" for name, value in values.items() if value is not None]


def _text(value: str, name: str) -> str:
    if not 0 < len(value.strip()) <= LONGEST or "\0" in value:
        raise invalid(name, f"expected a text of at most {LONGEST} characters.")
    return value.strip()


def _object(printed: str) -> JsonObject:
    try:
        return msgspec.json.decode(printed, type=dict)
    except msgspec.DecodeError as error:
        raise BackendUnavailable("The command printed no result. Run it in a terminal.") from error


async def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Return the exit status of a command and what it printed; raises `BackendUnavailable` if it takes too long."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            printed, complaint = await process.communicate()
    except TimeoutError as error:
        raise BackendUnavailable("The command did not finish. Run it in a terminal.") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, printed.decode(errors="replace"), complaint.decode(errors="replace")
