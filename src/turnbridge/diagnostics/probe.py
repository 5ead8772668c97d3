"""`turnbridge probe`: runs one turn with a Codex binary, and prints and validates every message."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from click.exceptions import Exit

from turnbridge.cli.console import refuse, usable_settings
from turnbridge.codex.process.backend import open_thread
from turnbridge.codex.process.binary import Binary, examine
from turnbridge.codex.process.worker import Worker, start_worker
from turnbridge.codex.protocol.capabilities import RpcCheck
from turnbridge.codex.protocol.jsonrpc import LineSplitter
from turnbridge.codex.setup import codex_with, login_help
from turnbridge.logs.setup import configure_logging
from turnbridge.scripted_model.persona import respond
from turnbridge.scripted_model.websocket import WebSocketModel
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError, LoginRequired
from turnbridge.turn.events import TextDelta, TurnCompleted, TurnEvent, TurnFailed
from turnbridge.turn.items import Json, JsonObject, Message, TextPart
from turnbridge.turn.request import ThreadSpec, TurnRequest

# As much of a message as a line of a wide terminal holds.
SHOWN_CHARACTERS = 160
# A model that thinks first may take a while, one that does not answer at all would never.
TURN_TIMEOUT_S = 300.0

# Older versions report everything twice: as their schema says, and under the names of their core, which no schema has.
UNDESCRIBED = "codex/event/"

SENT, RECEIVED = "sent", "received"
# What is said of the schema when a message keeps it.
KEPT = "ok"
SHOWN_CAPABILITIES = ("inject_items", "dynamic_tools", "raw_items", "ephemeral", "environments", "tool_reply")
MEASURED = (
    *("handshake_ms", "thread_ms", "first_text_ms", "turn_ms", "answer", "failure", "messages", "schema_problems"),
)
ARROWS = {SENT: "→", RECEIVED: "←"}
COLOURS = {SENT: "cyan", RECEIVED: "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One message; as JSON, a line of the output."""

    after_ms: float
    direction: str
    kind: str
    method: str
    schema: str
    """How it violates the schema that the binary printed, or `ok`."""
    message: Json


