"""Other proxies than the gateway, with the scripted model right behind them."""

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.client import API_KEY
from bench.environments import environment
from bench.processes import LOG_CHARACTERS
from tests.support.gateway_process import end
from tests.support.ports import free_port
from tests.support.processes import descendants

LITELLM, VIA_CODEX = "1.106.2", "0.2.3"
# Importing LiteLLM takes ten seconds on a busy machine.
START_TIMEOUT_S = 90.0
LOOK_AGAIN_S = 0.02
LITELLM_CONFIG = """\
model_list:
  - model_name: gpt-5.5
    litellm_params: {{model: openai/gpt-5.5, api_base: "{model}/v1", api_key: sk-scripted}}
general_settings: {{master_key: {key}}}
"""
# Nothing is sent to anybody, and the prices of models come with the package.
LITELLM_ENVIRONMENT = {"LITELLM_TELEMETRY": "False", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A running proxy: where it is, its processes, and how long it took from its command until it listened."""

    url: str
    pids: Sequence[int]
    started_s: float


def prepare() -> tuple[Path, Path]:
    """Return environments with LiteLLM and with openai-api-server-via-codex, made if they are not there."""
    return (
        environment("litellm", f"litellm-{LITELLM}", [f"litellm[proxy]=={LITELLM}"]),
        environment("via-codex", f"via-codex-{VIA_CODEX}", [f"openai-api-server-via-codex=={VIA_CODEX}"]),
    )


@contextlib.asynccontextmanager
async def litellm(directory: Path, model: str) -> AsyncIterator[Proxy]:
    """Run LiteLLM's proxy with one worker."""
    config = directory / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(model=model, key=API_KEY), encoding="utf-8")
    words = (prepare()[0] / "bin/litellm", "--config", config, "--host", "127.0.0.1", "--num_workers", "1", "--port")
    async with _running(directory, words, LITELLM_ENVIRONMENT) as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def via_codex(directory: Path, model: str) -> AsyncIterator[Proxy]:
    """Run openai-api-server-via-codex, a program in Go that sends a ChatGPT login to the provider itself."""
    login = directory / "invented-login.json"
    login.write_text(json.dumps(_invented_login()), encoding="utf-8")
    program = prepare()[1] / "bin/openai-api-server-via-codex"
    words = (program, "-auth-json", login, "-backend-base-url", f"{model}/v1", "-api-key", API_KEY)
    async with _running(directory, (*words, "-config", directory / "none.toml", "-port"), {}) as proxy:
        yield proxy


def _invented_login() -> dict[str, object]:
    """Return a login that nobody has: nothing but the form of its token is looked at on loopback."""
    claims = {
        "exp": int(time.time()) + DAY_S,
        "https://api.openai.com/auth": {"chatgpt_account_id": "invented", "chatgpt_plan_type": "plus"},
    }
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in ({"alg": "none"}, claims))
    token = f"{head}.{body}.c2lnbmF0dXJl".replace("=", "")
    tokens = {"id_token": token, "access_token": token, "refresh_token": "invented", "account_id": "invented"}
    return {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"}


@contextlib.asynccontextmanager
async def _running(directory: Path, words: Sequence[object], variables: Mapping[str, str]) -> AsyncIterator[Proxy]:
    """Run a proxy until the context ends; the last word is the option of its port."""
    port, log = free_port(), directory / "proxy.log"
    began = time.perf_counter()
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *map(str, words),
            str(port),
            env={**os.environ, **variables},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await _listening(process, port, log)
        started_s = time.perf_counter() - began
        yield Proxy(url=f"http://127.0.0.1:{port}", pids=[process.pid, *descendants(process.pid)], started_s=started_s)
    finally:
        await end(process)


async def _listening(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    while True:
        if process.returncode is not None:
            raise AssertionError(f"The proxy ended: {_last_words(log)}")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(LOOK_AGAIN_S)


def _last_words(log: Path) -> str:
    return log.read_text(encoding="utf-8")[-LOG_CHARACTERS:]
