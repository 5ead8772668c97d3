"""Promises about parameters, and about the shape of an answer."""

from tests.compat.requirement import (
    CHAT,
    CLIENTS,
    OURS,
    RESPONSES,
    STRUCTURED,
    Requirement,
)

PARAMETERS = (
    Requirement(
        id="parameters.stop",
        sentence="A stop sequence ends the answer before it, and the turn in Codex at once.",
        source=CHAT,
        tests=(
            "tests/real/test_parameters.py::test_a_stop_sequence_ends_the_answer_and_the_turn",
            "tests/engine/test_output_limits.py::test_what_passes_is_the_text_before_the_stop_sequence_that_is_complete_first",
        ),
        divergence="Responses has `stop` too, which OpenAI has not. Narration and reasoning are not searched.",
    ),
    Requirement(
        id="parameters.stop.nothing-lost",
        sentence="Text that only looks like a stop sequence is not lost.",
        source=OURS,
        tests=(
            "tests/real/test_parameters.py::test_what_only_looks_like_a_stop_sequence_is_not_lost",
            "tests/real/test_parameters.py::test_text_that_must_be_held_back_for_a_while_disturbs_nothing",
        ),
    ),
    Requirement(
        id="parameters.max-tokens",
        sentence=(
            "`max_output_tokens` ends the answer as `incomplete`, `max_completion_tokens` and `max_tokens` as "
            "`length`; the turn ends in Codex at once."
        ),
        source=RESPONSES,
        tests=(
            "tests/real/test_parameters.py::test_a_token_limit_ends_a_response_as_incomplete_and_the_turn",
            "tests/real/test_parameters.py::test_a_token_limit_ends_a_chat_completion_and_the_turn",
            "tests/real/test_parameters.py::test_a_token_limit_ends_a_chat_stream_and_says_that_the_usage_is_estimated",
        ),
        divergence="Only the text counts, not the reasoning: Codex knows no limit, and the gateway sees the text.",
    ),
    Requirement(
        id="parameters.max-tokens.counted",
        sentence="The limit is counted with the model's tokenizer: the longest text within it passes.",
        source=OURS,
        tests=(
            "tests/engine/test_output_limits.py::test_what_passes_is_the_longest_text_within_the_token_limit",
            "tests/engine/test_output_limits.py::test_with_the_models_own_tokens_nothing_beyond_the_limit_passes",
            "tests/test_tokens.py::test_text_is_counted_as_the_model_counts_it",
        ),
    ),
    Requirement(
        id="parameters.max-tokens.bounded",
        sentence="Text that is slow to count keeps no other client waiting.",
        source=OURS,
        tests=(
            "tests/hostile/test_token_counting.py::test_a_word_without_an_end_disturbs_nobody",
            "tests/hostile/test_token_counting.py::test_a_huge_prompt_whose_answer_is_cut_disturbs_nobody",
            "tests/engine/test_output_limits.py::test_the_work_of_a_token_limit_grows_with_the_text_and_not_with_its_square",
        ),
    ),
    Requirement(
        id="parameters.n",
        sentence="`n` choices are `n` turns that run at the same time, each in its own order.",
        source=CHAT,
        tests=(
            "tests/real/test_parameters.py::test_n_choices_are_n_model_calls_with_one_usage",
            "tests/real/test_parameters.py::test_n_choices_stream_at_once_each_in_its_own_order",
        ),
        divergence="The usage counts the input once for each choice, since each one costs it.",
    ),
    Requirement(
        id="parameters.n.failure",
        sentence="A choice that fails ends the others, and the request fails.",
        source=OURS,
        tests=("tests/real/test_parameters.py::test_one_failed_choice_fails_all",),
    ),
    Requirement(
        id="parameters.verbosity",
        sentence="`verbosity` reaches the model.",
        source=RESPONSES,
        tests=("tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",),
    ),
    Requirement(
        id="parameters.service-tier",
        sentence="`service_tier` reaches the provider.",
        source=RESPONSES,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/api/shared/test_parameters.py::test_service_tiers_are_carried_in_codexs_words",
        ),
        divergence="Codex carries `flex` and `priority` (also called `fast`); others are ignored and named.",
    ),
    Requirement(
        id="parameters.metadata",
        sentence="`metadata`, `user` and `safety_identifier` are echoed, and go to the provider.",
        source=RESPONSES,
        tests=(
            "tests/real/test_parameters.py::test_metadata_and_user_are_echoed_and_carried",
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
        ),
        divergence="They go there in Codex's client metadata, not as the provider's own fields.",
    ),
    Requirement(
        id="parameters.ignored",
        sentence=(
            "`temperature`, `top_p`, penalties, `seed`, `logit_bias`, `prompt_cache_key` and "
            "`max_tool_calls` are accepted, and named in `x-turnbridge-ignored`."
        ),
        source=CHAT,
        tests=(
            "tests/real/test_parameters.py::test_what_cannot_be_met_is_accepted_and_named",
            "tests/api/chat/test_decode.py::test_every_wish_reaches_the_turn_or_is_named_as_ignored",
            "tests/api/responses/test_decode.py::test_every_wish_reaches_the_turn_or_is_named_as_ignored",
        ),
        divergence="They have no effect: Codex has no way to send them to the model.",
    ),
    Requirement(
        id="parameters.unknown",
        sentence="A parameter that nobody knows is accepted, and named in `x-turnbridge-ignored`.",
        source=CLIENTS,
        tests=("tests/real/test_parameters.py::test_what_cannot_be_met_is_accepted_and_named",),
        divergence="OpenAI refuses it; clients add fields faster than they can be listed.",
    ),
    Requirement(
        id="parameters.default-values",
        sentence="A parameter at its default value is met, and neither named nor refused.",
        source=OURS,
        tests=("tests/real/test_parameters.py::test_a_parameter_at_its_default_is_neither_named_nor_refused",),
    ),
    Requirement(
        id="parameters.strict",
        sentence="`PROXY_STRICT_PARAMS=true` makes each ignored parameter a 400 that names it.",
        source=OURS,
        tests=("tests/real/test_parameters.py::test_strict_parameters_refuse_what_would_be_ignored",),
    ),
    Requirement(
        id="parameters.logprobs",
        sentence="Log probabilities and audio are a 400 that names the parameter.",
        source=CHAT,
        tests=(
            "tests/real/test_parameters.py::test_what_would_change_the_answers_meaning_is_refused",
            "tests/api/chat/test_decode.py::test_a_bad_request_is_refused_by_code_and_place",
        ),
        divergence="OpenAI gives them; Codex passes none on, and an answer without them would be another one.",
    ),
    Requirement(
        id="parameters.bounds",
        sentence="A value out of OpenAI's bounds is a 400 in its words, and one on the bounds passes.",
        source=RESPONSES,
        tests=(
            "tests/api/shared/test_parameters.py::test_a_value_out_of_bounds_is_refused_in_openais_words",
            "tests/api/shared/test_parameters.py::test_values_on_the_bounds_pass",
        ),
    ),
    Requirement(
        id="parameters.truncation",
        sentence='`truncation: "auto"` is accepted, and named in `x-turnbridge-ignored`.',
        source=RESPONSES,
        tests=("tests/api/responses/test_decode.py::test_every_wish_reaches_the_turn_or_is_named_as_ignored",),
        divergence="Nothing is left out of the input: Codex could only summarise it, and is kept from that.",
    ),
)