class ConnectionTap:
    """Observes a connection, and validates every message against the schema."""

    def __init__(self, check: RpcCheck, report: Callable[[Seen], None]) -> None:
        self._check = check
        self._report = report
        self._lines = {SENT: LineSplitter(), RECEIVED: LineSplitter()}
        self._asked: dict[tuple[str, str], str] = {}
        self._began = time.perf_counter()
        self.problems = 0
        self.messages = 0

    def sent(self, data: bytes) -> None:
        """Observe data to Codex."""
        self._take(SENT, data)

    def received(self, data: bytes) -> None:
        """Observe data from Codex."""
        self._take(RECEIVED, data)

    def _take(self, direction: str, data: bytes) -> None:
        for line in self._lines[direction].feed(data):
            kind, method, problem, message = self._validated(direction, line)
            self.messages += 1
            self.problems += problem is not None and not method.startswith(UNDESCRIBED)
            self._report(
                Seen(
                    after_ms=_since(self._began),
                    direction=direction,
                    kind=kind,
                    method=method,
                    schema=problem or KEPT,
                    message=message,
                )
            )

    def _validated(self, direction: str, line: bytes) -> tuple[str, str, str | None, Json]:
        """Return the kind of a message, its method, what is wrong with it, and the message."""
        try:
            message: Json = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return "unreadable", "", "it is not JSON", line.decode(errors="replace")
        if not isinstance(message, dict):
            return "unreadable", "", "it is not a JSON object", message
        method, number = message.get("method"), str(message.get("id"))
        if not isinstance(method, str):
            # An answer belongs to a request of the other side.
            asked = self._asked.pop((RECEIVED if direction == SENT else SENT, number), "")
            return "answer", asked, self._answer_problem(direction, asked, message), message
        if message.get("id") is None:
            problem = self._check.incoming_problem(method, message.get("params")) if direction == RECEIVED else None
            return "notification", method, problem, message
        self._asked[direction, number] = method
        check = self._check.request_problem if direction == SENT else self._check.incoming_problem
        return "request", method, check(method, message.get("params")), message

    def _answer_problem(self, direction: str, asked: str, message: JsonObject) -> str | None:
        if "error" in message:
            return None
        if not asked:
            return "nobody asked for it"
        return self._check.reply_problem(asked, message.get("result")) if direction == SENT else None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of a probe."""

    binary: Binary
    dialect: str = ""
    handshake_ms: float = 0.0
    thread_ms: float = 0.0
    first_text_ms: float | None = None
    turn_ms: float = 0.0
    answer: str = ""
    failure: str | None = None
    messages: int = 0
    schema_problems: int = 0

    @property
    def ok(self) -> bool:
        """Tell whether the turn succeeded and every message matched the schema."""
        return self.failure is None and self.schema_problems == 0

    def as_json(self) -> JsonObject:
        """Return the result as JSON."""
        can = self.binary.capabilities
        return {
            "verdict": "ok" if self.ok else "not ok",
            "binary": str(self.binary.path),
            "version": self.binary.version,
            "dialect": self.dialect,
            "dialects": list(can.dialects),
            "capabilities": {name: getattr(can, name) for name in SHOWN_CAPABILITIES},
            **{name: getattr(self, name) for name in MEASURED},
        }


def probe(*, codex_bin: Path | None, prompt: str, raw: bool, demo: bool) -> None:
    """Run one turn with a Codex binary, and print every message, its time, and whether it matches the schema."""
    settings = usable_settings(CODEX_BIN=codex_bin)
    configure_logging("error")
    terminal = sys.stdout.isatty()
    report = (lambda seen: _show(seen, raw=raw)) if terminal else _print_json
    try:
        outcome = asyncio.run(_probe(settings, prompt, report, demo=demo))
    except GatewayError as error:
        refuse(error.message, status=1)
    if terminal:
        _show_verdict(outcome)
    else:
        _print_json(outcome.as_json())
    if not outcome.ok:
        raise Exit(1)


async def _probe(settings: Settings, prompt: str, report: Callable[[Seen], None], *, demo: bool) -> Outcome:
    if not demo:
        return await _run(settings, None, prompt, report)
    async with WebSocketModel(respond) as model:
        return await _run(settings, model.websocket_url, prompt, report)


async def _run(settings: Settings, provider: str | None, prompt: str, report: Callable[[Seen], None]) -> Outcome:
    spec, prepare = codex_with(settings, provider)
    prepare()
    spec.workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
    binary = await examine(spec.binary, home=spec.home, cwd=spec.workdir, cache=spec.cache_dir)
    watch = ConnectionTap(binary.rpc_check, report)
    outcome = Outcome(binary=binary)
    began = time.perf_counter()
    worker = await start_worker(spec, tap=lambda _: watch)
    outcome.handshake_ms, outcome.dialect = _since(began), worker.dialect
    try:
        if worker.login_missing:
            raise LoginRequired(login_help(settings))
        async with asyncio.timeout(TURN_TIMEOUT_S):
            await _one_turn(worker, prompt, outcome)
    except GatewayError as error:
        outcome.failure = error.message
    except TimeoutError:
        outcome.failure = f"The turn did not end within {TURN_TIMEOUT_S:g} seconds."
    finally:
        await worker.process.stop()
    outcome.messages, outcome.schema_problems = watch.messages, watch.problems
    return outcome


async def _one_turn(worker: Worker, prompt: str, outcome: Outcome) -> None:
    model = worker.offer.default or _default(worker)
    message = Message(role="user", parts=(TextPart(text=prompt),))
    request = TurnRequest(spec=ThreadSpec(model=model), items=(message,), streamed=True)
    began = time.perf_counter()
    thread = await open_thread(worker, request)
    try:
        outcome.thread_ms = _since(began)
        began = time.perf_counter()
        async for batch in thread.run():
            for event in batch:
                _note(event, outcome, began)
        outcome.turn_ms = _since(began)
    finally:
        thread.close()


def _note(event: TurnEvent, outcome: Outcome, began: float) -> None:
    match event:
        case TextDelta():
            outcome.answer += event.text
            if outcome.first_text_ms is None:
                outcome.first_text_ms = _since(began)
        case TurnFailed():
            outcome.failure = event.error.message
        case TurnCompleted() if not outcome.answer:
            outcome.failure = "The model said nothing."
        case _:
            pass


def _default(worker: Worker) -> str:
    chosen = [model.id for model in worker.models if model.is_default] or [model.id for model in worker.models]
    if not chosen:
        raise GatewayError("This Codex offers no model.")
    return chosen[0]


def _since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)


def _print_json(line: Seen | JsonObject) -> None:
    print(msgspec.json.encode(line).decode(), flush=True)


def _show(seen: Seen, *, raw: bool) -> None:
    text = msgspec.json.encode(seen.message).decode()
    shown = text if raw or len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    head = f"{seen.after_ms:9.1f} ms  {ARROWS[seen.direction]} {seen.kind:12} {seen.method or '-'}"
    click.secho(f"{head}  [{seen.schema}]", fg=COLOURS[seen.direction] if seen.schema == KEPT else "red")
    click.secho(f"              {shown}", dim=True)


def _show_verdict(outcome: Outcome) -> None:
    click.echo()
    for name, value in outcome.as_json().items():
        shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        click.secho(f"{name:16} {shown}", bold=name == "verdict", fg=None if outcome.ok else "red")
