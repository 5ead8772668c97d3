"""Runs turns for one HTTP request and writes the answer, live or whole. The response owns the turns: when the client
leaves, they are interrupted in Codex.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol, TypeAlias

import msgspec
from starlette.types import Receive, Scope, Send

from turnbridge.engine.turns import TurnRunner
from turnbridge.turn.events import MessageStarted, ReasoningStarted, Terminal, TurnEvent, TurnFailed, Usage
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import TurnRequest
from turnbridge.web.access_log import RequestContext, context_of
from turnbridge.wire import sse

ChoiceBatch: TypeAlias = tuple[int, Sequence[TurnEvent]]

# Said inside a stream, whose headers have long gone, in the words of the header that whole answers carry.
USAGE_HEADER = "x-turnbridge-usage"

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    # nginx would collect a stream before passing it on.
    "x-accel-buffering": "no",
}


class Writer(Protocol):
    """One API's way of writing an answer."""

    @property
    def failure(self) -> TurnFailed | None:
        """Return the failure that ended the answer, if one did."""
        ...

    @property
    def usage(self) -> Usage:
        """Return the tokens so far."""
        ...

    def opening(self) -> bytes:
        """Return the frames that come before any output."""
        ...

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        """Return the frames of events of choice `index`."""
        ...

    def closing(self) -> bytes:
        """Return the frames that come after every choice has ended."""
        ...

    def whole(self) -> JsonObject:
        """Return the answer in one piece."""
        ...


class TurnResponse:
    """An ASGI response that runs `choices` turns of one request."""

    def __init__(
        self,
        runner: TurnRunner,
        request: TurnRequest,
        writer: Writer,
        *,
        choices: int = 1,
        hold_s: float,
        headers: Mapping[str, str],
    ) -> None:
        self._events = run_choices(runner, request, choices)
        self._streamed = request.streamed
        self._writer = writer
        self._hold_s = hold_s
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client leaves first."""
        context = context_of(scope)
        context.stream = self._streamed
        answer = asyncio.ensure_future(self._stream(context, send) if self._streamed else self._whole(context, send))
        gone = asyncio.ensure_future(_client_gone(receive))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            answer.cancel()
            await asyncio.wait((answer, gone))
        _count(context, self._writer)
        if not answer.cancelled():
            answer.result()

    async def _whole(self, context: RequestContext, send: Send) -> None:
        async with aclosing(self._events) as source:
            async for index, events in source:
                self._writer.frames(index, events)
                if _has_output(events):
                    context.mark_first_output()
                if self._writer.failure is not None:
                    raise self._writer.failure.error
        body = msgspec.json.encode(self._writer.whole())
        usage = "estimated" if self._writer.usage.estimated else "exact"
        head = {"content-type": "application/json", "content-length": str(len(body)), USAGE_HEADER: usage}
        await _start(send, {**head, **self._headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, context: RequestContext, send: Send) -> None:
        """Hold the headers back until the turn has said something, so that a failure before it is an HTTP status."""
        async with aclosing(self._events) as source:
            first = asyncio.ensure_future(_until_output(source))
            try:
                await asyncio.wait((first,), timeout=self._hold_s)
                if first.done():
                    _refuse_if_failed(first.result())
                await _start(send, {**STREAM_HEADERS, **self._headers})
                opening = self._writer.opening()
                if not first.done():
                    await _send(send, opening)
                    opening = b""
                await _send(send, opening + b"".join(self._frames(context, batch) for batch in await first))
            finally:
                first.cancel()
                await asyncio.wait((first,))
            if self._writer.failure is None:
                async for batch in source:
                    await _send(send, self._frames(context, batch))
                    if self._writer.failure is not None:
                        break
        await send({"type": "http.response.body", "body": self._writer.closing()})

    def _frames(self, context: RequestContext, batch: ChoiceBatch) -> bytes:
        index, events = batch
        if _has_output(events):
            context.mark_first_output()
        frames = self._writer.frames(index, events)
        if isinstance(events[-1], Terminal) and events[-1].usage.estimated:
            return sse.comment(f"{USAGE_HEADER}: estimated") + frames
        return frames


async def run_choices(runner: TurnRunner, request: TurnRequest, choices: int) -> AsyncGenerator[ChoiceBatch, None]:
    """Yield the events of several turns of one request as they come, each with the number of its choice."""
    if choices == 1:
        async with aclosing(runner.run(request)) as batches:
            async for batch in batches:
                yield 0, batch
        return
    arrived: asyncio.Queue[ChoiceBatch | None] = asyncio.Queue()

    async def run_one(index: int) -> None:
        async with aclosing(runner.run(request)) as batches:
            async for batch in batches:
                arrived.put_nowait((index, batch))
        arrived.put_nowait(None)

    tasks = [asyncio.ensure_future(run_one(index)) for index in range(choices)]
    try:
        running = choices
        while running:
            next_batch = await arrived.get()
            if next_batch is None:
                running -= 1
            else:
                yield next_batch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_output(source: AsyncIterator[ChoiceBatch]) -> list[ChoiceBatch]:
    """Return the batches up to the first one that can be shown."""
    batches: list[ChoiceBatch] = []
    async for batch in source:
        batches.append(batch)
        if _has_output(batch[1]):
            break
    return batches


def _has_output(events: Sequence[TurnEvent]) -> bool:
    """Tell whether something of it can be shown: an item that has merely begun cannot."""
    return any(not isinstance(event, MessageStarted | ReasoningStarted) for event in events)


def _refuse_if_failed(held: list[ChoiceBatch]) -> None:
    for _, events in held:
        failed = events[-1]
        if isinstance(failed, TurnFailed):
            raise failed.error


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, headers: Mapping[str, str]) -> None:
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})


async def _send(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


def _count(context: RequestContext, writer: Writer) -> None:
    usage = writer.usage
    context.input_tokens, context.cached_tokens = usage.input, usage.cached
    context.output_tokens, context.reasoning_tokens = usage.output, usage.reasoning
    if writer.failure is not None:
        context.error_code = writer.failure.error.error_code
