"""A child process from its start to its end, on both event loops: whatever the child does, `stop` ends it in time."""

import asyncio
import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.support.processes import command, with_variable
from tests.support.waiting import until
from turnbridge.codex.process import process
from turnbridge.codex.process.home import WITHHELD_VARIABLES
from turnbridge.codex.process.process import AppServerProcess

pytestmark = pytest.mark.anyio

PATIENCE_S = 25
"""After this a test has failed; nothing here takes longer than one second."""

NEVER_S = 6 * PATIENCE_S
"""Whoever waits so long fails."""


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Return the loop that tests have, and the one that the gateway has."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(autouse=True)
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AppServerProcess, "exit_grace_s", 0.2)
    monkeypatch.setattr(AppServerProcess, "terminate_grace_s", 0.2)


@pytest.fixture
def much_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody be ended who is only slow, and any wait for that be noticed."""
    monkeypatch.setattr(AppServerProcess, "exit_grace_s", NEVER_S)


class Child:
    """A child that runs a few lines of Python, and what it has said."""

    def __init__(self, started: AppServerProcess) -> None:
        self.process = started
        self.said = b""
        self._more = asyncio.Event()
        started.receive_by(self._receive)

    @classmethod
    async def start(cls, code: str, directory: Path) -> "Child":
        command = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)]
        return cls(await AppServerProcess.start(command, home=directory / "home", cwd=directory))

    async def says(self, words: bytes) -> None:
        """Return when the child has said this."""
        async with asyncio.timeout(PATIENCE_S):
            while words not in self.said:
                await self._more.wait()
                self._more.clear()

    async def gone(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.shield(self.process.exited)

    async def stop(self) -> float:
        """Stop the child, and return how long that took."""
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            await self.process.stop()
        return time.monotonic() - began

    def _receive(self, data: bytes) -> None:
        self.said += data
        self._more.set()


OBEDIENT = "import sys; print('ready', flush=True); sys.stdin.read()"
DEAF = "import time; print('ready', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {DEAF}"


@pytest.mark.promise("faults.orphans")
@pytest.mark.parametrize(
    ("code", "graces", "status", "at_least"),
    [
        (OBEDIENT, (NEVER_S, NEVER_S), 0, 0),
        (DEAF, (0.2, NEVER_S), -signal.SIGTERM, 0.2),
        (STUBBORN, (0.2, 0.2), -signal.SIGKILL, 0.4),
    ],
    ids=["obedient", "ignores the end of its input", "ignores SIGTERM too"],
)
async def test_every_child_ends_within_its_bound(
    code: str,
    graces: tuple[float, float],
    status: int,
    at_least: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AppServerProcess, "exit_grace_s", graces[0])
    monkeypatch.setattr(AppServerProcess, "terminate_grace_s", graces[1])
    child = await Child.start(code, tmp_path)
    await child.says(b"ready")
    # A loop's clock may be a millisecond early.
    assert at_least - 0.01 <= await child.stop()
    assert child.process.last_words() == f"exit status {status}"
    with pytest.raises(ProcessLookupError):
        os.kill(child.process.pid, 0)


GRANDCHILD = """
import subprocess, sys
own = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
print(own.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_the_children_of_a_child_end_with_it_even_if_they_hold_its_pipes_open(
    tmp_path: Path, killed: bool
) -> None:
    child = await Child.start(GRANDCHILD, tmp_path)
    await child.says(b"\n")
    if killed:
        child.process.kill()
        await child.gone()
    else:
        assert await child.stop() < PATIENCE_S
    await until(lambda: not alive(int(child.said)))


async def test_nothing_is_left_of_a_child_that_has_ended_by_itself(tmp_path: Path) -> None:
    child = await Child.start("pass", tmp_path)
    await child.gone()
    await until(lambda: with_variable("CODEX_HOME", str(tmp_path / "home")) == [])


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and was not reaped does not."""
    return bool(command(pid))


@pytest.mark.usefixtures("much_grace")
async def test_a_child_that_dies_is_noticed_with_its_last_words(tmp_path: Path) -> None:
    child = await Child.start(r"print('half a li', end=''); raise SystemExit('\x1b[31mno disk\x1b[0m left')", tmp_path)
    await child.gone()
    assert (child.said, child.process.last_words()) == (b"half a li", "exit status 1: no disk left")
    child.process.write(b"too late\n")
    await child.stop()


async def test_of_many_last_words_the_end_is_kept(tmp_path: Path) -> None:
    child = await Child.start("raise SystemExit('x' * 10_000_000 + ' no disk left')", tmp_path)
    await child.gone()
    words = child.process.last_words()
    assert words == "exit status 1: " + ("x" * 10_000 + " no disk left")[-process.KEPT_STDERR_CHARS :]


async def test_a_child_can_be_stopped_by_several_at_once(tmp_path: Path) -> None:
    child = await Child.start(DEAF, tmp_path)
    await child.says(b"ready")
    await asyncio.gather(child.stop(), child.stop())
    with pytest.raises(ProcessLookupError):
        os.kill(child.process.pid, 0)


@pytest.mark.promise("safety.secrets")
async def test_a_child_has_its_own_home_and_session_and_none_of_the_gateways_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in WITHHELD_VARIABLES:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "for a provider")
    names = (*WITHHELD_VARIABLES, "OPENAI_API_KEY", "CODEX_HOME")
    code = f"import os; print([*map(os.getenv, {names}), os.getcwd(), os.getsid(0) == os.getpid()])"
    child = await Child.start(code, tmp_path)
    await child.gone()
    secrets = [None] * len(WITHHELD_VARIABLES)
    expected = [*secrets, "for a provider", str(tmp_path / "home"), str(tmp_path), True]
    assert child.said.decode() == f"{expected}\n"


@pytest.mark.usefixtures("much_grace")
async def test_what_is_written_reaches_the_child_whole(tmp_path: Path) -> None:
    sent = b"a line of a large history\n" * 100_000
    child = await Child.start("import sys; print(len(sys.stdin.buffer.read()))", tmp_path)
    child.process.write(sent)
    await child.stop()
    assert child.said == b"%d\n" % len(sent)


@pytest.mark.parametrize("code", [OBEDIENT, DEAF, "raise SystemExit('no disk left')"])
async def test_no_child_leaves_a_descriptor_behind(code: str, tmp_path: Path) -> None:
    async def run_one() -> None:
        child = await Child.start(code, tmp_path)
        await child.stop()

    await run_one()  # A loop opens some of its own at its first child.
    before = open_descriptors()
    for _ in range(3):
        await run_one()
    assert open_descriptors() == before


@pytest.mark.parametrize("rounds", range(4))
async def test_a_start_that_is_cancelled_leaves_nothing_behind(rounds: int, tmp_path: Path) -> None:
    await (await Child.start(OBEDIENT, tmp_path)).stop()  # A loop opens some descriptors of its own at its first child.
    before = open_descriptors()
    starting = asyncio.ensure_future(Child.start(STUBBORN, tmp_path))
    for _ in range(rounds):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait((starting,))
    assert starting.cancelled()
    # The guard is the last to go.
    await until(lambda: with_variable("CODEX_HOME", str(tmp_path / "home")) == [])
    assert open_descriptors() == before


async def test_a_start_for_which_the_system_has_no_thread_fails_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="new thread"):
            await Child.start(STUBBORN, tmp_path)
    await until(lambda: with_variable("CODEX_HOME", str(tmp_path / "home")) == [])


def open_descriptors() -> int:
    directory = Path("/proc/self/fd")
    if not directory.exists():
        pytest.skip("only Linux shows which descriptors are open")
    return sum(1 for _ in directory.iterdir())
