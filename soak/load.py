"""The requests of a soak: what clients do, and how each of their requests must end."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx2

from soak.model import SCHEMA, TOOL, Question
from tests.support.gateway_process import API_KEY, GatewayProcess
from tests.support.plain_http import CHAT, RESPONSES, Call, Ending, ask, frames, unread
from turnbridge.turn.items import JsonObject

MODEL = "gpt-5.5"
# A request that has not ended by then hangs: the turns here take a second.
REQUEST_TIMEOUT_S = 60.0
# How long a client looks at an answer that it does not read.
UNREAD_S = 1.0
# Half a megabyte of text: a request that stayed in memory would be noticed after some hundreds.
NOISE_BYTES = 256 * 1024
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one request ended: as it should, with an error that it was told, or in a way that nobody can explain."""

    kind: str
    began: float
    ended: float
    told: str | None = None
    """The code of the error."""
    defect: str | None = None
    """What is wrong with the answer, if anything is."""


@dataclass(slots=True, kw_only=True)
class Clients:
    """Those who ask one gateway, and what became of their requests."""

    gateway: GatewayProcess
    http: httpx2.AsyncClient
    chance: random.Random
    outcomes: list[Outcome] = field(default_factory=list)
    asked: int = 0

    def question(self, **wishes: int) -> Question:
        """Return a question that nobody else asks."""
        self.asked += 1
        return Question(mark=f"mark{self.asked}", **wishes)

    def noise(self) -> str:
        """Return a long text that nobody else sends."""
        return self.chance.randbytes(NOISE_BYTES).hex()

    async def run(self, until: float) -> None:
        """Ask in one way after another until the time is up."""
        names, weights = list(KINDS), [weight for _, weight in KINDS.values()]
        while time.monotonic() < until:
            await self.once(self.chance.choices(names, weights)[0])

    async def once(self, kind: str) -> None:
        """Run one kind of conversation, and note how it ended."""
        began = time.monotonic()
        told, defect = None, None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                ending = await KINDS[kind][0](self)
        except TimeoutError:
            defect = f"no end within {REQUEST_TIMEOUT_S:g} s"
        except httpx2.HTTPError as error:
            defect = f"{type(error).__name__}: {error}"
        except Unexpected as unexpected:
            told, defect = unexpected.told, unexpected.defect
        else:
            told, defect = ending.code, None if ending.endings == 1 else f"{ending.endings} endings"
        self.outcomes.append(Outcome(kind=kind, began=began, ended=time.monotonic(), told=told, defect=defect))


class Unexpected(Exception):
    """The answer is not the one that was asked for: it is an error, or it is wrong."""

    def __init__(self, ending: Ending, wanted: str) -> None:
        super().__init__(wanted)
        self.told = ending.code if ending.endings == 1 else None
        self.defect = None if self.told else f"got {ending!r:.200}, wanted {wanted:.80}"


def expect(ending: Ending, wanted: str) -> Ending:
    """Return an ending whose words are these."""
    if (ending.status, ending.code, ending.endings, ending.text) != (200, None, 1, wanted):
        raise Unexpected(ending, wanted)
    return ending


def body(path: str, question: Question, *, stream: bool = False) -> JsonObject:
    """Return a plain request."""
    said: JsonObject = {"role": "user", "content": question.text()}
    return {"model": MODEL, "stream": stream, "input" if path == RESPONSES else "messages": [said]}


def plain(path: str, *, stream: bool) -> Callable[[Clients], Awaitable[Ending]]:
    """Return a client that asks one question."""

    async def run(clients: Clients) -> Ending:
        question = clients.question(words=clients.chance.randrange(30))
        return expect(await ask(clients.http, path, body(path, question, stream=stream)), question.spoken())

    return run


async def conversation(clients: Clients) -> Ending:
    """Ask three questions, each with all that was said before it."""
    messages: list[JsonObject] = []
    for _ in range(3):
        question = clients.question()
        messages.append({"role": "user", "content": question.text()})
        request: JsonObject = {"model": MODEL, "messages": [*messages], "stream": clients.chance.random() < 0.5}
        ending = expect(await ask(clients.http, CHAT, request), question.spoken())
        messages.append({"role": "assistant", "content": ending.text})
    return ending


