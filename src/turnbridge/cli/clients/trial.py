"""A call of the kind that a client makes, sent through the gateway, and what arrived."""

import http.client
import time
from collections.abc import Iterator
from dataclasses import dataclass

from turnbridge import __version__
from turnbridge.cli.clients.values import Api, Client
from turnbridge.cli.gateway_client import Endpoint, decoded, error_message
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import Json, JsonObject

# A model may think before it says one word; nobody waits longer for a test.
TRIAL_TIMEOUT_S = 120.0
QUESTION = "This is a test of the connection. Answer with the one word: ready"
TOOL = "get_time"
ROUTES: dict[Api, str] = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


@dataclass(slots=True, kw_only=True)
class Arrival:
    """What came back."""

    route: str
    model: str = ""
    """The Codex model that answered."""
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    first_s: float = 0.0
    total_s: float = 0.0

    def as_json(self) -> JsonObject:
        return {
            "route": self.route,
            "model": self.model,
            "text": self.text,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "first_output_ms": round(self.first_s * 1000),
            "total_ms": round(self.total_s * 1000),
        }

    def told(self) -> str:
        """Return a sentence about it."""
        said = " ".join(self.text.split())
        said = f"{said[:60]}…" if len(said) > 60 else said
        return (
            f"{self.model} answered on {self.route} in {_duration(self.total_s)}, "
            f"first output after {_duration(self.first_s)}, {self.input_tokens} tokens in and "
            f"{self.output_tokens} out: “{said}”"
        )


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def try_call(endpoint: Endpoint, client: Client, model: str) -> Arrival:
    """Return what a streamed call brings; raises `GatewayError`, `OSError` or `HTTPException`."""
    route = ROUTES[client.api]
    arrival = Arrival(route=route)
    headers = {"user-agent": f"turnbridge-connect/{__version__} ({client.name})"}
    if client.api == "messages":
        headers["anthropic-version"] = "2023-06-01"
        model = f"claude-{model}"
    began = time.monotonic()
    body = _body(client, model)
    with endpoint.request("POST", route, body, timeout_s=TRIAL_TIMEOUT_S, headers=headers) as response:
        if response.status != http.client.OK:
            raise GatewayError(error_message(response.status, response.read()))
        arrival.model = response.headers.get("x-turnbridge-model") or model
        ended = False
        for event in _events(response):
            ended = _take(event, arrival) or ended
            if not arrival.first_s and arrival.text:
                arrival.first_s = time.monotonic() - began
    if not ended:
        raise GatewayError("The answer broke off before its end.")
    arrival.total_s = time.monotonic() - began
    return arrival


def _body(client: Client, model: str) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": {}}
    described: JsonObject = {"name": TOOL, "description": "Return the time."}
    messages: Json = [{"role": "user", "content": QUESTION}]
    match client.api:
        case "chat":
            tool: JsonObject = {"type": "function", "function": {**described, "parameters": schema}}
            body: JsonObject = {"messages": messages, "stream_options": {"include_usage": True}}
        case "responses":
            tool = {"type": "function", **described, "parameters": schema}
            body = {"input": QUESTION, "store": False}
        case "messages":
            tool = {**described, "input_schema": schema}
            body = {"messages": messages, "max_tokens": 1024}
    return {"model": model, "stream": True, **body, **({"tools": [tool]} if client.has_tools else {})}


def _events(response: http.client.HTTPResponse) -> Iterator[Json]:
    for line in response:
        if line.startswith(b"data: {"):
            yield decoded(line.removeprefix(b"data: "))


def _take(event: Json, arrival: Arrival) -> bool:
    """Note what an event of any of the three APIs says; True if it is the last that matters."""
    match event:
        case {"error": {"message": str(message)}} | {"type": "error", "message": str(message)}:
            raise GatewayError(message)
        case {"type": "response.failed", "response": {"error": {"message": str(message)}}}:
            raise GatewayError(message)
        case {"type": "response.output_text.delta", "delta": str(text)}:
            arrival.text += text
        case {"type": "content_block_delta", "delta": {"text": str(text)}}:
            arrival.text += text
        case {"choices": [{"delta": {"content": str(text)}}]}:
            arrival.text += text
        case {"type": "response.completed" | "response.incomplete", "response": {"usage": dict(usage)}}:
            _count(usage, arrival)
            return True
        case {"type": "message_start", "message": {"usage": dict(usage)}}:
            _count(usage, arrival)
        case {"type": "message_delta", "usage": dict(usage)}:
            _count(usage, arrival)
            return True
        case {"usage": dict(usage)}:
            _count(usage, arrival)
            return True
    return False


def _count(usage: JsonObject, arrival: Arrival) -> None:
    for name in ("input_tokens", "prompt_tokens"):
        if isinstance(count := usage.get(name), int):
            arrival.input_tokens = count
    for name in ("output_tokens", "completion_tokens"):
        if isinstance(count := usage.get(name), int):
            arrival.output_tokens = count
