"""Modules and functions stay short enough to be read at once, and modules are not too short to be worth opening."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "turnbridge"
MODULES = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}

MODULE_LINES = 400
LONG_MODULES: set[str] = set()
"""Modules that are still longer. This list only shrinks."""
FUNCTION_LINES = 40
"""Without the docstring."""
SMALL_MODULE_LINES = 60
SMALL_MODULES = {
    "__main__.py": "runs the command line",
    "api/anthropic/dialect.py": "routes and models of this API both need it",
    "api/images/openapi.py": "each API describes its routes in a file of this name",
    "api/openapi/schemas.py": "the descriptions of all APIs are made of it",
    "api/own_listener.py": "an API declares it, and `serve` listens",
    "api/responses/endings.py": "maker, follower and routes of a background response share it",
    "api/responses/parts.py": "the encoder is nearly as long as a module may be",
    "api/responses/provider_items.py": "the encoder is nearly as long as a module may be",
    "api/responses/seen.py": "what is stored of links, apart from how it is stored",
    "cli/api_key.py": "all commands that call the gateway read it",
    "cli/chosen_account.py": "logins and keys name accounts alike",
    "cli/completion.py": "a command of its own",
    "cli/finding.py": "the checks of the host and of Codex make them, `doctor` shows them",
    "cli/own_gateway.py": "imports the server, which is needed only where none runs",
    "cli/own_key.py": "imports the store, which is needed only where a key is made",
    "cli/reload.py": "what a signal does, apart from what `serve` does",
    "codex/process/budget.py": "all pools share one",
    "codex/process/log_database.py": "commands that only prepare a home load no SQLite",
    "codex/protocol/plan.py": "one for the app-servers of an account, whoever is told",
    "codex/protocol/retries.py": "has a clock, which the decoder has not",
    "engine/compaction.py": "a turn of its own before the turn",
    "mcp/off.py": "what uses it loads no HTTP client",
    "offload/child.py": "the main module of a process that imports little",
    "replicas/redis_messages.py": "beside that for Postgres, and chosen like it",
    "replicas/runs.py": "chooses between Redis and Postgres",
    "replicas/script.py": "both the client of Redis and what it runs know it",
    "replicas/stored_frames.py": "beside that for Redis, and chosen like it",
    "settings/accounts.py": "commands, page and Codex find homes by it",
    "settings/checks.py": "what is wrong with a value, apart from the list of settings",
    "settings/command_line.py": "messages of all commands and of the gateway use it",
    "settings/installation.py": "messages about extras use it",
    "turn/rates.py": "settings, keys and both counters read rates",
}
"""Why they are modules of their own. `__init__.py` only names its package, and is not counted."""


def test_no_module_is_longer_than_a_reader_bears() -> None:
    assert {name for name, text in MODULES.items() if len(text.splitlines()) > MODULE_LINES} <= LONG_MODULES


def test_small_modules_have_a_reason() -> None:
    small = {name for name, text in MODULES.items() if len(text.splitlines()) < SMALL_MODULE_LINES}
    assert {name for name in small if not name.endswith("__init__.py")} == SMALL_MODULES.keys()


def test_no_function_is_longer_than_a_page() -> None:
    functions = [
        (f"{name}:{node.name}", node)
        for name, text in MODULES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [name for name, node in functions if _lines(node) > FUNCTION_LINES] == []


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function from `def` on, without its docstring."""
    first = node.body[1] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body[0]
    signature = node.body[0].lineno - node.lineno
    return signature + (node.end_lineno or 0) - first.lineno + 1
