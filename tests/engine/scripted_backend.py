"""What the engine needs of the edges, doing as it is told and noting what was asked of it."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from turnbridge.engine.kept_threads import ParkedTurns, WarmThreads
from turnbridge.engine.ports import (
    Flaw,
    LoadedImage,
    MediaLoader,
    ModelOffer,
    Thread,
    Tokenizer,
    ToolServers,
    ToolSession,
)
from turnbridge.engine.structured_output import Conformance
from turnbridge.engine.turn_rules import Watch
from turnbridge.engine.turns import TurnRunner
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.events import MessageDone, MessageStarted, TextDelta, TurnCompleted, TurnEvent, TurnFailed, Usage
from turnbridge.turn.items import FilePart, FunctionCallOutput, Item, JsonObject, replace
from turnbridge.turn.mcp import McpServer
from turnbridge.turn.request import TurnRequest

Turn: TypeAlias = Sequence[Sequence[TurnEvent]]
"""The batches of one turn."""

USAGE = Usage(input=10, cached=2, output=5, reasoning=1)


def saying(*pieces: str, usage: Usage = USAGE) -> list[list[TurnEvent]]:
    """Return a turn that says this, each piece in a batch of its own."""
    deltas: list[list[TurnEvent]] = [[TextDelta("m", piece)] for piece in pieces]
    return [[MessageStarted("m", None)], *deltas, [MessageDone("m", None, "".join(pieces)), TurnCompleted(usage)]]


@dataclass(slots=True)
class ScriptedBackend:
    """Codex with one conversation at a time, which runs these turns in this order; an error fails the opening."""

    turns: list[Turn | GatewayError]
    opened: list[TurnRequest] = field(default_factory=list)
    added: list[Sequence[Item]] = field(default_factory=list)
    """What each turn was given besides the history."""
    running: int = 0
    """How many conversations are open."""
    pace_s: float = 0
    """How long the model thinks before each batch."""

    suspected: list[bool] = field(default_factory=list)
    """Whether each turn was opened as one that had lost its backend."""

    async def open(self, request: TurnRequest, *, suspect: bool = False) -> "ScriptedThread":
        self.opened.append(request)
        self.suspected.append(suspect)
        if isinstance(self.turns[0], GatewayError):
            raise self.turns.pop(0)  # type: ignore[misc]  # It has just been looked at.
        self.running += 1
        return ScriptedThread(self)

    async def serves_otherwise(self, request: TurnRequest, thread: Thread, error: GatewayError) -> bool:
        del request, thread, error
        return False

    async def offer(self, account: str | None) -> ModelOffer:
        del account
        return ModelOffer(models=())

    def fidelity(self, account: str | None = None) -> str:
        del account
        return "exact"


@dataclass(slots=True)
class ScriptedThread:
    """A thread whose next turn is the backend's next one."""

    backend: ScriptedBackend
    alive: bool = True
    closed: bool = False
    fidelity: str = "exact"
    retrying: bool = False
    heard: bool = True
    native_tools: bool = False
    failed: asyncio.Future[GatewayError] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def open(self) -> bool:
        """Tell whether nobody has given it up."""
        return not self.closed

    async def run(
        self, items: Sequence[Item] = (), request: TurnRequest | None = None
    ) -> AsyncGenerator[Sequence[TurnEvent], None]:
        del request
        self.backend.added.append(items)
        turn = self.backend.turns.pop(0)
        if isinstance(turn, GatewayError):
            raise turn
        for batch in turn:
            await asyncio.wait((self.failed,), timeout=self.backend.pace_s)
            if self.failed.done():
                yield [TurnFailed(self.failed.result())]
                return
            yield batch

    def resume(self, outputs: Sequence[FunctionCallOutput]) -> AsyncGenerator[Sequence[TurnEvent], None]:
        return self.run(outputs)

    def fail(self, error: GatewayError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)

    def close(self) -> None:
        self.backend.running -= not self.closed
        self.closed = True


class ScriptedMedia:
    """Every image and every file is there, and says where it was."""

    async def image(self, url: str, *, param: str) -> LoadedImage:
        return LoadedImage(f"data:image/png;base64,{url}@{param}", 1)

    async def uploaded_image(self, client: str, file_id: str, *, param: str) -> LoadedImage:
        return LoadedImage(f"data:image/png;base64,{file_id} of {client}@{param}", 1)

    async def uploaded_file(self, client: str, part: FilePart) -> FilePart:
        return replace(part, filename=f"{part.file_id} of {client}", data=b"", file_id=None)

    async def file_text(self, part: FilePart) -> str:
        return f"text of {part.filename}"


class DirectJudge:
    """Checks everything right here."""

    async def first_flaw(self, schemas: Sequence[JsonObject]) -> Flaw | None:
        del schemas
        return None

    async def problem(self, schema: JsonObject, text: str) -> str | None:
        return Conformance.for_schema(schema).problem(text)


class WordTokenizer:
    """Every word is a token, and so is every other character."""

    def prepare(self) -> None:
        """Need nothing."""

    async def ready(self) -> None:
        """Need nothing."""

    def count(self, text: str) -> int:
        return len(_TOKEN.findall(text))

    def cut(self, text: str, limit: int) -> str:
        return "".join(_TOKEN.findall(text)[:limit])

    def settled(self, text: str) -> int:
        return max((found.start() for found in _TOKEN.finditer(text)), default=0)


_TOKEN = re.compile(r"\w+|\W")


class NoServers:
    """No MCP server may be asked."""

    def session(self, server: McpServer) -> ToolSession:
        raise AssertionError(server.label)


def runner_on(
    backend: ScriptedBackend,
    *,
    media: MediaLoader | None = None,
    tokenizer: Tokenizer | None = None,
    servers: ToolServers | None = None,
    silence_s: float = 60,
    whole_s: float = 60,
) -> TurnRunner:
    """Return a runner that keeps no conversation for later."""
    return TurnRunner(
        backend,
        media or ScriptedMedia(),
        tokenizer or WordTokenizer(),
        DirectJudge(),
        ParkedTurns(ttl_s=60),
        WarmThreads(most=0, ttl_s=60),
        Watch(silence_s=silence_s, whole_s=whole_s),
        servers or NoServers(),
    )
