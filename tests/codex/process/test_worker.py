"""Starting an app-server: what the real one tells about itself, and what can go wrong with others."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import codex_cli_bin
import pytest
import structlog.testing

from tests.codex.process.real_codex import spec_for
from turnbridge.codex.process.home import prepare_home
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.process import AppServerProcess
from turnbridge.codex.process.worker import (
    CodexSpec,
    Tap,
    Worker,
    start_worker,
)
from turnbridge.codex.protocol.encode import NO_WINDOW
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.turn.errors import BackendUnavailable, GatewayError

pytestmark = [pytest.mark.anyio, pytest.mark.real]

REAL = codex_cli_bin.bundled_codex_path()


@pytest.fixture(autouse=True)
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let children that do not listen end soon; the real Codex leaves by itself."""
    monkeypatch.setattr(AppServerProcess, "exit_grace_s", 0.5)


@pytest.fixture
async def spec(tmp_path: Path) -> AsyncIterator[CodexSpec]:
    """Return the real Codex, with a provider that is never asked."""
    async with ScriptedModel(in_order()) as model:
        yield spec_for(tmp_path, model)


def catalog(spec: CodexSpec) -> dict[str, tuple[int, int]]:
    """Return the context windows that the binary itself tells."""
    command = spec.command("debug", "models")
    told = subprocess.run(command, env={"CODEX_HOME": str(spec.home)}, capture_output=True, check=True)
    models = json.loads(told.stdout)["models"]
    return {model["slug"]: (model["context_window"], model["max_context_window"]) for model in models}


@pytest.mark.promise("models.list", "models.default")
async def test_models_have_their_true_context_windows(spec: CodexSpec) -> None:
    worker = await start_worker(replace(spec, overrides=(*spec.overrides, 'model="gpt-5.5"')))
    await worker.process.stop()
    told = {model.id: (model.context_window, model.max_context_window) for model in worker.models}
    assert told == catalog(spec)
    assert all(window and window < NO_WINDOW for window, _ in told.values())
    assert (worker.offer.default, worker.login_missing) == ("gpt-5.5", False)
    described = next(model for model in worker.models if model.id == "gpt-5.5")
    assert {"low", "medium", "high"} <= set(described.efforts)
    assert {"text", "image"} <= set(described.modalities)


@pytest.mark.promise("start.small-home")
async def test_the_log_database_of_the_real_codex_takes_no_rows(spec: CodexSpec) -> None:
    worker = await start_worker(spec)
    try:
        (database,) = spec.home.glob("logs_*.sqlite")
        with contextlib.closing(sqlite3.connect(database)) as connection:
            row = {"ts": 1, "ts_nanos": 1, "level": "TRACE", "target": "test"}
            connection.execute(
                "INSERT INTO logs (ts, ts_nanos, level, target) VALUES (:ts, :ts_nanos, :level, :target)", row
            )
            told = connection.execute("SELECT count(*) FROM logs WHERE target = 'test'").fetchone()
    finally:
        await worker.process.stop()
    assert told == (0,)


@pytest.mark.parametrize("login", [None, '{"OPENAI_API_KEY": "sk-test"}', "", '{"OPENAI_API_KEY": null}'])
async def test_a_login_is_seen_or_missed(tmp_path: Path, login: str | None) -> None:
    user = tmp_path / "user"
    user.mkdir()
    # Nobody listens there: what Codex might ask of its provider stays on this machine.
    nowhere = "http://127.0.0.1:9/v1"
    (user / "config.toml").write_text(f'openai_base_url = "{nowhere}"\nchatgpt_base_url = "{nowhere}"')
    if login is not None:
        (user / "auth.json").write_text(login)
    home = tmp_path / "home"
    prepare_home(home, user)
    worker = await start_worker(CodexSpec(binary=REAL, home=home, workdir=tmp_path / "work", version="0"))
    await worker.process.stop()
    assert worker.login_missing == ("sk-test" not in (login or ""))
    assert (worker.login is None) == (login is None)


def pretending(spec: CodexSpec, *, debug: str = f'exec "{REAL}" "$@"', app_server: str = "exit 3") -> CodexSpec:
    """Return a Codex that does something else for one of its two commands."""
    program = spec.workdir.parent / "codex"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = debug ]; then {debug}\n'
        f'elif [ "$1" = --version ] || [ "$2" = generate-json-schema ]; then exec "{REAL}" "$@"\n'
        f"else {app_server}\nfi\n"
    )
    program.chmod(0o700)
    return replace(spec, binary=program)


