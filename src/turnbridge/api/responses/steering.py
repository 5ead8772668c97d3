"""Steering of responses over a WebSocket: input that is sent while a response is made. Pure.

The response ends at the next boundary of an item, and a successor continues it with that input. If it ends with calls
for the client, the input waits for the request that brings their outputs.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from turnbridge.api.responses.lanes import MOST_WAITING_BYTES as MOST_BYTES
from turnbridge.api.responses.lanes import Lane
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject

# OpenAI's limit for one response.
MOST_STEERS = 32
ALLOWED_FIELDS = {"type", "previous_response_id", "input"}
MESSAGE_FIELDS = {"type", "role", "content"}
PARTS = {"input_text", "input_image", "input_file"}
# The input that answers a call.
OUTPUT_TYPES = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
# Of the settings of a response, what its successor does not take over.
OWN = ("input", "previous_response_id")

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Steer:
    """One submission."""

    id: str
    target: str
    input: Json
    size: int

    def items(self) -> list[Json]:
        """Return the input as items."""
        return self.input if isinstance(self.input, list) else [{"role": "user", "content": self.input}]


@dataclass(slots=True, kw_only=True)
class Target:
    """A response that is being made."""

    response_id: str
    body: JsonObject
    """Its request, without the input."""
    cut: Callable[[], None]
    steers: list[Steer] = field(default_factory=list)
    ended: bool = False
    """Whether it has an end that can be continued."""
    required: tuple[JsonObject, ...] = ()
    """Stubs of the input that it waits for."""


class Steering:
    """The responses of one connection that can be steered, and the input that was accepted for them."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._targets: dict[Lane, Target] = {}
        self._over: deque[str] = deque(maxlen=MOST_STEERS)
        """The responses that ended last."""
        self._pending: dict[Lane, list[Steer]] = {}
        """What waits for the outputs of the calls of a lane's last response."""

    def begin(self, lane: Lane, response_id: str, body: JsonObject, cut: Callable[[], None]) -> None:
        """Let a response be steered from now on; `cut` ends it at the next boundary of an item."""
        kept = {name: value for name, value in body.items() if name not in OWN}
        self._targets[lane] = Target(response_id=response_id, body=kept, cut=cut)

    def finish(self, lane: Lane, output: Iterable[JsonObject]) -> None:
        """Note that the response of a lane has an end, which can be continued."""
        if (target := self._targets.get(lane)) is not None:
            target.ended = True
            calls = [item for item in output if item["type"] in OUTPUT_TYPES]
            target.required = tuple({"type": OUTPUT_TYPES[str(c["type"])], "call_id": c["call_id"]} for c in calls)

    def submit(self, message: JsonObject, size: int) -> tuple[Lane, bytes]:
        """Take a `response.steer` of so many bytes; return its lane, and the event that answers it."""
        target_id, given = message.get("previous_response_id"), message.get("input")
        lane, target = next(
            ((lane, found) for lane, found in self._targets.items() if found.response_id == target_id), (None, None)
        )
        problem = _problem(message) or self._not_now(target_id, target, size)
        if problem is not None or target is None:
            code, reason = problem or ("response_not_found", "There is no such response on this connection.")
            given_back: JsonObject = {"previous_response_id": _text(target_id), "input": "" if given is None else given}
            return lane, failed(code, reason, given_back)
        steer = Steer(self._new_id(), target.response_id, given, size)
        target.steers.append(steer)
        target.cut()
        return lane, _event("response.steer.accepted", steer=_named(steer))

    def end(self, lane: Lane) -> tuple[list[bytes], tuple[JsonObject, Sequence[Steer]] | None]:
        """Return what is told after the response of a lane, and the request of its successor with what it commits."""
        target = self._targets.pop(lane, None)
        if target is None:
            return [], None
        self._over.append(target.response_id)
        if not target.steers:
            return [], None
        if not target.ended:
            return [
                uncommitted(steer, "The response failed, so nothing continues it.") for steer in target.steers
            ], None
        if target.required:
            self._pending[lane] = target.steers
            required: list[Json] = list(target.required)
            reason = "waiting_for_required_input"
            return [
                _event("response.steer.pending", steer=_named(steer), reason=reason, required_input=required)
                for steer in target.steers
            ], None
        given = [item for steer in target.steers for item in steer.items()]
        successor: JsonObject = {**target.body, "previous_response_id": target.response_id, "input": given}
        return [], (successor, target.steers)

    def with_pending(self, lane: Lane, body: JsonObject) -> JsonObject:
        """Return a request of a lane with the input that waits for it before its own."""
        steers = self._pending.get(lane)
        if steers is None or steers[0].target != body.get("previous_response_id"):
            return body
        del self._pending[lane]
        own = body.get("input")
        given: list[Json] = own if isinstance(own, list) else [] if own is None else [{"role": "user", "content": own}]
        return {**body, "input": [*(item for steer in steers for item in steer.items()), *given]}

    def _not_now(self, target_id: Json, target: Target | None, size: int) -> tuple[str, str] | None:
        if target is None:
            return ("response_already_completed", "The response has ended.") if target_id in self._over else None
        if target.ended:
            return "response_already_completed", "The response has ended."
        if target.body.get("conversation") is not None or target.body.get("context_management"):
            return "steering_not_supported", "A response of a conversation, or one that compacts, cannot be steered."
        held = [*self._pending.values(), *(each.steers for each in self._targets.values())]
        if len(target.steers) >= MOST_STEERS or sum(s.size for steers in held for s in steers) + size > MOST_BYTES:
            return "too_many_pending_steers", "Too much input waits for this response."
        return None


