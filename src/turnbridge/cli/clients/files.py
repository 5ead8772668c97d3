"""Writing a client's settings file, and taking that back.

What the file was is kept in the data directory: `undo` restores it exactly, or takes back only what was set if somebody
has changed the file meanwhile. A file that holds a key is readable for its owner only.
"""

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import msgspec

from turnbridge.cli.clients import jsonc
from turnbridge.cli.clients.values import JsonSettings, LineSettings, OwnFile, Places, Values, Written, yaml_scalar
from turnbridge.codex.process.home import write_private
from turnbridge.turn.items import Json

# Settings that people write have some kilobytes.
MOST_BYTES = 4 * 1024 * 1024
PRIVATE = 0o600
RECORD = "record.json"


class NotWritten(Exception):
    """The file cannot be written, or not without harm; the message says why."""


class FormerValue(msgspec.Struct, frozen=True):
    """What stood at a place of the file before."""

    path: tuple[str, ...]
    present: bool
    value: Json
    depth: int
    """How many of the objects on the path were there."""


class Record(msgspec.Struct, frozen=True):
    """What the file was, and what was written."""

    file: str
    existed: bool
    mode: int
    digest: str
    """Of the written file."""
    made: tuple[str, ...]
    """Directories that were created, the innermost first."""
    former: tuple[FormerValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done to a file."""

    file: Path
    changed: bool
    backup: Path | None = None
    made_private: bool = False
    exact: bool = True
    """Whether an undo restored the very bytes; somebody else may have changed the file meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """The settings file of one client, and where its former state is kept."""

    settings: Written
    places: Places
    kept: Path
    """The directory for the backup."""

    @property
    def path(self) -> Path:
        """Return the path as the user knows it."""
        return self.settings.file(self.places)

    @property
    def is_written(self) -> bool:
        return (self.kept / RECORD).exists()

    def write(self, values: Values) -> Change:
        """Write the settings; everything else in the file stays. Raises `NotWritten` or `OSError`."""
        _refuse_foreign_home(self.places.home)
        target = self.path.resolve()  # Dotfiles are often links, which stay.
        before = _read(target)
        text = _decoded(before, self.path)
        try:
            after = _with_settings(text, self.settings, values).encode()
            former = _former(text, self.settings, values)
        except jsonc.NotEditable as error:
            raise NotWritten(f"{self.path} is left as it is: {error}. Put the settings in by hand.") from error
        mode = PRIVATE if before is None else stat.S_IMODE(target.stat().st_mode)
        wanted = mode & PRIVATE if self.settings.has_key else mode
        if after == before and wanted == mode and self.is_written:
            return Change(file=self.path, changed=False)
        record = self._record() or Record(
            file=str(self.path),
            existed=before is not None,
            mode=mode,
            digest="",
            made=_missing_parents(target),
            former=former,
        )
        self._keep(msgspec.structs.replace(record, digest=_digest(after)), before)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(target, after, wanted)
        backup = self.kept / self.path.name
        return Change(
            file=self.path,
            changed=True,
            backup=backup if backup.exists() else None,
            made_private=wanted != mode,
        )

    def undo(self) -> Change | None:
        """Restore what was there before; None if nothing was written. Raises `NotWritten` or `OSError`."""
        record = self._record()
        if record is None:
            return None
        target = Path(record.file).resolve()
        now = _read(target)
        backup = self.kept / Path(record.file).name
        exact = now is not None and _digest(now) == record.digest
        if exact:
            self._restore(record, target, backup.read_bytes() if record.existed else None)
        elif now is not None:
            _replace(target, self._without(record, now).encode(), record.mode)
        backup.unlink(missing_ok=True)
        (self.kept / RECORD).unlink()
        with contextlib.suppress(OSError):
            self.kept.rmdir()
        return Change(file=Path(record.file), changed=now is not None, exact=exact)

    def _without(self, record: Record, now: bytes) -> str:
        """Return a file that was changed since, without what was set."""
        path = Path(record.file)
        text = _decoded(now, path)
        try:
            for one in record.former:
                text = _taken_back(text, self.settings, one)
        except jsonc.NotEditable as error:
            raise NotWritten(f"{path} was changed since, and cannot be edited: {error}.") from error
        if isinstance(self.settings, OwnFile):
            raise NotWritten(f"{path} was changed since. Remove it by hand if it is not needed.")
        return text

    def _restore(self, record: Record, target: Path, before: bytes | None) -> None:
        if before is not None:
            _replace(target, before, record.mode)
            return
        target.unlink()
        for directory in record.made:
            with contextlib.suppress(OSError):  # Something else is in it by now.
                Path(directory).rmdir()

    def _record(self) -> Record | None:
        try:
            record = msgspec.json.decode((self.kept / RECORD).read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise NotWritten(f"{self.kept / RECORD} is damaged: {error}. Remove it.") from error
        # Another home, another file: what is kept belongs to that one.
        if record.file != str(self.path):
            raise NotWritten(f"The settings were written to {record.file} before. Undo that first.")
        return record

    def _keep(self, record: Record, before: bytes | None) -> None:
        """Keep what the file was; the first time counts."""
        self.kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        if before is not None and not self.is_written:
            _replace(self.kept / self.path.name, before, PRIVATE)
        write_private(self.kept / RECORD, msgspec.json.encode(record).decode())


def _refuse_foreign_home(home: Path) -> None:
    """Refuse to leave root's files in somebody's home, as `sudo` would."""
    if os.geteuid() == 0 and home.exists() and home.stat().st_uid != 0:
        raise NotWritten(f"{home} belongs to another user. Run this as that user, not as root.")


def _read(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise NotWritten(f"{path} is too large for a settings file.")
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decoded(data: bytes | None, path: Path) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError as error:
        raise NotWritten(f"{path} is left as it is: it is not UTF-8. Put the settings in by hand.") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _missing_parents(target: Path) -> tuple[str, ...]:
    return tuple(str(parent) for parent in target.parents if not parent.exists())


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Replace a file atomically; its owner stays."""
    owner = path.stat() if path.exists() else None
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if owner is not None and os.geteuid() == 0:
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _with_settings(text: str, settings: Written, values: Values) -> str:
    match settings:
        case JsonSettings():
            for path, value in settings.entries(values).items():
                text = jsonc.with_value(text, path, value)
            return text
        case LineSettings():
            for name, value in settings.entries(values).items():
                text = _with_line(text, name, yaml_scalar(value))
            return text
        case OwnFile():
            return f"{settings.contents(values)}\n"
        case _:
            assert_never(settings)


def _former(text: str, settings: Written, values: Values) -> tuple[FormerValue, ...]:
    match settings:
        case JsonSettings():
            whole = jsonc.parsed(text)
            return tuple(_former_value(whole, path) for path in settings.entries(values))
        case LineSettings():
            found = {name: _line_of(text, name) for name in settings.entries(values)}
            return tuple(
                FormerValue(path=(name,), present=line is not None, value=line and line[0], depth=0)
                for name, line in found.items()
            )
        case OwnFile():
            return ()
        case _:
            assert_never(settings)


def _former_value(whole: Json, path: Sequence[str]) -> FormerValue:
    inner = whole
    for depth, name in enumerate(path):
        if not isinstance(inner, dict) or name not in inner:
            return FormerValue(path=tuple(path), present=False, value=None, depth=depth)
        inner = inner[name]
    return FormerValue(path=tuple(path), present=True, value=inner, depth=len(path))


def _taken_back(text: str, settings: Written, former: FormerValue) -> str:
    match settings:
        case JsonSettings():
            if former.present:
                return jsonc.with_value(text, former.path, former.value)
            return jsonc.without(text, former.path, keep=former.depth)
        case LineSettings():
            return _without_line(text, former)
        case OwnFile():
            return text
        case _:
            assert_never(settings)


def _line_of(text: str, name: str) -> "re.Match[str] | None":
    """Return the top-level line of a name; raises if its value goes on in further lines."""
    if text.lstrip().startswith("{"):
        raise jsonc.NotEditable("it is written in YAML's flow style")
    found = list(re.finditer(rf"^{re.escape(name)}[ \t]*:.*$", text, re.MULTILINE))
    if not found:
        return None
    goes_on = re.match(r"\r?\n([ \t]+\S|-[ \t])", text[found[0].end() :])
    if len(found) > 1 or goes_on:
        raise jsonc.NotEditable(f"`{name}` has more than one line")
    return found[0]


def _with_line(text: str, name: str, value: str) -> str:
    line = _line_of(text, name)
    if line is not None:
        return f"{text[: line.start()]}{name}: {value}{text[line.end() :]}"
    break_before = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{break_before}{name}: {value}\n"


def _without_line(text: str, former: FormerValue) -> str:
    line = _line_of(text, former.path[0])
    if line is None:
        return text
    if former.present:
        return f"{text[: line.start()]}{former.value}{text[line.end() :]}"
    return text[: line.start()] + text[line.end() :].removeprefix("\r").removeprefix("\n")
