"""Checks what a Codex binary adds to a request, on the model's side.

The recipe that keeps Codex from adding anything can fail with any release. So before clients are served, one turn of
each model of a binary goes to a scripted model on loopback, over HTTP and over WebSocket, as Codex speaks to OpenAI.
The result is cached for this binary and this recipe.
"""

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from turnbridge.codex.legacy import BUILT_IN, NO_WORKSPACE, flat_config
from turnbridge.codex.process.backend import open_thread
from turnbridge.codex.process.home import prepare_bare_home, provider_overrides, read_cached, write_private
from turnbridge.codex.process.worker import CodexSpec, Worker, start_worker
from turnbridge.codex.protocol.catalog import CATALOG_OVERRIDES, DIRECT_TOOLS
from turnbridge.codex.protocol.encode import PROCESS_OVERRIDES, STRICT, HostRules, raw_item, thread_start_params
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.websocket import WebSocketModel
from turnbridge.turn.errors import BackendUnavailable, GatewayError
from turnbridge.turn.events import TurnCompleted, TurnFailed
from turnbridge.turn.items import ImagePart, Json, JsonObject, Message, TextPart
from turnbridge.turn.json_schema import as_list
from turnbridge.turn.request import ThreadSpec, Tool, TurnRequest

log = structlog.get_logger(__name__)

# A turn takes some hundredths of a second; on a busy machine it takes longer.
TURN_TIMEOUT_S = 15.0
# The temporary directory with the home of a Codex that is being checked.
HOME_PREFIX = "turnbridge-check-"
# Enough of a hash to tell recipes apart.
RECIPE_CHARACTERS = 16
# Enough of a text to recognise it.
EXCERPT_CHARACTERS = 80

# What is checked of a binary: a note of an earlier gateway, which checked less, does not count.
TRANSPORTS = ("http", "websocket")

INSTRUCTIONS = "Turnbridge looks at what Codex adds to these instructions."
QUESTION = "Turnbridge asks the scripted model."
TOOL = Tool(
    name="turnbridge_check",
    description="The only function that Turnbridge declares.",
    parameters={"type": "object", "properties": {}},
)

# An image of one pixel, with and without `detail`: Codex must change neither its bytes nor its detail.
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
)
PICTURES = (ImagePart(url=PIXEL, detail="high", param="input"), ImagePart(url=PIXEL, param="input"))

# Codex's tools that run commands, touch files, call other servers' tools or start agents, in any version of it.
HOST_TOOLS = frozenset(
    {
        *("exec", "exec_command", "write_stdin", "shell", "shell_command", "local_shell", "container.exec", "js_repl"),
        *("apply_patch", "view_image", "read_file", "write_file", "list_dir", "grep_files", "computer_use_preview"),
        *("spawn_agent", "send_input", "send_message", "followup_task", "resume_agent", "wait_agent", "close_agent"),
        *("interrupt_agent", "list_agents", "mcp", "computer"),
    }
)
HOST_TOOL_PREFIX = "mcp__"
# The tool of models that call functions from scripts: an isolate without files, network or processes. Its description
# names the functions that scripts may call.
SCRIPTING_TOOL = "exec"
UNFIT_FOR_A_HEADER = re.compile(r"[^A-Za-z0-9_.-]")
NESTED_TOOL = re.compile(r"^### `([^`]+)`", re.MULTILINE)


class Fidelity(msgspec.Struct, frozen=True, kw_only=True):
    """What a binary changes in a request: nothing, if all fields are empty."""

    extra_items: tuple[str, ...] = ()
    extra_tools: tuple[str, ...] = ()
    extra_instructions: tuple[str, ...] = ()
    """The beginnings of texts that Codex added."""
    host_tools: tuple[str, ...] = ()
    """The tools that can act on this machine."""
    missing: tuple[str, ...] = ()
    """What did not reach the model."""

    @property
    def findings(self) -> tuple[str, ...]:
        """Return the differences, as words that a header can hold."""
        texts = ("text",) if self.extra_instructions else ()
        words = (*self.extra_tools, *self.extra_items, *texts, *(f"no-{name}" for name in self.missing))
        return tuple(UNFIT_FOR_A_HEADER.sub("_", word) for word in words)

    def joined(self, other: "Fidelity") -> "Fidelity":
        """Return the differences of two turns, each once."""
        both = {name: (*getattr(self, name), *getattr(other, name)) for name in self.__struct_fields__}
        return Fidelity(**{name: tuple(dict.fromkeys(found)) for name, found in both.items()})


