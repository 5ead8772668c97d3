"""Whatever is said, branched, edited and forgotten: the model sees on a warm thread what it would see on a replay.

Each random program of requests runs on two gateways: one keeps threads, the other replays everything. Only what the
model thought may differ, and only for chat clients, which have no way to give it back.
"""

import asyncio
import copy
import hashlib
import itertools
import json
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.gateway import API_KEY, Bridge
from tests.support.state_clients import (
    MODEL,
    OTHER_KEY,
    THREAD,
    keeping_bridge,
)
from tests.support.tool_clients import bare, declared
from turnbridge.codex.process.pool import Pool
from turnbridge.scripted_model.replies import (
    OutputItem,
    Reply,
    StreamReply,
    Wait,
    answer,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

# A failure is told as it was found: to shrink it takes minutes.
FOUND = (Phase.explicit, Phase.reuse, Phase.generate)
PATIENCE_S = 20

KINDS = ("chat", "sealed", "bare", "chained", "talk")
"""How a client tells its history.

Chat messages; items with their encrypted content, which are not kept; items without it; the id of the last response;
a conversation.
"""


class Say(NamedTuple):
    """Somebody says something more."""

    line: int
    text: str


class Branch(NamedTuple):
    """Somebody goes on from an earlier answer, or changes what was said before it and goes on from the end.

    Who lets the gateway keep the history cannot change it, and goes on from there.
    """

    line: int
    turn: int
    edited: bool
    text: str


class Race(NamedTuple):
    """Two requests continue the same history at once."""

    line: int
    texts: tuple[str, str]


class Forget(NamedTuple):
    """The gateway loses its memory, as in a restart."""


class Kill(NamedTuple):
    """Codex dies."""


Operation = Say | Branch | Race | Forget | Kill


class Turn(NamedTuple):
    """What a client sent, what it got, and as which response."""

    sent: list[JsonObject]
    got: list[JsonObject]
    response_id: str | None


@dataclass
class Line:
    """One conversation as its client tells it."""

    kind: str
    key: str
    turns: list[Turn] = field(default_factory=list)
    conversation: str | None = None

    @property
    def told(self) -> list[JsonObject]:
        return [item for turn in self.turns for item in (*turn.sent, *turn.got)]

    def branch(self, turn: int) -> "Line":
        """Return a line that shares its first turns; a conversation itself does not branch, its responses do."""
        kind = "chained" if self.kind == "talk" else self.kind
        shared = copy.deepcopy(self.turns[:turn])
        while shared and outputs_for(shared[-1]):
            # Calls that nobody has answered cannot be continued otherwise.
            shared.pop()
        return Line(kind, self.key, shared)

    @property
    def name(self) -> tuple[str, ...]:
        """Return what everybody can tell of the history, and who may use a thread that holds it."""
        family = "chat" if self.kind == "chat" else "responses"
        return (self.key, family, *(json.dumps(told) for told in map(essence, self.told) if told is not None))


def essence(item: JsonObject) -> Json:
    """Return what every client can tell of an item; nothing of thoughts and narration."""
    if item.get("type") == "reasoning" or item.get("phase") == "commentary":
        return None
    content: Any = item.get("content")
    text = content if isinstance(content, str) or content is None else content[0]["text"]
    return [item.get("role"), text, item.get("call_id"), item.get("output"), str(item.get("tool_calls"))]


def is_private(item: JsonObject) -> bool:
    """Tell whether a chat client could not give this back: thoughts, and narration, which it is shown as such."""
    return item["type"] == "reasoning" or item.get("phase") == "commentary"


def reply(request: JsonObject) -> StreamReply:
    """Answer by what is to be seen but for the thoughts, so that every way of being asked gets the same answer."""
    items: Any = bare(request["input"])
    public = [item for item in items if not is_private(item)]
    key = hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()[:16]
    asked = str(items[-1].get("content"))
    thoughts: list[OutputItem] = [reasoning(["Hm."], encrypted=f"E{key}")] if int(key[0], 16) % 2 else []
    if int(key[1], 16) % 3 == 0:
        thoughts.append(message(f"Thinking about {key}.", phase="commentary"))
    if "call" in asked:
        return answer(*thoughts, function_call("weather", {"city": key}, call_id=f"call_{key}"), key=key)
    return answer(*thoughts, message(f"Answer {key}."), key=key)


class Asked(NamedTuple):
    """One request of a client's, as it ended."""

    turn: Turn
    way: str


async def ask(bridge: Bridge, line: Line, sent: list[JsonObject]) -> Asked:
    """Send something more on a line."""
    client: Any = bridge.client.with_options(api_key=line.key)
    if line.kind == "chat":
        tools = declared("chat")[:1]
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[*line.told, *sent], tools=tools
        )
        spoken = raw.parse().choices[0].message
        got: JsonObject = {"role": "assistant", "content": spoken.content}
        if spoken.tool_calls:
            got["tool_calls"] = [call.to_dict() for call in spoken.tool_calls]
        return Asked(Turn(sent, [got], None), raw.headers[THREAD])
    options: dict[str, object] = {"input": sent}
    match line.kind:
        case "sealed":
            options = {"input": [*line.told, *sent], "store": False, "include": ["reasoning.encrypted_content"]}
        case "bare":
            options = {"input": [*line.told, *sent]}
        case "chained" if line.turns:
            options["previous_response_id"] = line.turns[-1].response_id
        case "talk":
            if line.conversation is None:
                line.conversation = (await client.conversations.create()).id
            options["conversation"] = line.conversation
    tools = declared("responses")[:1]
    raw = await client.responses.with_raw_response.create(model=MODEL, tools=tools, **options)
    response = raw.parse()
    return Asked(Turn(sent, [item.to_dict() for item in response.output], response.id), raw.headers[THREAD])


