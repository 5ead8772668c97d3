"""Each API is one folder: few files outside know that it exists, so it can be read, changed and removed alone."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "turnbridge"
API_FOLDERS = sorted(path.parent.name for path in SOURCE.glob("api/*/routes.py"))
MOST_FILES = 3

NAMES = {
    "anthropic": r"anthropic|(?<!})/messages\b",
    "chat": r"chat/completions|chat_?completions?\b",
    "files": r"(?<!\w)/files\b",
    "images": r"/images\b",
    "ollama": r"ollama",
    "responses": r"/responses\b|response\.create",
}
"""What a file says that knows an API: its own name, a route of it, its setting or its option."""

CLIENTS = ("cli/ask.py", "cli/clients/", "cli/console.py", "cli/doctor.py", "page/static/")
"""They call an API over HTTP, or show people how to: they would be as they are in front of another server."""
PROVIDERS = ("cli/codex_checks.py", "scripted_model/")
"""They know the API of a provider behind Codex, of the same name."""


def test_every_api_is_counted() -> None:
    assert list(NAMES) == API_FOLDERS


@pytest.mark.parametrize("api", API_FOLDERS)
def test_an_api_is_known_to_few_files_outside_its_folder(api: str) -> None:
    knowing = {name for name, text in _outside(api) if _imports(api, text) or _names(api, name, text)}
    assert len(knowing) <= MOST_FILES, sorted(knowing)
    assert "bootstrap.py" in knowing


@pytest.mark.parametrize("api", API_FOLDERS)
def test_only_the_composition_root_imports_an_api(api: str) -> None:
    assert {name for name, text in _outside(api) if _imports(api, text)} == {"bootstrap.py"}


@functools.cache
def _files() -> dict[str, str]:
    found = (path for path in sorted(SOURCE.rglob("*")) if path.suffix in (".py", ".js", ".html"))
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in found}


def _outside(api: str) -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in _files().items() if not name.startswith(f"api/{api}/"))


def _imports(api: str, text: str) -> bool:
    return re.search(rf"turnbridge\.api\.{api}\b|from turnbridge\.api import .*\b{api}\b", text) is not None


def _names(api: str, name: str, text: str) -> bool:
    """Tell whether a file names an API outside of comments, docstrings, and sentences for people."""
    if name.startswith((*CLIENTS, *PROVIDERS)):
        return False
    words = _words(text) if name.endswith(".py") else [text]
    return any(re.search(NAMES[api], word, re.IGNORECASE) for word in words)


@functools.cache
def _words(text: str) -> list[str]:
    """Return the names and the words of a module."""
    return list(dict.fromkeys(_each_word(text)))


def _each_word(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(word)) if id(node) not in prose and " " not in word:
                yield word
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.alias(name=word):
                yield word
            case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word) | ast.ClassDef(name=word):
                yield word
            case ast.keyword(arg=str(word)):
                yield word
