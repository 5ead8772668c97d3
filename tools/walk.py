"""Counts what a request goes through of our own code: `make walk`.

The gateway runs in this process, with the real Codex and a scripted model behind it. Each request is sent several
times. The first one fills caches and imports modules; counted is what each of the others goes through, since what runs
periodically, in threads too, meets only some of them.
"""

import asyncio
import inspect
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from structlog.testing import capture_logs

import turnbridge
from tests.support.gateway import Bridge, running_bridge
from turnbridge.scripted_model.replies import answer, function_call, message
from turnbridge.turn.items import JsonObject

SOURCE = str(Path(turnbridge.__file__).parent)
# The provider's place is taken by a part of ours, which no request of a user's goes through.
MODEL = str(Path(SOURCE) / "scripted_model")

# Frames of these are part of the function in which they stand.
INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")

# Long enough for what a request leaves to be done after its answer.
SETTLE_S = 0.1
REPEATS = 16
# Long enough for what starts in the background, such as the app-server in reserve.
START_S = 3.0
# Longer than the period of anything that runs without a request.
IDLE_S = 1.5


@dataclass(slots=True)
class Walk:
    """The functions that were entered, and the most of them that were on the stack at once.

    A coroutine that is resumed enters all that it awaits again, so that a chain of awaits counts as a stack.
    """

    functions: set[CodeType] = field(default_factory=set)
    tasks: set[CodeType] = field(default_factory=set)
    """The outermost coroutines of ours among them."""
    depth: int = 0

    @property
    def modules(self) -> set[str]:
        """Return the files of these functions."""
        return {code.co_filename for code in self.functions}


class Profiler:
    """Counts calls in all threads that are started while it is installed."""

    def __init__(self) -> None:
        self._walk = Walk()
        self.ignored: frozenset[CodeType] = frozenset()
        """Outermost coroutines that are not counted, nor anything that they call."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Count a call, as `sys.setprofile` reports it."""
        del argument
        if event == "call" and _is_ours(frame.f_code):
            stack = [caller.f_code for caller in _stack(frame) if _is_ours(caller.f_code)]
            if stack[-1] not in self.ignored:
                self._walk.functions.add(frame.f_code)
                self._walk.depth = max(self._walk.depth, len(stack))
                if stack[-1].co_flags & inspect.CO_COROUTINE:
                    self._walk.tasks.add(stack[-1])

    def restart(self) -> Walk:
        """Count into a new walk from here on."""
        self._walk = Walk()
        return self._walk


def _is_ours(code: CodeType) -> bool:
    return (
        code.co_filename.startswith(SOURCE)
        and not code.co_filename.startswith(MODEL)
        and not code.co_name.startswith(INLINE)
    )


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _function(name: str) -> JsonObject:
    parameters: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


async def chat_with_calls(bridge: Bridge, number: int) -> None:
    """Stream a chat whose model says something and calls two functions."""
    calls = [function_call("weather", {"city": city}, call_id=f"call_{city}_{number}") for city in ("Rome", "Oslo")]
    bridge.script(answer(message("Let me see.", pieces=["Let me", " see."]), *calls))
    body: JsonObject = {
        "model": "gpt-5.5",
        "messages": [{"role": "user", "content": f"Weather {number}?"}],
        "tools": [_function("weather"), _function("clock")],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answered = await bridge.http.post("/v1/chat/completions", json=body)
    assert answered.text.endswith("data: [DONE]\n\n"), answered.text
    assert answered.text.count('"id":"call_') == len(calls), answered.text


async def stored_response(bridge: Bridge, number: int) -> None:
    """Stream a response that is stored."""
    bridge.script(answer(message("Hello you.", pieces=["Hello", " you."])))
    body: JsonObject = {"model": "gpt-5.5", "input": f"Hello {number}.", "stream": True, "store": True}
    answered = await bridge.http.post("/v1/responses", json=body)
    assert "event: response.completed" in answered.text, answered.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The most that a request should go through."""

    functions: int
    modules: int
    depth: int


REQUESTS: dict[str, tuple[Callable[[Bridge, int], Awaitable[None]], Goal]] = {
    "streamed chat with two calls": (chat_with_calls, Goal(functions=220, modules=40, depth=16)),
    "stored Responses stream": (stored_response, Goal(functions=200, modules=38, depth=16)),
}


async def measured(data_dir: Path, profiler: Profiler) -> dict[str, Walk]:
    """Return what each request goes through, without what runs periodically."""
    walks: dict[str, Walk] = {}
    async with running_bridge(data_dir, PROXY_VALIDATE_RPC=False) as bridge:
        await asyncio.sleep(START_S)
        idle = profiler.restart()
        await asyncio.sleep(IDLE_S)
        profiler.ignored = frozenset(idle.tasks)
        for title, (ask, _) in REQUESTS.items():
            await ask(bridge, 0)
            await asyncio.sleep(SETTLE_S)
            repeated: list[Walk] = []
            for number in range(1, REPEATS + 1):
                repeated.append(profiler.restart())
                await ask(bridge, number)
                await asyncio.sleep(SETTLE_S)
            profiler.restart()
            walks[title] = Walk(
                functions=set.intersection(*(walk.functions for walk in repeated)),
                depth=min(walk.depth for walk in repeated),
            )
    return walks


def main() -> None:
    """Print a table with the goals in brackets, and with `-v` the functions of each module."""
    profiler = Profiler()
    # Before the gateway starts, so that its threads are counted too.
    threading.setprofile(profiler)
    sys.setprofile(profiler)
    with tempfile.TemporaryDirectory() as data_dir, capture_logs():
        walks = asyncio.run(measured(Path(data_dir), profiler))
    sys.setprofile(None)
    print(f"{'request':<30}{'functions':>14}{'modules':>14}{'depth':>14}")
    for title, walk in walks.items():
        _, goal = REQUESTS[title]
        cells = (
            f"{len(walk.functions)} ({goal.functions})",
            f"{len(walk.modules)} ({goal.modules})",
            f"{walk.depth} ({goal.depth})",
        )
        print(f"{title:<30}" + "".join(f"{cell:>14}" for cell in cells))
        if "-v" in sys.argv:
            for path in sorted(walk.modules):
                names = sorted(code.co_qualname for code in walk.functions if code.co_filename == path)
                print(f"  {Path(path).relative_to(SOURCE)}: {', '.join(names)}")


if __name__ == "__main__":
    main()
