"""What a Codex binary adds to a request, seen where it matters: on the model's side.

The recipe that keeps Codex from adding anything ages with every release. So a binary's very first turns go to a
scripted model on loopback, before any client is served: one for each model that the binary knows. What was seen is kept
for as long as neither the binary nor the recipe changes.
"""

import asyncio
import contextlib
import hashlib
import re
import tempfile
from collections.abc import AsyncIterator, Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from turnbridge.codex.legacy.flat_history import BUILT_IN, NO_WORKSPACE, flat_config
from turnbridge.codex.process.backend import open_thread
from turnbridge.codex.process.home import prepare_bare_home, provider_overrides, write_private
from turnbridge.codex.process.worker import CodexSpec, Worker, start_worker
from turnbridge.codex.protocol.encode import (
    CATALOG_OVERRIDES,
    DIRECT_TOOLS,
    PROCESS_OVERRIDES,
    raw_item,
    thread_start_params,
)
from turnbridge.codex.protocol.permissions import STRICT, HostRules
from turnbridge.codex.protocol.tools import ToolNames
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.errors import BackendUnavailable, GatewayError
from turnbridge.turn.events import TurnCompleted, TurnFailed
from turnbridge.turn.items import (
    ImagePart,
    Json,
    JsonObject,
    Message,
    TextPart,
)
from turnbridge.turn.request import ThreadSpec, Tool, TurnRequest

log = structlog.get_logger(__name__)

# A turn takes some hundredths of a second; a machine that is busy starting takes longer.
TURN_TIMEOUT_S = 15.0
# The home of a Codex that is being checked lies in a directory with this name.
HOME_PREFIX = "turnbridge-check-"
# Enough of a hash to tell recipes apart.
RECIPE_CHARACTERS = 16
# Enough of a text to recognise it.
EXCERPT_CHARACTERS = 80

INSTRUCTIONS = "Turnbridge looks at what Codex adds to these instructions."
QUESTION = "Turnbridge asks the scripted model."
TOOL = Tool(
    name="turnbridge_check",
    description="The only function that Turnbridge declares.",
    parameters={"type": "object", "properties": {}},
)

# A picture of one pixel, in both ways that clients send one: Codex must change neither its bytes nor its detail.
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
)
PICTURES = (ImagePart(url=PIXEL, detail="high", param="input"), ImagePart(url=PIXEL, param="input"))

# Tools of Codex's that run commands, touch files, call other servers' tools or start agents, in any version of it.
HOST_TOOLS = frozenset(
    {
        *("exec", "exec_command", "write_stdin", "shell", "shell_command", "local_shell", "container.exec", "js_repl"),
        *("apply_patch", "view_image", "read_file", "write_file", "list_dir", "grep_files", "computer_use_preview"),
        *("spawn_agent", "send_input", "send_message", "followup_task", "resume_agent", "wait_agent", "close_agent"),
        *("interrupt_agent", "list_agents", "mcp", "computer"),
    }
)
HOST_TOOL_PREFIX = "mcp__"
# How models that call functions from scripts do so: in an isolate without files, network or processes. What their
# scripts may call is told in the description of the tool.
SCRIPTING_TOOL = "exec"
UNFIT_FOR_A_HEADER = re.compile(r"[^A-Za-z0-9_.-]")
NESTED_TOOL = re.compile(r"^### `([^`]+)`", re.MULTILINE)


class Fidelity(msgspec.Struct, frozen=True, kw_only=True):
    """What a binary does to a request: nothing, if all of this is empty."""

    extra_items: tuple[str, ...] = ()
    extra_tools: tuple[str, ...] = ()
    extra_instructions: tuple[str, ...] = ()
    """How texts begin that are not ours."""
    host_tools: tuple[str, ...] = ()
    """Those of the tools that can act on this machine."""
    missing: tuple[str, ...] = ()
    """What the model should have seen and did not."""

    @property
    def findings(self) -> tuple[str, ...]:
        """Return what is not as it should be, in a word each that a header can hold."""
        words = (
            *self.extra_tools,
            *self.extra_items,
            *(("text",) if self.extra_instructions else ()),
            *(f"no-{name}" for name in self.missing),
        )
        return tuple(UNFIT_FOR_A_HEADER.sub("_", word) for word in words)

    def joined(self, other: "Fidelity") -> "Fidelity":
        """Return all that was seen in either turn, each once."""
        pairs = {
            name: tuple(dict.fromkeys((*getattr(self, name), *getattr(other, name)))) for name in self.__struct_fields__
        }
        return Fidelity(**pairs)