# App-servers are restarted with the same binary.
_known: dict[tuple[str, str], Fidelity] = {}


async def check(spec: CodexSpec, worker: Worker) -> Fidelity:
    """Return what the binary of an app-server adds; raises `BackendUnavailable` if a tool could act on this machine."""
    recipe = _recipe(spec)
    cached = _cache_file(spec, worker.binary, recipe)
    seen = _known.get((worker.binary, recipe)) or await asyncio.to_thread(read_cached, cached, Fidelity)
    if seen is None:
        seen = await _observe(spec, worker)
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(cached, msgspec.json.encode(seen).decode())
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


def stored_result(spec: CodexSpec, binary: str) -> Fidelity | None:
    """Return what an earlier check of this binary found, if there was one."""
    return read_cached(_cache_file(spec, binary, _recipe(spec)), Fidelity)


def _cache_file(spec: CodexSpec, binary: str, recipe: str) -> Path:
    return spec.cache_dir / binary / f"fidelity-{recipe}.json"


def compare(
    request: JsonObject,
    *,
    exact: bool,
    scripts_tools: bool = False,
    pictures: Sequence[ImagePart] = (),
    rules: HostRules = STRICT,
) -> Fidelity:
    """Return how a request that reached the model differs from the expected one.

    Unless it is `exact`, the expected texts may be part of longer ones: the history was flattened.
    """
    items = [item for item in as_list(request.get("input")) if isinstance(item, dict)]
    declared = [*as_list(request.get("tools")), *(tool for item in items for tool in as_list(item.get("tools")))]
    tools = dict.fromkeys(_tool_names(declared))
    texts = [text for item in items for text in _texts(item)]
    instructions = request.get("instructions")
    if isinstance(instructions, str) and instructions:
        texts.append(instructions)
    extra_texts = [text for text in texts if not _is_expected_text(text, exact=exact)]
    # Older versions keep some tools: there the sandbox refuses a patch, and viewing a file ends the turn.
    harmless = {*({SCRIPTING_TOOL} if scripts_tools else ()), *(BUILT_IN if rules.strict and not exact else ())}
    sent = _pictures([raw_item(Message(role="user", parts=tuple(pictures)), ToolNames(()))])
    return Fidelity(
        extra_items=tuple(_item_name(item) for item in items if not _is_expected(item, exact=exact)),
        extra_tools=tuple(name for name in tools if name != TOOL.name),
        extra_instructions=tuple(text[:EXCERPT_CHARACTERS] for text in extra_texts),
        host_tools=tuple(
            name for name in tools if (name in HOST_TOOLS or name.startswith(HOST_TOOL_PREFIX)) and name not in harmless
        ),
        missing=(*_missing(texts, tools), *_missing_of_pictures(_pictures(items), sent)),
    )