STRUCTURED_ANSWERS = (
    Requirement(
        id="structured.enforced",
        sentence="A strict schema is enforced by the provider, on both routes.",
        source=STRUCTURED,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/codex/protocol/test_encode.py::test_a_turn_carries_every_wish_of_the_clients",
        ),
        divergence="The provider sees the schema under a name of Codex's.",
    ),
    Requirement(
        id="structured.sdks",
        sentence="The SDKs' `parse` gives the parsed object, on both routes, streamed or not.",
        source=STRUCTURED,
        tests=(
            "tests/real/test_structured.py::test_the_sdk_parses_a_response",
            "tests/real/test_structured.py::test_the_sdk_parses_a_chat_completion",
            "tests/real/test_structured.py::test_the_sdk_parses_a_response_stream",
            "tests/real/test_structured.py::test_the_sdk_parses_a_chat_stream",
            "tests/real/test_node.py::test_the_node_sdk_gets_what_it_should",
        ),
    ),
    Requirement(
        id="structured.not-strict",
        sentence="A schema that is not strict is met too.",
        source=STRUCTURED,
        tests=("tests/real/test_structured.py::test_a_schema_that_no_provider_enforces_is_put_into_words",),
        divergence="If it is outside the strict subset, a developer message shows it to the model.",
    ),
    Requirement(
        id="structured.json-object",
        sentence="`json_object` takes any JSON object, if the conversation speaks of JSON.",
        source=STRUCTURED,
        tests=(
            "tests/real/test_structured.py::test_json_mode_takes_any_object_and_repairs_anything_else",
            "tests/real/test_structured.py::test_a_format_that_cannot_be_meant_is_refused",
            "tests/api/shared/test_output_format.py::test_json_that_nobody_speaks_of_is_refused_as_openai_does",
        ),
        divergence="The provider is not asked to enforce it: Codex cannot; the answer is checked instead.",
    ),
    Requirement(
        id="structured.refused-schemas",
        sentence="A schema that OpenAI would refuse is a 400 before Codex is asked.",
        source=STRUCTURED,
        tests=(
            "tests/real/test_structured.py::test_a_schema_that_openai_would_refuse_is_refused_before_the_model_is_asked",
            "tests/api/shared/test_strict_schema.py::test_one_broken_rule_is_refused_with_its_place",
            "tests/api/shared/test_strict_schema.py::test_any_schema_of_the_documented_subset_is_taken",
        ),
    ),
    Requirement(
        id="structured.checked",
        sentence="The final text is validated against the schema; narration is no part of it.",
        source=OURS,
        tests=(
            "tests/engine/test_structured_output.py::test_the_verdict_is_that_of_the_json_schema",
            "tests/real/test_structured.py::test_narration_is_no_part_of_the_answer_that_must_conform",
        ),
    ),
    Requirement(
        id="structured.repair",
        sentence="An answer that does not conform is repaired once, on the same thread; the usage is the sum.",
        source=OURS,
        tests=(
            "tests/real/test_structured.py::test_an_answer_that_does_not_conform_is_repaired_once_on_the_same_thread",
            "tests/engine/test_turns.py::test_however_a_repair_ends_its_usage_has_both_attempts",
        ),
    ),
    Requirement(
        id="structured.failure",
        sentence="An answer that still does not conform is a 422, which no SDK tries again.",
        source=OURS,
        tests=(
            "tests/real/test_structured.py::test_an_answer_that_still_does_not_conform_is_an_error_that_no_sdk_retries",
        ),
        divergence="OpenAI has no such error.",
    ),
    Requirement(
        id="structured.streams",
        sentence="A streamed answer that does not conform ends as failed.",
        source=OURS,
        tests=(
            "tests/real/test_structured.py::test_a_response_stream_that_does_not_conform_ends_as_failed",
            "tests/real/test_structured.py::test_a_chat_stream_that_does_not_conform_ends_in_an_error",
        ),
        divergence="It is not repaired: what a client has read cannot be taken back.",
    ),
    Requirement(
        id="structured.cut-short",
        sentence="An answer that was cut short is incomplete, and neither checked nor repaired.",
        source=STRUCTURED,
        tests=("tests/real/test_structured.py::test_an_answer_cut_short_is_incomplete_and_not_repaired",),
    ),
)
