"""Promises about keys that are made while gateways run."""

from tests.compat.promise import OURS, RATE_LIMITS, Promise

KEYS = (
    Promise(
        id="keys.live",
        sentence="A key works, and ends, within a second on every gateway with the same store, without a restart.",
        source=OURS,
    ),
    Promise(
        id="keys.rotate",
        sentence="A rotated key reads all that its client stored, and running requests may finish.",
        source=OURS,
    ),
    Promise(
        id="keys.revoked.running",
        sentence="Revoking a key ends its running requests, over HTTP and WebSocket, and no others.",
        source=OURS,
    ),
    Promise(
        id="keys.models",
        sentence="A key with models lists and uses no others, on any API.",
        source=OURS,
    ),
    Promise(
        id="keys.limits",
        sentence="A key may have a rate and turns of its own, which can be changed while it is used.",
        source=RATE_LIMITS,
    ),
    Promise(
        id="keys.tokens",
        sentence="A key may have tokens for an hour, day or week; `retry-after` and `x-ratelimit-*-tokens` are true.",
        source=RATE_LIMITS,
        divergence="It is checked before a turn, so the last turn of a window may go beyond it.",
    ),
    Promise(
        id="keys.named",
        sentence="Log lines and metrics name the key, and only operators may read the figures of all keys.",
        source=OURS,
    ),
    Promise(
        id="keys.accounts",
        sentence=(
            "Keys of two Codex accounts share nothing: each has its own provider, models, threads, plan and state."
        ),
        source=OURS,
    ),
    Promise(
        id="keys.account-gone",
        sentence="A key of an account that is gone or logged out gets an error with the command that helps.",
        source=OURS,
    ),
    Promise(
        id="keys.nothing-stored",
        sentence="Keys work where no answers are stored.",
        source=OURS,
    ),
    Promise(
        id="keys.store-away",
        sentence="Known keys are accepted while the store is away; a gateway that cannot read its keys yet says so.",
        source=OURS,
    ),
)

PLAN = (
    Promise(
        id="plan.shown",
        sentence="The windows of the plan are in the metrics, and in headers for the owner's keys only.",
        source=OURS,
    ),
    Promise(
        id="plan.spent",
        sentence="When the plan is spent, `retry-after` is the time until its window resets.",
        source=OURS,
    ),
)