@pytest.mark.parametrize(
    ("debug", "complaint"),
    [
        ("echo 'no disk left' >&2; exit 1", "printed no catalogue (exit status 1: no disk left)"),
        ("echo words", "printed no catalogue (exit status 0)"),
        ("echo '[]'", "printed no catalogue"),
        ("echo '{}'", "printed no list of models"),
        ("""echo '{"models": 5}'""", "printed no list of models"),
        ("""echo '{"models": ["gpt-5.5"]}'""", "printed no list of models"),
        ("""echo '{"models": [{"id": 1}]}'""", "printed no list of models"),
    ],
)
async def test_a_codex_without_a_catalogue_is_refused_with_its_words(
    spec: CodexSpec, debug: str, complaint: str
) -> None:
    with pytest.raises(GatewayError) as told:
        await start_worker(pretending(spec, debug=debug))
    assert complaint in told.value.message


async def test_a_codex_that_is_not_there_is_named(spec: CodexSpec) -> None:
    with pytest.raises(BackendUnavailable, match=r"^/nowhere/codex cannot be run: there is no such program\.$"):
        await start_worker(replace(spec, binary=Path("/nowhere/codex")))


async def test_an_app_server_that_dies_at_once_tells_the_client_little_and_the_operator_all(spec: CodexSpec) -> None:
    dying = pretending(spec, app_server="echo no disk left >&2; exit 3")
    tried = asyncio.Event()

    async def start() -> Worker:
        tried.set()
        return await start_worker(dying)

    with pytest.raises(BackendUnavailable, match=r"^Codex ended \(exit status 3\)\.$"):
        await start()
    tried.clear()
    with structlog.testing.capture_logs() as logs:
        pool = asyncio.create_task(Pool(start, login_state=lambda: None, login_help="").run())
        for _ in range(2):  # The second try comes after the first has been logged.
            await tried.wait()
            tried.clear()
        pool.cancel()
        await asyncio.wait([pool])
    assert "no disk left" in str(logs)


async def test_an_app_server_of_another_protocol_is_refused(spec: CodexSpec) -> None:
    """The first answer is to `initialize`, the others have another shape than the real one's."""
    answers = 'for n in 1 2 3 4; do read line; printf \'{"id": %d, "result": {}}\\n\' $n; done; cat'
    with pytest.raises(GatewayError):
        await start_worker(pretending(spec, app_server=answers))


NOTES_ITS_PID = 'echo $$ > "$CODEX_HOME/pid"; echo noted; exec sleep 60'


def noted_pid(spec: CodexSpec) -> int:
    return int((spec.home / "pid").read_text())


def is_gone(spec: CodexSpec) -> bool:
    """Tell whether the process that noted its pid has ended."""
    try:
        os.kill(noted_pid(spec), 0)
    except ProcessLookupError:
        return True
    return False


async def test_an_app_server_that_never_answers_is_given_up_and_ended(spec: CodexSpec) -> None:
    with pytest.raises(BackendUnavailable, match="handshake"):
        await start_worker(replace(pretending(spec, app_server=NOTES_ITS_PID), startup_timeout_s=1.0))
    assert is_gone(spec)


async def test_a_listener_that_cannot_be_made_leaves_no_process(spec: CodexSpec) -> None:
    pids: list[int] = []

    def tap(pid: int) -> Tap:
        pids.append(pid)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await start_worker(spec, tap=tap)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_an_accounts_catalogue_that_does_not_come_is_replaced_by_the_bundled_one(spec: CodexSpec) -> None:
    # The bundled one has to come within it.
    spec = replace(spec, catalog_timeout_s=4.0)
    debug = f'[ "$3" = --bundled ] || {{ {NOTES_ITS_PID}; }}; exec "{REAL}" "$@"'
    worker = await start_worker(pretending(spec, debug=debug, app_server=f'exec "{REAL}" "$@"'))
    await worker.process.stop()
    assert is_gone(spec)
    assert worker.models


@pytest.mark.parametrize("command", ["debug", "app_server"])
async def test_a_start_that_is_cancelled_leaves_no_process_and_is_no_failure(
    spec: CodexSpec, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = asyncio.Event()
    receive_by = AppServerProcess.receive_by

    def overheard(process: AppServerProcess, receive: Callable[[bytes], None]) -> None:
        receive_by(process, lambda data: noted.set() if data == b"noted\n" else receive(data))

    monkeypatch.setattr(AppServerProcess, "receive_by", overheard)
    starting = asyncio.ensure_future(start_worker(pretending(spec, **{command: NOTES_ITS_PID})))
    async with asyncio.timeout(25):
        await noted.wait()
    starting.cancel()
    with structlog.testing.capture_logs() as logs:
        await asyncio.wait([starting])
    assert logs == []
    left = not is_gone(spec)
    if left:
        os.kill(noted_pid(spec), signal.SIGKILL)
    assert not left
