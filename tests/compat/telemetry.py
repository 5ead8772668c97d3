"""What is promised of OpenTelemetry."""

from tests.compat.promise import OURS, Promise

TELEMETRY = (
    Promise(
        id="telemetry.spans",
        sentence="With the extra `otel` and a collector, each request is a span with GenAI attributes, with queue, "
        "thread and provider below it, in the caller's trace; it holds no prompts or answers.",
        source=OURS,
    ),
    Promise(
        id="telemetry.off",
        sentence="Without a collector in the environment nothing of OpenTelemetry is imported.",
        source=OURS,
    ),
)
