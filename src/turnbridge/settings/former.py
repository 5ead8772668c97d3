"""The settings of the gateway that many users come from: which are kept, what the others are called here, or why they
are gone. `docs/migration.md` is made from this table, and whoever sets one that is gone is told at the start.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Former:
    """One setting, and what became of it."""

    name: str
    outcome: Literal["kept", "renamed", "gone"]
    note: str


def _kept(*names: str, note: str = "") -> list[Former]:
    return [Former(name, "kept", note) for name in names]


def _renamed(note: str, *names: str) -> list[Former]:
    return [Former(name, "renamed", note) for name in names]


def _gone(note: str, *names: str) -> list[Former]:
    return [Former(name, "gone", note) for name in names]


FORMER: tuple[Former, ...] = (
    *_kept("PORT"),
    *_kept("PROXY_HOST", note="The default is 127.0.0.1: other addresses need a key of your own."),
    *_kept(
        "PROXY_API_KEY", note="There is no published default: one is made at the first start. Several go with commas."
    ),
    *_kept("CODEX_BIN", note="The default is the binary that is installed with Turnbridge."),
    *_kept("CODEX_HOME", note="Only read: the gateway has a home of its own. The default is `~/.codex`."),
    *_kept("CODEX_MODEL", note="The default is the model of your Codex configuration. Codex's catalogue may lack it."),
    *_kept("CODEX_FORCE_PROVIDER"),
    *_kept("PROXY_CODEX_WORKDIR", note="The default is an empty folder in the data directory."),
    *_kept("PROXY_SANDBOX_MODE", "PROXY_APPROVAL_POLICY", note="Codex is given no tool to which it could apply."),
    *_renamed("`PROXY_APPROVAL_POLICY`.", "CODEX_APPROVAL_POLICY"),
    *_kept("PROXY_INCLUDE_APPLY_PATCH_TOOL", note="Only the v1 dialect knows it."),
    *_kept("PROXY_IGNORE_CLIENT_SYSTEM_PROMPT", note="The default is false: the model sees what the client sent."),
    *_kept("PROXY_RESPONSES_OUTPUT_MODE", note="So is the header `x-proxy-output-mode`, on both routes."),
    *_gone("Chat answers as OpenAI does; a client that wants blocks sends `x-proxy-output-mode`.", "PROXY_OUTPUT_MODE"),
    *_kept("PROXY_RESPONSES_SKIP_TURN", note="On the v1 dialect: `sendUserMessage` instead of `sendUserTurn`."),
    *_kept("PROXY_RESPONSES_OMIT_TOOL_MANIFEST"),
    *_kept("PROXY_SSE_KEEPALIVE_MS", "PROXY_TIMEOUT_MS", "PROXY_CORS_ALLOWED_ORIGINS"),
    *_kept("PROXY_IDLE_TIMEOUT_MS", note="It holds for streams too, and the default is 15 minutes: models think."),
    *_renamed("`PROXY_IDLE_TIMEOUT_MS`.", "PROXY_STREAM_IDLE_TIMEOUT_MS"),
    *_kept("PROXY_LOG_PROTO", "PROTO_LOG_PATH", "PROXY_TRACE_BODY_LIMIT", note="See docs/trace.md."),
    *_renamed("`PROXY_METRICS_TOKEN`; loopback may always read them.", "PROXY_METRICS_ALLOW_UNAUTH"),
    *_kept("PROXY_METRICS_TOKEN"),
    *_gone("Metrics are always there, for loopback or with the token.", "PROXY_ENABLE_METRICS"),
    *_gone("Loopback may always read them.", "PROXY_METRICS_ALLOW_LOOPBACK"),
    *_renamed("`PROXY_MAX_TURNS`: a bound on turns, with a queue in front.", "PROXY_SSE_MAX_CONCURRENCY"),
    *_renamed("`PROXY_MAX_TURNS`.", "WORKER_MAX_CONCURRENCY"),
    *_renamed(
        "`PROXY_RATE_LIMIT`, as `60/minute`.",
        "PROXY_RATE_LIMIT_ENABLED",
        "PROXY_RATE_LIMIT_WINDOW_MS",
        "PROXY_RATE_LIMIT_MAX",
    ),
    *_kept(
        "WORKER_BACKOFF_INITIAL_MS",
        "WORKER_BACKOFF_MAX_MS",
        "WORKER_STARTUP_TIMEOUT_MS",
        "WORKER_SHUTDOWN_GRACE_MS",
        "WORKER_REQUEST_TIMEOUT_MS",
    ),
    *_renamed("`WORKER_STARTUP_TIMEOUT_MS`, which bounds the handshake too.", "WORKER_HANDSHAKE_TIMEOUT_MS"),
    *_renamed("`WORKER_COUNT`.", "PROXY_WORKER_COUNT"),
    *_gone("Codex is started again for as long as the gateway runs.", "WORKER_RESTART_MAX"),
    *_gone("Every request but probes needs the key.", "PROXY_PROTECT_MODELS", "PROXY_USAGE_ALLOW_UNAUTH"),
    *_gone("What a client may do does not depend on its address.", "PROXY_TRUST_PROXY"),
    *_gone("There is one way to run it.", "PROXY_ENV", "NODE_ENV", "PROXY_USE_APP_SERVER", "PROXY_ENABLE_RESPONSES"),
    *_gone("`stream` defaults to false, as at OpenAI; SDKs rely on it.", "PROXY_DEFAULT_STREAM"),
    *_gone("It only set a gauge; stop the gateway, or take it out of the load balancer.", "PROXY_MAINTENANCE_MODE"),
    *_gone("The provider says itself when a prompt is too long.", "PROXY_MAX_PROMPT_TOKENS"),
    *_gone("`n` may be as high as at OpenAI; `PROXY_KEY_MAX_TURNS` bounds it.", "PROXY_MAX_CHAT_CHOICES"),
    *_gone("A client's limit is honoured; the gateway adds none.", "PROXY_RESPONSES_DEFAULT_MAX_TOKENS"),
    *_gone(
        "Nothing is added to what the client sent, and nothing is guessed from it.",
        "PROXY_INGRESS_GUARDRAIL",
        "PROXY_COPILOT_AUTO_DETECT",
        "PROXY_RESPONSES_STRIP_OBSIDIAN_SYSTEM_PROMPT",
    ),
    *_gone(
        "Titles are ordinary requests, to the model that was asked for.",
        "PROXY_TITLE_GEN_INTERCEPT",
        "PROXY_TITLE_SUMMARY_EXEC_MODEL",
        "PROXY_TITLE_SUMMARY_EXEC_REASONING_EFFORT",
    ),
    *_gone("The error says which command logs Codex in.", "PROXY_AUTH_LOGIN_URL", "PROXY_AUTH_LOGIN_URL_MODE"),
    *_gone("Clients decide, with `parallel_tool_calls`.", "PROXY_ENABLE_PARALLEL_TOOL_CALLS"),
    *_gone(
        "An answer ends where the model ends it, and calls are passed on as they are made.",
        "PROXY_STOP_AFTER_TOOLS",
        "PROXY_STOP_AFTER_TOOLS_MODE",
        "PROXY_STOP_AFTER_TOOLS_GRACE_MS",
        "PROXY_TOOL_BLOCK_MAX",
        "PROXY_SUPPRESS_TAIL_AFTER_TOOLS",
        "PROXY_TOOL_BLOCK_DEDUP",
        "PROXY_TOOL_BLOCK_DELIMITER",
    ),
    *_gone(
        "Text is never edited. Of Codex's own metadata only token counts leave the gateway.",
        "PROXY_SANITIZE_METADATA",
        "SANITIZER_LOG_PATH",
        "SANITIZER_LOG_BASE_DIR",
    ),
    *_gone("No answer is cut off because it takes long.", "PROXY_NONSTREAM_TRUNCATE_AFTER_MS"),
    *_gone("A turn always ends when its client leaves.", "PROXY_KILL_ON_DISCONNECT"),
    *_gone("Origins are always checked; `PROXY_CORS_ALLOWED_ORIGINS` widens them.", "PROXY_ENABLE_CORS"),
    *_gone("The log says which origin was refused.", "PROXY_LOG_CORS_ORIGIN"),
    *_gone("There are no test routes.", "PROXY_TEST_ENDPOINTS", "PROXY_TEST_ALLOW_REMOTE"),
    *_gone(
        "There are no OpenTelemetry traces; metrics and the wire trace are what there is.",
        "PROXY_ENABLE_OTEL",
        "OTEL_ENABLED",
        "PROXY_OTEL_EXPORTER_URL",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "PROXY_OTEL_SERVICE_NAME",
    ),
    *_gone(
        "Secrets are redacted always, and the trace is on when `PROXY_LOG_PROTO` is.",
        "PROXY_TRACE_REQUIRED",
        "PROXY_LOG_REDACT",
        "PROXY_TRACE_REDACT",
        "PROXY_DEBUG_WIRE",
    ),
    *_gone("The log has the tokens of every request, and `/metrics` their sums.", "TOKEN_LOG_PATH"),
    *_gone(
        "The wire trace has them: `PROXY_LOG_PROTO`.",
        "PROXY_CAPTURE_CHAT_TRANSCRIPTS",
        "PROXY_CAPTURE_CHAT_TRANSCRIPTS_DIR",
        "PROXY_CAPTURE_CHAT_RAW_TRANSCRIPTS",
        "PROXY_CAPTURE_CHAT_RAW_DIR",
        "PROXY_CAPTURE_RESPONSES_TRANSCRIPTS",
        "PROXY_CAPTURE_RESPONSES_TRANSCRIPTS_DIR",
        "PROXY_CAPTURE_RESPONSES_RAW_TRANSCRIPTS",
        "PROXY_CAPTURE_RESPONSES_RAW_DIR",
        "PROXY_CAPTURE_APP_SERVER_RAW",
        "PROXY_CAPTURE_APP_SERVER_RAW_DIR",
        "PROXY_CAPTURE_APP_SERVER_RAW_MAX_BYTES",
        "PROXY_CAPTURE_THINKING_RAW",
        "PROXY_CAPTURE_THINKING_RAW_DIR",
        "PROXY_CAPTURE_THINKING_RAW_MAX_BYTES",
    ),
    *_gone(
        "Codex's own tools are always off.",
        "PROXY_DISABLE_SHELL_TOOL",
        "PROXY_DISABLE_UNIFIED_EXEC",
        "PROXY_DISABLE_INTERNAL_TOOLS",
        "PROXY_DISABLE_INTERNAL_TOOLS_CONFIG",
        "PROXY_DISABLE_INTERNAL_TOOLS_PROMPT",
        "PROXY_ENABLE_INTERNAL_TOOLS_SHIM",
    ),
    *_gone("A client asks for it with the tool `web_search`.", "PROXY_ENABLE_WEB_SEARCH_REQUEST"),
    *_gone("`PROXY_RESPONSES_OUTPUT_MODE=obsidian-xml` shows calls so.", "PROXY_RESPONSES_XML_TOOL_CALLS"),
    *_gone("Tools are declared to the model; only v1 needs the text.", "PROXY_RESPONSES_INJECT_TOOL_SCHEMA"),
    *_gone(
        "The header `Idempotency-Key` works always.",
        "PROXY_RESPONSES_IDEMPOTENCY",
        "PROXY_RESPONSES_IDEMPOTENCY_TTL_MS",
        "PROXY_RESPONSES_IDEMPOTENCY_FINGERPRINT",
    ),
)

# Other programs listen to these too.
OTHERS_TOO = frozenset({"NODE_ENV", "OTEL_ENABLED", "OTEL_EXPORTER_OTLP_ENDPOINT"})
MEANT_FOR_A_GATEWAY = frozenset(former.name for former in FORMER) - OTHERS_TOO


def advice_on(name: str) -> str | None:
    """Return what to tell somebody who has set this, if it means nothing here."""
    former = next((each for each in FORMER if each.name == name), None)
    if former is None or former.outcome == "kept":
        return None
    if former.outcome == "renamed":
        return f"{name} is set, but has another name here: {former.note}"
    return f"{name} is set, but has no effect here. {former.note}"
