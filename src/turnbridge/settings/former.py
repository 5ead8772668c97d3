"""The settings of the gateway that many users come from, and what became of each.

`docs/migration.md` is generated from this table, and `serve` warns about settings that are renamed or gone.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

# "OUTCOME NAMES: NOTE"; an indented line continues the one above.
_TABLE = """
kept PORT CODEX_FORCE_PROVIDER PROXY_RESPONSES_OMIT_TOOL_MANIFEST PROXY_SSE_KEEPALIVE_MS PROXY_TIMEOUT_MS
    PROXY_CORS_ALLOWED_ORIGINS PROXY_METRICS_TOKEN WORKER_BACKOFF_INITIAL_MS WORKER_BACKOFF_MAX_MS
    WORKER_STARTUP_TIMEOUT_MS WORKER_SHUTDOWN_GRACE_MS WORKER_REQUEST_TIMEOUT_MS
kept PROXY_HOST: The default is 127.0.0.1; other addresses require a key that you chose.
kept PROXY_API_KEY: No published default: one is generated at the first start. Several are separated by commas.
kept CODEX_BIN: The default is the binary that is installed with Turnbridge.
kept CODEX_HOME: Read only; the gateway has its own Codex home. The default is `~/.codex`.
kept CODEX_MODEL: The default is the model of your Codex configuration. It need not be in Codex's catalogue.
kept PROXY_CODEX_WORKDIR: The default is an empty folder in the data directory.
kept PROXY_SANDBOX_MODE PROXY_APPROVAL_POLICY: Passed to Codex, which has no tool that it could apply to.
renamed CODEX_APPROVAL_POLICY: `PROXY_APPROVAL_POLICY`.
kept PROXY_INCLUDE_APPLY_PATCH_TOOL: Only for the v1 dialect.
kept PROXY_IGNORE_CLIENT_SYSTEM_PROMPT: The default is false: system prompts of clients are passed on.
kept PROXY_RESPONSES_OUTPUT_MODE: The header `x-proxy-output-mode` works too, on both routes.
gone PROXY_OUTPUT_MODE: Chat answers have OpenAI's format; a client that wants XML blocks sends `x-proxy-output-mode`.
kept PROXY_RESPONSES_SKIP_TURN: For the v1 dialect: `sendUserMessage` instead of `sendUserTurn`.
kept PROXY_IDLE_TIMEOUT_MS: It applies to streams too. The default is 15 minutes, since models may reason for long.
renamed PROXY_STREAM_IDLE_TIMEOUT_MS: `PROXY_IDLE_TIMEOUT_MS`.
kept PROXY_LOG_PROTO PROTO_LOG_PATH PROXY_TRACE_BODY_LIMIT: See docs/trace.md.
renamed PROXY_METRICS_ALLOW_UNAUTH: `PROXY_METRICS_TOKEN`; without one, metrics require the key.
gone PROXY_ENABLE_METRICS: Metrics are always enabled; they require the token or the key.
gone PROXY_METRICS_ALLOW_LOOPBACK: Metrics require the token or the key, from loopback too.
renamed PROXY_SSE_MAX_CONCURRENCY: `PROXY_MAX_TURNS`, which limits turns; further requests are queued.
renamed WORKER_MAX_CONCURRENCY: `PROXY_MAX_TURNS`.
renamed PROXY_RATE_LIMIT_ENABLED PROXY_RATE_LIMIT_WINDOW_MS PROXY_RATE_LIMIT_MAX: `PROXY_RATE_LIMIT`, as
    `60/minute`.
renamed WORKER_HANDSHAKE_TIMEOUT_MS: `WORKER_STARTUP_TIMEOUT_MS`, which includes the handshake.
renamed PROXY_WORKER_COUNT: `WORKER_COUNT`.
gone WORKER_RESTART_MAX: Codex is restarted for as long as the gateway runs.
gone PROXY_PROTECT_MODELS PROXY_USAGE_ALLOW_UNAUTH: Every request except for probes requires the key.
gone PROXY_TRUST_PROXY: Permissions do not depend on a client's address.
gone PROXY_ENV NODE_ENV PROXY_USE_APP_SERVER PROXY_ENABLE_RESPONSES: There is only one mode.
gone PROXY_DEFAULT_STREAM: `stream` defaults to false, as in OpenAI's API; SDKs rely on it.
gone PROXY_MAINTENANCE_MODE: It only set a gauge; stop the gateway, or take it out of the load balancer.
gone PROXY_MAX_PROMPT_TOKENS: The provider rejects a prompt that is too long.
gone PROXY_MAX_CHAT_CHOICES: `n` has OpenAI's limit; `PROXY_KEY_MAX_TURNS` lowers it.
gone PROXY_RESPONSES_DEFAULT_MAX_TOKENS: A client's limit is enforced; the gateway adds none.
gone PROXY_INGRESS_GUARDRAIL PROXY_COPILOT_AUTO_DETECT PROXY_RESPONSES_STRIP_OBSIDIAN_SYSTEM_PROMPT: Nothing is
    added to a request, and nothing is guessed from it.
gone PROXY_TITLE_GEN_INTERCEPT PROXY_TITLE_SUMMARY_EXEC_MODEL PROXY_TITLE_SUMMARY_EXEC_REASONING_EFFORT: Titles are
    ordinary requests to the requested model.