# A gateway starts the same binary again and again.
_known: dict[tuple[str, str], Fidelity] = {}


async def check(spec: CodexSpec, worker: Worker) -> Fidelity:
    """Return what the binary of an app-server adds; raises `BackendUnavailable` if that could act on this machine."""
    recipe = _recipe(spec)
    kept = spec.notes_dir / worker.binary / f"fidelity-{recipe}.json"
    seen = _known.get((worker.binary, recipe)) or await asyncio.to_thread(_read, kept)
    if seen is None:
        seen = await _look(spec)
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(kept, msgspec.json.encode(seen).decode())
    _known[worker.binary, recipe] = seen
    if seen.host_tools:
        log.error("codex_could_act", codex=worker.binary, binary=str(spec.binary), tools=seen.host_tools)
        raise BackendUnavailable(
            f"{spec.binary} ({worker.binary}) offers the model tools that act on this machine, although all are "
            f"switched off: {', '.join(seen.host_tools)}. Turnbridge does not serve with it. Use the Codex that comes "
            "with Turnbridge (unset CODEX_BIN), or a version that docs/codex-versions.md lists, and report this one."
        )
    if seen.findings:
        log.warning("codex_adds_to_requests", codex=worker.binary, **msgspec.structs.asdict(seen))
    return seen


def compare(
    request: JsonObject,
    *,
    exact: bool,
    scripts_tools: bool = False,
    pictures: Sequence[ImagePart] = (),
    rules: HostRules = STRICT,
) -> Fidelity:
    """Return how a request that reached the model differs from what it must hold.

    Unless it is `exact`, our own words may stand among others in one text: a history that had to be flattened.
    """
    items = [item for item in _list(request.get("input")) if isinstance(item, dict)]
    declared = [*_list(request.get("tools")), *(tool for item in items for tool in _list(item.get("tools")))]
    tools = dict.fromkeys(_tool_names(declared))
    texts = [text for item in items for text in _texts(item)]
    instructions = request.get("instructions")
    if isinstance(instructions, str) and instructions:
        texts.append(instructions)
    extra_texts = [text for text in texts if not _is_ours(text, exact=exact)]
    # Older versions keep some whatever one does: there the sandbox refuses a patch, and a look at a file ends the turn.
    harmless = {*({SCRIPTING_TOOL} if scripts_tools else ()), *(BUILT_IN if rules.strict and not exact else ())}
    sent = _pictures([raw_item(Message(role="user", parts=tuple(pictures)), ToolNames(()))])
    return Fidelity(
        extra_items=tuple(_item_name(item) for item in items if not _is_expected(item, exact=exact)),
        extra_tools=tuple(name for name in tools if name != TOOL.name),
        extra_instructions=tuple(text[:EXCERPT_CHARACTERS] for text in extra_texts),
        host_tools=tuple(name for name in tools if _acts(name) and name not in harmless),
        missing=(*_missing(texts, tools), *_missing_of_pictures(_pictures(items), sent)),
    )


async def _look(spec: CodexSpec) -> Fidelity:
    seen = Fidelity()
    with tempfile.TemporaryDirectory(prefix=HOME_PREFIX) as directory:
        async with (
            ScriptedModel(lambda _: answer(message("Seen.")), record=True) as model,
            _started(_isolated(spec, Path(directory), model.base_url)) as worker,
        ):
            exact = worker.dialect == "v2"
            # Older versions take seconds to start a thread, and offer all models the same.
            asked_of = worker.models[: None if exact else 1]
            # Where a history is flattened, pictures lose their detail in any case.
            shown = {known.id: PICTURES if exact and "image" in known.modalities else () for known in asked_of}
            turns = [_ask(worker, _request(model, pictures)) for model, pictures in shown.items()]
            for failure in filter(None, await asyncio.gather(*turns)):
                raise failure
            scripting = {known.id for known in worker.models if known.scripts_tools and not spec.direct_tools}
            for asked in model.requests:
                model_id = str(asked.body.get("model"))
                found = compare(
                    asked.body,
                    exact=exact,
                    scripts_tools=model_id in scripting,
                    pictures=shown.get(model_id, ()),
                    rules=spec.rules,
                )
                seen = seen.joined(found)
    return seen


def _isolated(spec: CodexSpec, directory: Path, base_url: str) -> CodexSpec:
    """Return the same Codex in a home of its own, with the scripted model behind it."""
    home = directory / "home"
    prepare_bare_home(home)
    return replace(spec, home=home, workdir=directory / "workdir", overrides=provider_overrides(base_url))


