"""`turnbridge doctor` with the real Codex."""

import json
from pathlib import Path

import pytest

from tests.support.command import Finished, run, serving
from tests.support.login_server import login_server
from tests.support.ports import free_port
from turnbridge.scripted_model.persona import respond
from turnbridge.scripted_model.server import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.real]

EXIT_WRONG = 1
EVERY_CHECK = (
    *("settings", "home", "binary", "fidelity", "login", "proxy", "provider", "clock"),
    *("port", "key", "permissions", "disk", "store", "packages", "turn"),
)
OWN_PROVIDER = """\
model = "gpt-5.5"
model_provider = "own"
[model_providers.own]
name = "own"
base_url = "{url}"
{more}
"""


def by_check(finished: Finished) -> dict[str, str]:
    return {one["check"]: one["state"] for one in json.loads(finished.out)["checks"]}


@pytest.mark.promise("commands.doctor")
async def test_a_machine_on_which_all_is_well_passes_with_a_turn(started_before: Path) -> None:
    (started_before / ".codex").mkdir()
    (started_before / "data").chmod(0o700)
    async with ScriptedModel(respond) as model:
        config = OWN_PROVIDER.format(url=model.base_url, more="")
        (started_before / ".codex" / "config.toml").write_text(config)
        port = str(free_port())
        checked = await run(started_before, "doctor", "--turn", "--json", PORT=port)
        shown = await run(started_before, "doctor", PORT=port)
    assert by_check(checked) == dict.fromkeys(EVERY_CHECK, "ok"), checked.out
    assert (checked.status, json.loads(checked.out)["ok"]) == (0, True)
    assert (shown.status, shown.out.splitlines()[-1]) == (0, "14 ok, 0 warnings, 0 wrong")


@pytest.mark.promise("commands.doctor")
async def test_what_is_missing_is_named_with_its_remedy(tmp_path: Path) -> None:
    home = tmp_path / "my home"
    home.mkdir()
    with login_server(tmp_path) as server:
        server.write_config(home / ".codex")
        (home / ".codex" / "config.toml").write_text(f'openai_base_url = "{server.url}/v1"\n')
        checked = await run(home, "doctor", PORT=str(free_port()), HTTP_PROXY="http://me:secret@127.0.0.1:9")
    assert checked.status == EXIT_WRONG
    assert "wrong    login        Nobody is logged in.\n                      → PROXY_DATA_DIR=" in checked.out
    assert "wrong    proxy        HTTP_PROXY is http://********@127.0.0.1:9, which cannot be reached" in checked.out
    assert "warning  fidelity" in checked.out
    assert "ok       provider     `openai` answers at" in checked.out
    assert "secret" not in checked.out
    assert not (home / ".codex" / "auth.json").exists()


@pytest.mark.promise("commands.doctor")
async def test_bad_settings_and_a_codex_that_cannot_be_run_are_findings(tmp_path: Path) -> None:
    bad = await run(tmp_path, "doctor", "--json", PORT="many", PROXY_DRAIN_S="-1")
    assert (bad.status, bad.err) == (EXIT_WRONG, "")
    assert [one["check"] for one in json.loads(bad.out)["checks"]] == ["settings", "settings"]
    missing = await run(tmp_path, "doctor", "--json", CODEX_BIN="/nowhere/codex", PORT=str(free_port()))
    found = by_check(missing)
    assert (missing.status, found["binary"], found["login"]) == (EXIT_WRONG, "wrong", "wrong")
    assert found["disk"] == "ok", "the other checks go on"
    nowhere = by_check(await run(tmp_path, "doctor", "--json", PROXY_DATA_DIR="/proc/nowhere", PORT=str(free_port())))
    assert nowhere["home"] == "wrong"
    assert not nowhere.keys() & {"binary", "login"}, "what follows from it is not told"


@pytest.mark.promise("commands.doctor")
async def test_a_running_gateway_and_its_key_are_checked(started_before: Path) -> None:
    (started_before / ".codex").mkdir()
    (started_before / ".codex" / "config.toml").write_text('openai_base_url = "http://127.0.0.1:9/v1"\n')
    async with serving(started_before, "--demo") as gateway:
        await gateway.ready()
        port = gateway.url.rpartition(":")[2]
        fine = by_check(await run(started_before, "doctor", "--json", PORT=port))
        other_key = by_check(await run(started_before, "doctor", "--json", PORT=port, PROXY_API_KEY="sk-other"))
    assert (fine["port"], fine["key"]) == ("ok", "ok")
    assert (other_key["port"], other_key["key"]) == ("ok", "wrong")