gone PROXY_AUTH_LOGIN_URL PROXY_AUTH_LOGIN_URL_MODE: The error message contains the command that logs in.
gone PROXY_ENABLE_PARALLEL_TOOL_CALLS: Clients decide, with `parallel_tool_calls`.
gone PROXY_STOP_AFTER_TOOLS PROXY_STOP_AFTER_TOOLS_MODE PROXY_STOP_AFTER_TOOLS_GRACE_MS PROXY_TOOL_BLOCK_MAX
    PROXY_SUPPRESS_TAIL_AFTER_TOOLS PROXY_TOOL_BLOCK_DEDUP PROXY_TOOL_BLOCK_DELIMITER: An answer ends where the
    model ends it, and calls are passed on as they are made.
gone PROXY_SANITIZE_METADATA SANITIZER_LOG_PATH SANITIZER_LOG_BASE_DIR: Text is never edited. Of Codex's
    metadata, only token counts are passed on.
gone PROXY_NONSTREAM_TRUNCATE_AFTER_MS: Slow answers are not truncated.
gone PROXY_KILL_ON_DISCONNECT: A turn always ends when its client leaves.
gone PROXY_ENABLE_CORS: Origins are always checked; `PROXY_CORS_ALLOWED_ORIGINS` allows more.
gone PROXY_LOG_CORS_ORIGIN: The log has each refused origin.
gone PROXY_TEST_ENDPOINTS PROXY_TEST_ALLOW_REMOTE: There are no test routes.
gone PROXY_ENABLE_OTEL OTEL_ENABLED: `OTEL_EXPORTER_OTLP_ENDPOINT` enables OpenTelemetry; see docs/opentelemetry.md.
renamed PROXY_OTEL_EXPORTER_URL: `OTEL_EXPORTER_OTLP_ENDPOINT`.
renamed PROXY_OTEL_SERVICE_NAME: `OTEL_SERVICE_NAME`.
gone PROXY_TRACE_REQUIRED PROXY_LOG_REDACT PROXY_TRACE_REDACT PROXY_DEBUG_WIRE: Secrets are always redacted;
    `PROXY_LOG_PROTO` enables the trace.
gone TOKEN_LOG_PATH: The log has the tokens of every request, and `/metrics` their sums.
gone PROXY_CAPTURE_CHAT_TRANSCRIPTS PROXY_CAPTURE_CHAT_TRANSCRIPTS_DIR PROXY_CAPTURE_CHAT_RAW_TRANSCRIPTS
    PROXY_CAPTURE_CHAT_RAW_DIR PROXY_CAPTURE_RESPONSES_TRANSCRIPTS PROXY_CAPTURE_RESPONSES_TRANSCRIPTS_DIR
    PROXY_CAPTURE_RESPONSES_RAW_TRANSCRIPTS PROXY_CAPTURE_RESPONSES_RAW_DIR PROXY_CAPTURE_APP_SERVER_RAW
    PROXY_CAPTURE_APP_SERVER_RAW_DIR PROXY_CAPTURE_APP_SERVER_RAW_MAX_BYTES PROXY_CAPTURE_THINKING_RAW
    PROXY_CAPTURE_THINKING_RAW_DIR PROXY_CAPTURE_THINKING_RAW_MAX_BYTES: Use the wire trace, `PROXY_LOG_PROTO`.
gone PROXY_DISABLE_SHELL_TOOL PROXY_DISABLE_UNIFIED_EXEC PROXY_DISABLE_INTERNAL_TOOLS
    PROXY_DISABLE_INTERNAL_TOOLS_CONFIG PROXY_DISABLE_INTERNAL_TOOLS_PROMPT PROXY_ENABLE_INTERNAL_TOOLS_SHIM:
    Codex's own tools are always disabled.
gone PROXY_ENABLE_WEB_SEARCH_REQUEST: A client requests it with the tool `web_search`.
gone PROXY_RESPONSES_XML_TOOL_CALLS: Use `PROXY_RESPONSES_OUTPUT_MODE=obsidian-xml`.
gone PROXY_RESPONSES_INJECT_TOOL_SCHEMA: Tools are declared to the model; only v1 describes them in text.
gone PROXY_RESPONSES_IDEMPOTENCY PROXY_RESPONSES_IDEMPOTENCY_TTL_MS PROXY_RESPONSES_IDEMPOTENCY_FINGERPRINT: The
    header `Idempotency-Key` is always supported.
"""


class Former(NamedTuple):
    """One setting: `kept`, `renamed` or `gone`, and a note."""

    name: str
    outcome: str
    note: str


def _parsed(table: str) -> Iterator[Former]:
    for line in re.sub(r"\n +", " ", table.strip()).splitlines():
        head, _, note = line.partition(": ")
        outcome, *names = head.split()
        yield from (Former(name, outcome, note) for name in names)


FORMER = tuple(_parsed(_TABLE))

# Except for those that other programs read too.
RECOGNISED = {one.name for one in FORMER} - {"NODE_ENV", "OTEL_ENABLED"}


def warning_about(name: str) -> str | None:
    """Return the warning for a setting that is renamed or gone."""
    match next((one for one in FORMER if one.name == name), None):
        case Former(outcome="renamed", note=note):
            return f"{name} is set, but has another name here: {note}"
        case Former(outcome="gone", note=note):
            return f"{name} is set, but has no effect here. {note}"
        case _:
            return None
