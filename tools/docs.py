"""Writes the generated parts of the documentation: `python -m tools.docs`.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`. The words around it are written by
hand and stay untouched.
"""

import ast
import inspect
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from unittest.mock import MagicMock

import click
from msgspec import structs

from tests.compat.promises import AREAS
from turnbridge.api.shared.errors import TABLE, error_headers, status_of
from turnbridge.api.unserved import UNSERVED
from turnbridge.cli.clients.table import CLIENTS
from turnbridge.cli.clients.values import Client, Values
from turnbridge.cli.connect import DEFAULT
from turnbridge.cli.main import app
from turnbridge.codex.process.home import KEPT_CONFIG_KEYS
from turnbridge.codex.protocol import errors as codex_errors
from turnbridge.gauges import observe, observe_shared
from turnbridge.settings.fields import Settings
from turnbridge.settings.former import FORMER
from turnbridge.turn.clients import Client as Caller
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.events import Usage
from turnbridge.web.middleware.observability import Metrics, RequestContext

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

BADGE = ROOT / "docs/pictures/coverage.svg"

# What a client in a container needs.
REACH = "../clients.md#from-a-container-or-another-machine"

PAGE_COLUMNS = 130

# What OpenAI's SDKs try again by themselves, besides every status from 500 on.
RETRIED = (408, 409, 429)

_PART = re.compile(r"(<!-- generated: (?P<name>[a-z0-9-]+) -->\n).*?(<!-- end: (?P=name) -->)", re.DOTALL)


def regenerated(text: str) -> str:
    """Return a page with each of its generated parts written anew."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part['name']]()}\n\n{part[3]}", text)


def settings() -> str:
    """Return every setting with its default and what it is for."""
    described = _descriptions(Settings)
    rows = [(f"`{one.encode_name}`", _default(one.default), described[one.name]) for one in structs.fields(Settings)]
    return _table(("name", "default", "what it is"), rows)


def _descriptions(kind: type) -> dict[str, str]:
    """Return the text that stands below each field of a class."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def former_settings() -> str:
    """Return what became of every setting of the gateway that users come from."""
    rows = [(f"`{one.name}`", one.outcome, one.note) for one in sorted(FORMER, key=lambda one: one.name)]
    return _table(("setting", "here", "what to know"), rows)


def kept_config() -> str:
    """Return the keys of the user's Codex configuration that are used."""
    return ", ".join(f"`{key}`" for key in KEPT_CONFIG_KEYS) + "."


def commands() -> str:
    """Return every command with its options."""
    return "\n\n".join(_described("turnbridge", app))


def _described(name: str, command: click.Command) -> Iterator[str]:
    """Yield what is to be said of a command, and of those below it."""
    yield f"## `{name}`\n\n{inspect.cleandoc(command.help or '')}"
    if options := [option for option in command.params if isinstance(option, click.Option)]:
        yield _table(("option", "what it does"), [(f"`{', '.join(one.opts)}`", one.help or "") for one in options])
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            if (each := command.get_command(context, below)) is not None:
                yield from _described(f"{name} {below}", each)


def errors() -> str:
    """Return every kind of error as a client sees it, by status."""
    kinds = [kind for kind in TABLE if not any(other in TABLE for other in kind.__subclasses__() if kind.code is None)]
    rows = [
        (
            str(TABLE[kind].status),
            f"`{kind.code}`" if kind.code else "one of those below",
            f"`{TABLE[kind].type}`",
            (kind.__doc__ or "").splitlines()[0],
            "yes" if _is_retried(kind("")) else "no",
        )
        for kind in sorted(kinds, key=lambda kind: TABLE[kind].status)
    ]
    return _table(("status", "`code`", "`type`", "when", "SDKs try again"), rows)


def provider_statuses() -> str:
    """Return what a provider's HTTP status means to the client."""
    return _meanings("provider's status", {str(status): make for status, make in codex_errors.BY_STATUS.items()})


def codex_names() -> str:
    """Return what each name that Codex has for a failure means to the client."""
    return _meanings("`codexErrorInfo`", {f"`{name}`": make for name, make in codex_errors.BY_NAME.items()})


def unserved() -> str:
    """Return the families of OpenAI's routes that are refused, with the same words."""
    reasons = dict.fromkeys(UNSERVED.values())
    families = {why: [f"`/v1{path}`" for path, reason in UNSERVED.items() if reason == why] for why in reasons}
    return _table(("routes", "why not, and what instead"), [(", ".join(paths), why) for why, paths in families.items()])


def metrics() -> str:
    """Return every metric of the gateway, with its labels."""
    shown = Metrics()
    parts = MagicMock()
    parts.backend.default.pool.ended = {"crashed": 0}
    parts.backend.accounts = {None: parts.backend.default}
    parts.backend.default.pools = [parts.backend.default.pool]
    parts.backend.plan.return_value = {"": MagicMock(used_percent=0, resets_at=0)}
    observe(shown, MagicMock(), parts, ())
    observe_shared(shown, {}, (), lambda: True)
    # A metric shows its labels once it has a value: one request that has everything, and one that fails.
    now, used = 0.0, Usage(input=1)
    request = RequestContext(request_id="", method="POST", route="", clock=float, started_at=now, status=200)
    request.usage, request.served_by, request.first_output_at = used, "fresh", now
    request.client = Caller(id="", name="")
    shown.request_ended(request, outcome="ok", ended_at=now)
    shown.request_ended(request, outcome="server_error", ended_at=now)
    rows = []
    for family in sorted(shown.registry.collect(), key=lambda family: family.name):
        if family.name.startswith("turnbridge_"):
            labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
            suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
            kind = "gauge" if family.type == "info" else family.type
            rows.append(
                (f"`{family.name}{suffix}`", kind, ", ".join(f"`{each}`" for each in labels), family.documentation)
            )
    return _table(("metric", "type", "labels", "what it is"), rows)