@contextlib.asynccontextmanager
async def _started(spec: CodexSpec) -> AsyncIterator[Worker]:
    """Run one app-server until the context ends."""
    worker = await start_worker(spec)
    try:
        yield worker
    finally:
        await asyncio.shield(worker.process.stop())


async def _ask(worker: Worker, request: TurnRequest) -> BackendUnavailable | None:
    """Run one turn; return what is to be told if it does not go as it must."""
    try:
        async with asyncio.timeout(TURN_TIMEOUT_S):
            thread = await open_thread(worker, request)
            try:
                ends = [event async for batch in thread.run() for event in batch][-1:]
            finally:
                thread.close()
        match ends:
            case [TurnCompleted()]:
                return None
            case [TurnFailed(failure)]:
                problem = failure.message
            case _:
                problem = "the turn ended without an answer."
    except TimeoutError:
        problem = "the turn took too long."
    except GatewayError as error:
        problem = error.message
    return BackendUnavailable(f"Codex could not be checked with {request.spec.model}: {problem}")


def _request(model: str, pictures: Sequence[ImagePart] = PICTURES) -> TurnRequest:
    return TurnRequest(
        spec=ThreadSpec(model=model, instructions=INSTRUCTIONS, tools=(TOOL,)),
        items=(Message(role="user", parts=(TextPart(text=QUESTION), *pictures)),),
    )


def _recipe(spec: CodexSpec) -> str:
    """Return something that changes with whatever we tell Codex to leave out, and with what we look at."""
    request = _request("")
    told = [
        thread_start_params(request, ToolNames(())),
        request.items,
        flat_config(request, logged_in=False),
        CATALOG_OVERRIDES,
        DIRECT_TOOLS,
        PROCESS_OVERRIDES,
        spec.direct_tools,
        spec.dialect,
        spec.rules,
    ]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:RECIPE_CHARACTERS]


def _read(kept: Path) -> Fidelity | None:
    try:
        return msgspec.json.decode(kept.read_bytes(), type=Fidelity)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _missing(texts: Sequence[str], tools: Container[str]) -> Iterator[str]:
    whole = "\n".join(texts)
    if INSTRUCTIONS not in whole:
        yield "instructions"
    if QUESTION not in whole:
        yield "message"
    # Where functions cannot be declared, they are explained in words.
    if TOOL.name not in tools and TOOL.name not in whole:
        yield "tool"


def _missing_of_pictures(shown: Sequence[JsonObject], sent: Sequence[JsonObject]) -> Iterator[str]:
    if [part.get("image_url") for part in shown] != [part["image_url"] for part in sent]:
        yield "image"
    elif shown != sent:
        yield "image-detail"


def _tool_names(tools: Sequence[Json]) -> Iterator[str]:
    """Yield the names of tools, also of those inside others; a tool without a name goes by its type."""
    for tool in tools:
        if not isinstance(tool, dict):
            continue
        if inner := _list(tool.get("tools")):
            yield from _tool_names(inner)
            continue
        yield str(tool.get("name") or tool.get("type"))
        yield from NESTED_TOOL.findall(str(tool.get("description", "")))


def _acts(name: str) -> bool:
    return name in HOST_TOOLS or name.startswith(HOST_TOOL_PREFIX)


def _is_expected(item: JsonObject, *, exact: bool) -> bool:
    """Tell whether an item is one of ours, or only brings tools."""
    if item.get("type") == "additional_tools":
        return True
    return item.get("type", "message") == "message" and all(_is_ours(text, exact=exact) for text in _texts(item))


def _is_ours(text: str, *, exact: bool) -> bool:
    if exact:
        return text in (INSTRUCTIONS, QUESTION)
    return any(words in text for words in (INSTRUCTIONS, QUESTION, TOOL.name, NO_WORKSPACE))


def _texts(item: JsonObject) -> Iterator[str]:
    content = item.get("content")
    if isinstance(content, str):
        yield content
    for part in _list(content):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield str(part["text"])


def _pictures(items: Sequence[Json]) -> list[JsonObject]:
    """Return the pictures in items, whole."""
    parts = [part for item in items if isinstance(item, dict) for part in _list(item.get("content"))]
    return [part for part in parts if isinstance(part, dict) and part.get("type") == "input_image"]


def _item_name(item: JsonObject) -> str:
    return "-".join(str(item[key]) for key in ("role", "type") if key in item)


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
