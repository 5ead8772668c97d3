"""Promises about what is counted, and about what a client is told when something fails."""

from tests.compat.promise import (
    CHAT,
    CHAT_STREAM,
    CLIENTS,
    ERRORS,
    OURS,
    RATE_LIMITS,
    RESPONSES,
    RESPONSES_STREAM,
    USAGE_API,
    VISION,
    Promise,
)

USAGE = (
    Promise(
        id="usage.stored",
        sentence="Requests, errors and tokens are stored by key, model and hour, also of background and WebSocket.",
        source=OURS,
    ),
    Promise(
        id="usage.own",
        sentence="A key sees its own usage only, an admin's that of all keys.",
        source=OURS,
    ),
    Promise(
        id="usage.openai",
        sentence="`GET /v1/organization/usage/completions` answers in pages of buckets, grouped by key and model.",
        source=USAGE_API,
        divergence="There are no buckets of a minute. `api_key_id` is the name of the key.",
    ),
    Promise(
        id="usage.exact",
        sentence="Usage is Codex's count, summed over the model calls of the turn, with cached and reasoning tokens.",
        source=RESPONSES,
    ),
    Promise(
        id="usage.estimated",
        sentence="Only an answer that was cut off is counted with the model's tokenizer.",
        source=OURS,
        divergence="OpenAI's count is always exact; Codex gives none for a turn that was interrupted.",
    ),
    Promise(
        id="usage.told",
        sentence="`x-turnbridge-usage` is `exact` or `estimated`; in a stream, a comment has `estimated`.",
        source=OURS,
    ),
    Promise(
        id="usage.failed",
        sentence="A turn that failed before its first count claims no usage.",
        source=OURS,
    ),
    Promise(
        id="usage.counted",
        sentence="`POST /v1/responses/input_tokens` counts the input of the same request, without asking the model.",
        source=RESPONSES,
        divergence="The count is an estimate, marked as one: only the provider knows the model's format.",
    ),
    Promise(
        id="usage.counted.published",
        sentence="Examples whose exact counts OpenAI publishes for current formats are counted alike.",
        source=RESPONSES,
    ),
    Promise(
        id="usage.counted.stored",
        sentence="The history of `previous_response_id` or `conversation` counts like the same history in the request.",
        source=RESPONSES,
    ),
    Promise(
        id="usage.counted.images",
        sentence="Images count by OpenAI's rules for their model, in the size in which Codex sends them.",
        source=VISION,
    ),
    Promise(
        id="usage.counted.refused",
        sentence="What `POST /v1/responses` refuses is refused here too, with the same error.",
        source=RESPONSES,
    ),
)

FAILURES = (
    Promise(
        id="errors.shape",
        sentence="Every error is OpenAI's object, with message, type, param and code.",
        source=ERRORS,
    ),
    Promise(
        id="errors.before-output",
        sentence="A failure before any output is an HTTP status, streamed or not: 400, 401, 429, 502, 503.",
        source=ERRORS,
    ),
    Promise(
        id="errors.retry-after",
        sentence="A rate limit has `Retry-After`, with the wait that the provider names.",
        source=RATE_LIMITS,
    ),
    Promise(
        id="errors.table",
        sentence="One table maps every name that Codex has for a failure.",
        source=OURS,
    ),
    Promise(
        id="errors.providers-words",
        sentence="A request that the provider refuses is a 400 with the provider's own words, code and param.",
        source=ERRORS,
    ),
    Promise(
        id="errors.retryable",
        sentence="A failure that cost quota and would repeat has a status that SDKs do not retry.",
        source=CLIENTS,
    ),
    Promise(
        id="errors.context-length",
        sentence="Too long an input is a 400 `context_length_exceeded` in the words that clients look for.",
        source=CLIENTS,
    ),
    Promise(
        id="errors.compaction",
        sentence="A history that Codex shortens by itself is `context_length_exceeded`, never a success.",
        source=OURS,
    ),
    Promise(
        id="errors.after-output.responses",
        sentence="A failure after output closes what is open as `incomplete`, then come `error` and `response.failed`.",
        source=RESPONSES_STREAM,
        divergence="`error` has its fields flat, as documented, and nested, as OpenAI sends them.",
    ),
    Promise(
        id="errors.failed-codes",
        sentence="A failed response has a code that OpenAI lists; the `error` event before it has the finer one.",
        source=RESPONSES_STREAM,
    ),
    Promise(
        id="errors.after-output.chat",
        sentence="A failure after output ends a chat stream in one frame with the error object.",
        source=CHAT_STREAM,
        divergence="No `[DONE]` and no `finish_reason` follow: OpenAI documents no error inside a stream.",
    ),
    Promise(
        id="errors.not-streamed",
        sentence="Without streaming, a failure after output is a status.",
        source=ERRORS,
    ),
    Promise(
        id="errors.refusal",
        sentence="A refusal that Codex does not pass on is a 400 `refusal`, never an empty answer.",
        source=CHAT,
        divergence="OpenAI answers with the words of the refusal; Codex drops them.",
    ),
    Promise(
        id="errors.malformed",
        sentence="Bad JSON, wrong types, missing fields and impossible values are a 400 with the `param` at fault.",
        source=ERRORS,
    ),
    Promise(
        id="errors.body-limit",
        sentence="A body over `PROXY_MAX_BODY_MB` is a 413, unread if its length says so.",
        source=OURS,
    ),
    Promise(
        id="errors.own-defect",
        sentence="A defect of the gateway's is a 500 with the request id; its cause is only in the log.",
        source=OURS,
    ),
)