def compatibility() -> str:
    """Return every promise, by area."""
    head = ("id", "what is promised", "source", "how it differs from OpenAI")
    tables = {
        title: _table(head, [(f"`{one.id}`", one.sentence, one.source, one.divergence or "") for one in area])
        for title, area in AREAS.items()
    }
    return "\n\n".join(f"## {title}\n\n{table}" for title, table in tables.items())


# What the pages show in place of the reader's own values.
EXAMPLE = Values(
    base_url="http://127.0.0.1:11435/v1",
    key="sk-turnbridge-...",
    key_file=Path("/home/you/.local/share/turnbridge/api-key"),
    model=DEFAULT,
    native_model="gpt-5.5",
)


def _client_page(client: Client) -> str:
    """Return how to connect a client."""
    writes = client.written is not None
    command, outcome = f"turnbridge connect {client.name}", "This shows the settings below with your address and key."
    if writes:
        command += " --write"
        outcome = "This writes the settings below and keeps a backup. `--undo` restores the file."
    outcome += " `--test` sends a call as the client does."
    settings = client.settings
    reach = "A container does not reach the host's 127.0.0.1 on Linux"
    notes = (note.replace(reach, f"{reach} ([remedy]({REACH}))") for note in client.notes)
    words = [client.then, *notes, f"Tried with {client.seen}." if client.seen else ""]
    if client.page is not None:
        words.append(f"More: [{client.title}](../{client.page}).")
    parts = (
        f"For users of {client.title}: use it with your Codex login. Start the [gateway](../quickstart.md) first.",
        f"```sh\n{command} --test\n```" if writes else f"```sh\n{command}\n{command} --test\n```",
        outcome,
        f"Place of the settings: {client.where}.",
        f"```{settings.language}\n{settings.text(EXAMPLE)}\n```",
        " ".join(filter(None, words)),
    )
    return "\n\n".join(
        part if part.startswith("```") else textwrap.fill(part, PAGE_COLUMNS, break_on_hyphens=False) for part in parts
    )


def client_pages() -> str:
    """Return where each client's settings go, with its page."""
    rows = [(f"[{client.title}](connect/{client.name}.md)", f"`{client.name}`", client.where) for client in CLIENTS]
    return _table(("client", "`turnbridge connect`", "where the settings go"), rows)


def client_links() -> str:
    """Return links to the page of each client."""
    return " ·\n".join(f"[{client.title}](connect/{client.name}.md)" for client in CLIENTS)


def decisions() -> str:
    """Return the list of decision records."""
    records = sorted((ROOT / "docs/decisions").glob("0*.md"))
    titles = {record: record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for record in records}
    return "\n".join(f"- [{title}]({record.name})" for record, title in titles.items())


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "kept-config": kept_config,
    "former-settings": former_settings,
    "client-links": client_links,
    "client-pages": client_pages,
    **{f"connect-{client.name}": partial(_client_page, client) for client in CLIENTS},
    "commands": commands,
    "decisions": decisions,
    "errors": errors,
    "provider-statuses": provider_statuses,
    "codex-names": codex_names,
    "unserved": unserved,
    "metrics": metrics,
    "compatibility": compatibility,
}


def badge() -> str:
    """Return the picture of the least branch coverage that the tests demand."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    words = f"coverage ≥ {project['tool']['coverage']['report']['fail_under']} %"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="112" height="20" role="img" aria-label="{words}">'
        '<rect width="112" height="20" rx="3" fill="#0f766e"/>'
        f'<text x="56" y="14" text-anchor="middle" font-family="sans-serif" font-size="11" fill="#fff">{words}</text>'
        "</svg>\n"
    )


def main() -> None:
    """Bring every page up to date, and name those that were not."""
    BADGE.write_text(badge(), encoding="utf-8")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (fresh := regenerated(text)) != text:
            page.write_text(fresh, encoding="utf-8")
            print(page.relative_to(ROOT))


def _meanings(what: str, makers: dict[str, Callable[[str], GatewayError]]) -> str:
    made = {name: make("") for name, make in makers.items()}
    rows = [(name, str(status_of(error)), f"`{error.error_code}`") for name, error in made.items()]
    return _table((what, "the client's status", "`code`"), rows)


def _default(value: object) -> str:
    """Return a default in the words of the environment; nothing where the description tells it."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, str | int | float) else ""


def _is_retried(error: GatewayError) -> bool:
    status = status_of(error)
    return (status in RETRIED or status >= 500) and "x-should-retry" not in error_headers(error)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


if __name__ == "__main__":
    main()