def outputs_for(turn: Turn) -> list[JsonObject]:
    """Return the outputs of the calls of a turn."""
    outputs: list[JsonObject] = []
    for item in turn.got:
        calls: Any = item.get("tool_calls") or []
        outputs += [{"role": "tool", "tool_call_id": call["id"], "content": "sun"} for call in calls]
        if item.get("type") == "function_call":
            outputs.append({"type": "function_call_output", "call_id": item["call_id"], "output": "sun"})
    return outputs


class World:
    """One gateway with its clients, and the account of what its model saw."""

    def __init__(self, bridge: Bridge, lines: list[tuple[str, str]], *, warm: bool) -> None:
        self.bridge = bridge
        self.lines = [Line(kind, key) for kind, key in lines]
        self.warm = warm
        self.seen: list[Json] = []
        self.ways: list[str] = []
        self.held: set[tuple[str, ...]] = set()
        """The histories that a thread must hold now."""
        self.threads: dict[str, list[list[Json]]] = defaultdict(list)
        self.owners: dict[str, str] = {}
        bridge.script()
        bridge.model.respond = reply

    def line(self, number: int) -> Line:
        return self.lines[number % len(self.lines)]

    async def do(self, operation: Operation) -> None:
        match operation:
            case Say():
                await self.say(self.line(operation.line), operation.text)
            case Branch():
                self.lines.append(self.branched(operation))
                await self.say(self.lines[-1], operation.text)
            case Race():
                await self.race(self.line(operation.line), operation.texts)
            case Forget():
                self.forget()
            case Kill():
                self.kill()

    async def say(self, line: Line, text: str) -> None:
        sent: list[JsonObject] = [{"role": "user", "content": text}]
        while sent:
            is_held = line.name in self.held
            asked = await self.one(line, sent)
            assert asked.way == "warm" or not is_held, f"{line} was served {asked.way}"
            line.turns.append(asked.turn)
            sent = outputs_for(asked.turn)
            if not sent and self.warm:
                self.held.add(line.name)

    async def one(self, line: Line, sent: list[JsonObject]) -> Asked:
        self.prepare(line, requests=1)
        asked = await ask(self.bridge, line, sent)
        self.note([line], [asked])
        return asked

    def prepare(self, line: Line, *, requests: int) -> None:
        """Take note of the threads that requests may take: the one that holds the history, else one with its start."""
        if not self.warm:
            self.forget()
        starts = sorted((name for name in self.held if line.name[: len(name)] == name), key=len)
        taken = starts[-1:] if line.name in self.held and requests == 1 else starts
        self.held.difference_update(taken)

    async def race(self, line: Line, texts: tuple[str, str]) -> None:
        """Let two requests be under way at once, which the model makes sure of."""
        if line.turns and outputs_for(line.turns[-1]):
            return
        lines = [line.branch(len(line.turns)), line.branch(len(line.turns))]
        gate = asyncio.Event()

        def slow(request: JsonObject) -> Reply:
            quick = reply(request)
            return replace(quick, steps=(quick.steps[0], Wait(gate=gate), *quick.steps[1:]))

        self.prepare(line, requests=2)
        before = self.bridge.model.received
        self.bridge.model.respond = slow

        async def open_gate() -> None:
            await self.bridge.model.until(lambda model: model.received >= before + 2)
            gate.set()

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(open_gate())
            racing = [
                group.create_task(ask(self.bridge, each, [{"role": "user", "content": text}]))
                for each, text in zip(lines, texts, strict=True)
            ]
        asked = [each.result() for each in racing]
        self.bridge.model.respond = reply
        # Both may be warm: one thread may hold the history, and another one its start.
        keys = {request.body["prompt_cache_key"] for request in self.bridge.model.requests}
        assert len(keys) == 2, "two turns ran on one thread"
        self.note(lines, asked)
        for each, one in zip(lines, asked, strict=True):
            each.turns.append(one.turn)
            if self.warm:
                self.held.add(each.name)
        self.lines += lines

    def note(self, lines: list[Line], asked: list[Asked]) -> None:
        """Write down what the model saw, in an order that does not depend on who came first."""
        private = lines[0].kind == "chat"
        seen = []
        for request in self.bridge.model.requests:
            items: Any = bare(request.body["input"])
            thread = str(request.body["prompt_cache_key"])
            if self.threads[thread]:
                last = self.threads[thread][-1]
                assert items[: len(last)] == last, "a thread has held something else"
            self.threads[thread].append(items)
            assert self.owners.setdefault(thread, lines[0].key) == lines[0].key, "a thread was given to somebody else"
            public = [item for item in items if not (private and is_private(item))]
            kept = {name: request.body[name] for name in ("model", "tools", "tool_choice", "reasoning")}
            seen.append({**kept, "instructions": request.body.get("instructions"), "input": public})
        assert len(seen) == len(asked)
        self.bridge.model.requests.clear()
        self.seen += sorted(seen, key=json.dumps)
        self.ways += [each.way for each in asked]

    def branched(self, operation: Branch) -> Line:
        line = self.line(operation.line)
        if not operation.edited or line.kind in ("chained", "talk") or not line.turns:
            return line.branch(operation.turn % (len(line.turns) + 1))
        edited = line.branch(len(line.turns))
        first = edited.turns[operation.turn % len(line.turns)].sent[0]
        first["content" if "content" in first else "output"] = "edited"
        return edited

    def forget(self) -> None:
        self.held.clear()
        self.bridge.gateway.warm.close()
        self.bridge.gateway.calls.close()
        self.bridge.gateway.calls._legs.clear()

    def kill(self) -> None:
        self.held.clear()
        if self.warm:
            for worker in self.bridge.gateway.pool.workers:
                os.kill(worker.process.pid, signal.SIGKILL)


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """Let Codex be started again at once, however often it is killed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "first_backoff_s", 0.02)
        patch.setattr(Pool, "longest_backoff_s", 0.1)
        yield


@pytest.fixture(scope="module")
async def both(
    tmp_path_factory: pytest.TempPathFactory, anyio_backend: object, impatient: None
) -> AsyncIterator[tuple[Bridge, Bridge]]:
    """Return a gateway that keeps threads, and one that does not."""
    del anyio_backend, impatient
    async with (
        keeping_bridge(tmp_path_factory.mktemp("warm"), PROXY_WARM_THREADS_MAX=64) as warm,
        keeping_bridge(tmp_path_factory.mktemp("cold"), PROXY_WARM_THREADS_MAX=0) as cold,
    ):
        yield warm, cold


lines = st.integers(0, 9)
texts = st.sampled_from(["hi", "go on", "call", "and call again", "thanks"])
plain = st.sampled_from(["hi", "go on", "thanks"])
operations = st.one_of(
    st.builds(Say, lines, texts),
    st.builds(Say, lines, texts),
    st.builds(Say, lines, texts),
    st.builds(Branch, lines, lines, st.booleans(), texts),
    st.builds(Branch, lines, lines, st.booleans(), texts),
    st.builds(Race, lines, st.tuples(plain, st.just("the other"))),
    st.builds(Forget),
)
programs = st.tuples(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([API_KEY, OTHER_KEY])), min_size=1, max_size=3),
    st.lists(operations, min_size=3, max_size=5),
    # Codex takes its time to start again, so it dies at most once.
    st.none() | st.integers(0, 5),
)
examples = itertools.count()


@pytest.mark.promise("threads.same")
@settings(max_examples=12, deadline=None, phases=FOUND)
@given(program=programs)
async def test_the_model_sees_on_a_warm_thread_what_it_would_see_on_a_replay(
    both: tuple[Bridge, Bridge], program: tuple[list[tuple[str, str]], list[Operation], int | None]
) -> None:
    begun, done, death = program
    planned: list[Operation] = [*done]
    if death is not None:
        planned.insert(death, Kill())
    # Whatever else happens, every line is begun, and goes on once. Lines that differ in nothing but their settings
    # would take the place of one another.
    number = next(examples)
    planned = [
        *(Say(n, f"{number}: hello{' chat' * (kind == 'chat')}") for n, (kind, _) in enumerate(begun)),
        *planned,
        *(Say(n, "goodbye") for n in range(len(begun))),
    ]
    warm, cold = (World(bridge, begun, warm=bridge is both[0]) for bridge in both)
    for operation in planned:
        for world in (warm, cold):
            await world.do(operation)
        assert warm.seen == cold.seen, f"after {operation}"
        assert [line.name for line in warm.lines] == [line.name for line in cold.lines]
    assert "warm" not in cold.ways
    assert "warm" in warm.ways or any(isinstance(operation, Forget | Kill) for operation in planned)
