"""`turnbridge store`: what an operator sees and does, with the settings of the gateway."""

import asyncio
import json
import re
import stat
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.store.samples import (
    OWNER,
    PLENTY,
    chat,
    conversation,
    exported,
    file,
    items,
    response,
)
from turnbridge.cli.console import EXIT_CONFIG, EXIT_UNAVAILABLE
from turnbridge.cli.main import app
from turnbridge.settings.fields import known_names
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import open_store
from turnbridge.turn.items import JsonObject

DAY = 24 * 3600


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the data directory that the commands use."""
    for name in (*known_names(), "PROXY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PROXY_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


async def _fill(url: str) -> None:
    now = int(time.time())
    store = await open_store(url)
    for name, age in (("old", 40), ("young", 1)):
        await store.add_response(
            response(f"r-{name}", created_at=now - age * DAY, text="x" * 600_000), continues=None, inputs=items("a")
        )
    await store.add_conversation(conversation("c", created_at=now), items("b"))
    await store.add_chat(chat("chat", created_at=now))
    await store.add_file(file("f", created_at=now, size=1), b"f", PLENTY)
    await store.aclose()


async def _kept(url: str) -> list[JsonObject]:
    store = await open_store(url)
    try:
        return await exported(store)
    finally:
        await store.aclose()


@pytest.fixture
def url(data: Path) -> str:
    """Return the URL of a store in the data directory, with something of each kind in it."""
    asyncio.run(_fill(store_url(data)))
    return store_url(data)


def run(*words: str, status: int = 0) -> str:
    """Return what a command writes to standard output."""
    result = CliRunner().invoke(app, ["store", *words])
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def responses(url: str) -> list[str]:
    """Return the responses that are kept."""
    return [str(line["id"]) for line in asyncio.run(_kept(url)) if line["kind"] == "response"]


@pytest.mark.usefixtures("url")
def test_show_tells_how_much_is_kept_and_where(data: Path) -> None:
    shown = dict(re.split(r"  +", line, maxsplit=1) for line in run("show").splitlines())
    oldest = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 40 * DAY))
    where, oldest_shown = shown.pop("Location"), shown.pop("Oldest")
    assert shown == {
        "Retention": "30 days, 1024 MB at most",
        "Size": "1.1 MB",
        "Responses": "2",
        "Conversations": "1",
        "Chat completions": "1",
        "Files": "1",
        "Items": "3",
    }
    assert re.fullmatch(rf"{data}/store.db \(\d\.\d MB on disk\)", where)
    assert oldest_shown.startswith(oldest)


def test_prune_removes_what_the_settings_say(url: str) -> None:
    assert run("prune") == "Deleted 1 responses, 0 conversations, 0 chat completions and 0 files.\n"
    assert responses(url) == ["r-young"]


def test_prune_removes_what_the_options_say(url: str) -> None:
    assert run("prune", "--older-than-days", "50", "--max-mb", "1").startswith("Deleted 1 responses, 0 ")
    assert responses(url) == ["r-young"]
    everything = "Deleted 1 responses, 1 conversations, 1 chat completions and 1 files.\n"
    assert run("prune", "--older-than-days", "0") == everything
    assert asyncio.run(_kept(url)) == []


def test_export_writes_a_json_object_a_line(url: str, tmp_path: Path) -> None:
    lines = asyncio.run(_kept(url))
    assert [json.loads(line) for line in run("export").splitlines()] == lines
    out = tmp_path / "export.ndjson"
    assert run("export", "--out", str(out)) == ""
    assert [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] == lines
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_export_to_where_nothing_can_be_written_is_refused(url: str) -> None:
    del url
    assert "Is a directory" in run("export", "--out", "/", status=EXIT_UNAVAILABLE)


def test_vacuum_shrinks_the_file(url: str, data: Path) -> None:
    asyncio.run(_remove(url))
    before = (data / "store.db").stat().st_size
    assert run("vacuum").startswith(f"Done: {data}/store.db (")
    assert (data / "store.db").stat().st_size < before


async def _remove(url: str) -> None:
    store = await open_store(url)
    await store.delete_response(OWNER, "r-old")
    await store.aclose()


@pytest.mark.parametrize("command", ["show", "prune", "export", "vacuum"])
def test_where_nothing_was_kept_nothing_is_made(data: Path, command: str) -> None:
    assert run(command) == ""
    assert not data.exists()


def test_a_bad_setting_is_refused_by_its_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del data
    monkeypatch.setenv("PROXY_DATABASE_URL", "mysql://host/name")
    assert run("show", status=EXIT_CONFIG).startswith("PROXY_DATABASE_URL: ")


def test_a_database_that_cannot_be_reached_is_told_without_its_password(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del data
    monkeypatch.setenv("PROXY_DATABASE_URL", "postgresql://me:hunter2@127.0.0.1:1/nothing")
    told = run("show", status=EXIT_UNAVAILABLE)
    assert "The store cannot be used: ConnectionRefusedError." in told
    assert "hunter2" not in told


def test_a_store_in_postgres_is_shown_without_its_password(
    data: Path, monkeypatch: pytest.MonkeyPatch, postgres: str
) -> None:
    del data
    monkeypatch.setenv("PROXY_DATABASE_URL", postgres.replace("postgres:@", "postgres:hunter2@"))
    shown = run("show")
    assert re.search(r"^Location +postgresql:///postgres$", shown, re.MULTILINE)
    assert "hunter2" not in shown
