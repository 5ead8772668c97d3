"""Promises about function calls and other tools."""

from tests.compat.requirement import (
    CHAT,
    CHAT_STREAM,
    CLIENTS,
    FUNCTIONS,
    OURS,
    RESPONSES_STREAM,
    WEB_SEARCH,
    Requirement,
)

TOOLS = (
    Requirement(
        id="tools.declared",
        sentence="Functions are declared flat on Responses and nested on chat; either shape is understood.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tools.py::test_parked_and_replayed_turns_cannot_be_told_apart",
            "tests/api/shared/test_tools.py::test_a_function_may_be_flat_nested_or_legacy",
        ),
    ),
    Requirement(
        id="tools.legacy",
        sentence="The legacy `functions` and `function_call` work, streamed or not.",
        source=CHAT,
        tests=(
            "tests/real/test_tool_choice.py::test_legacy_functions_are_called_in_their_own_words",
            "tests/real/test_tool_choice.py::test_the_legacy_choice_is_met_too",
        ),
    ),
    Requirement(
        id="tools.names",
        sentence="Names that Codex refuses or keeps for itself are changed for it; the client sees only its own.",
        source=CLIENTS,
        tests=(
            "tests/real/test_tools.py::test_however_functions_are_named_every_call_reaches_the_client_under_its_own_name",
            "tests/codex/protocol/test_tools.py::test_every_name_leads_back_to_one_function",
        ),
        divergence="The model sees the changed name: `mcp__x` becomes `client_mcp__x`, a dot an underscore.",
    ),
    Requirement(
        id="tools.schemas",
        sentence="The model is given each description and schema as it was declared; nothing of any schema is lost.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_property.py::test_a_schema_that_codex_can_express_reaches_the_model_as_it_is",
            "tests/real/test_tool_property.py::test_nothing_of_any_schema_is_lost",
            "tests/real/test_tool_property.py::test_what_codex_cannot_express_stands_in_a_description",
        ),
        divergence=(
            "Keywords that Codex's smaller schema language lacks, and schemas that it would cut down, are told in "
            "descriptions instead. Codex puts properties in alphabetical order."
        ),
    ),
    Requirement(
        id="tools.objects",
        sentence="Parameters that say of themselves that they are no object are a 400 in OpenAI's words.",
        source=FUNCTIONS,
        tests=(
            "tests/api/shared/test_tools.py::test_parameters_that_are_no_object_are_refused",
            "tests/real/test_errors.py::test_a_malformed_request_is_told_what_is_wrong_and_where",
        ),
    ),
    Requirement(
        id="tools.batch.together",
        sentence="All calls of one model response leave together, in the model's order, with its `call_id`s.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_choice.py::test_a_strict_call_with_wrong_arguments_is_corrected_before_the_client_sees_it",
            "tests/real/test_tool_edges.py::test_twenty_conversations_at_once_are_never_mixed_up",
        ),
    ),
    Requirement(
        id="tools.batch.responses",
        sentence="A call is an item with `added`, argument deltas that concatenate, `arguments.done` and `item.done`.",
        source=RESPONSES_STREAM,
        tests=(
            "tests/real/test_tools.py::test_a_call_is_streamed_on_responses_as_an_item_whose_argument_deltas_concatenate",
        ),
        divergence="There is one delta: Codex passes a call on when it is whole.",
    ),
    Requirement(
        id="tools.batch.chat",
        sentence="A call's first fragment has its id, type and name, all have its `index`; it ends as `tool_calls`.",
        source=CHAT_STREAM,
        tests=("tests/real/test_tools.py::test_calls_are_streamed_on_chat_with_their_heads_in_the_first_fragments",),
    ),
    Requirement(
        id="tools.batch.text",
        sentence="Text before the calls is kept.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_choice.py::test_a_client_that_runs_one_call_at_a_time_gets_one_and_the_model_hears_of_it",
            "tests/real/test_tool_edges.py::test_twenty_conversations_at_once_are_never_mixed_up",
        ),
    ),
    Requirement(
        id="tools.usage",
        sentence="The usage of a request is that of its own leg of the turn.",
        source=FUNCTIONS,
        tests=("tests/real/test_tools.py::test_usage_is_that_of_each_leg",),
    ),
    Requirement(
        id="tools.parked",
        sentence="The request that brings the outputs resumes the very turn that made the calls, for many rounds.",
        source=OURS,
        tests=("tests/real/test_tools.py::test_parked_and_replayed_turns_cannot_be_told_apart",),
    ),
    Requirement(
        id="tools.parked.any-order",
        sentence="Outputs may come in any order.",
        source=FUNCTIONS,
        tests=("tests/real/test_tool_edges.py::test_outputs_may_come_in_any_order",),
    ),
    Requirement(
        id="tools.parked.between",
        sentence="What concerns only the answer, such as `stream` or a token limit, may change between the legs.",
        source=OURS,
        tests=("tests/real/test_tool_edges.py::test_what_concerns_only_the_answer_may_change_between_the_legs",),
    ),
    Requirement(
        id="tools.parked.rewritten",
        sentence="Arguments that the client writes anew, with other spaces, are still the same call.",
        source=CLIENTS,
        tests=("tests/real/test_tool_edges.py::test_arguments_that_the_client_writes_anew_are_still_the_same_call",),
    ),
    Requirement(
        id="tools.parked.bounded",
        sentence="Turns that wait are bounded in number; the oldest of the key that has most is interrupted.",
        source=OURS,
        tests=(
            "tests/engine/test_parked_turns.py::test_the_oldest_turn_makes_room",
            "tests/hostile/test_fair_shares.py::test_a_client_that_answers_none_of_its_calls_does_not_end_the_turn_of_another",
        ),
    ),
    Requirement(
        id="tools.output.text",
        sentence="An output arrives as it is: empty, an error, 200 KB, any characters.",
        source=FUNCTIONS,
        tests=("tests/real/test_tool_edges.py::test_an_output_arrives_as_it_is",),
    ),
    Requirement(
        id="tools.output.parts",
        sentence="An output may be a list of texts.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_edges.py::test_an_output_may_be_a_list_of_texts",
            "tests/real/test_tool_edges.py::test_a_list_of_one_text_is_that_text_and_an_empty_one_stays",
        ),
        divergence="A list of one text is shown to the model as that text.",
    ),
    Requirement(
        id="tools.output.images",
        sentence="An output may hold images, with their detail; a broken one is a 400.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_edges.py::test_an_output_with_an_image_is_replayed_since_codex_would_change_its_detail",
            "tests/real/test_tool_edges.py::test_a_broken_image_in_an_output_is_refused",
        ),
    ),
    Requirement(
        id="tools.replay",
        sentence="If the turn is gone, the same request is served by replay, and neither end can tell.",
        source=OURS,
        tests=(
            "tests/real/test_tools.py::test_parked_and_replayed_turns_cannot_be_told_apart",
            "tests/real/test_tool_property.py::test_parked_and_replayed_conversations_are_the_same_from_both_ends",
        ),
    ),
    Requirement(
        id="tools.replay.reasoning",
        sentence="The model's reasoning before a call is kept for clients that cannot send it back.",
        source=OURS,
        tests=(
            "tests/real/test_tools.py::test_parked_and_replayed_turns_cannot_be_told_apart",
            "tests/real/test_tool_edges.py::test_thoughts_that_the_client_leaves_out_are_still_there",
        ),
    ),
    Requirement(
        id="tools.replay.killed",
        sentence="A Codex that is killed between the legs changes nothing for the client or the model.",
        source=OURS,
        tests=(
            "tests/real/test_tool_edges.py::test_a_turn_whose_codex_is_killed_between_the_legs_is_replayed_and_nobody_notices",
            "tests/faults/test_killed_codex.py::test_a_turn_that_waited_for_a_tool_in_a_dead_codex_is_replayed",
        ),
    ),
    Requirement(
        id="tools.replay.expired",
        sentence=(
            "A client that does not come back has its turn interrupted after `PROXY_PARKED_TURN_TTL_S`, and is still "
            "served if it comes later."
        ),
        source=OURS,
        tests=(
            "tests/real/test_tool_edges.py::test_a_client_that_never_comes_back_has_its_turn_interrupted_and_may_still_come_later",
        ),
    ),
    Requirement(
        id="tools.replay.unknown-calls",
        sentence="A history with calls that this gateway never made, as after its restart, reaches the model whole.",
        source=OURS,
        tests=("tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",),
    ),
    Requirement(
        id="tools.edited",
        sentence="A history that differs from what was parked, or asks for other settings, is replayed as it is told.",
        source=OURS,
        tests=(
            "tests/real/test_tool_edges.py::test_a_history_that_was_edited_is_replayed_as_the_client_tells_it",
            "tests/real/test_tool_edges.py::test_a_turn_that_is_to_go_on_differently_is_replayed",
        ),
    ),
    Requirement(
        id="tools.mismatch",
        sentence="Missing or unknown `call_id`s are a 400 as OpenAI answers, and the turn still waits.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_edges.py::test_outputs_that_do_not_fit_the_calls_are_refused_and_the_turn_still_waits",
        ),
    ),
    Requirement(
        id="tools.sent-twice",
        sentence="A second leg that is sent twice is answered twice, with the same.",
        source=CLIENTS,
        tests=("tests/real/test_tool_edges.py::test_a_second_leg_that_is_sent_twice_is_answered_twice",),
    ),
    Requirement(
        id="tools.interleaved",
        sentence="Twenty conversations at once are never mixed up.",
        source=OURS,
        tests=("tests/real/test_tool_edges.py::test_twenty_conversations_at_once_are_never_mixed_up",),
    ),
    Requirement(
        id="tools.unfit",
        sentence="A call that no client can serve is answered by Codex; the others of its batch go on.",
        source=OURS,
        tests=(
            "tests/real/test_tools.py::test_a_call_that_no_client_can_serve_is_answered_by_codex_and_hidden",
            "tests/real/test_tools.py::test_a_batch_with_a_call_that_no_client_can_serve_goes_on_with_the_others",
        ),
        divergence="OpenAI passes on arguments that are no JSON; Codex tells the model to call again.",
    ),
    Requirement(
        id="tools.frameworks",
        sentence="Agents of `openai-agents` and LangChain run their tool loops in one turn, on both routes.",
        source=CLIENTS,
        tests=(
            "tests/frameworks/test_openai_agents.py::test_an_agent_runs_its_tool_loop_in_one_turn",
            "tests/frameworks/test_langchain.py::test_an_agent_runs_its_tool_loop_in_one_turn",
        ),
    ),
    Requirement(
        id="tools.broken-off",
        sentence="Whole calls of an answer that then broke off are passed on, and their outputs are taken.",
        source=OURS,
        tests=(
            "tests/real/test_tool_edges.py::test_calls_of_an_answer_that_broke_off_are_passed_on_and_not_waited_for",
        ),
    ),
    Requirement(
        id="tools.choice",
        sentence="`none`, `auto`, `required`, a function and `allowed_tools` decide what the model is given.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_choice.py::test_the_model_is_given_the_functions_that_the_choice_allows",
            "tests/real/test_tool_choice.py::test_the_model_is_given_nothing_if_nothing_may_be_called",
        ),
        divergence="Functions that may not be called are not declared at all: Codex knows only `auto`.",
    ),
    Requirement(
        id="tools.choice.required",
        sentence="A required call that does not come is asked for once more, on the same thread.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_choice.py::test_a_model_that_does_not_call_is_reminded_once_on_the_same_thread",
            "tests/real/test_tool_choice.py::test_a_turn_that_needed_a_reminder_goes_on_parked_or_replayed",
            "tests/real/test_tool_choice.py::test_usage_counts_the_answer_that_had_to_be_corrected",
        ),
        divergence="OpenAI's models are forced to call; here the text of the first attempt is shown too.",
    ),
    Requirement(
        id="tools.choice.failure",
        sentence="If the call still does not come, the request fails with 422 `tool_call_missing`.",
        source=OURS,
        tests=(
            "tests/real/test_tool_choice.py::test_a_model_that_never_calls_ends_in_an_honest_error",
            "tests/real/test_tool_choice.py::test_a_stream_that_has_shown_an_answer_without_a_call_ends_as_failed",
        ),
        divergence="OpenAI has no such error.",
    ),
    Requirement(
        id="tools.parallel-off",
        sentence="`parallel_tool_calls: false` lets one call through, and tells the model that others were not run.",
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_choice.py::test_a_client_that_runs_one_call_at_a_time_gets_one_and_the_model_hears_of_it",
        ),
        divergence="OpenAI keeps the model from making more; Codex always allows them.",
    ),
    Requirement(
        id="tools.strict",
        sentence=(
            "Wrong arguments of a strict function are answered as a failed call, at most twice, before the client "
            "sees anything."
        ),
        source=FUNCTIONS,
        tests=(
            "tests/real/test_tool_choice.py::test_a_strict_call_with_wrong_arguments_is_corrected_before_the_client_sees_it",
            "tests/real/test_tool_choice.py::test_all_calls_of_a_batch_with_a_wrong_one_are_to_be_made_again",
        ),
        divergence="OpenAI keeps the model to the schema; Codex declares every function as not strict.",
    ),
    Requirement(
        id="tools.strict.failure",
        sentence="A strict call that stays wrong is a 422 `invalid_tool_arguments`.",
        source=OURS,
        tests=(
            "tests/real/test_tool_choice.py::test_a_strict_call_that_stays_wrong_fails_and_nothing_of_it_was_shown",
        ),
        divergence="OpenAI has no such error.",
    ),
    Requirement(
        id="tools.strict.schema",
        sentence="The schema of a strict function must be of OpenAI's strict subset, else it is a 400.",
        source=FUNCTIONS,
        tests=("tests/api/shared/test_strict_schema.py::test_the_parameters_of_a_function_are_refused_as_such",),
    ),
    Requirement(
        id="tools.custom",
        sentence="Custom tools are a 400 that names the type and its index, on both routes.",
        source=FUNCTIONS,
        tests=("tests/real/test_tool_choice.py::test_a_tool_that_codex_cannot_carry_is_refused_by_its_place",),
        divergence="OpenAI serves them; Codex has no way for them. Their calls in a history are carried.",
    ),
    Requirement(
        id="tools.hosted",
        sentence="Hosted tools other than web search are a 400 that names the type and its index.",
        source=FUNCTIONS,
        tests=("tests/real/test_tool_choice.py::test_a_tool_that_codex_cannot_carry_is_refused_by_its_place",),
        divergence="OpenAI runs them.",
    ),
    Requirement(
        id="tools.web-search",
        sentence="Web search is switched on with its options, for the thread of this request only.",
        source=WEB_SEARCH,
        tests=(
            "tests/real/test_tool_choice.py::test_web_search_reaches_the_model_with_its_options_for_this_thread_only",
            "tests/real/test_tool_choice.py::test_chat_clients_ask_for_web_search_by_an_option",
        ),
    ),
    Requirement(
        id="tools.web-search.shown",
        sentence="Searches are items and citations annotations; a search before a call stays in the model's memory.",
        source=WEB_SEARCH,
        tests=(
            "tests/real/test_tool_choice.py::test_searches_and_citations_are_shown",
            "tests/real/test_tool_choice.py::test_citations_are_shown_on_chat_too",
            "tests/real/test_tool_choice.py::test_a_search_before_a_call_stays_in_the_models_memory",
        ),
    ),
    Requirement(
        id="tools.mode.direct",
        sentence="In direct mode, a model that Codex ships to write scripts calls functions one by one.",
        source=OURS,
        tests=(
            "tests/compat/test_promises.py::test_a_model_that_codex_ships_to_write_scripts_calls_functions_one_by_one",
        ),
    ),
    Requirement(
        id="tools.mode.native",
        sentence="In native mode, calls from a model's script reach the client as ordinary ones, and are replayed so.",
        source=OURS,
        tests=(
            "tests/real/test_tools.py::test_calls_from_a_models_script_reach_the_client_as_ordinary_ones",
            "tests/real/test_tools.py::test_a_script_whose_turn_is_gone_is_replayed_as_the_calls_that_it_made",
        ),
    ),
    Requirement(
        id="tools.mode.native-at-once",
        sentence="Calls that a script makes at once all reach the client, together or one by one as it wants them.",
        source=OURS,
        tests=(
            "tests/codex/process/test_thread.py::test_calls_that_are_open_at_once_all_reach_the_client_and_are_answered",
            "tests/faults/test_bad_codex.py::test_calls_that_codex_opens_at_once_are_all_told_and_answered",
        ),
    ),
    Requirement(
        id="tools.mode.auto",
        sentence="In auto mode, a model whose direct tools the provider refuses is served natively from then on, "
        "and each answer says what Codex adds in that mode.",
        source=OURS,
        tests=(
            "tests/real/test_tools.py::test_a_model_whose_direct_tools_the_provider_refuses_is_left_native",
            "tests/compat/test_promises.py::test_a_model_that_is_left_native_is_named_in_the_log",
            "tests/compat/test_promises.py::test_a_provider_that_refuses_both_tool_modes_is_heard",
            "tests/real/test_tools.py::test_each_answer_says_what_codex_added_in_the_mode_in_which_it_was_given",
        ),
    ),
)