def uncommitted(steer: Steer, reason: str) -> bytes:
    """Return the event that gives accepted input back."""
    given: JsonObject = {**_named(steer), "input": steer.input}
    return failed("successor_creation_failed", reason, given)


def failed(code: str, reason: str, steer: JsonObject) -> bytes:
    """Return the event that refuses input, and gives it back."""
    error: JsonObject = {"type": "invalid_request_error", "code": code, "message": reason}
    return _event("response.steer.failed", error=error, steer=steer)


def _event(kind: str, **fields: Json) -> bytes:
    # A submission has one event of each kind, and belongs to no response's sequence.
    return _encoder.encode({"type": kind, "sequence_number": 0, **fields})


def _named(steer: Steer) -> JsonObject:
    return {"id": steer.id, "previous_response_id": steer.target}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _problem(message: JsonObject) -> tuple[str, str] | None:
    """Return what is wrong with the shape of a submission; what is in its parts is checked with the successor."""
    try:
        _check(message)
    except InvalidRequest as error:
        return "invalid_input", error.message
    return None


def _check(message: JsonObject) -> None:
    if extra := sorted(set(message) - ALLOWED_FIELDS):
        raise InvalidRequest(f"'{extra[0]}' does not belong into response.steer: the response decides it.")
    if not isinstance(message.get("previous_response_id"), str):
        raise InvalidRequest("'previous_response_id' must name the response that is steered.")
    given = message.get("input")
    if isinstance(given, str) and given:
        return
    if not isinstance(given, list) or not given:
        raise InvalidRequest("'input' must be a text, or a list of user messages that is not empty.")
    for item in given:
        if not isinstance(item, dict) or item.get("role") != "user" or set(item) - MESSAGE_FIELDS:
            raise InvalidRequest("'input' may hold user messages only, with 'type', 'role' and 'content'.")
        content = item.get("content")
        parts = content if isinstance(content, list) else [{"type": "input_text"}] if isinstance(content, str) else []
        if not parts or any(not isinstance(part, dict) or part.get("type") not in PARTS for part in parts):
            raise InvalidRequest(
                f"A message's content must be a text, or parts of the types {', '.join(sorted(PARTS))}."
            )
