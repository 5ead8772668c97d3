"""Runs one turn: brings in media, shows the model the request, ends the answer where the client wants, checks it."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeGuard

from turnbridge.engine.conformance import Conformance, repair_instruction
from turnbridge.engine.limits import OutputLimit
from turnbridge.engine.ports import Backend, Conversation, MediaLoader, Tokenizer
from turnbridge.engine.timing import TimedConversation, Watch
from turnbridge.engine.tool_calls import OpenCalls
from turnbridge.engine.tool_rules import ToolRules
from turnbridge.engine.warm_threads import Told, WarmThreads
from turnbridge.turn.errors import BackendLost, GatewayError, OutputRejected
from turnbridge.turn.events import (
    CallsAwaited,
    MessageStarted,
    ReasoningDelta,
    SummaryDelta,
    Terminal,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnIncomplete,
    Usage,
)
from turnbridge.turn.items import (
    NARRATION,
    FilePart,
    FunctionCallOutput,
    ImagePart,
    Item,
    Message,
    Part,
    TextPart,
    is_models,
)
from turnbridge.turn.request import AnyJsonObject, JsonOfSchema, PlainText, TurnRequest
from turnbridge.turn.values import replace

# Where a provider says that it gives no reasoning summaries.
SUMMARY_PARAM = "reasoning.summary"

Batches: TypeAlias = AsyncGenerator[Sequence[TurnEvent], None]


@dataclass(slots=True)
class Served:
    """How a turn was served: in a turn that waited, a thread that went on, or a thread of its own."""

    thread: Literal["parked", "warm", "replayed", "fresh"] = "fresh"


class TurnRunner:
    """Runs turns on a backend. Closing the iterator of a run interrupts its turn in Codex."""

    def __init__(
        self,
        backend: Backend,
        media: MediaLoader,
        tokenizer: Tokenizer,
        calls: OpenCalls,
        warm: WarmThreads,
        watch: Watch,
    ) -> None:
        self._backend = backend
        self._media = media
        self._tokenizer = tokenizer
        self._calls = calls
        self._warm = warm
        self._watch = watch
        self._without_summary: set[str] = set()

    async def run(self, request: TurnRequest, served: Served | None = None) -> Batches:
        """Yield the turn's events in batches, the last of which ends in a `Terminal`: a `GatewayError` becomes one.

        How the turn is served is written into `served` before the first batch.
        """
        served = served or Served()
        try:
            items = await self._ready_items(request)
            ready = request if items == request.items else replace(request, items=items)
            if ready.model in self._without_summary and not ready.summary_needed:
                ready = replace(ready, summary=None)
            # As long as nothing has been told, a turn may begin again.
            for attempt in itertools.count(1):
                async with aclosing(self._attempt(ready, served)) as batches:
                    first = await anext(batches)
                    if not request.streamed:
                        # The client hears nothing before the end, so everything up to it may begin again.
                        first = [*first, *[event async for batch in batches for event in batch]]
                    if (again := await self._again(ready, first, attempt)) is not None:
                        ready = again
                        continue
                    yield first
                    async for batch in batches:
                        yield batch
                    return
        except GatewayError as error:
            yield [TurnFailed(error)]

    async def _attempt(self, request: TurnRequest, served: Served) -> Batches:
        """Yield one attempt at the turn; its conversation is then kept if it may go on, else given up.

        That Codex died before the turn could begin is told like any other failure.
        """
        conversation: TimedConversation | None = None
        kept = False
        try:
            told = Told(request)
            conversation, source = await self._begin(told, served)
            rules = ToolRules(conversation, request)
            async with aclosing(self._shaped(conversation, request, rules, source)) as batches:
                async for batch in batches:
                    # Before the client hears the end: its next request may come at once.
                    kept = self._keep(conversation.inner, told, rules, batch[-1])
                    yield batch
        except BackendLost as error:
            yield [TurnFailed(error)]
        finally:
            if conversation is not None and not kept:
                conversation.close()

    async def _begin(self, told: Told, served: Served) -> tuple[TimedConversation, Batches]:
        """Return the answer to come: of the turn or thread that a request continues, or of one that replays it."""
        request = told.request
        if (claim := self._calls.claim(request)) is not None:
            served.thread = "parked"
            parked = self._watch.over(claim.conversation)
            return parked, parked.resume(claim.outputs)
        if (warm := self._warm.take(told)) is not None:
            served.thread = "warm"
            kept = self._watch.over(warm.conversation)
            return kept, kept.run(warm.rest, request)
        history = self._calls.restored(request)
        served.thread = "replayed" if any(map(is_models, history)) else "fresh"
        conversation = self._watch.over(await self._backend.open(replace(request, items=history)))
        return conversation, conversation.run()

    async def _again(self, request: TurnRequest, first: Sequence[TurnEvent], attempt: int) -> TurnRequest | None:
        """Return what to run instead of a turn that failed before it said anything, if something may help."""
        failed = first[-1]
        if not isinstance(failed, TurnFailed) or (request.streamed and len(first) > 1):
            return None
        if isinstance(failed.error, BackendLost):
            # Codex died under the turn, or while it waited. If that happens again, the turn itself may be the cause.
            return request if attempt == 1 else None
        if failed.error.param == SUMMARY_PARAM and request.summary is not None and not request.summary_needed:
            # Providers give summaries to some accounts only.
            self._without_summary.add(request.model)
            return replace(request, summary=None)
        return request if await self._backend.serves_otherwise(request, failed.error) else None

    def _keep(self, conversation: Conversation, told: Told, rules: ToolRules, ending: TurnEvent) -> bool:
        """Keep a conversation that waits for its client, or that its client may go on with."""
        request = told.request
        if isinstance(ending, CallsAwaited) and rules.leg is not None:
            if ending.usage.estimated or not request.awaits_outputs or not conversation.alive:
                # After an answer that broke off, the turn would only fail, and a replay does not. Nor does every Codex
                # wait for outputs.
                self._calls.remember(request.client, rules.leg)
                return False
            self._calls.park(request, conversation, rules.leg)
            return True
        whole = isinstance(ending, TurnCompleted) and not ending.usage.estimated
        if whole and not rules.intervened and conversation.alive:
            self._warm.keep(told, rules.said, conversation)
            return True
        return False

    async def _ready_items(self, request: TurnRequest) -> tuple[Item, ...]:
        """Return the items with every image and file inside them, and the schema if Codex cannot carry it."""
        # Most items are text, and long histories have many of them: those are not looked into any further.
        items = tuple([item if _is_ready(item) else await self._ready_item(item) for item in request.items])
        output = request.output
        if isinstance(output, JsonOfSchema) and not output.enforced:
            return (_schema_message(output), *items)
        return items

    async def _ready_item(self, item: Item) -> Item:
        if isinstance(item, Message):
            return replace(item, parts=await self._ready_parts(item.parts))
        if isinstance(item, FunctionCallOutput) and not isinstance(item.output, str):
            parts = await self._ready_parts(item.output)
            # One text is the same to the model as a string, and the one form that Codex gives to both.
            return replace(item, output=parts[0].text if _is_one_text(parts) else parts)
        return item

    async def _ready_parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        if _all_text(parts):
            return parts
        return tuple(await asyncio.gather(*(self._ready_part(part) for part in parts)))

    async def _ready_part(self, part: Part) -> Part:
        if isinstance(part, ImagePart) and not part.url.startswith("data:"):
            return replace(part, url=await self._media.image(part.url, param=part.param))
        if isinstance(part, FilePart):
            return TextPart(text=await self._media.file_text(part))
        return part

    def _shaped(self, conversation: Conversation, request: TurnRequest, rules: ToolRules, source: Batches) -> Batches:
        """Return an answer of the shape that the client asked for."""
        limited = self._limited(conversation, rules, source, request)
        rule = _rule(request)
        if rule is None:
            return limited
        return (
            _checked(rule, limited) if request.streamed else self._repaired(rule, conversation, request, rules, limited)
        )

    async def _repaired(
        self, rule: Conformance, conversation: Conversation, request: TurnRequest, rules: ToolRules, source: Batches
    ) -> Batches:
        """Yield an answer that conforms; one that does not is first given one chance to be repaired."""
        answer = await _whole(source)
        problem = answer.problem(rule)
        if problem is not None:
            correction = Message(role="user", parts=(TextPart(text=repair_instruction(problem)),))
            rules.intervened = True
            answer = await _whole(self._limited(conversation, rules, conversation.run([correction]), request))
            problem = answer.problem(rule)
        yield answer.events if problem is None else [*answer.events[:-1], _rejected(problem, answer.usage)]

    async def _limited(
        self, conversation: Conversation, rules: ToolRules, source: Batches, request: TurnRequest
    ) -> Batches:
        """Yield the answer up to the client's stop sequence or token limit; the turn is interrupted right there.

        Legs that only correct the model join the one that the client sees.
        """
        limit = OutputLimit(request.stop, request.max_output_tokens, self._tokenizer)
        said: list[str] = []
        following: Batches | None = source
        while following is not None:
            current, following = following, None
            async with aclosing(current) as batches:
                async for batch in batches:
                    allowed, following = rules.judge(batch)
                    gated = limit.feed(allowed)
                    said += _texts(gated.events)
                    if gated.cut is not None:
                        conversation.close()
                        # Codex gives no count for a turn that was interrupted.
                        yield [*gated.events, _cut(gated.cut, rules.spent + self._estimate(request, said))]
                        return
                    if gated.events:
                        gated.events[-1] = self._counted(gated.events[-1], request, said, rules.spent)
                        yield gated.events
                    if following is not None:
                        break

    def _counted(self, event: TurnEvent, request: TurnRequest, said: list[str], spent: Usage) -> TurnEvent:
        """Return the event with a count, if it is the end of an answer for which Codex has none."""
        if isinstance(event, TurnIncomplete) and event.usage.estimated:
            return replace(event, usage=spent + self._estimate(request, said))
        return event

    def _estimate(self, request: TurnRequest, said: list[str]) -> Usage:
        shown = [request.instructions or "", *(_text_of(item) for item in request.items)]
        return Usage(
            input=self._tokenizer.count("\n".join(shown)),
            output=self._tokenizer.count("".join(said)),
            estimated=True,
        )


def _cut(at: Literal["stop", "length"], usage: Usage) -> TurnEvent:
    """Return the end of an answer that was cut where the client wished."""
    return TurnCompleted(usage) if at == "stop" else TurnIncomplete("max_output_tokens", usage)


class _Answer:
    """A turn's events, and what the model's answer among them says."""

    def __init__(self) -> None:
        self.events: list[TurnEvent] = []

    def add(self, batch: Sequence[TurnEvent]) -> None:
        self.events += batch

    @property
    def usage(self) -> Usage:
        last = self.events[-1]
        if not isinstance(last, Terminal):
            raise AssertionError("A turn's events end in a terminal one.")
        return last.usage

    def problem(self, rule: Conformance) -> str | None:
        """Return what is wrong with the answer, if it is complete."""
        if not self.events or not isinstance(self.events[-1], TurnCompleted):
            return None
        narrated = {e.item_id for e in self.events if isinstance(e, MessageStarted) and e.phase == NARRATION}
        spoken = (e.text for e in self.events if isinstance(e, TextDelta) and e.item_id not in narrated)
        return rule.problem("".join(spoken))


async def _whole(source: Batches) -> _Answer:
    answer = _Answer()
    async with aclosing(source) as batches:
        async for batch in batches:
            answer.add(batch)
    return answer


async def _checked(rule: Conformance, source: Batches) -> Batches:
    """Yield a streamed answer; what a client has read cannot be taken back, so one that does not conform has failed."""
    answer = _Answer()
    async with aclosing(source) as batches:
        async for batch in batches:
            answer.add(batch)
            problem = answer.problem(rule)
            yield batch if problem is None else [*batch[:-1], _rejected(problem, answer.usage)]


def _is_ready(item: Item) -> bool:
    return isinstance(item, Message) and _all_text(item.parts)


def _all_text(parts: tuple[Part, ...]) -> bool:
    return all(isinstance(part, TextPart) for part in parts)


def _is_one_text(parts: tuple[Part, ...]) -> TypeGuard[tuple[TextPart]]:
    return len(parts) == 1 and isinstance(parts[0], TextPart)


def _rule(request: TurnRequest) -> Conformance | None:
    match request.output:
        case PlainText():
            return None
        case AnyJsonObject():
            return Conformance.for_object()
        case JsonOfSchema(schema=schema):
            return Conformance.for_schema(schema)


def _rejected(problem: str, usage: Usage) -> TurnFailed:
    return TurnFailed(OutputRejected(f"The model's answer does not conform to the requested format: {problem}"), usage)


def _schema_message(output: JsonOfSchema) -> Message:
    """Return the words for a schema that the provider would refuse to enforce (it is not of the strict subset)."""
    about = f" ({output.description})" if output.description else ""
    schema = json.dumps(output.schema, ensure_ascii=False)
    text = f"Answer only with JSON named `{output.name}`{about} that conforms to this JSON Schema:\n{schema}"
    return Message(role="developer", parts=(TextPart(text=text),))


def _texts(events: Sequence[TurnEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta | SummaryDelta | ReasoningDelta)]


def _text_of(item: Item) -> str:
    if isinstance(item, Message):
        return "".join(part.text for part in item.parts if isinstance(part, TextPart))
    if isinstance(item, FunctionCallOutput) and isinstance(item.output, str):
        return item.output
    return ""
