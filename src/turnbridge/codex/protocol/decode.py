"""Codex's notifications of one turn → `TurnEvent`s.

Deltas come from Codex's own item events; the whole items, with what Codex's view leaves out (annotations, encrypted
reasoning), come from the raw ones. What a message or thought says in the end is always the concatenation of what was
streamed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.errors import CONTEXT_WORDS, gateway_error, incomplete_reason
from turnbridge.codex.protocol.retries import Retries
from turnbridge.codex.protocol.tools import NO_NAMESPACE, ToolNames
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import (
    ImagePart,
    Json,
    JsonObject,
    Part,
)
from turnbridge.turn.json_schema import levels

# Codex reads no JSON that is nested so deep.
UNREADABLE_LEVELS = 128
# What a model begins to say or do.
MODELS_ITEMS = ("agentMessage", "reasoning", "webSearch")

# Items that show Codex acting by itself. The recipe switches all of them off; if one comes, the recipe has failed.
HOST_ACTIONS = frozenset(
    {"commandExecution", "fileChange", "mcpToolCall", "collabAgentToolCall", "subAgentActivity", "imageView"}
)

_raw_item = msgspec.json.Decoder(schema.RawItem)


def lost_image(note: schema.RawItemCompleted, parts: Sequence[Part]) -> ImagePart | None:
    """Return the first image of an injected item that Codex could not read, and put a text in the place of."""
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
    """Follows one turn from its start to its terminal event; what is told of others, and later, is ignored.

    A turn that waits for outputs has ended for now; `resume` lets it go on.
    """

    def __init__(
        self,
        names: ToolNames | None = None,
        *,
        allow_truncation: bool = False,
        parallel_calls: bool = True,
        retries: Retries | None = None,
    ) -> None:
        self._names = names or ToolNames(())
        self._allow_truncation = allow_truncation
        self._retries = retries or Retries()
        self._calls: list[ev.FunctionCallDone] = []
        # A script's calls are open side by side; a client that runs one at a time gets them one after another.
        self._script_calls: list[ev.FunctionCallDone] = []
        self._most_script_calls = None if parallel_calls else 1
        self._known_calls: set[str] = set()
        self._order: list[str] = []
        self._messages: dict[str, _OpenMessage] = {}
        self._thoughts: dict[str, _OpenReasoning] = {}
        self._usage = ev.Usage()
        self.responding = False
        """Whether a response of the model's is under way, which may bring more calls."""
        self.turn_id: str | None = None
        """Which turn is followed; nothing is, as long as that is not known."""
        self.heard = False
        """Whether the model has said anything since it was last asked: until then, nobody knows that it is there."""
        self.ended = False

    def resume(self) -> None:
        """Go on after the outputs of the calls have been given; usage is counted anew."""
        self._usage = ev.Usage()
        self._retries.succeeded()
        self.heard = self.ended = False

    @property
    def retrying(self) -> bool:
        """Tell whether the provider has just failed, and Codex asks it again."""
        return self._retries.pending and not self.ended

    def read(self, notes: Iterable[schema.Notification | schema.ToolCallAsked]) -> list[ev.TurnEvent]:
        """Return what notifications mean."""
        events: list[ev.TurnEvent] = []
        turn_id, messages = self.turn_id, self._messages
        for note in notes:
            if self.ended:
                break
            # Nearly all of them go on with a message.
            if isinstance(note, schema.AgentMessageDelta) and note.turn_id == turn_id and (text := note.delta):
                item_id = note.item_id
                message = messages.get(item_id)
                if message is not None and message.pieces:
                    message.pieces.append(text)
                    events.append(ev.TextDelta(item_id, text))
                    continue
            events += self.feed(note)
        return events

    def feed(self, note: schema.Notification | schema.ToolCallAsked) -> list[ev.TurnEvent]:
        """Return what a notification means."""
        if self.ended:
            return []
        if isinstance(note, schema.TurnCompleted):
            return self._turn_completed(note.turn) if note.turn.id == self.turn_id else []
        # Injected items are reported under a made-up turn id before the turn starts.
        if note.turn_id != self.turn_id:
            return []
        return self._feed_item(note)

    def close(self, error: errors.GatewayError) -> list[ev.TurnEvent]:
        """Return the end of a turn that Codex will not finish."""
        return [] if self.ended else self._fail(error)

    def _feed_item(
        self,
        note: schema.ItemStarted
        | schema.AgentMessageDelta
        | schema.SummaryTextDelta
        | schema.ReasoningTextDelta
        | schema.RawItemCompleted
        | schema.RawResponseCompleted
        | schema.ErrorReported
        | schema.ToolCallAsked,
    ) -> list[ev.TurnEvent]:
        if not isinstance(note, schema.ErrorReported):
            self._retries.succeeded()
        self.heard = self.heard or _is_the_models(note)
        match note:
            case schema.AgentMessageDelta():
                return self._text(note.item_id, note.delta)
            case schema.SummaryTextDelta():
                return self._thought(note.item_id, note.summary_index, note.delta, is_summary=True)
            case schema.ReasoningTextDelta():
                return self._thought(note.item_id, note.content_index, note.delta, is_summary=False)
            case schema.ItemStarted():
                return self._item_started(note.item)
            case schema.RawItemCompleted():
                return self._raw_item(note.item)
            case schema.RawResponseCompleted():
                self.responding = False
                self._count(note.usage)
                return self._calls_made()
            case schema.ToolCallAsked():
                self._asked(note)
                return []
            case schema.ErrorReported():
                return self._attempt_failed(note)
            case _:
                assert_never(note)

    def _item_started(self, item: schema.ThreadItem) -> list[ev.TurnEvent]:
        if item.type == "agentMessage":
            self._messages[item.id] = _OpenMessage(item.phase)
        elif item.type == "reasoning":
            self._thoughts[item.id] = _OpenReasoning()
            return [ev.ReasoningStarted(item.id)]
        elif item.type in HOST_ACTIONS:
            return self._fail(
                errors.CodexActed(
                    f"Codex acted on the gateway's host by itself ({item.type}); the turn was stopped. "
                    "Use the Codex that comes with Turnbridge, and report this."
                )
            )
        elif item.type == "contextCompaction" and not self._allow_truncation:
            return self._fail(
                errors.ContextTooLong(f'{CONTEXT_WORDS} Shorten it, or send `truncation: "auto"`.', param="input")
            )
        return []

    def _text(self, item_id: str, text: str) -> list[ev.TurnEvent]:
        if not text:
            return []
        message = self._messages.get(item_id)
        if message is None:
            message = self._messages[item_id] = _OpenMessage(None)
        message.pieces.append(text)
        delta = ev.TextDelta(item_id, text)
        return [delta] if len(message.pieces) > 1 else [ev.MessageStarted(item_id, message.phase), delta]

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
        # Codex tells outputs, too, before it asks the model again.
        self.responding = not item.type.endswith("_output")
        self._order.append(item.id or item.call_id or "")
        if item.type == "message" and item.role == "assistant":
            return self._message_done(item)
        if item.type == "reasoning":
            return self._reasoning_done(item)
        if item.type == "function_call":
            self._call(item)
        if item.type == "web_search_call" and item.id is not None:
            action: JsonObject = {key: _decoded(value) for key, value in (item.action or {}).items()}
            return [ev.WebSearchDone(item.id, action)]
        return []

    def _call(self, item: schema.RawItem) -> None:
        """Keep a call until its batch is whole.

        Codex itself answers calls to functions that nobody declared, and calls whose arguments it cannot read.
        """
        name, call_id, namespace = self._names.to_client(item.name or ""), item.call_id or "", item.namespace
        arguments = msgspec.json.decode(item.arguments, type=str)
        # Nobody can declare a namespace here.
        if name is not None and namespace in NO_NAMESPACE and _is_readable(arguments):
            self._known_calls.add(call_id)
            self._calls.append(ev.FunctionCallDone(item.id or call_id, call_id, name, arguments, namespace))

    @property
    def holds_calls(self) -> bool:
        """Tell whether calls are known that the client has not been told of."""
        return bool(self._calls or self._script_calls) and not self.ended

    def release_calls(self) -> list[ev.TurnEvent]:
        """Return the calls that are known, without waiting for more; nor for the count of a response under way."""
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

    def _asked(self, asked: schema.ToolCallAsked) -> None:
        """Hold a call that came by no item of its own: a script of the model's made it (code mode).

        Codex asks for a known call as soon as the model has written it, while the batch may still grow.
        """
        if asked.call_id in self._known_calls:
            return
        self._known_calls.add(asked.call_id)
        name = self._names.to_client(asked.tool) or asked.tool
        call = asked.call_id, name, bytes(asked.arguments).decode(), asked.namespace
        self._script_calls.append(ev.FunctionCallDone(f"fc_{asked.call_id}", *call))

    def _message_done(self, item: schema.RawItem) -> list[ev.TurnEvent]:
        item_id = item.id if item.id in self._messages else next(iter(self._messages), item.id or "msg")
        message = self._messages.get(item_id) or _OpenMessage(item.phase)
        message.phase = message.phase or item.phase
        self._messages[item_id] = message
        text, annotations = _joined(item.content or [])
        happened = self._text(item_id, _rest(text, "".join(message.pieces)))
        del self._messages[item_id]
        if not message.pieces:
            happened = [ev.MessageStarted(item_id, message.phase)]
        return [*happened, ev.MessageDone(item_id, message.phase, "".join(message.pieces), annotations)]

    def _reasoning_done(self, item: schema.RawItem) -> list[ev.TurnEvent]:
        item_id = item.id if item.id in self._thoughts else next(iter(self._thoughts), item.id or "rs")
        happened: list[ev.TurnEvent] = []
        if item_id not in self._thoughts:
            self._thoughts[item_id] = _OpenReasoning()
            happened.append(ev.ReasoningStarted(item_id))
        thought = self._thoughts[item_id]
        for is_summary, parts, streamed in (
            (True, item.summary or [], thought.summary),
            (False, item.content or [], thought.content),
        ):
            # Parts are written one after another: only the last one begun, and those after it, can lack something.
            begun = max(streamed, default=0)
            for index, part in enumerate(parts[begun:], start=begun):
                rest = _rest(part.text, "".join(streamed.get(index, [])))
                happened += self._thought(item_id, index, rest, is_summary=is_summary)
        return [*happened, self._thought_done(item_id, encrypted=item.encrypted_content)]

    def _thought_done(self, item_id: str, *, encrypted: str | None) -> ev.ReasoningDone:
        thought = self._thoughts.pop(item_id)
        return ev.ReasoningDone(item_id, _in_order(thought.summary), _in_order(thought.content), encrypted)

    def _attempt_failed(self, note: schema.ErrorReported) -> list[ev.TurnEvent]:
        """Codex tries again by itself, and says all of the broken message again: an answer cannot be taken back.

        A thought can be left as it stands: the next attempt thinks anew.
        """
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
            reason = incomplete_reason(turn.error)
            if reason is not None:
                # Codex passes no count on for an answer that the provider cut off.
                return self._end(ev.TurnIncomplete(reason, ev.Usage(estimated=True)))
            return self._fail(gateway_error(turn.error))
        if turn.status != "completed":
            return self._fail(errors.UpstreamFailed(f"Codex ended the turn as {turn.status}."))
        if any(not message.pieces for message in self._messages.values()):
            return self._fail(
                errors.PolicyRefusal(
                    "The model began a message that Codex did not pass on; most likely it refused to answer.",
                    code="refusal",
                )
            )
        return self._end(ev.TurnCompleted(self._usage))

    def _count(self, usage: schema.TokenUsage | None) -> None:
        if usage is not None:
            self._usage += ev.Usage(
                input=usage.input_tokens,
                cached=usage.cached_input_tokens,
                cache_written=usage.cache_write_input_tokens,
                output=usage.output_tokens,
                reasoning=usage.reasoning_output_tokens,
            )

    def _fail(self, error: errors.GatewayError) -> list[ev.TurnEvent]:
        return self._end(ev.TurnFailed(error, self._usage))

    def _end(self, terminal: ev.Terminal) -> list[ev.TurnEvent]:
        self.ended = True
        return [terminal]


