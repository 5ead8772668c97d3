"""The methods of the official SDK, found by looking at it, each with the least that it can be called with."""

import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import openai

RESOURCES = "openai.resources"

# Methods that send nothing: they read what is given to them.
LOCAL = frozenset({"webhooks.unwrap", "webhooks.verify_signature", "beta.agents.sessions.artifacts.for_result"})
# They only put others together, each of which is called by itself; these want files on disk, or objects of the others.
COMPOSED = frozenset(
    {
        "beta.agents.environments.files.prepare",
        "beta.agents.environments.files.prepare_directory",
        "beta.agents.environments.files.upload",
        "uploads.upload_file_chunked",
    }
)

FILE = ("a.txt", b"a")
VALUES: Mapping[str, object] = {
    "file": FILE,
    "files": [FILE],
    "image": FILE,
    "video": FILE,
    "data": FILE,
    "recording": FILE,
    "audio_sample": FILE,
    "bytes": 1,
    "n": 1,
    "start_time": 1,
    "threshold_amount": 1,
    "messages": [{"role": "user", "content": "hi"}],
    "tool_outputs": [],
    "file_ids": ["x"],
    "items": [{"type": "message", "role": "user", "content": "hi"}],
    "max_wait_seconds": 1,
    "metadata": {"a": "b"},
    "model": "gpt-5.5",
    "input": "hi",
}
"""What parameters of these names get; all others get a text."""
MISSING = re.compile(r"'(\w+)'")


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a resource, by its name from the client on."""

    name: str
    call: Callable[..., object]

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Return what it can be called with."""
        return inspect.signature(self.call).parameters

    async def run(self, **given: object) -> None:
        """Call it to the end; raises what the SDK does."""
        needed = {name: _value(name) for name, each in self.parameters.items() if each.default is each.empty}
        arguments = {**needed, **given}
        try:
            result = self.call(**arguments)
            await _read(result)
        except TypeError as lacking:
            # What one of several overloads needs is told only at the call.
            if "Missing required arguments" not in str(lacking):
                raise
            names = MISSING.findall(str(lacking).partition(" or ")[0])
            await _read(self.call(**{**{name: _value(name) for name in names}, **arguments}))


def methods(client: openai.AsyncOpenAI) -> Iterator[Method]:
    """Yield every method of every resource that sends something."""
    for name, call in _walk(client, ""):
        if name not in LOCAL | COMPOSED:
            yield Method(name, call)


def _walk(resource: object, path: str) -> Iterator[tuple[str, Callable[..., object]]]:
    for name in dir(type(resource)):
        attribute = inspect.getattr_static(type(resource), name)
        if name.startswith(("_", "with_")):
            continue
        if isinstance(attribute, cached_property | property):
            inner = getattr(resource, name)
            if type(inner).__module__.startswith(RESOURCES):
                yield from _walk(inner, f"{path}{name}.")
        elif path and callable(attribute):
            yield f"{path}{name}", getattr(resource, name)


def _value(name: str) -> object:
    return VALUES.get(name, "x")


async def _read(result: object) -> None:
    """Read what a method returns: an answer, a page, a stream, or a connection."""
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, contextlib.AbstractAsyncContextManager):
        async with result as inner:
            if isinstance(inner, AsyncIterator) and not hasattr(inner, "send"):
                async for _ in inner:
                    pass
