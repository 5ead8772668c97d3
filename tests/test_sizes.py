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
SMALL_MODULE_LINES = 25
SMALL_MODULES = {
    "__main__.py",  # runs the command line
    "mcp/off.py",  # what uses it loads no HTTP client
    "replicas/script.py",  # both the client of Redis and what it runs know it
}
"""Modules that are small for a reason. `__init__.py` only names its package, and is not counted."""


def test_no_module_is_longer_than_a_reader_bears() -> None:
    assert {name for name, text in MODULES.items() if len(text.splitlines()) > MODULE_LINES} <= LONG_MODULES


def test_small_modules_have_a_reason() -> None:
    small = {name for name, text in MODULES.items() if len(text.splitlines()) < SMALL_MODULE_LINES}
    assert {name for name in small if not name.endswith("__init__.py")} <= SMALL_MODULES


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
