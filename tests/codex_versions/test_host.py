"""Nothing runs on the host, whatever the model calls: Codex 0.92.0 keeps some tools that cannot be switched off."""

import json
from base64 import b64decode
from pathlib import Path

import openai
import pytest

from tests.codex_versions.seen import (
    MODEL,
    as_seen,
    serve_another_turn,
    text,
)
from tests.real.fidelity_cases import PNG
from tests.support.gateway import Bridge
from turnbridge.scripted_model.replies import (
    OutputItem,
    answer,
    custom_tool_call,
    function_call,
    message,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PICTURE = b64decode(PNG.partition(",")[2])


def patch(file: Path) -> str:
    """Return a patch that makes a file."""
    return f"*** Begin Patch\n*** Add File: {file}\n+made\n*** End Patch\n"


def call(name: str, **arguments: object) -> OutputItem:
    """Return a call of one of Codex's own tools."""
    return function_call(name, json.dumps(arguments))


def attempts(file: Path) -> list[tuple[OutputItem, str]]:
    """Return ways to make a file, each with what this Codex answers to it."""
    touch = f"touch {file}"
    refused = "patch rejected: writing outside of the project; rejected by user approval settings"
    return [
        (call("shell", command=["touch", str(file)]), "unsupported call: shell"),
        (call("shell_command", command=touch), "unsupported call: shell_command"),
        (call("local_shell", command=["touch", str(file)]), "unsupported call: local_shell"),
        (call("container.exec", command=["touch", str(file)]), "unsupported call: container.exec"),
        (call("exec_command", cmd=touch), "unsupported call: exec_command"),
        (call("spawn_agent", message=touch), "unsupported call: spawn_agent"),
        (call("apply_patch", input=patch(file)), refused),
        (custom_tool_call("apply_patch", patch(file)), refused),
    ]


@pytest.mark.promise("versions.host")
@pytest.mark.parametrize("number", range(len(attempts(Path()))))
async def test_no_file_is_made(old: Bridge, tmp_path: Path, number: int) -> None:
    file = tmp_path / "made.txt"
    attempt, refusal = attempts(file)[number]
    old.script(answer(attempt), answer(message("I could not.")))
    response = await old.client.responses.create(model=MODEL, input="Make a file.")
    assert response.output_text == "I could not."
    answered = old.model.requests[-1].body["input"]
    assert isinstance(answered, list)
    assert isinstance(answered[-1], dict)
    assert answered[-1]["output"] == refusal
    assert not file.exists()


@pytest.mark.promise("versions.host")
@pytest.mark.parametrize("tool", ["read_file", "list_dir", "grep_files"])
async def test_no_file_is_read(old: Bridge, tmp_path: Path, tool: str) -> None:
    (tmp_path / "secret.txt").write_text("SECRET", encoding="utf-8")
    place = {
        "file_path": str(tmp_path / "secret.txt"),
        "dir_path": str(tmp_path),
        "path": str(tmp_path),
        "pattern": "S",
    }
    old.script(answer(call(tool, **place)), answer(message("I could not.")))
    await old.client.responses.create(model=MODEL, input="Read a file.")
    assert "SECRET" not in json.dumps(old.model.requests[-1].body)


@pytest.mark.promise("versions.host")
@pytest.mark.parametrize(
    ("tool", "arguments", "item"),
    [
        ("view_image", {"path": "picture.png"}, "imageView"),
        ("list_mcp_resources", {}, "mcpToolCall"),
        ("read_mcp_resource", {"server": "none", "uri": "file:///etc/passwd"}, "mcpToolCall"),
    ],
)
async def test_a_tool_that_looks_at_the_host_ends_the_turn(
    old: Bridge, tool: str, arguments: dict[str, str], item: str
) -> None:
    (worker,) = old.gateway.pool.workers
    (worker.spec.workdir / "picture.png").write_bytes(PICTURE)
    looks = call(tool, **arguments)
    # Codex may ask on before it is interrupted.
    seen = answer(message("I have seen it."))
    old.model.respond = lambda request: seen if '"call_id"' in json.dumps(request["input"]) else answer(looks)
    with pytest.raises(openai.APIStatusError) as told:
        await old.client.responses.create(model=MODEL, input="Look.")
    assert (told.value.status_code, told.value.code) == (502, "codex_acted")
    assert f"({item})" in told.value.message
    await serve_another_turn(old)


@pytest.mark.promise("versions.host")
async def test_a_plan_of_the_models_stays_its_own(old: Bridge) -> None:
    plan = {"plan": [{"step": "think", "status": "pending"}]}
    old.script(answer(call("update_plan", **plan)), answer(message("Done.")))
    response = await old.client.responses.create(model=MODEL, input="Think.")
    assert [item.type for item in response.output] == ["message"]


@pytest.mark.promise("versions.host")
async def test_a_skill_of_codexs_is_neither_told_nor_unpacked(old: Bridge) -> None:
    old.says("What?")
    await old.client.responses.create(model=MODEL, input="Use $skill-creator now.")
    assert as_seen(old.seen()) == ([], [text("Use $skill-creator now.")], [])


@pytest.mark.promise("versions.host")
async def test_nothing_of_a_conversation_stays_on_the_disk(
    old: Bridge, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old.says("Forgotten.")
    await old.client.responses.create(model=MODEL, input="Keep this for yourself: SECRET-41.", store=False)
    written = [path for path in tmp_path_factory.getbasetemp().rglob("rollout-*.jsonl") if path.is_file()]
    assert [path for path in written if "SECRET-41" in path.read_text(encoding="utf-8")] == []
