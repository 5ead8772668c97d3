"""Whom Codex calls, seen by a proxy in its way and by the `git` that it would run: its provider, and nobody else."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from tests.support.command import Serving, serving
from tests.support.login import chatgpt_login

pytestmark = [pytest.mark.anyio, pytest.mark.real]

REFUSAL = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
API_KEY = "sk-test-0123456789abcdef"


@dataclass(slots=True)
class Outside:
    """The world beyond this machine: a proxy that writes down what it is asked for and reaches nobody."""

    address: str = ""
    asked: list[str] = field(default_factory=list)

    def variables(self, directory: Path, *, lower: bool = False) -> dict[str, str]:
        """Return an environment that leads through the proxy, and to a `git` that writes down its calls."""
        names = [name.lower() if lower else name for name in PROXY_VARIABLES]
        programs = directory / "programs"
        programs.mkdir()
        (programs / "git").write_text(f'#!/bin/sh\necho "$@" >>"{directory}/git-calls"\nexit 1\n')
        (programs / "git").chmod(0o700)
        return {
            **dict.fromkeys(names, self.address),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PROXY_API_KEY": API_KEY,
        }

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        method, target = (*line.decode("latin-1").split(), "", "")[:2]
        self.asked.append(f"{method} {target}")
        with contextlib.suppress(OSError):
            writer.write(REFUSAL)
            await writer.drain()
        writer.close()


@pytest.fixture
async def outside() -> AsyncIterator[Outside]:
    world = Outside()
    async with await asyncio.start_server(world.answer, "127.0.0.1", 0) as server:
        world.address = "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
        yield world


async def ask(gateway: Serving) -> httpx2.Response:
    """Ask the gateway, once it is ready."""
    await gateway.ready()
    headers = {"authorization": f"Bearer {API_KEY}"}
    async with httpx2.AsyncClient(trust_env=False, timeout=60, headers=headers) as client:
        return await client.post(f"{gateway.url}/v1/responses", json={"model": "gpt-5.5", "input": "Hello!"})


def git_calls(directory: Path) -> list[str]:
    file = directory / "git-calls"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.promise("start.proxy", "safety.connections")
@pytest.mark.parametrize("lower", [False, True], ids=["HTTP_PROXY", "http_proxy"])
async def test_the_demo_calls_nobody_and_is_ready_behind_any_proxy(
    tmp_path: Path, outside: Outside, lower: bool
) -> None:
    """From its first start on, which checks the binary with models of its own."""
    async with serving(tmp_path, "--demo", **outside.variables(tmp_path, lower=lower)) as gateway:
        answered = await ask(gateway)
    assert answered.status_code == 200
    assert "Hello!" in answered.text
    assert (outside.asked, git_calls(tmp_path)) == ([], [])


CUSTOM_PROVIDER = """
model = "llama3:8b"
model_provider = "mine"
[model_providers.mine]
name = "mine"
base_url = "http://provider.test/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = true
"""


@pytest.mark.promise("safety.connections")
async def test_a_custom_provider_is_the_only_one_that_is_called(tmp_path: Path, outside: Outside) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(CUSTOM_PROVIDER)
    async with serving(tmp_path, **outside.variables(tmp_path)) as gateway:
        assert (await ask(gateway)).status_code >= 500
    assert "POST http://provider.test/v1/responses" in outside.asked
    assert {asked for asked in outside.asked if "//provider.test/" not in asked} == set()
    assert git_calls(tmp_path) == []


# What Codex asks of a ChatGPT account besides models and answers: where its requests go, and what it may do.
ACCOUNT_ROUTES = ("/api/codex/accounts/check", "/api/codex/settings/user")


@pytest.mark.promise("safety.connections")
async def test_a_chatgpt_login_brings_no_plugins_apps_or_analytics(tmp_path: Path, outside: Outside) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").write_text(chatgpt_login())
    (tmp_path / ".codex" / "config.toml").write_text(
        'openai_base_url = "http://provider.test/v1"\nchatgpt_base_url = "http://account.test"\n'
        "[analytics]\nenabled = true\n"
    )
    async with serving(tmp_path, **outside.variables(tmp_path)) as gateway:
        asking = asyncio.ensure_future(ask(gateway))
        # Who is logged in, and only cannot be reached, is not asked to log in.
        while not any("//provider.test/v1/responses" in asked for asked in outside.asked):
            await asyncio.wait([asking], timeout=0.05)
            assert not asking.done()
        asking.cancel()
    elsewhere = {asked for asked in outside.asked if "provider.test" not in asked}
    assert {asked for asked in elsewhere if not asked.endswith(ACCOUNT_ROUTES)} == set()
    assert git_calls(tmp_path) == []
