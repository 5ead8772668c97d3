"""`TurnEvent`s → the frames of a streamed chat completion, and their fold, the chat completion.

A chat message has one text, so narration joins the reasoning side, and separate messages or thoughts are kept apart
by a blank line.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnbridge.api.chat.decode import DecodedChat
from turnbridge.api.chat.flat_names import flat
from turnbridge.api.shared import sse
from turnbridge.api.shared.errors import error_object
from turnbridge.turn import events as ev
from turnbridge.turn.items import (
    BETWEEN_MESSAGES,
    NARRATION,
    Json,
    JsonObject,
    custom_input,
)
from turnbridge.turn.request import tool_key


@dataclass(slots=True)
class _Choice:
    """One of the answers, as far as it has come."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    annotations: list[Json] = field(default_factory=list)
    calls: list[ev.FunctionCallDone] = field(default_factory=list)
    phases: dict[str, str | None] = field(default_factory=dict)
    writing: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """For each side, which part of which item was written last."""
    finish_reason: str | None = None
    usage: ev.Usage = field(default_factory=ev.Usage)


class ChatEncoder:
    """Turns the events of one or several turns into the completion that a client reads, streamed or whole."""

    content_type = sse.CONTENT_TYPE
    note = staticmethod(sse.note)

    def __init__(self, request: DecodedChat, *, completion_id: str, created: int) -> None:
        self._head: JsonObject = {
            "id": completion_id,
            "created": created,
            "model": request.turn.spec.model,
            "service_tier": request.turn.spec.service_tier or "default",
        }
        self._include_usage = request.include_usage
        self._legacy = request.legacy_functions
        self._custom = dict.fromkeys(tool.key for tool in request.turn.spec.tools if tool.kind == "custom")
        self._choices = [_Choice() for _ in range(request.choices)]
        self._opened = False
        self._templates: dict[tuple[int, str], sse.TextTemplate] = {}
        self.failure: ev.TurnFailed | None = None

    @property
    def usage(self) -> ev.Usage:
        """Return the tokens of all choices."""
        first, *others = self._choices
        return sum((choice.usage for choice in others), first.usage)

    @property
    def first_calls(self) -> list[str]:
        """Return the id of the first call of each choice that has one."""
        return [choice.calls[0].call_id for choice in self._choices if choice.calls]

    def whole(self) -> JsonObject:
        """Return the completion; whole once every choice has ended."""
        choices: list[Json] = [
            {
                "index": index,
                "message": self._message(choice),
                "logprobs": None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(self._choices)
        ]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": _usage(self.usage)}

    def admitted(self) -> bytes:
        """Return nothing: this API has no event for it."""
        return b""

    def opening(self, *, speaks: bool = False) -> bytes:
        """Return the frames that come before any output: the role of each choice.

        The content is an empty text only if text comes next: clients would open an empty message for it before a call.
        """
        self._opened = True
        delta: JsonObject = {"role": "assistant", "content": "" if speaks else None, "refusal": None}
        return b"".join([sse.data_frame(self._chunk(index, delta)) for index in range(len(self._choices))])

    def frames(self, index: int, events: Sequence[ev.TurnEvent]) -> bytes:
        """Return the frames of events of choice `index`, after the opening ones if these have not gone."""
        frames = b""
        for event in sse.in_runs(events):
            if isinstance(event, sse.TextRun):
                encoded = self._texts(index, event)
            else:
                encoded = b"".join(map(sse.data_frame, self._chunks(index, event)))
            if encoded and not self._opened:
                encoded = self.opening(speaks=isinstance(event, sse.TextRun)) + encoded
            frames += encoded
        return frames

    def closing(self) -> bytes:
        """Return the frames that come after every choice has ended: the usage if asked for, or the error."""
        if self.failure is not None:
            return sse.data_frame({"error": error_object(self.failure.error)})
        if not self._include_usage:
            return sse.DONE
        last = {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": _usage(self.usage)}
        return sse.data_frame(last) + sse.DONE

    def keepalive(self) -> bytes:
        """Return a frame without meaning."""
        return sse.comment("keepalive")

    def _chunks(self, index: int, event: ev.TurnEvent) -> list[JsonObject]:
        choice = self._choices[index]
        match event:
            case ev.SummaryDelta() | ev.ReasoningDelta():
                part = (event.item_id, type(event), event.index)
                texts = _written(choice, "reasoning_content", part, [event.text])
                return [self._chunk(index, {"reasoning_content": text}) for text in texts]
            case ev.MessageStarted():
                choice.phases[event.item_id] = event.phase
                return []
            case ev.MessageDone():
                return self._cite(index, event)
            case ev.FunctionCallDone():
                return self._call(index, event)
            case ev.TextDelta():
                raise AssertionError("Text deltas come in runs.")
            case ev.TurnServed() | ev.ReasoningStarted() | ev.ReasoningDone() | ev.WebSearchDone():
                return []
            case ev.TurnCompleted():
                return self._finish(index, "stop", event.usage)
            case ev.CallsAwaited():
                return self._finish(index, "function_call" if self._legacy else "tool_calls", event.usage)
            case ev.TurnIncomplete():
                reason = "length" if event.reason == "max_output_tokens" else "content_filter"
                return self._finish(index, reason, event.usage)
            case ev.TurnFailed():
                self.failure = self.failure or event
                choice.usage = event.usage
                return []
            case _:
                raise ev.unexpected(event)

    def _texts(self, index: int, run: sse.TextRun) -> bytes:
        choice = self._choices[index]
        side = "reasoning_content" if choice.phases.get(run.item_id) == NARRATION else "content"
        template = self._templates.get((index, side))
        if template is None:
            frame = sse.data_frame(self._chunk(index, {side: sse.TEXT_HOLE}))
            template = self._templates[index, side] = sse.TextTemplate(frame)
        return template.filled(_written(choice, side, (run.item_id,), run.texts))

    def _cite(self, index: int, message: ev.MessageDone) -> list[JsonObject]:
        """Return the answer's citations, moved along with its text."""
        choice = self._choices[index]
        if message.phase == NARRATION:
            return []
        offset = sum(map(len, choice.content)) - len(message.text)
        cited: list[Json] = [
            _citation(note, offset) for note in message.annotations if note.get("type") == "url_citation"
        ]
        choice.annotations += cited
        return [self._chunk(index, {"annotations": cited})] if cited else []

    def _call(self, index: int, call: ev.FunctionCallDone) -> list[JsonObject]:
        """Return the call's id and name first, then its arguments."""
        choice = self._choices[index]
        number = len(choice.calls)
        choice.calls.append(call)
        kind, field, text = self._called(call)
        head: JsonObject = {"name": flat(call.name, call.namespace), field: ""}
        body: JsonObject = {field: text}
        if self._legacy:
            deltas: list[JsonObject] = [{"function_call": head}, {"function_call": body}]
        else:
            first: JsonObject = {"index": number, "id": call.call_id, "type": kind, kind: head}
            deltas = [{"tool_calls": [first]}, {"tool_calls": [{"index": number, kind: body}]}]
        return [self._chunk(index, delta) for delta in (deltas if text else deltas[:1])]

    def _called(self, call: ev.FunctionCallDone) -> tuple[str, str, str]:
        """Return the type of the tool that is called, the field of what it is called with, and its value."""
        if tool_key(call.name, call.namespace) in self._custom:
            return "custom", "input", custom_input(call.arguments)
        return "function", "arguments", call.arguments

    def _message(self, choice: _Choice) -> JsonObject:
        text = "".join(choice.content)
        message: JsonObject = {
            "role": "assistant",
            "content": None if choice.calls and not text else text,
            "refusal": None,
            "annotations": list(choice.annotations),
        }
        if choice.calls and self._legacy:
            message["function_call"] = {"name": choice.calls[0].name, "arguments": choice.calls[0].arguments}
        elif choice.calls:
            message["tool_calls"] = [
                {"id": call.call_id, "type": kind, kind: {"name": flat(call.name, call.namespace), field: text}}
                for call in choice.calls
                for kind, field, text in [self._called(call)]
            ]
        reasoning = "".join(choice.reasoning)
        return {**message, "reasoning_content": reasoning} if reasoning else message

    def _finish(self, index: int, reason: str, usage: ev.Usage) -> list[JsonObject]:
        choice = self._choices[index]
        choice.finish_reason, choice.usage = reason, usage
        return [self._chunk(index, {}, finish_reason=reason)]

    def _chunk(self, index: int, delta: JsonObject, *, finish_reason: str | None = None) -> JsonObject:
        chunk: JsonObject = {
            **self._head,
            "object": "chat.completion.chunk",
            "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
        }
        return {**chunk, "usage": None} if self._include_usage else chunk


def _written(choice: _Choice, side: str, part: tuple[object, ...], texts: list[str]) -> list[str]:
    """Add pieces to one side of a choice, and return them; those of another part are set off from what stands there."""
    if choice.writing.setdefault(side, part) != part:
        choice.writing[side] = part
        texts = [BETWEEN_MESSAGES + texts[0], *texts[1:]]
    (choice.content if side == "content" else choice.reasoning).extend(texts)
    return texts


def _citation(annotation: JsonObject, offset: int) -> JsonObject:
    """Return a citation as the chat API nests it."""
    cited = {key: value for key, value in annotation.items() if key != "type"}
    for key in ("start_index", "end_index"):
        place = cited.get(key)
        if isinstance(place, int):
            cited[key] = place + offset
    return {"type": "url_citation", "url_citation": cited}


def _usage(usage: ev.Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
