"""Settings files of clients: written with everything else kept, and restored exactly."""

import os
import stat
from pathlib import Path

import pytest

from turnbridge.cli.clients.files import NotWritten, SettingsFile
from turnbridge.cli.clients.table import BY_NAME, CLIENTS
from turnbridge.cli.clients.values import OfferedModel, Values
from turnbridge.cli.connect import places_in

KEY = "sk-turnbridge-of-the-test"
WRITABLE = [client.name for client in CLIENTS if client.written is not None]
IN_SHARED_FILES = ["claude-code", "opencode", "zed", "aider"]
FORMER = {
    "claude-code": '{\n  "apiKeyHelper": "old",\n  "permissions": {"deny": ["Read(.env)"]}\n}\n',
    "opencode": '// mine\n{\n  "theme": "x",\n}\n',
    "zed": '// Zed settings\n{\n  "theme": "x", // dark\n  "language_models": {\n    "ollama": {}\n  }\n}\n',
    "aider": "# mine\nmodel: gpt-4o # old\ndark-mode: true",
}


def values(home: Path, *, model: str = "codex-5") -> Values:
    return Values(
        base_url="http://127.0.0.1:11435/v1",
        key=KEY,
        key_file=home / "data" / "api-key",
        model=OfferedModel(name=model, window=272_000, output=128_000),
        native_model="gpt-5.5",
    )


def file_of(name: str, home: Path) -> SettingsFile:
    settings = BY_NAME[name].written
    assert settings is not None
    return SettingsFile(
        settings=settings, places=places_in(home, home / ".codex", {}), kept=home / "data" / "connect" / name
    )


def written(name: str, home: Path, text: str | None = None, *, mode: int = 0o644) -> SettingsFile:
    """Return a settings file that is written, over this text."""
    file = file_of(name, home)
    if text is not None:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(text)
        file.path.chmod(mode)
    assert file.write(values(home)).changed
    return file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def tree(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if "data" not in path.parts}


@pytest.mark.promise("commands.connect.write")
@pytest.mark.parametrize("name", WRITABLE)
def test_a_new_file_is_private_and_goes_again(tmp_path: Path, name: str) -> None:
    file = written(name, tmp_path)
    assert mode_of(file.path) == 0o600
    assert not file.write(values(tmp_path)).changed
    assert file.is_written
    assert file.undo() is not None
    assert tree(tmp_path) == set(), "the directories that were made are gone, too"
    assert file.undo() is None


@pytest.mark.promise("commands.connect.write")
@pytest.mark.parametrize("name", IN_SHARED_FILES)
def test_everything_else_stays_and_undo_restores_exactly(tmp_path: Path, name: str) -> None:
    former = FORMER[name]
    file = written(name, tmp_path, former)
    text = file.path.read_text()
    kept = [line for line in former.splitlines() if not line.startswith(("model:", '  "apiKeyHelper"'))]
    assert [part for line in kept if (part := line.strip().split(" //")[0].rstrip(",")) and part not in text] == []
    assert mode_of(file.path) == (0o600 if KEY in text else 0o644)
    assert (file.kept / file.path.name).read_text() == former
    file.write(values(tmp_path, model="gpt-5.5-high"))
    assert "gpt-5.5-high" in file.path.read_text()
    file.undo()
    assert file.path.read_text() == former
    assert mode_of(file.path) == 0o644
    assert list((tmp_path / "data" / "connect").iterdir()) == []


@pytest.mark.promise("commands.connect.write")
@pytest.mark.parametrize("name", IN_SHARED_FILES)
def test_undo_leaves_what_was_changed_since(tmp_path: Path, name: str) -> None:
    file = written(name, tmp_path, FORMER[name])
    changed = file.path.read_text().replace("dark-mode: true", "dark-mode: false").replace('"x"', '"y"')
    changed = changed.replace("Read(.env)", "Read(.other)")
    file.path.write_text(changed)
    file.undo()
    expected = FORMER[name].replace("true", "false\n").replace('"x"', '"y"').replace("Read(.env)", "Read(.other)")
    assert file.path.read_text() == expected


def test_an_own_file_that_was_changed_is_not_removed(tmp_path: Path) -> None:
    file = written("codex", tmp_path)
    file.path.write_text(file.path.read_text() + "# mine\n")
    with pytest.raises(NotWritten, match="was changed since"):
        file.undo()
    assert file.path.exists()


def test_a_file_that_is_gone_is_not_restored(tmp_path: Path) -> None:
    file = written("claude-code", tmp_path, FORMER["claude-code"])
    file.path.unlink()
    change = file.undo()
    assert change is not None
    assert not change.changed
    assert not file.path.exists()


@pytest.mark.promise("commands.connect.write")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("claude-code", "{broken"),
        ("claude-code", '{"env": []}'),
        ("aider", "{model: x}"),
        ("aider", "model:\n  - x\n"),
        ("aider", "model: a\nmodel: b\n"),
    ],
)
def test_a_file_that_cannot_be_edited_stays(tmp_path: Path, name: str, text: str) -> None:
    file = file_of(name, tmp_path)
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_text(text)
    with pytest.raises(NotWritten, match="is left as it is"):
        file.write(values(tmp_path))
    assert file.path.read_text() == text
    assert not file.is_written


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles.json"
    dotfiles.write_text("{}")
    file = file_of("zed", tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.symlink_to(dotfiles)
    file.write(values(tmp_path))
    assert file.path.is_symlink()
    assert "turnbridge" in dotfiles.read_text()
    file.undo()
    assert dotfiles.read_text() == "{}"


@pytest.mark.promise("commands.connect.write")
@pytest.mark.parametrize("name", WRITABLE)
def test_the_key_is_in_private_files_only(tmp_path: Path, name: str) -> None:
    file = written(name, tmp_path, FORMER.get(name), mode=0o664)
    readable = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert [path for path in readable if KEY in path.read_text()] == []
    settings = BY_NAME[name].written
    assert settings is not None
    assert settings.has_key == (KEY in file.path.read_text())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a home to another user")
def test_root_does_not_write_into_another_users_home(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(NotWritten, match="belongs to another user"):
        file_of("zed", tmp_path).write(values(tmp_path))
