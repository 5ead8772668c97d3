"""Every promised behaviour, by area: `docs/compatibility.md` is written from it (`python -m tools.docs`)."""

from tests.compat.anthropic import MESSAGES_API
from tests.compat.bounds import BOUNDS
from tests.compat.commands import COMMANDS
from tests.compat.deployment import DEPLOYMENT
from tests.compat.files import UPLOADED_FILES
from tests.compat.keys import KEYS, PLAN
from tests.compat.mcp import MCP_SERVERS
from tests.compat.messages import CHAT_ANSWERS, ITEMS, RESPONSE_ANSWERS
from tests.compat.models import MEDIA, MODEL_NAMES, REASONING_ANSWERS
from tests.compat.ollama import OLLAMA_API
from tests.compat.operation import FAULTS, LIMITS, THREADS
from tests.compat.outcomes import FAILURES, USAGE
from tests.compat.page import PAGE
from tests.compat.parameters import PARAMETERS, STRUCTURED_ANSWERS
from tests.compat.promise import Promise
from tests.compat.replicas import REPLICAS
from tests.compat.service import INGRESS, SAFETY, START
from tests.compat.state import STATE
from tests.compat.streams import STREAMS
from tests.compat.telemetry import TELEMETRY
from tests.compat.tools import TOOLS
from tests.compat.tracing import TRACE
from tests.compat.versions import VERSIONS
from tests.compat.websocket import WEBSOCKET

AREAS: dict[str, tuple[Promise, ...]] = {
    "What the model sees": ITEMS,
    "Chat Completions": CHAT_ANSWERS,
    "Responses": RESPONSE_ANSWERS,
    "Anthropic Messages": MESSAGES_API,
    "Ollama": OLLAMA_API,
    "State": STATE,
    "Files": UPLOADED_FILES,
    "Streaming": STREAMS,
    "Responses over WebSocket": WEBSOCKET,
    "Parameters": PARAMETERS,
    "Structured answers": STRUCTURED_ANSWERS,
    "Reasoning": REASONING_ANSWERS,
    "Images and files": MEDIA,
    "Tools": TOOLS,
    "MCP servers": MCP_SERVERS,
    "Models": MODEL_NAMES,
    "Codex versions": VERSIONS,
    "Usage": USAGE,
    "Errors": FAILURES,
    "Threads": THREADS,
    "Limits": LIMITS,
    "Keys": KEYS,
    "Plan": PLAN,
    "Start and login": START,
    "Commands": COMMANDS,
    "Page": PAGE,
    "Ingress": INGRESS,
    "Bounds": BOUNDS,
    "Safety": SAFETY,
    "Faults": FAULTS,
    "Trace": TRACE,
    "Deployment": DEPLOYMENT,
    "Replicas": REPLICAS,
    "OpenTelemetry": TELEMETRY,
}
"""The title of each area, and what is promised there; ids begin with the area's own word."""

PROMISES = tuple(promise for area in AREAS.values() for promise in area)
