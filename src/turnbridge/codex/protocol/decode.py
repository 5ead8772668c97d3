"""Codex's notifications of one turn → `TurnEvent`s.

Deltas come from Codex's own item events. Whole items, with what those leave out (annotations, encrypted reasoning),
come from the raw ones. The final text of a message or reasoning part is always the concatenation of its deltas.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.errors import (
    CONTEXT_WORDS,
    gateway_error,
    incomplete_reason,
)
from turnbridge.codex.protocol.images import ImageCalls
from turnbridge.codex.protocol.retries import Retries
from turnbridge.codex.protocol.tool_names import NO_TOOLS, ToolNames
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import ImagePart, Json, JsonObject, Part
from turnbridge.turn.json_schema import levels

# Codex reads no JSON that is nested so deep.
UNREADABLE_LEVELS = 128
# Items that only a model which answers can start.
MODEL_ITEMS = ("agentMessage", "reasoning", "webSearch")
# Items that show Codex acting by itself. The recipe disables all of them; if one comes, the recipe has failed.
HOST_ACTIONS = frozenset(
    {"commandExecution", "fileChange", "mcpToolCall", "collabAgentToolCall", "subAgentActivity", "imageView"}
)

_raw_item = msgspec.json.Decoder(schema.RawItem)


def lost_image(note: schema.RawItemCompleted, parts: Sequence[Part]) -> ImagePart | None:
    """Return the first image of an injected item that Codex could not read and replaced by a text."""
    echoed = _raw_item.decode(note.item).parts()
    pairs = zip(parts, echoed, strict=False)
    return next((sent for sent, kept in pairs if isinstance(sent, ImagePart) and kept.type != "input_image"), None)


@dataclass(slots=True)
class _OpenMessage:
    phase: str | None
    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _OpenReasoning:
    summary: dict[int, list[str]] = field(default_factory=dict)
    content: dict[int, list[str]] = field(default_factory=dict)


class TurnDecoder:
    """Decodes one turn up to its terminal event; notifications of other turns are ignored.

    `CallsAwaited` is such an end as well; `resume` continues after it.
    """

    def __init__(
        self,
        names: ToolNames | None = None,
        *,
        allow_truncation: bool = False,
        parallel_calls: bool = True,
        retries: Retries | None = None,
    ) -> None:
        self._names = names or NO_TOOLS
        self._allow_truncation = allow_truncation
        self._retries = retries or Retries()
        self._calls: list[ev.FunctionCallDone] = []
        # The calls of a script are open at the same time; a client without parallel calls gets them one by one.
        self._script_calls: list[ev.FunctionCallDone] = []
        self._most_script_calls = None if parallel_calls else 1
        # A dictionary, since most turns have no calls: an empty set takes 0.2 KB of an open stream.
        self._known_calls: dict[str, None] = {}
        self._order: list[str] = []
        self._messages: dict[str, _OpenMessage] = {}
        self._thoughts: dict[str, _OpenReasoning] = {}
        self._images = ImageCalls()
        self._usage = ev.Usage()
        self.responding = False
        """Whether a response of the model is in progress, which may bring more calls."""
        self.turn_id: str | None = None
        """The turn that is decoded; until it is known, everything is ignored."""
        self.heard = False
        """Whether the model has sent anything since the turn was started or resumed."""
        self.ended = False

    def resume(self) -> None:
        """Continue after the outputs of the calls were sent; usage starts at zero."""
        self._usage = ev.Usage()
        self._retries.succeeded()
        self.heard = self.ended = False

    @property
    def retrying(self) -> bool:
        """Tell whether the provider has just failed and Codex retries."""
        return self._retries.pending and not self.ended

    def read(self, notes: Sequence[schema.Note]) -> list[ev.TurnEvent]:
        """Return the events of notifications."""
        events: list[ev.TurnEvent] = []
        for note in notes:
            if self.ended:
                break
            if not isinstance(note, schema.AgentMessageDelta):
                events += self._read_other(note)
            elif note.turn_id == self.turn_id and (text := note.delta):
                item_id = note.item_id
                message = self._messages.get(item_id)
                if message is None:
                    message = self._messages[item_id] = _OpenMessage(None)
                if not message.pieces:
                    self._provider_answered()
                    events.append(ev.MessageStarted(item_id, message.phase))
                message.pieces.append(text)
                events.append(ev.TextDelta(item_id, text))
        return events

    def close(self, error: errors.GatewayError) -> list[ev.TurnEvent]:
        """Return the end of a turn that Codex will not finish."""
        return [] if self.ended else self._fail(error)

    def _provider_answered(self) -> None:
        self._retries.succeeded()
        self.heard = True

    def _read_other(self, note: schema.Note) -> list[ev.TurnEvent]:
        """Return the events of a notification that is no text of a message."""
        turn_id = note.turn.id if isinstance(note, schema.TurnCompleted) else note.turn_id
        # Injected items are reported under a made-up turn id before the turn starts.
        if turn_id != self.turn_id:
            return []
        match note:
            case schema.SummaryTextDelta():
                self._provider_answered()
                return self._thought(note.item_id, note.summary_index, note.delta, is_summary=True)
            case schema.ReasoningTextDelta():
                self._provider_answered()
                return self._thought(note.item_id, note.content_index, note.delta, is_summary=False)
            case schema.ItemStarted():
                # Codex starts items of its own as well, and reports the outputs of the client.
                self._retries.succeeded()
                self.heard = self.heard or note.item.type in MODEL_ITEMS
                return self._item_started(note.item)
            case schema.RawItemCompleted():
                self._retries.succeeded()
                return self._raw_item(note.item)
            case schema.RawResponseCompleted():
                self._provider_answered()
                self.responding = False
                if note.usage is not None:
                    # The fields of both are in the same order.
                    self._usage += ev.Usage(*msgspec.structs.astuple(note.usage))
                return self._calls_made()
            case schema.ToolCallAsked():
                self._retries.succeeded()
                return self._call_asked(note)
            case schema.ErrorReported():
                return self._attempt_failed(note)
            case schema.TurnCompleted():
                return self._turn_completed(note.turn)
            case schema.AgentMessageDelta() | schema.ItemCompleted() | schema.TokenUsageUpdated():
                return []
            case _:
                assert_never(note)

    def _item_started(self, item: schema.ThreadItem) -> list[ev.TurnEvent]:
        if item.type == "agentMessage":
            self._messages[item.id] = _OpenMessage(item.phase)
        elif item.type == "reasoning":
            self._thoughts[item.id] = _OpenReasoning()
            return [ev.ReasoningStarted(item.id)]
        elif item.type in HOST_ACTIONS:
            problem = f"Codex acted on the gateway's host by itself ({item.type}); the turn was stopped."
            advice = "Use the Codex that comes with Turnbridge, and report this."
            return self._fail(errors.CodexActed(f"{problem} {advice}"))
        elif item.type == "contextCompaction" and not self._allow_truncation:
            problem = f'{CONTEXT_WORDS} Shorten it, or send `truncation: "auto"`.'
            return self._fail(errors.ContextTooLong(problem, param="input"))
        return []

    def _thought(self, item_id: str, index: int, text: str, *, is_summary: bool) -> list[ev.TurnEvent]:
        if not text:
            return []
        started: list[ev.TurnEvent] = [] if item_id in self._thoughts else [ev.ReasoningStarted(item_id)]
        thought = self._thoughts.setdefault(item_id, _OpenReasoning())
        parts = thought.summary if is_summary else thought.content
        parts.setdefault(index, []).append(text)
        delta = ev.SummaryDelta if is_summary else ev.ReasoningDelta
        return [*started, delta(item_id, index, text)]

    def _raw_item(self, raw: msgspec.Raw) -> list[ev.TurnEvent]:
        item = _raw_item.decode(raw)
        # Codex reports the client's outputs as well, before it calls the model again.
        self.responding = not item.type.endswith("_output")
        self._order.append(item.id or item.call_id or "")
        if item.type == "message" and item.role == "assistant":
            return self._message_done(item)
        if item.type == "reasoning":
            return self._reasoning_done(item)
        if (image := self._images.read(item)) is not None:
            return [image]
        if item.type == "function_call":
            self._call(item)
        if item.type == "web_search_call" and item.id is not None:
            action: JsonObject = {key: _decoded(value) for key, value in (item.action or {}).items()}
            return [ev.WebSearchDone(item.id, action)]
        return []

    def _call(self, item: schema.RawItem) -> None:
        """Keep a call until its batch is complete.

        Codex itself answers calls of undeclared functions, and calls whose arguments it cannot read.
        """
        known, call_id = self._names.call_to_client(item.name or "", item.namespace), item.call_id or ""
        arguments = msgspec.json.decode(item.arguments, type=str)
        if known is not None and _is_readable(arguments):
            name, namespace = known
            self._known_calls[call_id] = None
            self._calls.append(ev.FunctionCallDone(item.id or call_id, call_id, name, arguments, namespace))

    @property
    def holds_calls(self) -> bool:
        """Tell whether there are calls that the client has not seen yet."""
        return bool(self._calls or self._script_calls) and not self.ended

    def release_calls(self) -> list[ev.TurnEvent]:
        """Return the calls so far, without waiting for more, nor for the usage of a response in progress."""
        if self.responding:
            self._usage += ev.Usage(estimated=True)
        return self._calls_made()

    def _calls_made(self) -> list[ev.TurnEvent]:
        calls = [*self._calls, *self._script_calls[: self._most_script_calls]]
        if not calls:
            return []
        self._calls, self._script_calls = [], self._script_calls[len(calls) - len(self._calls) :]
        order, self._order = tuple(self._order), []
        return [*calls, *self._end(ev.CallsAwaited(self._usage, order))]

    def _call_asked(self, asked: schema.ToolCallAsked) -> list[ev.TurnEvent]:
        """Hold a call that has no item of its own: a script of the model made it (code mode).

        Codex asks for a known call as soon as the model has written it, while the batch may still grow.
        """
        if asked.call_id not in self._known_calls:
            known = self._names.call_to_client(asked.tool, asked.namespace)
            name, namespace = known or (asked.tool, asked.namespace)
            call = asked.call_id, name, bytes(asked.arguments).decode(), namespace
            self._script_calls.append(ev.FunctionCallDone(f"fc_{asked.call_id}", *call))
        return []

    def _message_done(self, item: schema.RawItem) -> list[ev.TurnEvent]:
        item_id = item.id if item.id in self._messages else next(iter(self._messages), item.id or "msg")
        message = self._messages.setdefault(item_id, _OpenMessage(item.phase))
        message.phase = message.phase or item.phase
        text, annotations = _joined(item.content or [])
        # What was not streamed is read as one more delta.
        rest = schema.AgentMessageDelta("", self.turn_id or "", item_id, _rest(text, "".join(message.pieces)))
        events = TurnDecoder.read(self, [rest])
        del self._messages[item_id]
        if not message.pieces:
            events = [ev.MessageStarted(item_id, message.phase)]
        return [*events, ev.MessageDone(item_id, message.phase, "".join(message.pieces), annotations)]

    def _reasoning_done(self, item: schema.RawItem) -> list[ev.TurnEvent]:
        item_id = item.id if item.id in self._thoughts else next(iter(self._thoughts), item.id or "rs")
        events: list[ev.TurnEvent] = []
        if item_id not in self._thoughts:
            self._thoughts[item_id] = _OpenReasoning()
            events.append(ev.ReasoningStarted(item_id))
        thought = self._thoughts[item_id]
        for is_summary, parts, streamed in (
            (True, item.summary or [], thought.summary),
            (False, item.content or [], thought.content),
        ):
            for index, part in enumerate(parts):
                rest = _rest(part.text, "".join(streamed.get(index, [])))
                events += self._thought(item_id, index, rest, is_summary=is_summary)
        return [*events, self._thought_done(item_id, encrypted=item.encrypted_content)]

    def _thought_done(self, item_id: str, *, encrypted: str | None) -> ev.ReasoningDone:
        thought = self._thoughts.pop(item_id)
        return ev.ReasoningDone(item_id, _in_order(thought.summary), _in_order(thought.content), encrypted)

    def _attempt_failed(self, note: schema.ErrorReported) -> list[ev.TurnEvent]:
        """Fail the turn if the retry would repeat text that was sent; reasoning can be left incomplete."""
        if not note.will_retry:
            return []
        if (final := self._retries.failed(note.error)) is not None:
            return self._fail(final)
        if any(message.pieces for message in self._messages.values()):
            return self._fail(errors.UpstreamFailed(note.error.additional_details or note.error.message))
        self._messages.clear()
        return [self._thought_done(item_id, encrypted=None) for item_id in list(self._thoughts)]

    def _turn_completed(self, turn: schema.TurnRef) -> list[ev.TurnEvent]:
        if turn.status == "failed" and turn.error is not None:
            if (reason := incomplete_reason(turn.error)) is not None:
                # Codex reports no usage for an answer that the provider cut off.
                return self._end(ev.TurnIncomplete(reason, ev.Usage(estimated=True)))
            return self._fail(gateway_error(turn.error))
        if turn.status != "completed":
            return self._fail(errors.UpstreamFailed(f"Codex ended the turn as {turn.status}."))
        if any(not message.pieces for message in self._messages.values()):
            problem = "The model began a message that Codex did not pass on; most likely it refused to answer."
            return self._fail(errors.PolicyRefusal(problem, code="refusal"))
        return self._end(ev.TurnCompleted(self._usage))

    def _fail(self, error: errors.GatewayError) -> list[ev.TurnEvent]:
        return self._end(ev.TurnFailed(error, self._usage))

    def _end(self, terminal: ev.Terminal) -> list[ev.TurnEvent]:
        self.ended = True
        return [terminal]


def _rest(whole: str, streamed: str) -> str:
    """Return the part of a text that was not streamed; nothing if Codex streamed other text (it hides its markup)."""
    return whole[len(streamed) :] if whole.startswith(streamed) else ""


def _in_order(parts: dict[int, list[str]]) -> tuple[str, ...]:
    return tuple("".join(parts[index]) for index in sorted(parts))


def _joined(parts: list[schema.RawPart]) -> tuple[str, tuple[JsonObject, ...]]:
    """Join the parts of a message as they were streamed, and shift the indices of their annotations."""
    text, annotations = "", list[JsonObject]()
    for part in parts:
        for annotation in part.annotations or []:
            if isinstance(moved := _decoded(annotation), dict):
                for key in ("start_index", "end_index"):
                    if isinstance(place := moved.get(key), int):
                        moved[key] = place + len(text)
                annotations.append(moved)
        text += part.text
    return text, tuple(annotations)


def _is_readable(arguments: str) -> bool:
    """Tell whether Codex can read arguments; if this is wrong, Codex asks for the call all the same."""
    try:
        value: Json = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    # Walking large arguments takes a tenth of a second; few brackets cannot nest deep.
    return arguments.count("[") + arguments.count("{") < UNREADABLE_LEVELS or levels(value) < UNREADABLE_LEVELS


def _decoded(raw: msgspec.Raw) -> Json:
    value: Json = msgspec.json.decode(raw)
    return value