async def _observe(spec: CodexSpec, known: Worker) -> Fidelity:
    """Run the Codex of `known` in homes of its own with a scripted model, and return what it changes."""
    seen = Fidelity()
    exact = known.dialect == "v2"
    # Older versions take seconds to start a thread, and offer all models the same.
    asked_of = known.models[: None if exact else 1]
    # A flattened history loses the detail of images in any case.
    shown = {model.id: PICTURES if exact and "image" in model.modalities else () for model in asked_of}
    scripting = {model.id for model in known.models if model.scripts_tools and not spec.direct_tools}
    with tempfile.TemporaryDirectory(prefix=HOME_PREFIX) as directory:
        async with WebSocketModel(lambda _: answer(message("Seen.")), record=True) as model:
            # Of the older versions some know only one of them.
            urls = (model.base_url, model.websocket_url) if exact else (model.base_url,)
            # In one directory: its name is part of a text that Codex may add.
            alike = replace(spec, workdir=Path(directory) / "workdir")
            checked = [
                _checked(
                    replace(alike, home=Path(directory) / f"home-{number}", overrides=provider_overrides(url)), shown
                )
                for number, url in enumerate(urls)
            ]
            for failure in filter(None, await asyncio.gather(*checked)):
                raise failure
            for asked in model.requests:
                name = str(asked.body.get("model"))
                pictures = shown.get(name, ())
                scripts = name in scripting
                found = compare(asked.body, exact=exact, scripts_tools=scripts, pictures=pictures, rules=spec.rules)
                seen = seen.joined(found)
    return seen


async def _checked(spec: CodexSpec, shown: Mapping[str, Sequence[ImagePart]]) -> BackendUnavailable | None:
    """Run a turn of each model, which is shown these images, in a new home; return the error if one fails."""
    prepare_bare_home(spec.home)
    worker = await start_worker(spec)
    try:
        turns = [_ask(worker, _request(model, pictures)) for model, pictures in shown.items()]
        return next(filter(None, await asyncio.gather(*turns)), None)
    finally:
        await asyncio.shield(worker.process.stop())


async def _ask(worker: Worker, request: TurnRequest) -> BackendUnavailable | None:
    """Run one turn; return the error if it fails."""
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
    """Return a hash of everything that Codex is told to leave out, and of the checked request."""
    request = _request("")
    told = [
        TRANSPORTS,
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


def _missing(texts: Sequence[str], tools: Container[str]) -> Iterator[str]:
    whole = "\n".join(texts)
    if INSTRUCTIONS not in whole:
        yield "instructions"
    if QUESTION not in whole:
        yield "message"
    # Where functions cannot be declared, they are described in text.
    if TOOL.name not in tools and TOOL.name not in whole:
        yield "tool"


def _missing_of_pictures(shown: Sequence[JsonObject], sent: Sequence[JsonObject]) -> Iterator[str]:
    if [part.get("image_url") for part in shown] != [part["image_url"] for part in sent]:
        yield "image"
    elif shown != sent:
        yield "image-detail"


def _tool_names(tools: Sequence[Json]) -> Iterator[str]:
    """Yield the names of tools, also of those inside others; a tool without a name has its type."""
    for tool in tools:
        if not isinstance(tool, dict):
            continue
        if inner := as_list(tool.get("tools")):
            yield from _tool_names(inner)
            continue
        yield str(tool.get("name") or tool.get("type"))
        yield from NESTED_TOOL.findall(str(tool.get("description", "")))


def _is_expected(item: JsonObject, *, exact: bool) -> bool:
    """Tell whether an item has only expected texts, or only declares tools."""
    kind = item.get("type", "message")
    texts_expected = all(_is_expected_text(text, exact=exact) for text in _texts(item))
    return kind == "additional_tools" or (kind == "message" and texts_expected)


def _is_expected_text(text: str, *, exact: bool) -> bool:
    if exact:
        return text in (INSTRUCTIONS, QUESTION)
    return any(words in text for words in (INSTRUCTIONS, QUESTION, TOOL.name, NO_WORKSPACE))


def _texts(item: JsonObject) -> Iterator[str]:
    content = item.get("content")
    if isinstance(content, str):
        yield content
    for part in as_list(content):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield str(part["text"])


def _pictures(items: Sequence[Json]) -> list[JsonObject]:
    parts = [part for item in items if isinstance(item, dict) for part in as_list(item.get("content"))]
    return [part for part in parts if isinstance(part, dict) and part.get("type") == "input_image"]


def _item_name(item: JsonObject) -> str:
    return "-".join(str(item[key]) for key in ("role", "type") if key in item)
