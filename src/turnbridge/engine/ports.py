"""What the edges provide to the engine: protocols, and the values that cross them."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from turnbridge.engine.records import FileRecord
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.events import TurnEvent
from turnbridge.turn.items import FilePart, FunctionCallOutput, Item, JsonObject
from turnbridge.turn.mcp import McpResult, McpServer, McpTool
from turnbridge.turn.request import TurnRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model of Codex's catalogue, with its true limits."""

    id: str
    display_name: str
    description: str
    efforts: tuple[str, ...]
    default_effort: str | None
    context_window: int | None
    max_context_window: int | None
    modalities: tuple[str, ...]
    service_tiers: tuple[str, ...]
    hidden: bool
    is_default: bool
    scripts_tools: bool = False
    """Whether Codex ships the model to call tools from scripts (code mode), instead of one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOffer:
    """The models of one account."""

    models: tuple[Model, ...]
    """Those of the default provider."""
    default: str | None = None
    """The id of the model that the user's Codex configuration names."""
    provider: str = ""
    """The name of the default provider."""
    other_providers: tuple[str, ...] = ()
    """The others that the Codex configuration describes; a model's name may end in `@` and one of them."""
    elsewhere: tuple[tuple[Model, str], ...] = ()
    """Models that the configuration names together with one of these."""


Batches: TypeAlias = AsyncGenerator[Sequence[TurnEvent], None]
"""The events of a turn, some at a time; the last batch ends in a `Terminal`."""


class Conversation(Protocol):
    """Where the model is asked."""

    def run(self, items: Sequence[Item] = (), request: TurnRequest | None = None) -> Batches:
        """Add `items`, let the model answer, and yield its events.

        The first turn may be of the request that the thread was opened for. Each later one has a `request` of its own:
        a thread that is kept holds none.
        """
        ...

    def resume(self, outputs: Sequence[FunctionCallOutput]) -> Batches:
        """Give the outputs that the turn waits for since its `CallsAwaited`, and yield events as `run` does."""
        ...


class Thread(Conversation, Protocol):
    """A thread in Codex that holds a request's history. Used by one request at a time."""

    @property
    def alive(self) -> bool:
        """Tell whether the thread can still go on."""
        ...

    @property
    def fidelity(self) -> str:
        """Tell how faithfully the model is shown this thread: `exact`, or what is not, in short ASCII words."""
        ...

    @property
    def retrying(self) -> bool:
        """Tell whether the provider has just failed before any output, and is asked again."""
        ...

    @property
    def heard(self) -> bool:
        """Tell whether the model has said anything since it was last asked, if only that it begins to think."""
        ...

    @property
    def native_tools(self) -> bool:
        """Tell whether the model calls functions in a way of its own here, and not one by one."""
        ...

    def fail(self, error: GatewayError) -> None:
        """End the turn that runs with this error, as if Codex had ended it; what was told before is still yielded."""
        ...

    def close(self) -> None:
        """Give the thread up; a turn that still runs, or waits, is interrupted in Codex."""
        ...


class Backend(Protocol):
    """Codex, as the engine sees it."""

    async def open(self, request: TurnRequest, *, suspect: bool = False) -> Thread:
        """Start a thread that shows the model exactly the request's items; raises `GatewayError` if it cannot.

        A `suspect` turn lost its backend before, and may be the cause: it is kept away from the turns of others.
        """
        ...

    async def serves_otherwise(self, request: TurnRequest, thread: Thread, error: GatewayError) -> bool:
        """Tell whether a turn that failed in a conversation before any output may be opened again, differently."""
        ...

    async def offer(self, account: str | None) -> ModelOffer:
        """Return the models of an account; raises `GatewayError` while its Codex is down. It changes with the login."""
        ...

    def fidelity(self, account: str | None = None) -> str:
        """Tell how faithfully the model is shown a request: `exact`, or what is not, in short ASCII words."""
        ...


class PlanWindow(NamedTuple):
    """How much of the plan behind Codex is used in one of its windows."""

    used_percent: int
    minutes: int | None
    """How long the window is."""
    resets_at: int | None


class LoadedImage(NamedTuple):
    """An image as a data URL, and the number of its pixels."""

    url: str
    pixels: float


class UploadedFiles(Protocol):
    """The files that clients have uploaded."""

    async def file_content(self, owner: str, file_id: str) -> tuple[FileRecord, bytes] | None:
        """Return a file with its content, unless this client has no such file."""
        ...


class MediaLoader(Protocol):
    """Brings in what a request only points at. Every failure is a `RequestError` that names the part."""

    async def image(self, url: str, *, param: str) -> LoadedImage:
        """Return the image behind an https URL."""
        ...

    async def uploaded_image(self, client: str, file_id: str, *, param: str) -> LoadedImage:
        """Return an image that this client has uploaded."""
        ...

    async def uploaded_file(self, client: str, part: FilePart) -> FilePart:
        """Return a file part with the content that this client has uploaded."""
        ...

    async def file_text(self, part: FilePart) -> str:
        """Return the text of a file part; one that was uploaded has its content."""
        ...


class ToolSession(Protocol):
    """A session with one MCP server, for one turn. It connects when it is first needed."""

    async def list_tools(self) -> tuple[McpTool, ...]:
        """Return the server's tools; raises `ToolServerFailed` if it does not give them in time."""
        ...

    async def call(self, name: str, arguments: str) -> McpResult:
        """Call a tool; a failure, or a server that takes too long, is a result too."""
        ...

    def close(self) -> None:
        """End the session, without waiting for the server."""
        ...


class ToolServers(Protocol):
    """Connects to MCP servers, as far as the operator allows."""

    def session(self, server: McpServer) -> ToolSession:
        """Return a session; raises `InvalidRequest` if this server may not be asked."""
        ...


class JobFailed(Exception):
    """A job took longer than its time or more than its memory, or it made its helper crash."""


class NoHelper(Exception):
    """No helper can take the job now: too many jobs wait, or the system has no room for a process."""


class Helpers(Protocol):
    """Processes that do one kind of job, and are killed when it takes too long."""

    async def run(self, given: bytes) -> bytes:
        """Return what the job makes of these bytes; raises `JobFailed` or `NoHelper`."""
        ...


class Flaw(NamedTuple):
    """What is wrong with one of several schemas."""

    which: int | None
    """Which of them; nothing if only all of them together are too much."""
    why: str


class Judge(Protocol):
    """Compiles the client's schemas and checks what the model said, within a time that no schema can exceed."""

    async def first_flaw(self, schemas: Sequence[JsonObject]) -> Flaw | None:
        """Return why one of these is not a JSON Schema that stands on its own."""
        ...

    async def problem(self, schema: JsonObject, text: str) -> str | None:
        """Return in a sentence what keeps `text` from being JSON that conforms to the schema; nothing if it does.

        Raises `OutputRejected` if that takes too long.
        """
        ...


class Tokenizer(Protocol):
    """Counts and cuts text as the model does, in a bounded time: what is very long is estimated."""

    def prepare(self) -> None:
        """Begin to load what counting needs, without waiting for it."""
        ...

    async def ready(self) -> None:
        """Return once what counting needs is loaded."""
        ...

    def count(self, text: str) -> int:
        """Return how many tokens `text` has."""
        ...

    def cut(self, text: str, limit: int) -> str:
        """Return the longest prefix of `text` that is whole characters and has at most `limit` of its tokens."""
        ...

    def settled(self, text: str) -> int:
        """Return the length of a prefix of `text` whose tokens no longer change, whatever comes after `text`."""
        ...
