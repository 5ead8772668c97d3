"""A dialect can be forced, if the binary speaks it."""

from pathlib import Path
from typing import Any

import codex_cli_bin
import pytest

from tests.support.gateway import running_bridge
from turnbridge.codex.process.worker import CodexSpec, start_worker
from turnbridge.scripted_model.replies import answer, function_call, message
from turnbridge.turn.errors import BackendUnavailable

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
CLOCK: Any = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}, "strict": False}
ASKED: Any = {"role": "user", "content": "What time is it?"}


async def refusal(binary: Path, directory: Path, **chosen: Any) -> str:
    """Return why an app-server could not be started."""
    home = directory / "home"
    home.mkdir()
    with pytest.raises(BackendUnavailable) as told:
        await start_worker(CodexSpec(binary=binary, home=home, workdir=directory / "work", version="0", **chosen))
    return told.value.message


WHAT_TO_DO = "Set PROXY_APP_SERVER_DIALECT to auto, or CODEX_BIN to another version."


@pytest.mark.promise("versions.dialect")
async def test_the_pinned_codex_does_not_speak_v1(tmp_path: Path) -> None:
    binary = codex_cli_bin.bundled_codex_path()
    told = await refusal(binary, tmp_path, dialect="v1")
    assert told.startswith(f"{binary} (Codex ")
    assert told.endswith(f") does not speak v1, only v2 and v2-early. {WHAT_TO_DO}")


@pytest.mark.promise("versions.dialect")
async def test_codex_0_92_does_not_speak_v2(old_codex: Path, tmp_path: Path) -> None:
    told = await refusal(old_codex, tmp_path, dialect="v2")
    assert told == f"{old_codex} (Codex 0.92.0) does not speak v2, only v2-early and v1. {WHAT_TO_DO}"


@pytest.mark.promise("versions.dialect")
async def test_the_pinned_codex_can_be_spoken_to_as_to_an_early_one(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_APP_SERVER_DIALECT="v2-early") as bridge:
        bridge.script(answer(function_call("clock", "{}", call_id="c1")), answer(message("Noon.")))
        first = await bridge.client.responses.create(model=MODEL, input=[ASKED], tools=[CLOCK])
        (call,) = first.output
        history: Any = [ASKED, call.to_dict(), {"type": "function_call_output", "call_id": "c1", "output": "noon"}]
        raw = await bridge.client.responses.with_raw_response.create(model=MODEL, input=history, tools=[CLOCK])
        second = raw.parse()
    assert (raw.headers["x-turnbridge-thread"], raw.headers["x-turnbridge-fidelity"]) == ("parked", "flattened")
    assert second.output_text == "Noon."
    assert second.usage is not None
    assert (second.usage.input_tokens, second.usage.output_tokens) == (10, 5)
