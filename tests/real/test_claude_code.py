"""Claude Code itself, in print mode, through the whole gateway and the real Codex.

It takes 235 MB, so `make claude-code` installs it and `make node` does not. Where that was not run, another one on the
path is used; `TURNBRIDGE_TEST_CLAUDE` names any.
"""

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.real.test_errors import begun_and_then, refusal
from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.logs import logged_requests
from tests.support.tool_clients import bare, threads
from turnbridge.scripted_model.replies import Reply, answer, failed, function_call, message, reasoning, web_search_call
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

# Longer than any of these takes on a busy machine.
PATIENCE_S = 90
INSTALLED = Path(__file__).parents[2] / ".venv" / "claude-code" / "node_modules" / ".bin" / "claude"
# Longer than a piece takes from the model to Claude Code.
READING_S = 1.0
MODEL = "claude-gpt-5.5"
TURNS = 10


@pytest.fixture
def claude() -> str:
    """Return the path of Claude Code."""
    found = os.environ.get("TURNBRIDGE_TEST_CLAUDE") or shutil.which(INSTALLED) or shutil.which("claude")
    if found is None:
        pytest.skip("Claude Code is not installed: run `make claude-code`, which needs node and npm (235 MB).")
    return found


@pytest.fixture
async def warm(tmp_path: Path) -> AsyncIterator[Bridge]:
    """Return a gateway that keeps threads."""
    async with running_bridge(tmp_path / "gateway", PROXY_WARM_THREADS_MAX=8) as running:
        yield running


