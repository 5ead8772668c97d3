"""Promises about what is counted, and about what a client is told when something fails."""

from tests.compat.requirement import (
    CHAT,
    CHAT_STREAM,
    CLIENTS,
    ERRORS,
    OURS,
    RATE_LIMITS,
    RESPONSES,
    RESPONSES_STREAM,
    Requirement,
)

USAGE = (
    Requirement(
        id="usage.exact",
        sentence="Usage is Codex's count, summed over the model calls of the turn, with cached and reasoning tokens.",
        source=RESPONSES,
        tests=("tests/real/test_answers.py::test_usage_is_the_sum_of_the_turns_model_calls",),
    ),
    Requirement(
        id="usage.estimated",
        sentence="Only an answer that was cut off is counted with the model's tokenizer.",
        source=OURS,
        tests=(
            "tests/engine/test_turns.py::test_an_answer_that_is_cut_off_is_interrupted_before_its_end_is_handed_out",
            "tests/engine/test_turns.py::test_an_answer_that_the_provider_cut_off_without_a_count_is_counted_here",
            "tests/real/test_parameters.py::test_an_answer_within_its_limit_is_complete_and_its_usage_exact",
        ),
        divergence="OpenAI's count is always exact; Codex gives none for a turn that was interrupted.",
    ),
    Requirement(
        id="usage.told",
        sentence="`x-turnbridge-usage` says `exact` or `estimated`; in a stream, a comment says `estimated`.",
        source=OURS,
        tests=(
            "tests/real/test_parameters.py::test_a_token_limit_ends_a_chat_completion_and_the_turn",
            "tests/real/test_parameters.py::test_a_token_limit_ends_a_chat_stream_and_says_that_the_usage_is_estimated",
            "tests/real/test_parameters.py::test_an_answer_within_its_limit_is_complete_and_its_usage_exact",
        ),
    ),
    Requirement(
        id="usage.failed",
        sentence="A turn that failed before its first count claims no usage.",
        source=OURS,
        tests=(
            "tests/api/responses/test_encode.py::test_a_failure_keeps_its_code_and_claims_no_usage_that_nobody_counted",
        ),
    ),
)

