"""What a binary adds to requests is seen before anybody is served, told, and refused if it could act on the host."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from structlog.testing import capture_logs

from tests.support.altered_codex import (
    REAL,
    WITH_CONTEXT,
    WITH_IMAGE_BUDGET,
    WITH_QUESTIONS,
    WITH_SHELL,
    altered_codex,
)
from tests.support.gateway import (
    API_KEY,
    listening,
    running_bridge,
    settings_for_tests,
)
from turnbridge.bootstrap import running_gateway
from turnbridge.codex import self_check as selfcheck
from turnbridge.codex.process.home import prepare_bare_home, provider_overrides
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.worker import CodexSpec, Worker, start_worker
from turnbridge.codex.protocol.encode import HostRules
from turnbridge.codex.self_check import (
    INSTRUCTIONS,
    PICTURES,
    PIXEL,
    QUESTION,
    TOOL,
    Fidelity,
    check,
    compare,
)
from turnbridge.scripted_model.replies import answer, function_call, message
from turnbridge.scripted_model.websocket import WebSocketModel
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

NOWHERE = "http://127.0.0.1:9/v1"
EXACT = Fidelity()
# What models that call functions from scripts are given to do it with, by Codex itself; their images lose the detail.
SCRIPTING = Fidelity(
    extra_tools=("exec", "list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource", "wait"),
    missing=("image-detail",),
)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test begin like a process that has checked no binary."""
    monkeypatch.setattr(selfcheck, "_known", {})


@pytest.fixture
def spec(tmp_path: Path) -> CodexSpec:
    """Return the real Codex."""
    prepare_bare_home(tmp_path / "home")
    return CodexSpec(
        binary=REAL,
        home=tmp_path / "home",
        workdir=tmp_path / "work",
        overrides=provider_overrides(NOWHERE),
        version="0",
        validate_rpc=True,
    )


@pytest.fixture
async def worker(spec: CodexSpec) -> AsyncIterator[Worker]:
    """Return a running app-server of the real Codex."""
    started = await start_worker(spec)
    yield started
    await started.process.stop()


async def seen_of(spec: CodexSpec) -> Fidelity:
    """Return what a binary adds, according to the check of its first start."""
    started = await start_worker(spec)
    try:
        return await check(spec, started)
    finally:
        await started.process.stop()


async def test_the_pinned_binary_adds_nothing(spec: CodexSpec) -> None:
    assert await seen_of(spec) == EXACT


