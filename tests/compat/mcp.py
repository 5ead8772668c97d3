"""Promises about MCP servers."""

from tests.compat.promise import MCP_GUIDE, OURS, RESPONSES_STREAM, Promise

MCP_SERVERS = (
    Promise(
        id="mcp.calls",
        sentence="The tools of a server are listed and called for the model: `mcp_list_tools`, `mcp_call`.",
        source=MCP_GUIDE,
        divergence="Streamable HTTP only. Of an output, the model sees text and images; other content is named.",
    ),
    Promise(
        id="mcp.exact",
        sentence="The model has the tools that were allowed and no others, and sees each output as the server gave it.",
        source=OURS,
    ),
    Promise(
        id="mcp.stream",
        sentence="A stream has OpenAI's events of lists, calls and their arguments.",
        source=RESPONSES_STREAM,
        divergence="The arguments come in one delta: Codex passes a call on when it is whole.",
    ),
    Promise(
        id="mcp.images",
        sentence="The model sees the images that a tool gives, and a history with the call shows them again.",
        source=OURS,
        divergence="With images in it, `output` is the content of the result as JSON: OpenAI's is a text, too.",
    ),
    Promise(
        id="mcp.history",
        sentence="A history shows the model the calls and outputs that it saw; what it lists is not listed again.",
        source=MCP_GUIDE,
    ),
    Promise(
        id="mcp.approval",
        sentence="A call waits for its approval, also beyond its parked turn, and is run once.",
        source=MCP_GUIDE,
    ),
    Promise(
        id="mcp.filters",
        sentence="`allowed_tools` and `require_approval` choose tools by name and by whether they only read.",
        source=MCP_GUIDE,
    ),
    Promise(
        id="mcp.mixed",
        sentence="Tools of servers and functions of the client are called in one turn.",
        source=MCP_GUIDE,
    ),
    Promise(
        id="mcp.choice",
        sentence="`tool_choice` may name a server or one of its tools; `max_tool_calls` bounds the calls.",
        source=MCP_GUIDE,
    ),
    Promise(
        id="mcp.failures",
        sentence="A tool that fails is a failed `mcp_call`; the model is told, and the turn goes on.",
        source=MCP_GUIDE,
    ),
    Promise(
        id="mcp.unreachable",
        sentence="A server that does not list its tools in time is a 424 as at OpenAI, and keeps nobody else waiting.",
        source=MCP_GUIDE,
    ),
    Promise(
        id="mcp.allowed",
        sentence="No server is asked unless `PROXY_MCP` allows it: public addresses, or the hosts of a list.",
        source=OURS,
        divergence="OpenAI reaches every public server, and connectors; here a connector is a 400.",
    ),
    Promise(
        id="mcp.secrets",
        sentence="Headers, tokens and paths of a server reach that server only; no log, trace or answer has them.",
        source=MCP_GUIDE,
    ),
    Promise(
        id="mcp.own",
        sentence="A thread is not used again by a request with other servers or other headers.",
        source=OURS,
    ),
)