FAILURES = (
    Requirement(
        id="errors.shape",
        sentence="Every error is OpenAI's object, with message, type, param and code.",
        source=ERRORS,
        tests=(
            "tests/api/shared/test_errors.py::test_each_error_has_its_status_type_and_code",
            "tests/real/test_errors.py::test_a_malformed_request_is_told_what_is_wrong_and_where",
        ),
    ),
    Requirement(
        id="errors.before-output",
        sentence="A failure before any output is an HTTP status, streamed or not: 400, 401, 429, 502, 503.",
        source=ERRORS,
        tests=("tests/real/test_errors.py::test_a_failure_before_any_output_is_a_status",),
    ),
    Requirement(
        id="errors.retry-after",
        sentence="A rate limit has `Retry-After`, with the wait that the provider names.",
        source=RATE_LIMITS,
        tests=(
            "tests/real/test_errors.py::test_a_failure_before_any_output_is_a_status",
            "tests/codex/protocol/test_errors.py::test_the_wait_that_a_message_names_is_read",
        ),
    ),
    Requirement(
        id="errors.table",
        sentence="One table maps every name that Codex has for a failure.",
        source=OURS,
        tests=(
            "tests/codex/protocol/test_errors.py::test_every_name_that_the_binary_may_give_an_error_is_in_the_table",
            "tests/codex/protocol/test_errors.py::test_each_error_of_codex_is_told_as_what_it_means",
        ),
    ),
    Requirement(
        id="errors.providers-words",
        sentence="A request that the provider refuses is a 400 with the provider's own words, code and param.",
        source=ERRORS,
        tests=(
            "tests/real/test_errors.py::test_a_failure_before_any_output_is_a_status",
            "tests/codex/protocol/test_errors.py::test_a_body_of_the_provider_is_a_bad_request_in_its_own_words",
        ),
    ),
    Requirement(
        id="errors.retryable",
        sentence="What cost quota and would fail again has a status that SDKs do not try again.",
        source=CLIENTS,
        tests=(
            "tests/real/test_structured.py::test_an_answer_that_still_does_not_conform_is_an_error_that_no_sdk_retries",
            "tests/api/shared/test_errors.py::test_each_error_has_its_status_type_and_code",
        ),
    ),
    Requirement(
        id="errors.context-length",
        sentence="Too long an input is a 400 `context_length_exceeded` in the words that clients look for.",
        source=CLIENTS,
        tests=("tests/real/test_errors.py::test_a_failure_before_any_output_is_a_status",),
    ),
    Requirement(
        id="errors.compaction",
        sentence="A history that Codex shortens by itself is `context_length_exceeded`, never a success.",
        source=OURS,
        tests=(
            "tests/codex/protocol/test_decode.py::test_a_history_that_codex_shortens_by_itself_is_too_long",
            "tests/codex/protocol/test_decode.py::test_a_client_may_allow_codex_to_shorten_the_history",
        ),
    ),
    Requirement(
        id="errors.after-output.responses",
        sentence="A failure after output closes what is open as `incomplete`, then come `error` and `response.failed`.",
        source=RESPONSES_STREAM,
        tests=(
            "tests/real/test_errors.py::test_a_failure_after_output_ends_a_response_stream_as_failed",
            "tests/real/test_errors.py::test_the_sdk_raises_what_ends_a_response_stream",
        ),
        divergence="`error` has its fields flat, as documented, and nested, as OpenAI sends them.",
    ),
    Requirement(
        id="errors.after-output.chat",
        sentence="A failure after output ends a chat stream in one frame with the error object.",
        source=CHAT_STREAM,
        tests=(
            "tests/real/test_errors.py::test_a_failure_after_output_ends_a_chat_stream_in_an_error_and_no_done",
            "tests/real/test_errors.py::test_the_sdk_raises_the_error_of_a_chat_stream_with_its_code",
        ),
        divergence="No `[DONE]` and no `finish_reason` follow: OpenAI documents no error inside a stream.",
    ),
    Requirement(
        id="errors.not-streamed",
        sentence="A failure after output is a status for those who do not stream.",
        source=ERRORS,
        tests=("tests/real/test_errors.py::test_a_failure_after_output_is_a_status_for_those_who_do_not_stream",),
    ),
    Requirement(
        id="errors.refusal",
        sentence="A refusal that Codex does not pass on is a 400 `refusal`, never an empty answer.",
        source=CHAT,
        tests=("tests/codex/protocol/test_recordings.py::test_a_recorded_turn_becomes_exactly_these_events",),
        divergence="OpenAI answers with the words of the refusal; Codex drops them.",
    ),
    Requirement(
        id="errors.malformed",
        sentence="Bad JSON, wrong types, missing fields and impossible values are a 400 with the `param` at fault.",
        source=ERRORS,
        tests=(
            "tests/real/test_errors.py::test_a_malformed_request_is_told_what_is_wrong_and_where",
            "tests/api/shared/test_validation.py::test_a_wrong_value_is_named_by_its_place",
        ),
    ),
    Requirement(
        id="errors.body-limit",
        sentence="A body over `PROXY_MAX_BODY_MB` is a 413, unread if its length says so.",
        source=OURS,
        tests=(
            "tests/real/test_errors.py::test_a_body_over_the_limit_is_refused",
            "tests/web/middleware/test_ingress_body.py::test_a_body_announced_as_too_large_is_refused_unread",
        ),
    ),
    Requirement(
        id="errors.own-defect",
        sentence="A defect of the gateway's is a 500 with the request id; its cause is only in the log.",
        source=OURS,
        tests=("tests/web/middleware/test_ingress.py::test_a_defect_is_logged_with_its_cause_and_told_without_it",),
    ),
)