def _rest(whole: str, streamed: str) -> str:
    """Return what was not streamed of a text; nothing if Codex streamed something else (it hides its own markup)."""
    return whole[len(streamed) :] if whole.startswith(streamed) else ""


def _in_order(parts: dict[int, list[str]]) -> tuple[str, ...]:
    return tuple("".join(parts[index]) for index in sorted(parts))


def _joined(parts: list[schema.RawPart]) -> tuple[str, tuple[JsonObject, ...]]:
    """Join a message's parts as they were streamed, moving each annotation's place along with its text."""
    text, annotations = "", list[JsonObject]()
    for part in parts:
        for annotation in part.annotations or []:
            moved = _decoded(annotation)
            if not isinstance(moved, dict):
                continue
            for key in ("start_index", "end_index"):
                place = moved.get(key)
                if isinstance(place, int):
                    moved[key] = place + len(text)
            annotations.append(moved)
        text += part.text
    return text, tuple(annotations)


def _is_the_models(note: schema.Notification | schema.ToolCallAsked) -> bool:
    """Tell whether only a model that answers can have caused this; Codex tells of a client's outputs, too."""
    if isinstance(note, schema.ItemStarted):
        return note.item.type in MODELS_ITEMS
    return not isinstance(note, schema.RawItemCompleted | schema.ErrorReported | schema.ToolCallAsked)


def _is_readable(arguments: str) -> bool:
    """Tell whether Codex can read arguments; it still asks for a call that is wrongly thought to be unreadable."""
    try:
        value: Json = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    # To look at every value of large arguments takes a tenth of a second; few brackets cannot nest deep.
    if arguments.count("[") + arguments.count("{") < UNREADABLE_LEVELS:
        return True
    return levels(value) < UNREADABLE_LEVELS


def _decoded(raw: msgspec.Raw) -> Json:
    value: Json = msgspec.json.decode(raw)
    return value
