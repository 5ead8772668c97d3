"""`TurnEvent`s → the frames of a streamed response, each a typed event, and their fold, the response object.

Everything that is opened is closed, indexes are dense, and exactly one terminal event comes last.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from turnbridge.api.responses.call_items import shown_call
from turnbridge.api.responses.decode import DecodedResponses
from turnbridge.api.responses.mcp_items import ServerEvent, begun_item, known_fields, steps
from turnbridge.api.responses.parts import REASONING, SUMMARY, TEXT, PartKind
from turnbridge.api.responses.provider_items import ProviderEvent, provider_item, provider_steps
from turnbridge.api.responses.schema import envelope, usage_object
from turnbridge.api.shared import sse
from turnbridge.api.shared.errors import error_event, error_object, failure_code
from turnbridge.engine.ports import Model
from turnbridge.turn import events as ev
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.request import by_key, tool_key

Event: TypeAlias = JsonObject


@dataclass(slots=True)
class _Part:
    """The part of an item that is being written: its kind, the backend's number for it, and its place in events."""

    kind: PartKind
    source: int
    place: JsonObject
    pieces: list[str] = field(default_factory=list)
    template: sse.NumberedTextTemplate | None = None
    """The frame of a text delta."""


@dataclass(slots=True)
class _Open:
    """An item that has been added and is not yet done."""

    id: str
    index: int
    item: JsonObject
    part: _Part | None = None


