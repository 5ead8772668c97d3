"""`engine.ports.ToolServers` over streamable HTTP: which servers are asked, and what is asked of them."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from typing import TypeGuard

import httpcore2
import msgspec

from turnbridge.mcp.exchange import Answer, Endpoint, ServerFailed
from turnbridge.outbound.guard import AddressCheck, GuardedBackend, Resolver, is_public, resolve
from turnbridge.turn.errors import InvalidRequest, ToolServerFailed
from turnbridge.turn.items import JsonObject
from turnbridge.turn.json_schema import unreadable
from turnbridge.turn.mcp import McpResult, McpServer, McpTool, content_output
from turnbridge.turn.mcp_hosts import Origin, origin_of, parse_hosts

PROTOCOL_VERSION = "2025-06-18"
LIST_SECONDS = 15.0
"""For the handshake and the list: the client waits for the first word of the answer meanwhile."""
CALL_SECONDS = 60.0
"""For one call, as long as Codex itself waits."""
CLOSE_SECONDS = 2.0
MOST_PAGES = 20
MOST_TOOLS = 512
"""Tools of one server, more than any model can choose from."""

OTHER_HOST = {
    "public": "Only public hosts are reached here, by https on port 443 (PROXY_MCP=public).",
    "hosts": "Its host is not among those that this gateway's operator allows (PROXY_MCP).",
}


class _ListedTool(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    input_schema: JsonObject
    description: str | None = None
    annotations: JsonObject | None = None


class _ToolPage(msgspec.Struct, frozen=True, rename="camel"):
    tools: list[_ListedTool]
    next_cursor: str | None = None


class _CallResult(msgspec.Struct, frozen=True, rename="camel"):
    content: list[JsonObject] = []
    structured_content: JsonObject | None = None
    is_error: bool = False


class HttpToolServers:
    """The servers that the operator allows."""

    def __init__(
        self,
        hosts: str,
        *,
        resolver: Resolver = resolve,
        allowed: AddressCheck = is_public,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Take what `PROXY_MCP` says."""
        self._hosts = parse_hosts(hosts)
        # A host that the operator has named may be anywhere.
        check = allowed if self._hosts.access == "public" else lambda _: True
        self._backend = GuardedBackend(resolver, check)
        self._ssl_context = ssl_context
        self._made: httpcore2.AsyncConnectionPool | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def finish(self, ending: Coroutine[None, None, None]) -> None:
        """Let the end of a session take its time."""
        task = asyncio.ensure_future(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        await asyncio.gather(*self._ending)
        if self._made is not None:
            await self._made.aclose()

    def session(self, server: McpServer) -> "HttpToolSession":
        """Return a session with a server, which connects when it is needed."""
        origin = origin_of(server.url)
        if not self._hosts.allows(origin):
            param = f"{server.param}.server_url"
            raise InvalidRequest(OTHER_HOST[self._hosts.access], code="mcp_host_not_allowed", param=param)
        return HttpToolSession(self, server, origin)

    async def endpoint(self, server: McpServer, origin: Origin) -> Endpoint:
        """Return where a server is asked."""
        if self._made is None:
            # Loading the system's certificates takes 40 ms.
            context = self._ssl_context or await asyncio.to_thread(httpcore2.default_ssl_context)
            # A concurrent call may have made it in between.
            self._made = self._made or httpcore2.AsyncConnectionPool(
                ssl_context=context,
                max_connections=None,
                # Connections are not reused: each request resolves and checks its host.
                max_keepalive_connections=0,
                network_backend=self._backend,
            )
        return Endpoint(self._made, origin, server.url)


class HttpToolSession:
    """A session with one server."""

    def __init__(self, servers: HttpToolServers, server: McpServer, origin: Origin) -> None:
        self._servers = servers
        self._server = server
        self._origin = origin
        self._opening = asyncio.Lock()
        self._endpoint: Endpoint | None = None
        self._headers = list(server.headers)
        self._has_id = False
        self._last_id = 0

    async def list_tools(self) -> tuple[McpTool, ...]:
        """Return the server's tools."""
        try:
            async with asyncio.timeout(LIST_SECONDS):
                return tuple([tool async for tool in self._tools()])
        except TimeoutError:
            raise self._unlisted(f"It took longer than {LIST_SECONDS:g} seconds.") from None
        except ServerFailed as failed:
            raise self._unlisted(failed.message) from None

    async def call(self, name: str, arguments: str) -> McpResult:
        """Call a tool."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                given = msgspec.json.decode(arguments or "{}", type=JsonObject)
                answer = await self._ask("tools/call", {"name": name, "arguments": given})
                result = msgspec.convert(answer.result, _CallResult)
        except TimeoutError:
            return _failure("http_error", 504, f"It took longer than {CALL_SECONDS:g} seconds.")
        except msgspec.MsgspecError:
            return _failure("mcp_protocol_error", -32602, "The arguments or the result could not be read.")
        except ServerFailed as failed:
            if failed.code is not None:
                return _failure("mcp_protocol_error", failed.code, failed.message)
            return _failure("http_error", failed.status or 502, failed.message)
        if result.is_error:
            return McpResult(error={"type": "mcp_tool_execution_error", "content": list(result.content)})
        return McpResult(output=content_output(result.content, result.structured_content))

    def close(self) -> None:
        """End the session; nobody waits for that, and a server that does not hear it ends the session by itself."""
        if self._endpoint is not None and self._has_id:
            self._servers.finish(self._end(self._endpoint))

    async def _end(self, endpoint: Endpoint) -> None:
        with contextlib.suppress(ServerFailed, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await endpoint.tell("DELETE", None, self._headers)

    async def _tools(self) -> AsyncIterator[McpTool]:
        cursor: str | None = None
        count = 0
        for _ in range(MOST_PAGES):
            answer = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            try:
                page = msgspec.convert(answer.result, _ToolPage)
            except msgspec.ValidationError:
                raise ServerFailed("Its list of tools could not be read.") from None
            for tool in page.tools:
                if (count := count + 1) > MOST_TOOLS:
                    raise ServerFailed(f"It has more than {MOST_TOOLS} tools.")
                if (problem := unreadable(tool.input_schema)) is not None:
                    raise ServerFailed(f"The schema of its tool '{tool.name[:64]}' cannot be used: {problem}.")
                yield McpTool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.input_schema,
                    annotations=tool.annotations,
                )
            cursor = page.next_cursor
            if not cursor:
                return
        raise ServerFailed(f"Its list of tools has more than {MOST_PAGES} pages.")

    async def _ask(self, method: str, params: JsonObject) -> Answer:
        endpoint = await self._opened()
        return await endpoint.ask(self._request(method, params), self._headers)

    async def _opened(self) -> Endpoint:
        async with self._opening:
            if self._endpoint is not None:
                return self._endpoint
            endpoint = await self._servers.endpoint(self._server, self._origin)
            about: JsonObject = {"name": "turnbridge", "version": "1"}
            params: JsonObject = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": about}
            answer = await endpoint.ask(self._request("initialize", params), self._headers)
            version = answer.result.get("protocolVersion")
            self._headers.append(("mcp-protocol-version", version if _is_plain(version) else PROTOCOL_VERSION))
            if _is_plain(answer.session_id):
                self._headers.append(("mcp-session-id", answer.session_id))
                self._has_id = True
            ready: JsonObject = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await endpoint.tell("POST", ready, self._headers)
            self._endpoint = endpoint
            return endpoint

    def _request(self, method: str, params: JsonObject) -> JsonObject:
        self._last_id += 1
        return {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}

    def _unlisted(self, why: str) -> ToolServerFailed:
        label = self._server.label
        return ToolServerFailed(f"Error retrieving tool list from MCP server: '{label}'. {why}", param="tools")


def _is_plain(value: object) -> TypeGuard[str]:
    """Tell whether what a server said can stand in a header."""
    return isinstance(value, str) and 0 < len(value) <= 1024 and value.isascii() and value.isprintable()


def _failure(kind: str, code: int, message: str) -> McpResult:
    return McpResult(error={"type": kind, "code": code, "message": message})