async def called(clients: Clients) -> tuple[Question, JsonObject, Call]:
    """Return a question that the model answered with a call."""
    question = clients.question()
    request: JsonObject = {**body(RESPONSES, question), "tools": [{"type": "function", **TOOL}]}
    ending = await ask(clients.http, RESPONSES, request)
    if (ending.status, ending.code, len(ending.calls)) != (200, None, 1):
        raise Unexpected(ending, "a call")
    return question, request, ending.calls[0]


async def tool(clients: Clients) -> Ending:
    """Run the function that the model calls, and hear what it says then."""
    question, request, call = await called(clients)
    made: JsonObject = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    given: JsonObject = {"type": "function_call_output", "call_id": call.id, "output": "it"}
    items = request["input"]
    assert isinstance(items, list)
    request = {**request, "input": [*items, made, given], "stream": clients.chance.random() < 0.5}
    return expect(await ask(clients.http, RESPONSES, request), question.spoken())


async def abandoned_tool(clients: Clients) -> Ending:
    """Never come back with what the function says."""
    await called(clients)
    return Ending(status=200)


async def image(clients: Clients) -> Ending:
    """Show an image with the question."""
    question = clients.question()
    parts: list[JsonObject] = [
        {"type": "text", "text": question.text()},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]
    request: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": [*parts]}]}
    return expect(await ask(clients.http, CHAT, request), question.spoken())


async def documents(clients: Clients) -> Ending:
    """Ask about documents that come with the question, as a RAG application does."""
    question = clients.question()
    found: JsonObject = {"role": "user", "content": clients.noise()}
    request: JsonObject = {"model": MODEL, "messages": [found, {"role": "user", "content": question.text()}]}
    return expect(await ask(clients.http, CHAT, request), question.spoken())


async def new_instructions(clients: Clients) -> Ending:
    """Ask under long instructions that never come again."""
    question = clients.question()
    request: JsonObject = {**body(RESPONSES, question), "instructions": clients.noise(), "store": False}
    return expect(await ask(clients.http, RESPONSES, request), question.spoken())


async def structured(clients: Clients) -> Ending:
    """Ask for JSON of a schema."""
    question = clients.question()
    wanted: JsonObject = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
    stream = clients.chance.random() < 0.5
    request: JsonObject = {**body(RESPONSES, question, stream=stream), "text": {"format": wanted}}
    return expect(await ask(clients.http, RESPONSES, request), question.written())


async def two_choices(clients: Clients) -> Ending:
    """Ask for two answers to one question."""
    question = clients.question()
    return expect(await ask(clients.http, CHAT, {**body(CHAT, question), "n": 2}), question.spoken() * 2)


async def leaving(clients: Clients) -> Ending:
    """Leave in the middle of a stream, or before it begins."""
    path = clients.chance.choice((CHAT, RESPONSES))
    left = clients.chance.randrange(12)
    asked = body(path, clients.question(words=40, pause_ms=5), stream=True)
    async with clients.http.stream("POST", path, json=asked) as response:
        if response.status_code != 200:
            return await ask(clients.http, path, asked)
        async for _ in frames(response):
            left -= 1
            if left < 0:
                break
    return Ending(status=200)


async def slow_reader(clients: Clients) -> Ending:
    """Ask for much, read nothing, and leave after a while."""
    question = clients.question(words=300, letters=4000, pause_ms=0)
    async with unread(clients.gateway.url, API_KEY, CHAT, body(CHAT, question, stream=True)) as status:
        if status == 200:
            await asyncio.sleep(UNREAD_S)
    return Ending(status=200)


KINDS: dict[str, tuple[Callable[[Clients], Awaitable[Ending]], int]] = {
    "chat": (plain(CHAT, stream=False), 4),
    "chat stream": (plain(CHAT, stream=True), 6),
    "responses": (plain(RESPONSES, stream=False), 4),
    "responses stream": (plain(RESPONSES, stream=True), 6),
    "conversation": (conversation, 3),
    "tool": (tool, 3),
    "abandoned tool": (abandoned_tool, 1),
    "image": (image, 1),
    "documents": (documents, 2),
    "new instructions": (new_instructions, 1),
    "structured": (structured, 2),
    "two choices": (two_choices, 1),
    "leaving": (leaving, 3),
    "slow reader": (slow_reader, 1),
}
"""What clients do, and how often in proportion."""
