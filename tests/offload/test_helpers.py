"""A helper process does its job, or is ended; the gateway and the other jobs go on."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from turnbridge.engine.ports import JobFailed, NoHelper
from turnbridge.offload.helpers import HelperPool, JobLimits

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
JOB = "tests.offload.jobs:job"
# Longer than an honest job takes on a busy machine.
LIMITS = JobLimits(seconds=20, megabytes=512, processes=1, waiting=8)
SOON = replace(LIMITS, seconds=0.2)
TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def jobs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@contextlib.asynccontextmanager
async def pool(limits: JobLimits = LIMITS) -> AsyncIterator[HelperPool]:
    helpers = HelperPool(JOB, limits)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield helpers
    finally:
        await helpers.aclose()


def state(pid: int) -> list[str]:
    """Return what the system tells of a process after its name, from its state on; nothing if it is no more."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def processor_time(pid: int) -> int:
    """Return how many hundredths of a second a process has worked."""
    return int(state(pid)[11])


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not happened():  # noqa: ASYNC110 - Nobody tells.
            await asyncio.sleep(0.01)


async def gone(pid: int) -> None:
    """Wait until a process is no more; one that is not reaped still is."""
    await until(lambda: not state(pid))


async def test_one_helper_does_one_job_after_the_other() -> None:
    async with pool() as helpers:
        assert helpers.pids == []
        pids = {await helpers.run(b"pid") for _ in range(3)}
        assert pids == {str(pid).encode() for pid in helpers.pids}
        assert len(pids) == 1
        big = bytes(range(256)) * 2**14
        assert await helpers.run(big) == big
        assert await helpers.run(b"") == b""
    await gone(int(pids.pop()))


@pytest.mark.parametrize("job", [b"endless", b"stop"])
async def test_a_job_is_ended_at_its_deadline_and_the_next_one_is_done(job: bytes) -> None:
    async with pool(SOON) as helpers:
        first = int(await helpers.run(b"pid"))
        with pytest.raises(JobFailed):
            await helpers.run(job)
        await gone(first)
        assert int(await helpers.run(b"pid")) != first


@pytest.mark.parametrize("job", [b"crash", b"raise", b"fill"])
async def test_a_job_that_ends_its_helper_fails_and_the_next_one_is_done(job: bytes) -> None:
    async with pool() as helpers:
        with pytest.raises(JobFailed):
            await helpers.run(job)
        assert await helpers.run(b"again") == b"again"


async def test_a_helper_that_was_killed_while_it_waited_is_replaced() -> None:
    async with pool() as helpers:
        first = int(await helpers.run(b"pid"))
        os.kill(first, signal.SIGKILL)
        await gone(first)
        assert int(await helpers.run(b"pid")) != first


async def test_a_helper_is_replaced_after_its_last_job() -> None:
    async with pool(replace(LIMITS, jobs_of_one=1)) as helpers:
        assert await helpers.run(b"pid") != await helpers.run(b"pid")
        assert helpers.pids == []


async def test_a_helper_that_nobody_needs_ends() -> None:
    async with pool(replace(LIMITS, idle_s=0.01)) as helpers:
        await gone(int(await helpers.run(b"pid")))
        assert helpers.pids == []


async def test_a_pool_that_was_closed_ends_no_helper_later() -> None:
    async with pool(replace(LIMITS, idle_s=0.05)) as helpers:
        await helpers.run(b"hi")
    after = asyncio.Event()
    # What a timer raises before this one fails the test.
    asyncio.get_running_loop().call_later(0.05, after.set)
    await after.wait()


async def test_the_answer_to_a_job_that_was_given_up_is_nobody_elses() -> None:
    async with pool() as helpers:
        first = int(await helpers.run(b"pid"))
        waiting = asyncio.create_task(helpers.run(b"endless"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await helpers.run(b"another") == b"another"
        await gone(first)


async def test_as_many_jobs_run_at_once_as_there_may_be_processes_and_few_wait() -> None:
    async with pool(replace(SOON, processes=2, waiting=1)) as helpers:
        endless = [asyncio.create_task(helpers.run(b"endless")) for _ in range(2)]
        await asyncio.sleep(0)
        third = asyncio.create_task(helpers.run(b"third"))
        await asyncio.sleep(0)
        with pytest.raises(NoHelper):
            await helpers.run(b"fourth")
        assert [type(one) for one in await asyncio.gather(*endless, return_exceptions=True)] == [JobFailed] * 2
        assert await third == b"third"


async def test_a_helper_that_cannot_be_started_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    async with pool() as helpers:
        with pytest.raises(NoHelper):
            await helpers.run(b"job")
    helpers = HelperPool("tests.offload.jobs:none", LIMITS)
    with pytest.raises(NoHelper):
        await helpers.run(b"job")
    await helpers.aclose()


async def test_a_helper_knows_none_of_the_gateways_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with pool() as helpers:
        assert "sk-secret" not in json.loads(await helpers.run(b"variables")).values()


async def test_no_helper_outlives_a_gateway_that_was_killed() -> None:
    """Whether it waits for a job, or is busy with one that never ends."""
    script = f"""
        import asyncio
        from turnbridge.offload.helpers import HelperPool, JobLimits

        async def main():
            helpers = HelperPool({JOB!r}, JobLimits(seconds=3, megabytes=512, processes=2, waiting=9))
            pids = await asyncio.gather(helpers.run(b"pid"), helpers.run(b"pid"))
            job = asyncio.create_task(helpers.run(b"endless"))
            print(*(pid.decode() for pid in pids), flush=True)
            await asyncio.sleep(60)

        asyncio.run(main())
    """
    command = (sys.executable, "-c", textwrap.dedent(script))
    gateway = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert gateway.stdout
        pids = [int(pid) for pid in (await gateway.stdout.readline()).split()]
        assert len(set(pids)) == 2
        # One of them is busy.
        before = {pid: processor_time(pid) for pid in pids}
        await until(lambda: any(processor_time(pid) > before[pid] + 10 for pid in pids))
    finally:
        gateway.kill()
        await gateway.wait()
    for pid in pids:
        await gone(pid)