class ResponseEncoder:
    """Turns one turn's events into the response that a client reads, streamed or whole.

    The last event waits for `closing`, since whether the response is stored is known only then. So does the error
    before it: clients hang up there.
    """

    content_type = sse.CONTENT_TYPE
    note = staticmethod(sse.note)

    def __init__(
        self,
        request: DecodedResponses,
        model: Model,
        *,
        response_id: str,
        created_at: int,
        now: Callable[[], int],
        stored: bool = False,
    ) -> None:
        self._include_encrypted = request.include_encrypted
        self._tools = by_key(request.turn.spec.tools)
        self.response_id = response_id
        self._envelope = envelope(request.body, request.turn, model, response_id=response_id, created_at=created_at)
        self._envelope["store"] = stored
        self._now = now
        self._encrypted: dict[str, str] = {}
        self._order: dict[str, int] = {}
        self._sequence = 0
        self._opened = False
        self._open: dict[str, _Open] = {}
        self._output: list[Json] = []
        self._whole: set[str] = set()
        self._call_items: dict[str, str] = {}
        self._source_ids: dict[str, str] = {}
        self._ending: list[Event] = []
        self.compaction_item: Callable[[str], JsonObject] | None = None
        """Makes the item of a summary, if the request may be compacted."""
        self.failure: ev.TurnFailed | None = None
        self.usage = ev.Usage()

    @property
    def status(self) -> str:
        """Return how far the response is."""
        return str(self._envelope["status"])

    @property
    def said(self) -> list[JsonObject]:
        """Return what the model said, as later turns should see it: in its own order, thoughts with their content.

        Of an answer that failed, only what was whole counts.
        """
        items = [item for item in self._output if isinstance(item, dict)]
        if self.status != "incomplete":
            items = [item for item in items if item["id"] in self._whole]
        in_order = sorted(items, key=lambda item: self._order.get(str(item["id"]), -1))
        return [
            {**item, "encrypted_content": self._encrypted[str(item["id"])]} if item["id"] in self._encrypted else item
            for item in in_order
        ]

    def whole(self) -> JsonObject:
        """Return the response as it stands; whole once the terminal event has been fed."""
        return {**self._envelope, "output": list(self._output)}

    def mark_unstored(self) -> None:
        """Say that the response could not be stored."""
        self._envelope["store"] = False

    def cancel(self) -> bytes:
        """End the response because its client cancelled it; return the frames before the last one.

        The API has no event of that name, so it ends as incomplete, with the true status inside.
        """
        happened = self._close_all("incomplete")
        self._envelope["status"] = "cancelled"
        self._ending = [self._told("incomplete")]
        return sse.named_frames(happened)

    def queued(self) -> bytes:
        """Return the first frames of a response that has to wait for its turn."""
        self._opened = True
        self._envelope["status"] = "queued"
        return sse.named_frames([self._told("created"), self._told("queued")])

    def admitted(self) -> bytes:
        """Return the frame that ends the wait, if there was one to be told of."""
        if self.status != "queued":
            return b""
        self._envelope["status"] = "in_progress"
        return sse.named_frames([self._told("in_progress")])

    def opening(self) -> bytes:
        """Return the frames that come before any output."""
        self._opened = True
        return sse.named_frames([self._told("created"), self._told("in_progress")])

    def frames(self, index: int, events: Sequence[ev.TurnEvent]) -> bytes:
        """Return the frames of events, after the opening ones if these have not gone."""
        del index  # This API has one answer only.
        frames = b"" if self._opened else self.opening()
        for event in sse.in_runs(events):
            if isinstance(event, sse.TextRun):
                frames += self._texts(event)
            else:
                frames += sse.named_frames(self._events(event))
        return frames

    def closing(self) -> bytes:
        """Return the frames that come last."""
        if not self._ending:
            return b""
        *before, last = self._ending
        return sse.named_frames([*before, {**last, "response": self.whole()}])

    def keepalive(self) -> bytes:
        """Return a frame without news: an event if there is still a number for it, since idle timers want data."""
        return sse.comment("keepalive") if self._ending else sse.named_frames([self._told("in_progress")])

    def _told(self, what: str) -> Event:
        """Return an event with the response as it stands."""
        return self._event(f"response.{what}", response=self.whole())

    def _events(self, event: ev.TurnEvent) -> list[Event]:
        match event:
            case ev.TextDelta():
                raise AssertionError("Text deltas come in runs.")
            case ev.SummaryDelta() | ev.ReasoningDelta():
                return self._delta(event)
            case ev.MessageStarted() | ev.ReasoningStarted():
                return self._add(event.item_id, _begun(event))
            case ev.MessageDone():
                return self._message_done(event)
            case ev.ReasoningDone():
                return self._done(event.item_id, encrypted=event.encrypted)
            case ev.FunctionCallDone():
                return self._call(event)
            case ev.WebSearchDone() | ev.ImageStarted() | ev.ImageDone():
                return self._of_provider(event)
            case ev.HistoryCompacted():
                return self._compacted(event)
            case ev.McpToolsListed() | ev.McpCallStarted() | ev.McpCallDone() | ev.McpApprovalAsked():
                return self._of_server(event)
            case ev.TurnServed():
                return []
            case ev.TurnCompleted() | ev.CallsAwaited() | ev.TurnIncomplete() | ev.TurnFailed():
                return self._end(event)
            case _:
                assert_never(event)

    def _texts(self, run: sse.TextRun) -> bytes:
        """Return the frames of text deltas; the first one opens the part that the others continue."""
        opened, before = self._open[run.item_id], b""
        part = opened.part
        if part is None:
            part, added = self._add_part(opened, TEXT, 0)
            before = sse.named_frames([added])
        if part.template is None:
            head: Event = {"type": "response.output_text.delta", "sequence_number": sse.NUMBER_HOLE}
            frame = sse.named_frames([{**head, **part.place, "delta": sse.TEXT_HOLE, "logprobs": []}])
            part.template = sse.NumberedTextTemplate(frame)
        part.pieces += run.texts
        number, self._sequence = self._sequence, self._sequence + len(run.texts)
        return before + part.template.filled(number, run.texts)

    def _event(self, type_: str, **fields: Json) -> Event:
        event: Event = {"type": type_, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return event

    def _add(self, item_id: str, item: JsonObject) -> list[Event]:
        index = len(self._output)
        self._open[item_id] = _Open(id=item_id, index=index, item=item)
        self._output.append(item)
        return [self._event("response.output_item.added", output_index=index, item={**item})]

    def _delta(self, delta: ev.SummaryDelta | ev.ReasoningDelta) -> list[Event]:
        kind = SUMMARY if isinstance(delta, ev.SummaryDelta) else REASONING
        opened = self._open[delta.item_id]
        part, happened = opened.part, []
        if part is None or part.kind is not kind or part.source != delta.index:
            happened = self._close_part(opened)
            part, added = self._add_part(opened, kind, delta.index)
            happened.append(added)
        part.pieces.append(delta.text)
        return [*happened, self._event(f"{kind.text_event}.delta", **part.place, delta=delta.text)]

    def _add_part(self, opened: _Open, kind: PartKind, source: int) -> tuple[_Part, Event]:
        place: JsonObject = {"item_id": opened.id, "output_index": opened.index}
        place[kind.number] = len(_written(opened.item, kind))
        part = opened.part = _Part(kind, source, place)
        return part, self._event(f"{kind.part_event}.added", **place, part=kind.empty)

    def _close_part(self, opened: _Open, annotations: list[Json] | None = None) -> list[Event]:
        """Close the part that is being written, and put it into the item."""
        part, opened.part = opened.part, None
        if part is None:
            return []
        kind, place, text = part.kind, part.place, "".join(part.pieces)
        whole = {**kind.empty, "text": text}
        if annotations:
            whole["annotations"] = annotations
        _written(opened.item, kind).append(whole)
        logprobs: JsonObject = {"logprobs": []} if kind is TEXT else {}
        return [
            self._event(f"{kind.text_event}.done", **place, text=text, **logprobs),
            self._event(f"{kind.part_event}.done", **place, part=whole),
        ]

    def _message_done(self, event: ev.MessageDone) -> list[Event]:
        opened = self._open[event.item_id]
        happened = [] if opened.part else [self._add_part(opened, TEXT, 0)[1]]
        annotations: list[Json] = list(event.annotations)
        happened += [
            self._event(
                "response.output_text.annotation.added",
                item_id=event.item_id,
                output_index=opened.index,
                content_index=0,
                annotation_index=number,
                annotation=annotation,
            )
            for number, annotation in enumerate(annotations)
        ]
        happened += self._close_part(opened, annotations)
        if event.phase is not None:
            # Some providers tell it only here.
            opened.item["phase"] = event.phase
        return [*happened, *self._done(event.item_id)]

    def _call(self, call: ev.FunctionCallDone) -> list[Event]:
        shown = shown_call(call, self._tools.get(tool_key(call.name, call.namespace)))
        happened = self._add(call.item_id, shown.item)
        place: JsonObject = {"item_id": call.item_id, "output_index": self._open[call.item_id].index}
        if shown.event is not None:
            if shown.value:
                happened.append(self._event(f"{shown.event}.delta", **place, delta=shown.value))
            happened.append(self._event(f"{shown.event}.done", **place, **shown.done, **{shown.field: shown.value}))
        shown.item[shown.field] = shown.value
        return [*happened, *self._done(call.item_id)]

    def _of_provider(self, event: ProviderEvent) -> list[Event]:
        """Return the events of a search or an image: it is added, goes through some steps, and may be done."""
        item_id, item = event.item_id, provider_item(event)
        happened = [] if item_id in self._open else self._add(item_id, {**item, "status": "in_progress"})
        opened, kind = self._open[item_id], item["type"]
        place: JsonObject = {"item_id": item_id, "output_index": opened.index}
        happened += [self._event(f"response.{kind}.{step}", **place) for step in provider_steps(event)]
        opened.item |= item
        if not isinstance(event, ev.ImageStarted):
            happened += self._done(item_id, status=str(item["status"]))
        return happened

    def _compacted(self, event: ev.HistoryCompacted) -> list[Event]:
        if self.compaction_item is None:
            raise AssertionError("Nobody asked for a compaction.")
        item = self.compaction_item(event.summary)
        return [*self._add(str(item["id"]), item), *self._done(str(item["id"]))]

    def _of_server(self, event: ServerEvent) -> list[Event]:
        """Return the events of an MCP server's item: it is added, goes through some steps, and may be done."""
        if isinstance(event, ev.McpCallDone):
            item_id, happened = self._call_items[event.call_id], []
        else:
            item = begun_item(event, str(self._envelope["id"]))
            item_id = str(item["id"])
            happened = self._add(item_id, item)
        if isinstance(event, ev.McpCallStarted):
            self._call_items[event.call_id] = item_id
        elif isinstance(event, ev.McpApprovalAsked):
            self._source_ids[event.item_id] = item_id
        opened = self._open[item_id]
        place: JsonObject = {"item_id": item_id, "output_index": opened.index}
        happened += [self._event(f"response.{name}", **place, **fields) for name, fields in steps(event)]
        opened.item |= known_fields(event)
        if isinstance(event, ev.McpCallStarted):
            return happened
        # A call that failed is as whole as any.
        self._whole.add(item_id)
        return [*happened, *self._done(item_id, status=str(opened.item.get("status")))]

    def _done(self, item_id: str, *, encrypted: str | None = None, status: str = "completed") -> list[Event]:
        opened = self._open.pop(item_id)
        happened = self._close_part(opened)
        if status == "completed":
            self._whole.add(item_id)
        if "status" in opened.item:
            opened.item["status"] = status
        if encrypted is not None:
            self._encrypted[item_id] = encrypted
            if self._include_encrypted:
                opened.item["encrypted_content"] = encrypted
        happened.append(self._event("response.output_item.done", output_index=opened.index, item=opened.item))
        return happened

    def _close_all(self, status: str) -> list[Event]:
        """Close what is still open when the turn ends."""
        return [event for item_id in list(self._open) for event in self._done(item_id, status=status)]

    def _end(self, terminal: ev.Terminal) -> list[Event]:
        """Close what is open, and prepare the last events."""
        completed = isinstance(terminal, ev.TurnCompleted | ev.CallsAwaited)
        happened = self._close_all("completed" if completed else "incomplete")
        self.usage = terminal.usage
        if not isinstance(terminal, ev.TurnFailed) or terminal.usage != ev.Usage():
            self._envelope["usage"] = usage_object(terminal.usage)
        if isinstance(terminal, ev.CallsAwaited):
            ids = (self._source_ids.get(item_id, item_id) for item_id in terminal.order)
            self._order = {item_id: place for place, item_id in enumerate(ids)}
        match terminal:
            case ev.TurnCompleted() | ev.CallsAwaited():
                status = "completed"
                self._envelope["completed_at"] = self._now()
            case ev.TurnIncomplete():
                status = "incomplete"
                self._envelope["incomplete_details"] = {"reason": terminal.reason}
            case ev.TurnFailed():
                status = "failed"
                self.failure = terminal
                error = error_object(terminal.error)
                self._ending = [error_event(error, number=self._sequence)]
                self._sequence += 1
                self._envelope["error"] = {"code": failure_code(terminal.error), "message": error["message"]}
            case _:
                assert_never(terminal)
        self._envelope["status"] = status
        self._ending.append(self._told(status))
        return happened


def _written(item: JsonObject, kind: PartKind) -> list[Json]:
    """Return the list of an item's finished parts of one kind."""
    parts = item[kind.place]
    if not isinstance(parts, list):
        raise AssertionError("An item's parts are a list.")
    return parts


def _begun(event: ev.MessageStarted | ev.ReasoningStarted) -> JsonObject:
    if isinstance(event, ev.ReasoningStarted):
        return {"type": "reasoning", "id": event.item_id, "summary": [], "content": []}
    item: JsonObject = {"type": "message", "id": event.item_id, "status": "in_progress"}
    item |= {"role": "assistant", "content": []}
    return item if event.phase is None else {**item, "phase": event.phase}
