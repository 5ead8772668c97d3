"""A declared MCP server: `{"type": "mcp"}` among the tools of a request, and how its answer repeats it."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from turnbridge.api.shared.validation import check_length, convert, invalid, missing, unknown_value
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.mcp import Approval, McpFilter, McpServer
from turnbridge.turn.mcp_hosts import origin_of

APPROVALS: tuple[Approval, ...] = ("always", "never")
MAX_SERVERS = 16
MAX_HEADERS = 32
MAX_HEADER_CHARS = 8192
MAX_LABEL_CHARS = 64
MAX_DESCRIPTION_CHARS = 4096

REDACTED = "<redacted>"
LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
# Those that the gateway sends itself, and those that would change how the request is read.
OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host"}
    | {"keep-alive", "mcp-protocol-version", "mcp-session-id", "te", "trailer", "transfer-encoding", "upgrade"}
)
NO_CONNECTORS = (
    "Connectors run at OpenAI, with a ChatGPT account; this gateway reaches servers by `server_url` only. "
    "Give the URL of the service's own MCP server."
)


class ToolFilter(Struct):
    """Some tools of a server."""

    tool_names: list[str] | None = None
    read_only: bool | None = None


class ApprovalFilters(Struct):
    """`require_approval` by tool."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


class McpToolObject(Struct):
    """A tool of type `mcp`."""

    server_label: str | None = None
    server_url: str | None = None
    server_description: str | None = None
    headers: dict[str, str] | None = None
    authorization: str | None = None
    allowed_tools: list[str] | ToolFilter | None = None
    require_approval: str | ApprovalFilters | None = None
    connector_id: Json = None
    tunnel_id: Json = None
    allowed_callers: Json = None
    defer_loading: bool | None = None


def decode_server(given: JsonObject, param: str) -> McpServer:
    """Return the server that a tool names."""
    tool = convert(given, McpToolObject, param=param)
    for name in ("connector_id", "tunnel_id"):
        if given.get(name) is not None:
            raise InvalidRequest(NO_CONNECTORS, code="unsupported_tool", param=f"{param}.{name}")
    if not tool.server_label:
        raise missing(f"{param}.server_label")
    check_length(tool.server_label, MAX_LABEL_CHARS, param=f"{param}.server_label")
    if not LABEL.fullmatch(tool.server_label):
        problem = "it must begin with a letter and consist of letters, digits, '-' and '_'."
        raise invalid(f"{param}.server_label", problem)
    if not tool.server_url:
        raise missing(f"{param}.server_url")
    try:
        origin_of(tool.server_url)
    except ValueError as error:
        raise invalid(f"{param}.server_url", f"{error}.") from None
    check_length(tool.server_description or "", MAX_DESCRIPTION_CHARS, param=f"{param}.server_description")
    approval = tool.require_approval
    if isinstance(approval, str) and approval not in APPROVALS:
        raise unknown_value(approval, APPROVALS, param=f"{param}.require_approval")
    filters = approval if isinstance(approval, ApprovalFilters) else ApprovalFilters()
    # A client that only names the tools to approve lets all others run.
    free = approval == "never" or (filters.always is not None and filters.never is None)
    allowed = tool.allowed_tools
    return McpServer(
        label=tool.server_label,
        url=tool.server_url,
        headers=_headers(tool, param),
        description=tool.server_description or "",
        allowed=McpFilter(names=tuple(allowed)) if isinstance(allowed, list) else _filter(allowed) or McpFilter(),
        always=_filter(filters.always),
        never=_filter(filters.never),
        otherwise="never" if free else "always",
        param=param,
    )


def ignored_fields(given: JsonObject, param: str) -> list[str]:
    """Return what a tool declares without effect: all tools are listed at once, and called directly."""
    return [f"{param}.{name}" for name in ("allowed_callers", "defer_loading") if given.get(name)]


def _filter(given: ToolFilter | None) -> McpFilter | None:
    if given is None:
        return None
    names = None if given.tool_names is None else tuple(given.tool_names)
    return McpFilter(names=names, read_only=given.read_only)


def _headers(tool: McpToolObject, param: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of each request to a server. An error must not repeat a value, which may be a secret."""
    place = f"{param}.headers"
    given = dict(tool.headers or {})
    check_length(tuple(given), MAX_HEADERS, param=place)
    if tool.authorization is not None:
        if any(name.lower() == "authorization" for name in given):
            problem = "Give the token in 'authorization' or in 'headers', not in both."
            raise InvalidRequest(problem, code="mutually_exclusive_parameters", param=f"{param}.authorization")
        given["Authorization"] = f"Bearer {tool.authorization}"
    for name, value in given.items():
        if not HEADER_NAME.fullmatch(name) or name.lower() in OWN_HEADERS or name.lower().startswith("proxy-"):
            problem = f"The header '{name[:64]}' cannot be set."
            raise InvalidRequest(problem, code="invalid_value", param=place)
        if not HEADER_VALUE.fullmatch(value) or value != value.strip() or len(value) > MAX_HEADER_CHARS:
            problem = f"The value of the header '{name[:64]}' is too long, or has characters that no header may have."
            raise InvalidRequest(problem, code="invalid_value", param=place)
    return tuple((name, value) for name, value in given.items())


def shown_server(tool: Mapping[str, Json]) -> JsonObject:
    """Return a declared server as the answer repeats it: without its headers, its token and the path of its URL."""
    shown = {name: value for name, value in tool.items() if name not in ("authorization", "headers")}
    url = shown.get("server_url")
    if isinstance(url, str):
        parts = urlsplit(url)
        shown["server_url"] = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{REDACTED}"
    return {"allowed_tools": None, "require_approval": "always", "server_description": None, **shown, "headers": None}
