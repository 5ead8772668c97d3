"""Promises about what is kept: responses, conversations, chat completions, and who gets at them."""

from tests.compat.requirement import (
    BACKGROUND,
    CHAT,
    CLIENTS,
    CONVERSATIONS,
    OURS,
    REASONING,
    RESPONSES,
    STATE_GUIDE,
    Requirement,
)

CONTINUED = "tests/real/test_state_responses.py"
READ = "tests/real/test_state_reading.py"
KEPT = "tests/real/test_state_keeping.py"
MADE_LATER = "tests/real/test_state_background.py"
TALKS = "tests/real/test_state_conversations.py"
CHATS = "tests/real/test_state_chats.py"
KILLED = "tests/faults/test_killed_gateway.py"
KILLED_CODEX = "tests/faults/test_killed_codex.py"
AWAY = "tests/faults/test_store_away.py"

STATE = (
    Requirement(
        id="state.stored",
        sentence="A response is kept unless `store` is false, and is read again as it was.",
        source=RESPONSES,
        tests=(
            f"{READ}::test_a_response_is_kept_by_default_and_read_again_as_it_was",
            f"{READ}::test_a_streamed_response_is_read_again_as_its_last_event_told_it",
        ),
        divergence="The answer's `store` is false if it could not be kept.",
    ),
    Requirement(
        id="state.continued",
        sentence="`previous_response_id` continues any earlier response, so that conversations branch.",
        source=STATE_GUIDE,
        tests=(
            f"{CONTINUED}::test_a_conversation_goes_on_from_any_response_and_branches",
            f"{CONTINUED}::test_a_continued_request_is_the_one_that_the_whole_conversation_would_have_made",
            f"{CONTINUED}::test_a_response_may_be_continued_without_any_input",
        ),
    ),
    Requirement(
        id="state.instructions",
        sentence="Instructions of an earlier response do not carry over.",
        source=RESPONSES,
        tests=(f"{CONTINUED}::test_instructions_do_not_carry_over",),
    ),
    Requirement(
        id="state.tools",
        sentence="Outputs with `previous_response_id` go on in the turn that waits for them.",
        source=STATE_GUIDE,
        tests=(
            f"{CONTINUED}::test_outputs_of_calls_resume_the_turn_that_waits_for_them",
            f"{CONTINUED}::test_other_outputs_for_the_same_call_are_a_branch",
            f"{CONTINUED}::test_a_call_without_its_output_is_not_continued",
        ),
    ),
    Requirement(
        id="state.reasoning",
        sentence="What the model thought is part of what is continued, also if the client never saw its content.",
        source=REASONING,
        tests=(
            f"{CONTINUED}::test_a_conversation_goes_on_from_any_response_and_branches",
            f"{CONTINUED}::test_thoughts_that_come_back_without_their_content_get_it_again",
            f"{CONTINUED}::test_thoughts_around_calls_are_put_back_for_chat_clients_after_a_restart",
        ),
    ),
    Requirement(
        id="state.restart",
        sentence="All of this outlives a restart of the gateway and of Codex.",
        source=OURS,
        tests=(
            f"{CONTINUED}::test_a_conversation_goes_on_after_a_restart_of_gateway_and_codex",
            f"{TALKS}::test_a_conversation_goes_on_after_a_restart",
            f"{CHATS}::test_completions_outlive_a_restart",
        ),
    ),
    Requirement(
        id="state.input-items",
        sentence="`input_items` lists what a response was made from, in pages and in both orders.",
        source=RESPONSES,
        tests=(
            f"{READ}::test_what_a_response_was_made_from_is_listed_page_by_page",
            f"{READ}::test_a_page_that_cannot_be_is_refused",
        ),
        divergence="It lists the whole context, with what `previous_response_id` or a conversation brought.",
    ),
    Requirement(
        id="state.include",
        sentence="Encrypted reasoning is shown again to those who ask for it with `include`.",
        source=RESPONSES,
        tests=(f"{READ}::test_encrypted_reasoning_is_shown_again_only_to_those_who_ask",),
    ),
    Requirement(
        id="state.deleted",
        sentence="A deleted response is gone, and those that continue it stay whole.",
        source=RESPONSES,
        tests=(
            f"{READ}::test_a_deleted_response_is_gone_and_those_after_it_stay",
            f"{KEPT}::test_what_was_deleted_leaves_no_trace_once_the_gateway_has_ended",
        ),
    ),
    Requirement(
        id="state.errors",
        sentence="What is not there, or does not go together, is refused in OpenAI's words before the model is asked.",
        source=RESPONSES,
        tests=(f"{READ}::test_what_cannot_be_continued_is_refused_before_the_model_is_asked",),
    ),
    Requirement(
        id="state.keys",
        sentence="To another key, nothing of it exists.",
        source=OURS,
        tests=(
            f"{READ}::test_another_key_finds_nothing",
            f"{TALKS}::test_another_key_finds_nothing",
            f"{CHATS}::test_another_key_finds_nothing",
            f"{MADE_LATER}::test_only_its_own_key_reads_or_cancels_it",
        ),
    ),
    Requirement(
        id="state.no-trace",
        sentence="What is not to be kept leaves no trace on disk; keys are written nowhere.",
        source=OURS,
        tests=(
            f"{KEPT}::test_what_is_not_to_be_kept_leaves_no_trace_on_disk",
            f"{KEPT}::test_no_key_is_written_to_disk",
        ),
    ),
    Requirement(
        id="state.retention",
        sentence="What is older than `PROXY_STORE_TTL_DAYS`, or does not fit into `PROXY_STORE_MAX_MB`, is removed.",
        source=OURS,
        tests=(f"{KEPT}::test_what_is_too_old_is_removed", f"{KEPT}::test_the_oldest_make_room_for_the_rest"),
    ),
    Requirement(
        id="state.retention.fair",
        sentence="No key evicts what another has stored: the one that uses most loses its oldest.",
        source=OURS,
        tests=(
            "tests/store/test_retention.py::test_whoever_keeps_most_loses_its_oldest_and_nobody_else_anything",
            "tests/hostile/test_fair_shares.py::test_a_client_that_fills_the_store_does_not_evict_what_another_has_kept",
        ),
    ),
    Requirement(
        id="state.off",
        sentence="`PROXY_STORE_TTL_DAYS=0` keeps nothing: requests are answered, and those that need it are told.",
        source=OURS,
        tests=(
            f"{KEPT}::test_a_gateway_that_keeps_nothing_answers_and_says_so",
            f"{KEPT}::test_a_gateway_that_keeps_nothing_refuses_what_needs_it",
            f"{KEPT}::test_a_gateway_that_keeps_nothing_has_no_file_for_it",
        ),
    ),
    Requirement(
        id="state.broken-store",
        sentence="A store that fails costs nobody an answer: it says `store: false`, and the log says why.",
        source=OURS,
        tests=(
            f"{KEPT}::test_a_store_that_fails_costs_nobody_an_answer",
            f"{KEPT}::test_a_store_that_fails_costs_no_chat_an_answer",
            f"{KEPT}::test_clients_that_keep_their_own_history_need_no_store",
        ),
    ),
    Requirement(
        id="state.hanging-store",
        sentence="A store that hangs delays one answer by two seconds, and no other; what needs it is a 503 at once.",
        source=OURS,
        tests=(
            f"{AWAY}::test_answers_that_are_ready_leave_without_a_store_that_hangs",
            f"{AWAY}::test_many_answers_at_once_leave_within_the_time_of_one",
            f"{AWAY}::test_what_needs_the_store_is_refused_while_it_hangs",
            f"{AWAY}::test_a_gateway_ends_while_its_store_hangs",
        ),
    ),
    Requirement(
        id="state.killed",
        sentence="Whenever the gateway is killed, every answer that was read is kept, and none is half there.",
        source=OURS,
        tests=(f"{KILLED}::test_every_answer_that_was_read_is_kept_and_none_is_half_there",),
    ),
    Requirement(
        id="state.failed",
        sentence="A stream that failed is kept as failed, and what was whole of it is continued.",
        source=RESPONSES,
        tests=(
            f"{READ}::test_an_answer_that_fails_in_its_stream_is_kept_as_failed_without_its_half",
            f"{READ}::test_an_answer_that_was_cut_off_is_kept_and_continued_as_far_as_it_went",
        ),
    ),
    Requirement(
        id="state.background.polled",
        sentence="`background: true` answers at once; the response is found by polling, and once its end is told, "
        "it may be continued.",
        source=BACKGROUND,
        tests=(
            f"{MADE_LATER}::test_a_response_is_made_while_nobody_waits_and_found_by_polling",
            f"{MADE_LATER}::test_it_is_continued_like_any_other",
            f"{MADE_LATER}::test_whoever_hears_of_its_end_can_continue_it_at_once",
            f"{MADE_LATER}::test_a_turn_that_fails_is_kept_as_failed",
        ),
    ),
    Requirement(
        id="state.background.streamed",
        sentence="Its stream can be read by many, at any time, from any event on (`starting_after`).",
        source=BACKGROUND,
        tests=(
            f"{MADE_LATER}::test_it_is_streamed_to_whoever_starts_it",
            f"{MADE_LATER}::test_its_stream_can_be_read_again_from_any_event_on",
            f"{MADE_LATER}::test_a_stream_that_broke_off_goes_on_over_another_connection",
            f"{MADE_LATER}::test_several_readers_read_the_same",
            f"{READ}::test_only_responses_made_in_the_background_are_streamed_again_or_cancelled",
        ),
        divergence="While it is made, only the gateway that makes it has the stream.",
    ),
    Requirement(
        id="state.background.cancelled",
        sentence="It is cancelled as often as one likes; one that has ended stays as it is.",
        source=BACKGROUND,
        tests=(
            f"{MADE_LATER}::test_it_is_cancelled_as_often_as_one_likes",
            f"{MADE_LATER}::test_one_that_has_ended_is_not_changed_by_a_cancel",
            f"{MADE_LATER}::test_those_that_wait_for_their_turn_are_queued_and_may_be_cancelled",
            f"{MADE_LATER}::test_one_that_is_deleted_while_it_runs_is_ended_and_gone",
        ),
        divergence="Its stream ends in `response.incomplete` with the status `cancelled` inside.",
    ),
    Requirement(
        id="state.background.lost",
        sentence="One whose gateway was stopped or killed has failed, and says why.",
        source=OURS,
        tests=(
            f"{KILLED}::test_a_response_in_the_background_has_failed_after_its_gateway_was_killed",
            f"{MADE_LATER}::test_those_of_a_gateway_that_is_gone_have_failed_once_their_lease_is_over",
            f"{MADE_LATER}::test_those_that_run_when_the_gateway_is_stopped_have_failed_and_say_why",
        ),
    ),
    Requirement(
        id="state.background.one-end",
        sentence="One that ends while the store is away is kept when it is back; nobody hears of two ends.",
        source=OURS,
        tests=(
            f"{AWAY}::test_a_response_that_ends_while_the_store_is_away_ends_so_for_everybody",
            f"{AWAY}::test_a_response_that_outlived_its_lease_is_told_when_the_store_is_back",
            "tests/api/responses/test_background.py::test_a_run_that_somebody_else_has_ended_is_told_as_they_did",
        ),
    ),
    Requirement(
        id="state.conversations",
        sentence="Conversations and their items are created, read, listed, changed and deleted.",
        source=CONVERSATIONS,
        tests=(
            f"{TALKS}::test_a_conversation_is_created_read_changed_and_deleted",
            f"{TALKS}::test_items_are_added_listed_read_and_deleted",
            f"{TALKS}::test_every_kind_of_item_is_listed_as_the_sdk_knows_it",
            f"{TALKS}::test_what_cannot_be_kept_is_refused",
        ),
        divergence="An item that is deleted disappears from every history that shares it.",
    ),
    Requirement(
        id="state.conversation",
        sentence="A response with `conversation` sees its items, and is added to them.",
        source=CONVERSATIONS,
        tests=(
            f"{TALKS}::test_responses_are_added_to_their_conversation",
            f"{TALKS}::test_calls_in_a_conversation_are_answered_in_their_turn",
            f"{TALKS}::test_a_response_of_a_conversation_can_be_continued_beside_it",
            f"{TALKS}::test_two_responses_at_once_each_see_what_was_there_when_they_began",
            f"{TALKS}::test_a_response_in_the_background_is_added_to_its_conversation_at_its_end",
            f"{TALKS}::test_a_response_that_was_cut_off_is_added_as_far_as_it_went",
        ),
    ),
    Requirement(
        id="state.conversation.failed",
        sentence="A response that failed or was cancelled leaves nothing in its conversation, streamed or not.",
        source=CONVERSATIONS,
        tests=(
            f"{TALKS}::test_a_response_that_fails_leaves_nothing_in_its_conversation",
            f"{TALKS}::test_a_response_that_is_cancelled_leaves_nothing_in_its_conversation",
            f"{KILLED_CODEX}::test_a_response_that_a_death_ends_leaves_nothing_in_its_conversation",
        ),
    ),
    Requirement(
        id="state.chats",
        sentence="Chat completions with `store: true` are listed, filtered, read, updated, deleted, with messages.",
        source=CHAT,
        tests=(
            f"{CHATS}::test_a_completion_is_kept_on_request_only",
            f"{CHATS}::test_completions_are_listed_page_by_page_and_filtered",
            f"{CHATS}::test_a_completions_metadata_is_replaced",
            f"{CHATS}::test_a_completion_is_deleted",
            f"{CHATS}::test_the_messages_of_a_completion_are_listed",
        ),
    ),
    Requirement(
        id="state.sdks",
        sentence="The state calls of the official SDKs for Python and node work unchanged.",
        source=CLIENTS,
        tests=(
            f"{READ}::test_a_response_is_kept_by_default_and_read_again_as_it_was",
            f"{TALKS}::test_items_are_added_listed_read_and_deleted",
            f"{CHATS}::test_completions_are_listed_page_by_page_and_filtered",
            "tests/real/test_node_state.py::test_the_node_sdk_keeps_its_conversations_here",
        ),
    ),
)
