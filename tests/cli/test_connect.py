"""`turnbridge connect`: settings shown, written, and tried with a real gateway; Codex reads what was written."""

import asyncio
import json
import os
import pty
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from codex_cli_bin import bundled_codex_path

from tests.support.command import PATIENCE_S, environment, run, serving
from turnbridge.cli.clients.table import CLIENTS

pytestmark = [pytest.mark.anyio]

EXIT_USAGE = 2
EXIT_UNAVAILABLE = 69
EXIT_CONFIG = 78
DEAD_PROXY = dict.fromkeys(("http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")


@pytest.mark.promise("commands.connect.show")
@pytest.mark.parametrize("name", [client.name for client in CLIENTS])
async def test_settings_are_shown_without_a_gateway(tmp_path: Path, name: str) -> None:
    shown = await run(tmp_path, "connect", name, PROXY_API_KEY="sk-chosen-by-its-owner")
    assert (shown.status, shown.err) == (0, "")
    assert "127.0.0.1:9" in shown.out
    assert "No gateway runs on http://127.0.0.1:9/v1." in shown.out
    assert "sk-chosen" not in shown.out, "a log or a file would keep it"


@pytest.mark.promise("commands.connect.show")
async def test_the_key_is_shown_on_a_terminal(tmp_path: Path) -> None:
    controlling, terminal = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnbridge", "connect", "openai-sdk"),
        env=environment(tmp_path),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    try:
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        printed = os.read(controlling, 65536).decode()
    finally:
        os.close(controlling)
    key = (tmp_path / "data" / "api-key").read_text().strip()
    assert f"export OPENAI_API_KEY={key}" in printed


@pytest.mark.promise("commands.connect.show")
async def test_wrong_input_is_told(tmp_path: Path) -> None:
    listed = await run(tmp_path, "connect")
    assert [line.split()[0] for line in listed.out.splitlines()[: len(CLIENTS)]] == [one.name for one in CLIENTS]
    for words in (("nonsense",), ("--write",), ("c",), ("codex", "--undo", "--write")):
        refused = await run(tmp_path, "connect", *words)
        assert (refused.status, refused.out) == (EXIT_USAGE, "")
    assert "codex, opencode" in (await run(tmp_path, "connect", "nonsense")).err
    untested = await run(tmp_path, "connect", "codex", "--test")
    assert untested.status == EXIT_UNAVAILABLE
    assert untested.err.startswith("No gateway runs on ")
    unwritten = await run(tmp_path, "connect", "cursor", "--write")
    assert unwritten.status == 1
    assert "cannot be written" in unwritten.err


@pytest.mark.promise("commands.connect.show")
@pytest.mark.parametrize("variable", ["HOME", "XDG_CONFIG_HOME"])
async def test_directories_with_spaces_and_quotes(tmp_path: Path, variable: str) -> None:
    odd = tmp_path / 'it\'s a "home"'
    odd.mkdir()
    written = await run(tmp_path, "connect", "zed", "--write", **{variable: str(odd), "PROXY_DATA_DIR": str(odd / "d")})
    assert (written.status, written.err) == (0, "")
    file = odd / ("zed" if variable == "XDG_CONFIG_HOME" else ".config/zed") / "settings.json"
    assert json.loads(file.read_text())["language_models"]["openai_compatible"]["turnbridge"]
    profile = await run(odd, "connect", "codex", "--write", CODEX_HOME=str(odd / "codex"))
    assert (profile.status, profile.err) == (0, "")
    told = tomllib.loads((odd / "codex" / "turnbridge.config.toml").read_text())
    assert told["model_providers"]["turnbridge"]["auth"]["args"] == [str(odd / "data" / "api-key")]


@pytest.mark.promise("commands.connect.write")
async def test_a_key_of_its_own_is_read_from_a_file(tmp_path: Path) -> None:
    made, file = await run(tmp_path, "keys", "create", "zoe"), tmp_path / "zoe.key"
    file.write_text(made.out)
    shown = json.loads((await run(tmp_path, "connect", "opencode", "--key-file", "zoe.key", "--json")).out)
    assert (shown["api_key_file"], str(file) in shown["settings"]) == (str(file), True)
    file.write_text("two words")
    refused = await run(tmp_path, "connect", "zed", "--key-file", "zoe.key")
    assert (refused.status, "should hold one key" in refused.err) == (EXIT_CONFIG, True)


@pytest.mark.promise("commands.connect.own-key")
async def test_a_client_gets_a_key_of_its_own_once(tmp_path: Path) -> None:
    file = tmp_path / "data" / "connect" / "opencode.key"
    first = await run(tmp_path, "connect", "opencode", "--own-key", "--write", "--json")
    key = file.read_text()
    assert (json.loads(first.out)["api_key_file"], file.stat().st_mode & 0o077) == (str(file), 0)
    assert str(file) in (tmp_path / ".config" / "opencode" / "opencode.json").read_text()
    again = await run(tmp_path, "connect", "opencode", "--own-key")
    assert (again.status, again.err, file.read_text()) == (0, "", key)
    (listed,) = json.loads((await run(tmp_path, "keys", "list", "--json")).out)
    assert (listed["name"], listed["state"], listed["admin"]) == ("opencode", "active", False)
    undone = await run(tmp_path, "connect", "opencode", "--undo")
    assert undone.out.endswith("keys revoke opencode\n")
    await run(tmp_path, "keys", "revoke", "opencode")
    refused = await run(tmp_path, "connect", "opencode", "--own-key")
    assert (refused.status, refused.out) == (1, "")
    assert "There is a key `opencode`, but it is revoked." in refused.err
    both = await run(tmp_path, "connect", "opencode", "--own-key", "--key-file", str(file))
    assert both.status == EXIT_USAGE


@pytest.mark.promise("commands.connect.write")
async def test_a_chosen_key_is_put_into_a_private_file(tmp_path: Path) -> None:
    await run(tmp_path, "connect", "opencode", "--write", PROXY_API_KEY="sk-chosen-by-its-owner")
    told = (tmp_path / ".config" / "opencode" / "opencode.json").read_text()
    found = re.search(r"\{file:(.+?)\}", told)
    assert found is not None
    assert "sk-chosen" not in told
    file = tmp_path / "data" / "connect" / "api-key"
    assert found[1] == str(file)
    assert file.read_text().strip() == "sk-chosen-by-its-owner"
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.real
@pytest.mark.promise("commands.connect.test")
async def test_a_call_of_each_kind_arrives(started_before: Path) -> None:
    async with serving(started_before, "--demo") as gateway:
        await gateway.ready()
        port = gateway.url.rpartition(":")[2]
        tried = [
            (client, await run(started_before, "connect", client.name, "--test", "--json", PORT=port, **DEAD_PROXY))
            for client in CLIENTS
            if client.name in ("claude-code", "codex", "opencode", "aider")
        ]
        refused = await run(started_before, "connect", "codex", "--test", "--model", "nonsense", PORT=port)
        wrong_key = await run(started_before, "connect", "codex", "--test", PORT=port, PROXY_API_KEY="sk-wrong")
        told = await run(started_before, "connect", "claude", "--write", "--test", PORT=port)
        (started_before / "new.key").write_text((await run(started_before, "keys", "create", "zoe")).out)
        new_key = await run(started_before, "connect", "aider", "--test", "--key-file", "new.key", PORT=port)
        own = await run(started_before, "connect", "aider", "--own-key", "--test", "--json", PORT=port)
    assert (new_key.status, new_key.err) == (0, "")
    for client, one in tried:
        assert (one.status, one.err) == (0, "")
        arrived = json.loads(one.out)["test"]
        assert arrived["model"].startswith("gpt-")
        assert arrived["output_tokens"] > 0 < arrived["input_tokens"]
        assert ("I may call get_time" in arrived["text"]) == client.has_tools
    assert (refused.status, refused.err[:32]) == (1, "The gateway does not serve a mod")
    assert (own.status, own.err, json.loads(own.out)["test"]["output_tokens"] > 0) == (0, "", True)
    assert wrong_key.status == 1
    assert "API key" in wrong_key.err
    assert "Wrote " in told.out
    assert " answered on /v1/messages in " in told.out


@pytest.mark.real
@pytest.mark.promise("commands.connect.write")
async def test_codex_works_with_the_profile_that_was_written(started_before: Path) -> None:
    async with serving(started_before, "--demo") as gateway:
        await gateway.ready()
        port = gateway.url.rpartition(":")[2]
        written = await run(started_before, "connect", "codex", "--write", PORT=port)
        assert (written.status, written.err) == (0, "")
        words = ("exec", "--skip-git-repo-check", "--profile", "turnbridge", "Hello from Codex")
        printed = await used(str(bundled_codex_path()), *words, home=started_before)
    assert "Turnbridge's scripted demo model" in printed


@pytest.mark.real
@pytest.mark.promise("commands.connect.write")
@pytest.mark.parametrize(
    ("client", "variable", "program", "words"),
    [
        ("claude-code", "TURNBRIDGE_TEST_CLAUDE", "claude", ("-p", "Hello!")),
        ("opencode", "TURNBRIDGE_TEST_OPENCODE", "opencode", ("run", "--model", "turnbridge/codex-5", "Hello!")),
    ],
)
async def test_clients_work_with_what_was_written(
    started_before: Path, client: str, variable: str, program: str, words: tuple[str, ...]
) -> None:
    found = os.environ.get(variable) or shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed, and {variable} names none")
    async with serving(started_before, "--demo") as gateway:
        await gateway.ready()
        port = gateway.url.rpartition(":")[2]
        written = await run(started_before, "connect", client, "--write", PORT=port)
        assert (written.status, written.err) == (0, "")
        printed = await used(found, *words, home=started_before)
    assert "Turnbridge's scripted demo model" in printed


async def used(*command: str, home: Path) -> str:
    """Return what a client prints that finds its settings in a home; it reaches nothing but this machine."""
    quiet = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "NO_PROXY": "127.0.0.1"}
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment(home, **quiet, HTTPS_PROXY="http://127.0.0.1:9"),
        cwd=home,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return out.decode()