async def test_a_binary_is_checked_over_both_transports(spec: CodexSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[WebSocketModel] = []

    class Watched(WebSocketModel):
        async def __aenter__(self) -> "Watched":
            models.append(await super().__aenter__())
            return self

    monkeypatch.setattr(selfcheck, "WebSocketModel", Watched)
    await seen_of(spec)
    (model,) = models
    asked = Counter(str(request.body["model"]) for request in model.requests)
    over_http = [request for request in model.requests if "text/event-stream" in request.headers.get("accept", "")]
    assert set(asked.values()) == {2}
    assert len(over_http) == len(asked) == model.warmed_up


async def test_what_codex_adds_over_websocket_only_is_seen(spec: CodexSpec, tmp_path: Path) -> None:
    """Such as a later version might, whose transports differ."""
    only_there = altered_codex(tmp_path, WITH_QUESTIONS, when="supports_websockets=true")
    assert await seen_of(replace(spec, binary=only_there)) == Fidelity(extra_tools=("request_user_input",))


async def test_in_their_native_tool_mode_models_get_the_tools_of_that_mode(spec: CodexSpec) -> None:
    assert await seen_of(replace(spec, direct_tools=False)) == SCRIPTING


async def test_tools_of_codexs_own_are_seen_and_told(spec: CodexSpec, tmp_path: Path) -> None:
    with capture_logs() as logs:
        seen = await seen_of(replace(spec, binary=altered_codex(tmp_path, WITH_QUESTIONS)))
    assert (seen, seen.findings) == (Fidelity(extra_tools=("request_user_input",)), ("request_user_input",))
    assert [log["extra_tools"] for log in logs if log["event"] == "codex_adds_to_requests"] == [("request_user_input",)]


async def test_texts_of_codexs_own_are_seen_and_told(spec: CodexSpec, tmp_path: Path) -> None:
    seen = await seen_of(replace(spec, binary=altered_codex(tmp_path, WITH_CONTEXT)))
    assert (seen.extra_items, seen.findings) == (("user-message",), ("user-message", "text"))
    assert [text.split("\n")[0] for text in seen.extra_instructions] == ["<environment_context>"]


async def test_a_picture_that_codex_changes_is_seen_and_told(spec: CodexSpec, tmp_path: Path) -> None:
    seen = await seen_of(replace(spec, binary=altered_codex(tmp_path, WITH_IMAGE_BUDGET)))
    assert (seen, seen.findings) == (Fidelity(missing=("image-detail",)), ("no-image-detail",))


async def test_a_tool_that_could_act_on_the_host_is_refused_again_and_again(spec: CodexSpec, tmp_path: Path) -> None:
    armed = replace(spec, binary=altered_codex(tmp_path, WITH_SHELL))
    for _ in range(2):
        with pytest.raises(BackendUnavailable) as refused:
            await seen_of(armed)
        assert str(armed.binary) in refused.value.message
        assert "act on this machine" in refused.value.message
        assert "exec_command, write_stdin" in refused.value.message
        assert "unset CODEX_BIN" in refused.value.message


async def test_a_binary_is_looked_at_once(spec: CodexSpec, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[CodexSpec] = []

    async def look(spec: CodexSpec, known: Worker) -> Fidelity:
        assert known is worker
        looks.append(spec)
        return Fidelity(extra_tools=("clock",))

    monkeypatch.setattr(selfcheck, "_observe", look)
    native = replace(spec, direct_tools=False)
    seen = [await check(asked, worker) for asked in (spec, spec, native)]
    selfcheck._known.clear()
    seen += [await check(asked, worker) for asked in (spec, native)]
    assert seen == [Fidelity(extra_tools=("clock",))] * 5
    assert looks == [spec, native]


@pytest.mark.parametrize("broken", ["", "[]", '{"extra_tools": 5}'])
async def test_a_note_that_cannot_be_read_is_made_again(
    spec: CodexSpec, worker: Worker, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    async def look(*_: object) -> Fidelity:
        return EXACT

    monkeypatch.setattr(selfcheck, "_observe", look)
    await check(spec, worker)
    (note,) = (spec.cache_dir / worker.binary).glob("fidelity-*.json")
    note.write_text(broken)
    selfcheck._known.clear()
    assert await check(spec, worker) == EXACT
    assert note.read_text() != broken


async def test_a_binary_whose_turns_fail_cannot_be_checked_and_is_not_served(spec: CodexSpec, tmp_path: Path) -> None:
    deaf = altered_codex(tmp_path, r's/"method":"turn\/start"/"method":"turn\/begin"/')
    with pytest.raises(BackendUnavailable, match=r"^Codex could not be checked with .*turn/begin"):
        await seen_of(replace(spec, binary=deaf))


def tool(name: str, **more: Json) -> JsonObject:
    return {"type": "function", "name": name, **more}


def said(text: str, role: str = "user") -> JsonObject:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


OURS: JsonObject = {"instructions": INSTRUCTIONS, "input": [said(QUESTION)], "tools": [tool(TOOL.name)]}


REMINDER: Json = {"type": "reminder"}


def with_tools(*tools: Json) -> JsonObject:
    return {**OURS, "tools": list(tools)}


@pytest.mark.parametrize(
    ("request_body", "seen"),
    [
        (OURS, EXACT),
        ({**OURS, "instructions": "", "input": [said(INSTRUCTIONS, "developer"), said(QUESTION)]}, EXACT),
        (
            {**OURS, "instructions": f"You are Codex. {INSTRUCTIONS}"},
            Fidelity(extra_instructions=(f"You are Codex. {INSTRUCTIONS}"[:80],)),
        ),
        (
            {**OURS, "input": [said("Today is Monday.", "developer"), said(QUESTION)]},
            Fidelity(extra_items=("developer-message",), extra_instructions=("Today is Monday.",)),
        ),
        ({**OURS, "input": [said(QUESTION), REMINDER]}, Fidelity(extra_items=("reminder",))),
        (with_tools(tool(TOOL.name), tool("clock")), Fidelity(extra_tools=("clock",))),
        (
            with_tools({"type": "local_shell"}, tool("mcp__files__read"), tool(TOOL.name)),
            Fidelity(extra_tools=("local_shell", "mcp__files__read"), host_tools=("local_shell", "mcp__files__read")),
        ),
        (
            with_tools({"type": "namespace", "name": "all", "tools": [tool(TOOL.name), tool("apply_patch")]}),
            Fidelity(extra_tools=("apply_patch",), host_tools=("apply_patch",)),
        ),
        (
            with_tools(tool("exec", description=f"Runs.\n### `{TOOL.name}`\nIt.\n### `exec_command`\nIt.")),
            Fidelity(extra_tools=("exec", "exec_command"), host_tools=("exec", "exec_command")),
        ),
        ({}, Fidelity(missing=("instructions", "message", "tool"))),
    ],
)
def test_whatever_is_not_ours_is_found(request_body: JsonObject, seen: Fidelity) -> None:
    assert compare(request_body, exact=True) == seen


def picture(**more: Json) -> JsonObject:
    return {"type": "input_image", "image_url": PIXEL, **more}


@pytest.mark.parametrize(
    ("parts", "missing"),
    [
        ([picture(detail="high"), picture()], ()),
        ([picture(detail="original"), picture(detail="original")], ("image-detail",)),
        ([picture(detail="high"), picture(detail="auto")], ("image-detail",)),
        ([picture(detail="high")], ("image",)),
        ([picture(detail="high"), {**picture(), "image_url": "data:image/png;base64,"}], ("image",)),
        ([], ("image",)),
    ],
    ids=["as sent", "details rewritten", "a detail added", "one lost", "other bytes", "all lost"],
)
def test_a_picture_is_compared_whole(parts: list[Json], missing: tuple[str, ...]) -> None:
    question: JsonObject = {"type": "input_text", "text": QUESTION}
    shown: JsonObject = {"type": "message", "role": "user", "content": [question, *parts]}
    seen = compare({**OURS, "input": [shown]}, exact=True, pictures=PICTURES)
    assert seen == Fidelity(missing=missing)


def test_a_tool_for_scripts_is_harmless_by_itself_but_not_what_it_may_call() -> None:
    scripts = with_tools(tool("exec", description=f"### `{TOOL.name}`\n### `shell`\n"))
    assert compare(scripts, exact=True, scripts_tools=True) == Fidelity(
        extra_tools=("exec", "shell"), host_tools=("shell",)
    )


def test_in_a_flattened_history_our_words_stand_among_others() -> None:
    flat: JsonObject = {"instructions": f"{INSTRUCTIONS}\nFunctions: {TOOL.name}", "input": [said(f"User: {QUESTION}")]}
    assert compare(flat, exact=False) == EXACT
    assert compare(flat, exact=True).extra_instructions != ()


def test_what_older_versions_keep_whatever_one_does_is_told_but_a_shell_is_refused() -> None:
    older = with_tools(tool(TOOL.name), tool("apply_patch"), tool("view_image"), tool("shell"))
    assert compare(older, exact=False) == Fidelity(
        extra_tools=("apply_patch", "view_image", "shell"), host_tools=("shell",)
    )
    # Where Codex may write, a patch would be applied.
    loose = HostRules(sandbox="workspace-write")
    assert compare(older, exact=False, rules=loose).host_tools == ("apply_patch", "view_image", "shell")


def test_findings_fit_into_a_header() -> None:
    assert Fidelity(extra_tools=("größe\n",), missing=("tool",)).findings == ("gr__e_", "no-tool")


async def test_a_gateway_tells_what_its_codex_adds(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, CODEX_BIN=altered_codex(tmp_path, WITH_QUESTIONS)) as bridge:
        ready = await bridge.http.get("/readyz")
        bridge.says("Well.")
        answered = await bridge.client.responses.create(model="gpt-5.5", input="hi")
    assert ready.json() == {"status": "ready", "fidelity": "extra=request_user_input"}
    assert answered.output_text == "Well."


async def test_a_gateway_does_not_serve_with_a_codex_that_could_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "start_timeout_s", 0.05)
    binary = altered_codex(tmp_path, WITH_SHELL)
    settings = settings_for_tests(tmp_path, CODEX_BIN=binary)
    async with (
        running_gateway(settings, api_key=API_KEY, provider=NOWHERE) as gateway,
        listening(gateway) as url,
        httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {API_KEY}"}) as http,
        asyncio.timeout(90),
    ):
        while "exec_command" not in (ready := (await http.get("/readyz")).json())["reason"]:  # noqa: ASYNC110 - as probes do
            await asyncio.sleep(0.05)
        refused = await http.post("/v1/responses", json={"model": "gpt-5.5", "input": "hi"})
    assert ready["status"] == "not_ready"
    assert str(binary) in ready["reason"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "backend_unavailable")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_codex_that_acts_all_the_same_is_stopped(tmp_path: Path, stream: bool) -> None:
    binary = altered_codex(tmp_path, WITH_SHELL, only_after_check=True)
    async with running_bridge(tmp_path, CODEX_BIN=binary) as bridge:
        bridge.script(answer(function_call("exec_command", {"cmd": "sleep 30"})), answer(message("Done.")))
        failed = await bridge.http.post("/v1/responses", json={"model": "gpt-5.5", "input": "hi", "stream": stream})
        (worker,) = bridge.gateway.pool.workers
        assert worker.load == 0
        # The command is cut off: the model is not told what came of it.
        assert len(bridge.model.requests) == 1
    assert (failed.status_code, failed.json()["error"]["code"]) == (502, "codex_acted")
    assert "commandExecution" in failed.json()["error"]["message"]
    assert failed.headers["x-should-retry"] == "false"
