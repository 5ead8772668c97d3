"""The protocol as Codex binaries describe it: the pinned one, asked once, and 0.92.0, as it was kept.

`codex-0.92.0.json` is the schema of 0.92.0 without its titles and descriptions, a definition a line. To write it again:
`.venv/bin/python -m tests.support.codex_schema PATH_OF_CODEX_0.92.0`.
"""

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import codex_cli_bin
import msgspec

from turnbridge.codex.process.binary import SCHEMA_FILE
from turnbridge.turn.items import Json, JsonObject

KEPT = Path(__file__).with_name("codex-0.92.0.json")
WORDS = frozenset({"$schema", "description", "title"})
# What stands in these are names, not keywords.
TABLES = frozenset({"properties", "definitions", "v2"})


@functools.cache
def pinned_schema() -> JsonObject:
    """Return the whole schema of the pinned binary."""
    return _printed(str(codex_cli_bin.bundled_codex_path()), "--experimental")


@functools.cache
def old_schema() -> JsonObject:
    """Return what was kept of the schema of 0.92.0."""
    kept: JsonObject = msgspec.json.decode(KEPT.read_bytes(), type=dict)
    return kept


def _printed(binary: str, *words: str) -> JsonObject:
    with tempfile.TemporaryDirectory() as scratch:
        command = [binary, "app-server", "generate-json-schema", *words, "--out", scratch]
        subprocess.run(command, env={"CODEX_HOME": scratch}, capture_output=True, check=True)
        schema: JsonObject = msgspec.json.decode((Path(scratch) / SCHEMA_FILE).read_bytes(), type=dict)
    return schema


def _wordless(schema: Json, *, is_table: bool = False) -> Json:
    if isinstance(schema, list):
        return [_wordless(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: inner for name, inner in schema.items() if is_table or name not in WORDS}
    return {name: _wordless(inner, is_table=name in TABLES and not is_table) for name, inner in kept.items()}


def _table(definitions: Json, *, more: str = "") -> str:
    assert isinstance(definitions, dict)
    lines = [f"{json.dumps(name)}:{_compact(schema)}" for name, schema in definitions.items()]
    return "{\n" + ",\n".join([*lines, *([more] if more else [])]) + "\n}"


def _compact(schema: Json) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _keep(binary: str) -> None:
    definitions = _wordless(_printed(binary)["definitions"], is_table=True)
    assert isinstance(definitions, dict)
    v2 = definitions.pop("v2")
    table = _table(definitions, more='"v2":' + _table(v2))
    KEPT.write_text(f'{{"definitions":{table}}}\n', encoding="utf-8")


if __name__ == "__main__":
    _keep(sys.argv[1])
