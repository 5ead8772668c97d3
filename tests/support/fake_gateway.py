"""A gateway that answers as told, for commands that call one."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnbridge.cli.main import app

READY: tuple[int, bytes] = (200, b'{"status": "ready", "fidelity": "exact"}')
NOT_READY: tuple[int, bytes] = (503, b'{"status": "not_ready", "reason": "Why."}')


class Gateway(ThreadingHTTPServer):
    """A gateway that answers each path so."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, bytes]] = {"/readyz": READY}
        self.asked: list[tuple[str, str | None, object]] = []
        self.readiness: list[tuple[int, bytes]] = []
        """What `/readyz` answers one after another; the last one stays."""

    def run(self, *words: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, [*words], input=stdin)


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, body: object) -> None:
        self.server.asked.append((self.path, self.headers.get("authorization"), body))
        if self.path == "/readyz" and self.server.readiness:
            self.server.answers["/readyz"] = self.server.readiness.pop(0)
        status, data = self.server.answers.get(self.path, (404, b"nothing here"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - The base class has it so.
        """Print nothing."""


@contextmanager
def fake_gateway(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """Run a gateway on the port that the commands are configured for, with nothing of the user's."""
    (directory / "empty.toml").touch()
    with Gateway() as server:
        monkeypatch.setenv("PROXY_CONFIG", str(directory / "empty.toml"))
        monkeypatch.setenv("PROXY_DATA_DIR", str(directory / "data"))
        monkeypatch.setenv("CODEX_HOME", str(directory / "user"))
        monkeypatch.setenv("PROXY_API_KEY", "sk-x")
        monkeypatch.setenv("PORT", str(server.server_address[1]))
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
