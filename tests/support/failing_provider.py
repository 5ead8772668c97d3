"""Providers that fail in one way whenever they are asked, over HTTP and over WebSocket."""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, TypeAlias

import trustme

Fault: TypeAlias = Literal["refused", "unresolvable", "reset", "500", "503", "429", "hanging", "tls"]
FAULTS: tuple[Fault, ...] = ("refused", "unresolvable", "reset", "500", "503", "429", "hanging", "tls")

Transport: TypeAlias = Literal["http", "websocket", "built-in"]
TRANSPORTS: tuple[Transport, ...] = ("http", "websocket", "built-in")
"""A provider of the user's own, without and with WebSocket; and Codex's own, which prefers WebSocket."""

# No label of a name may be so long, so that no name server is asked.
NO_NAME = f"http://{'x' * 64}.invalid/v1"

ABORT_AT_CLOSE = struct.pack("ii", 1, 0)


def write_user_home(home: Path, base_url: str, transport: Transport, *more: str) -> None:
    """Write the configuration of a user with this provider: nothing in it speaks of retries, unless `more` does."""
    home.mkdir(parents=True)
    if transport == "built-in":
        (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "sk-of-the-user"}), encoding="utf-8")
        lines = ['model = "gpt-5.5"', f'openai_base_url = "{base_url}"']
    else:
        lines = [
            'model = "gpt-5.5"',
            'model_provider = "mine"',
            "[model_providers.mine]",
            'name = "mine"',
            f'base_url = "{base_url}"',
            'wire_api = "responses"',
            *(["supports_websockets = true"] if transport == "websocket" else []),
        ]
    (home / "config.toml").write_text("\n".join([*lines, *more]), encoding="utf-8")


@contextlib.asynccontextmanager
async def failing_provider(fault: Fault) -> AsyncIterator[str]:
    """Yield the base URL of a provider that has this fault."""
    if fault == "unresolvable":
        yield NO_NAME
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        if fault == "refused":
            yield f"http://127.0.0.1:{port}/v1"
            return
        failing = _Failing(fault)
        async with await asyncio.start_server(
            failing.serve, sock=listener, ssl=_untrusted() if fault == "tls" else None
        ):
            yield f"{'https' if fault == 'tls' else 'http'}://127.0.0.1:{port}/v1"
            failing.let_go()


class _Failing:
    """Does the same with every connection."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._connections: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if self._fault == "hanging":
                # Until Codex hangs up.
                await reader.read()
            elif self._fault == "reset":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT_AT_CLOSE)
            else:
                await reader.readexactly(_length(head))
                writer.write(_refusal(self._fault))
                await writer.drain()
        writer.close()

    def let_go(self) -> None:
        """Close what hangs."""
        for writer in self._connections:
            writer.close()


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)


def _refusal(status: str) -> bytes:
    body = json.dumps({"error": {"message": f"The provider says {status}.", "type": "x", "code": None}}).encode()
    head = f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


def _untrusted() -> ssl.SSLContext:
    """Return a certificate of an authority that nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context