@contextlib.asynccontextmanager
async def started(
    claude: str, bridge: Bridge, home: Path, *arguments: str, key: str = API_KEY, reads: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run Claude Code in print mode, in a home of its own; it is killed with the context."""
    await asyncio.to_thread(home.mkdir, exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": bridge.url,
        "ANTHROPIC_AUTH_TOKEN": key,
        "ANTHROPIC_MODEL": MODEL,
        "ENABLE_TOOL_SEARCH": "false",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    }
    process = await asyncio.create_subprocess_exec(
        claude,
        *("-p", *arguments),
        cwd=home,
        env=environment,
        stdin=asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def asked(claude: str, bridge: Bridge, home: Path, *arguments: str, key: str = API_KEY) -> JsonObject:
    """Return the result that Claude Code prints for a prompt."""
    async with started(claude, bridge, home, *arguments, "--output-format", "json", key=key) as process:
        printed, complaints = await process.communicate()
    assert printed, complaints.decode()
    told: JsonObject = json.loads(printed)
    return told


def bash(command: str, call_id: str) -> Any:
    return function_call("Bash", {"command": command, "description": "Say it"}, call_id=call_id)


@pytest.mark.promise("anthropic.claude-code", "anthropic.threads")
async def test_bash_read_edit_and_another_question_stay_on_one_thread(
    claude: str, warm: Bridge, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    note = home / "note.txt"
    note.write_text("first line\nthe sky is grey\n")
    change: JsonObject = {"file_path": str(note), "old_string": "grey", "new_string": "blue"}
    warm.script(
        answer(
            reasoning(["I run it."], encrypted="E1"),
            message("Running.", phase="commentary"),
            bash("echo one", "call_a"),
            bash("echo two", "call_b"),
        ),
        answer(
            reasoning(["I read it."], encrypted="E2"),
            function_call("Read", {"file_path": str(note)}, call_id="call_c"),
        ),
        answer(function_call("Edit", change, call_id="call_d")),
        answer(message("It is blue.")),
        answer(message("That was it.")),
    )
    allowed = ("--allowedTools", "Bash,Read,Edit")
    first = await asked(claude, warm, home, "Mend it.", *allowed)
    assert (first["result"], first["is_error"], first["num_turns"]) == ("It is blue.", False, 5)
    assert note.read_text() == "first line\nthe sky is blue\n"
    second = await asked(claude, warm, home, "-c", "And?", *allowed)
    assert (second["result"], second["is_error"]) == ("That was it.", False)
    # A turn that was replayed would have a thread of its own.
    assert len({request.body["prompt_cache_key"] for request in warm.model.requests}) == 1
    seen: Any = bare(warm.model.requests[-1].body["input"])
    told = [item for item in seen if item["type"] != "message" or item["role"] == "assistant"]
    texts = [str(item.get("output") or item.get("encrypted_content") or item.get("call_id")) for item in told]
    *texts, read, called, edited = [text for text in texts if text != "None"]
    assert texts == [*("E1", "call_a", "call_b", "one", "two", "E2", "call_c")]
    assert "the sky is grey" in read
    assert called == "call_d"
    assert str(note) in edited


async def said_next(process: asyncio.subprocess.Process, text: str) -> JsonObject:
    """Say something in a conversation that is going on, and return its result."""
    assert process.stdin is not None
    assert process.stdout is not None
    said = {"type": "user", "message": {"role": "user", "content": text}}
    process.stdin.write(json.dumps(said).encode() + b"\n")
    async for line in process.stdout:
        told: JsonObject = json.loads(line)
        if told["type"] == "result":
            return told
    raise AssertionError("Claude Code ended.")


@pytest.mark.promise("anthropic.claude-code", "anthropic.threads")
async def test_ten_turns_ride_one_thread(claude: str, warm: Bridge, tmp_path: Path) -> None:
    replies: list[Reply] = []
    for turn in range(TURNS):
        if turn % 3 == 1:
            thought, call = reasoning(["I run it."], encrypted=f"E{turn}"), bash(f"echo {turn}", f"call_{turn}")
            replies.append(answer(thought, message("Running.", phase="commentary"), call))
        replies.append(answer(message(f"Answer {turn}.")))
    warm.script(*replies)
    talking = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash")
    with structlog.testing.capture_logs() as logs:
        async with started(claude, warm, tmp_path / "home", *talking, reads=True) as process:
            told = [await said_next(process, f"Question {turn}?") for turn in range(TURNS)]
        lines = await logged_requests(logs, len(replies))
    assert [each["result"] for each in told] == [f"Answer {turn}." for turn in range(TURNS)]
    assert threads(warm) == 1
    served = [line["served_by"] for line in lines if line.get("served_by")]
    assert (served[0], {*served[1:]}) == ("fresh", {"warm", "parked"})
    seen: Any = bare(warm.model.requests[-1].body["input"])
    assert [item["output"] for item in seen if item["type"] == "function_call_output"] == ["1", "4", "7"]


@pytest.mark.promise("anthropic.claude-code", "anthropic.usage")
async def test_usage_and_model_are_what_the_gateway_told(claude: str, bridge: Bridge, tmp_path: Path) -> None:
    bridge.says("hello")
    told = await asked(claude, bridge, tmp_path / "home", "hi")
    usage: Any = told["usage"]
    models: Any = told["modelUsage"]
    assert (told["result"], list(models)) == ("hello", [MODEL])
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (8, 2, 5)


@pytest.mark.promise("anthropic.claude-code", "anthropic.web-search")
async def test_its_web_search_is_the_providers(claude: str, bridge: Bridge, tmp_path: Path) -> None:
    bridge.script(
        answer(function_call("WebSearch", {"query": "weather in Rome"}, call_id="call_s")),
        answer(web_search_call("weather in Rome"), message("It is sunny in Rome.")),
        answer(message("Sunny.")),
    )
    told = await asked(claude, bridge, tmp_path / "home", "What is it like?", "--allowedTools", "WebSearch")
    assert (told["result"], told["is_error"]) == ("Sunny.", False)
    tools: Any = bridge.model.requests[1].body["tools"]
    assert [tool["type"] for tool in tools] == ["web_search"]
    seen: Any = bare(bridge.model.requests[2].body["input"])
    assert "It is sunny in Rome." in str(seen[-1]["output"])


FAILURES: dict[str, tuple[Sequence[Reply], str, int]] = {
    "used up": ([refusal(429, "insufficient_quota", "insufficient_quota")] * 2, "Quota exceeded", 1),
    "no login": ([refusal(401)] * 2, "rejected Codex's login", 1),
    "too long": ([refusal(400, "context_length_exceeded")] * 2, "Prompt is too long", 1),
}


@pytest.mark.promise("anthropic.claude-code", "anthropic.errors")
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_that_would_come_again_is_shown_at_once(
    claude: str, bridge: Bridge, tmp_path: Path, name: str
) -> None:
    replies, words, requests = FAILURES[name]
    bridge.script(*replies)
    told = await asked(claude, bridge, tmp_path / "home", "hi")
    assert (told["is_error"], words in str(told["result"])) == (True, True), told["result"]
    assert len(bridge.model.requests) == requests


@pytest.mark.promise("anthropic.claude-code", "anthropic.keys")
async def test_a_wrong_key_is_shown_at_once(claude: str, bridge: Bridge, tmp_path: Path) -> None:
    bridge.script()
    told = await asked(claude, bridge, tmp_path / "home", "hi", key="sk-wrong-0123456789")
    assert (told["is_error"], "Incorrect API key" in str(told["result"])) == (True, True), told["result"]


@pytest.mark.promise("anthropic.claude-code", "anthropic.errors.mid-stream")
async def test_an_answer_that_breaks_is_shown_as_an_error(claude: str, bridge: Bridge, tmp_path: Path) -> None:
    begun = asyncio.Event()
    bridge.script(begun_and_then(begun, [failed("server_error", "Broken.")]))
    # It fails once the first piece has long been read: what fails before that has a status.
    asking = asyncio.ensure_future(asked(claude, bridge, tmp_path / "home", "hi"))
    async with asyncio.timeout(PATIENCE_S):
        await bridge.model.until(lambda model: model.active == 1)
    asyncio.get_running_loop().call_later(READING_S, begun.set)
    told = await asking
    assert (told["is_error"], len(bridge.model.requests)) == (True, 1), told["result"]
