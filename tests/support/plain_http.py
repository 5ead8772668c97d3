"""Asks a gateway over plain HTTP, and says how each request ended: with how many endings, of which kind."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import httpx2

from turnbridge.turn.items import Json, JsonObject

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"

# Longer than any request here may take, so that whoever waits so long has found something.
TIMEOUT_S = 30.0

LAST_EVENTS = ("response.completed", "response.failed", "response.incomplete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function that the model called."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a request ended, as its client saw it."""

    status: int
    text: str = ""
    calls: tuple[Call, ...] = ()
    code: str | None = None
    """The code of the error, whether it came as a status or inside a stream."""
    endings: int = 1
    """How often the answer said that it was over; anything but once is a defect."""
    headers: dict[str, str] = field(default_factory=dict, compare=False, repr=False)


class Answer:
    """An answer as it is put together from the pieces of a stream."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: list[Call] = []
        self.code: str | None = None
        self.endings = 0

    def add(self, frame: str) -> None:
        """Take in what one `data:` line says."""
        if frame == "[DONE]":
            self.endings += 1
            return
        event = json.loads(frame)
        if "type" in event:
            self._add_response_event(event)
        else:
            self._add_chunk(event)

    def _add_response_event(self, event: dict[str, Json]) -> None:
        kind = event["type"]
        if kind == "response.output_text.delta":
            self.text += str(event["delta"])
        elif kind == "response.output_item.done" and isinstance(item := event["item"], dict):
            self._add_call(item)
        elif kind == "error":
            # The end that follows has only OpenAI's coarser codes.
            self.code = str(event["code"])
        elif kind in LAST_EVENTS:
            self.endings += 1
            self.code = self.code or _error_code(event["response"])

    def _add_chunk(self, chunk: dict[str, Json]) -> None:
        if "error" in chunk:
            self.endings += 1
            self.code = _error_code(chunk)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            match choice:
                case {"delta": {"content": str(text)}}:
                    self.text += text
                case {"delta": {"tool_calls": [*calls]}}:
                    for call in calls:
                        self._add_chat_call(call)

    def _add_call(self, item: JsonObject) -> None:
        match item:
            case {"type": "function_call", "call_id": str(call_id), "name": str(name), "arguments": str(arguments)}:
                self.calls.append(Call(id=call_id, name=name, arguments=arguments))

    def _add_chat_call(self, call: Json) -> None:
        """Take in a call, or a piece of the arguments of the last one."""
        match call:
            case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
                self.calls.append(Call(id=call_id, name=name, arguments=arguments))
            case {"function": {"arguments": str(more)}}:
                self.calls[-1] = replace(self.calls[-1], arguments=self.calls[-1].arguments + more)


def client(url: str, key: str, *, timeout_s: float = TIMEOUT_S) -> httpx2.AsyncClient:
    """Return a client that keeps no connection open between requests, so that none is counted as left behind."""
    return httpx2.AsyncClient(
        base_url=url,
        headers={"authorization": f"Bearer {key}"},
        timeout=timeout_s,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        # There is no TLS on loopback, and reading all certificates takes 20 ms.
        verify=False,
    )


async def frames(response: httpx2.Response) -> AsyncIterator[str]:
    """Yield what follows `data:` in a stream, line by line."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


async def ask(http: httpx2.AsyncClient, path: str, body: JsonObject, *, heard: Answer | None = None) -> Ending:
    """Return how a request ended; raises `httpx2.HTTPError` if it had no proper end at all.

    Whoever gives an answer to be filled can see a stream grow.
    """
    async with http.stream("POST", path, json=body) as response:
        if response.status_code != 200 or not body.get("stream"):
            return _whole(response, await response.aread())
        answer = heard or Answer()
        async for frame in frames(response):
            answer.add(frame)
        return _ending(response, answer)


@contextlib.asynccontextmanager
async def unread(url: str, key: str, path: str, body: JsonObject) -> AsyncIterator[int]:
    """Send a request, yield the status of its answer, and read nothing more of it until the context ends."""
    address = urlsplit(url)
    content = json.dumps(body).encode()
    fields = ("host: localhost", f"authorization: Bearer {key}", f"content-length: {len(content)}")
    head = "\r\n".join((f"POST {path} HTTP/1.1", *fields, "", ""))
    loop = asyncio.get_running_loop()
    with socket.socket() as raw:
        # As little as possible of the answer should fit between the two ends.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await loop.sock_connect(raw, (address.hostname, address.port))
        await loop.sock_sendall(raw, head.encode() + content)
        line = await loop.sock_recv(raw, len("HTTP/1.1 200"))
        yield int(line[-3:])


def _whole(response: httpx2.Response, body: bytes) -> Ending:
    answer = Answer()
    try:
        content = json.loads(body)
    except ValueError:
        # Whatever this is, it is no answer of ours.
        return _ending(response, answer)
    answer.endings = 1
    match content:
        case {"error": {"code": _}}:
            answer.code = _error_code(content)
        case {"object": "response", "output": [*items]}:
            for item in items:
                answer._add_call(item)
                if item["type"] == "message":
                    answer.text += "".join(part["text"] for part in item["content"])
        case {"object": "chat.completion", "choices": [*choices]}:
            for choice in choices:
                answer.text += choice["message"]["content"] or ""
                for call in choice["message"].get("tool_calls") or []:
                    answer._add_chat_call(call)
    return _ending(response, answer)


def _ending(response: httpx2.Response, answer: Answer) -> Ending:
    return Ending(
        status=response.status_code,
        text=answer.text,
        calls=tuple(answer.calls),
        code=answer.code,
        endings=answer.endings,
        headers=dict(response.headers),
    )


def _error_code(value: Json) -> str | None:
    match value:
        case {"error": {"code": str(code)}}:
            return code
        case _:
            return None
