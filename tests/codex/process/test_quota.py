"""When a plan is used up, the client hears when it comes back, if Codex knows it."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.codex.process.idle_worker import idle_worker
from tests.support.turn_requests import turn_request
from turnbridge.codex.process.connection import Connection
from turnbridge.codex.process.thread import CodexThread
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn.errors import QuotaExhausted
from turnbridge.turn.events import TurnFailed
from turnbridge.turn.items import (
    Json,
    JsonObject,
    Message,
    TextPart,
)

pytestmark = pytest.mark.anyio

ASKED = turn_request(model="m", items=(Message(role="user", parts=(TextPart(text="hi"),)),))
SPENT: JsonObject = {"message": "You've hit your usage limit.", "codexErrorInfo": "usageLimitExceeded"}
IN_AN_HOUR = 3600


async def failed_turn(directory: Path, limits: JsonObject) -> QuotaExhausted:
    """Run a turn on a Codex whose plan is used up, and that answers `account/rateLimits/read` with `limits`."""

    def codex(line: bytes) -> None:
        asked = json.loads(line)
        if asked["method"] == "turn/start":
            turn: JsonObject = {"id": "turn", "status": "inProgress"}
            said: list[Json] = [
                {"id": asked["id"], "result": {"turn": turn}},
                {
                    "method": "turn/completed",
                    "params": {"threadId": "thread", "turn": {"id": "turn", "status": "failed", "error": SPENT}},
                },
            ]
        else:
            said = [{"id": asked["id"], **limits}]
        data = b"".join(json.dumps(message).encode() + b"\n" for message in said)
        asyncio.get_running_loop().call_soon(connection.receive, data)

    connection = Connection(codex)
    worker = await idle_worker(directory, connection=connection)
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(()))
        batches = [batch async for batch in thread.run()]
    finally:
        await worker.process.stop()
    ((failed,),) = batches
    assert isinstance(failed, TurnFailed)
    assert isinstance(failed.error, QuotaExhausted)
    return failed.error


@pytest.mark.parametrize("used", [20, 100])
async def test_the_windows_that_are_used_up_say_when_the_last_of_them_resets(used: int, tmp_path: Path) -> None:
    now = int(time.time())
    windows: JsonObject = {
        "primary": {"usedPercent": used, "resetsAt": now + 60},
        "secondary": {"usedPercent": 100, "resetsAt": now + IN_AN_HOUR},
    }
    error = await failed_turn(tmp_path, {"result": {"rateLimits": windows}})
    assert error.retry_after == pytest.approx(IN_AN_HOUR, abs=60)


async def test_without_reset_times_the_quota_is_told_all_the_same(tmp_path: Path) -> None:
    refusal: JsonObject = {"error": {"code": -32600, "message": "codex account authentication required"}}
    error = await failed_turn(tmp_path, refusal)
    assert (error.message, error.retry_after) == ("You've hit your usage limit.", None)
