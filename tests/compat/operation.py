"""Promises about what is kept, what is bounded, and what happens when something breaks or ends."""

from tests.compat.requirement import (
    CLIENTS,
    OURS,
    RATE_LIMITS,
    Requirement,
)

THREADS = (
    Requirement(
        id="threads.warm",
        sentence="A conversation that only grows goes on in its thread, so that the provider's cache stays warm.",
        source=OURS,
        tests=(
            "tests/real/test_warm_threads.py::test_a_chat_of_ten_turns_stays_on_one_thread",
            "tests/real/test_warm_threads.py::test_streams_and_responses_stay_on_their_thread_too",
            "tests/real/test_warm_threads.py::test_a_conversation_with_calls_goes_on_warm_after_them",
            "tests/real/test_state_responses.py::test_a_conversation_goes_on_from_any_response_and_branches",
        ),
    ),
    Requirement(
        id="threads.same",
        sentence="The model sees on a warm thread what it would see on a replay.",
        source=OURS,
        tests=("tests/real/test_warm_property.py::test_the_model_sees_on_a_warm_thread_what_it_would_see_on_a_replay",),
        divergence="A thread also has the thoughts and narration that a chat client cannot give back.",
    ),
    Requirement(
        id="threads.told",
        sentence="`x-turnbridge-thread` says how a request was served: `fresh`, `warm`, `parked` or `replayed`.",
        source=OURS,
        tests=(
            "tests/real/test_warm_threads.py::test_a_chat_of_ten_turns_stays_on_one_thread",
            "tests/real/test_warm_threads.py::test_a_conversation_with_calls_goes_on_warm_after_them",
            "tests/real/test_warm_threads.py::test_any_other_history_is_replayed_on_a_thread_of_its_own",
        ),
    ),
    Requirement(
        id="threads.edited",
        sentence="Any other history, and one that asks for other settings, is replayed on a thread of its own.",
        source=OURS,
        tests=(
            "tests/real/test_warm_threads.py::test_any_other_history_is_replayed_on_a_thread_of_its_own",
            "tests/real/test_warm_threads.py::test_other_settings_do_not_go_on_in_a_thread",
        ),
    ),
    Requirement(
        id="threads.alone",
        sentence="Two requests never share a thread.",
        source=OURS,
        tests=("tests/real/test_warm_threads.py::test_two_requests_never_share_a_thread",),
    ),
    Requirement(
        id="threads.cut-off",
        sentence="A thread whose answer was cut off is not kept.",
        source=OURS,
        tests=("tests/real/test_warm_threads.py::test_a_thread_that_was_cut_off_is_not_kept",),
    ),
    Requirement(
        id="threads.keys",
        sentence="A thread belongs to the key that began it.",
        source=OURS,
        tests=("tests/real/test_warm_threads.py::test_another_key_never_gets_a_thread",),
    ),
    Requirement(
        id="threads.warm.fair",
        sentence="No key cools the threads of another: the one that keeps most loses its oldest.",
        source=OURS,
        tests=(
            "tests/hostile/test_fair_shares.py::test_a_client_that_keeps_many_threads_does_not_cool_those_of_another",
        ),
    ),
)

LIMITS = (
    Requirement(
        id="limits.turns",
        sentence="At most `PROXY_MAX_TURNS` run at once; further requests wait, and nothing is lost or starved.",
        source=OURS,
        tests=(
            "tests/engine/test_admission.py::test_whoever_finds_room_enters_and_the_next_one_waits_until_somebody_ends",
            "tests/engine/test_admission.py::test_whatever_comes_and_goes_the_bounds_hold_and_nothing_is_lost",
        ),
    ),
    Requirement(
        id="limits.fair",
        sentence="Keys enter in rotation, however many requests each one has waiting.",
        source=OURS,
        tests=("tests/engine/test_admission.py::test_clients_enter_in_rotation_however_many_requests_each_one_has",),
    ),
    Requirement(
        id="limits.queue",
        sentence="A full queue is a 429 and too long a wait a 503, both with `Retry-After`.",
        source=OURS,
        tests=(
            "tests/real/test_limits_and_time.py::test_who_finds_a_full_queue_is_told_to_come_back_and_who_waits_is_told_how_long",
            "tests/real/test_limits_and_time.py::test_who_waits_too_long_is_told_to_come_back_and_the_others_go_on",
        ),
    ),
    Requirement(
        id="limits.queue.fair",
        sentence="No key keeps another from its turns: the one that holds most of a full queue gets the 429.",
        source=OURS,
        tests=(
            "tests/hostile/test_fair_shares.py::test_a_client_that_fills_the_queue_does_not_keep_another_waiting",
            "tests/engine/test_admission.py::test_a_full_queue_refuses_the_newest_request_of_the_client_that_holds_most",
            "tests/engine/test_admission.py::test_of_several_clients_none_runs_all_turns",
        ),
    ),
    Requirement(
        id="limits.queue.size",
        sentence="Requests that wait are bounded in size, too.",
        source=OURS,
        tests=("tests/engine/test_admission.py::test_requests_that_wait_are_bounded_in_size",),
    ),
    Requirement(
        id="limits.memory",
        sentence="Nothing of a request stays in the gateway's memory when it is over, however it ended.",
        source=OURS,
        tests=(
            "tests/real/test_freed_requests.py::test_nothing_of_a_finished_request_is_left",
            "tests/real/test_freed_requests.py::test_nothing_is_left_of_a_request_whose_client_left",
            "tests/real/test_freed_requests.py::test_nothing_is_left_of_the_rounds_of_a_conversation",
            "tests/real/test_freed_requests.py::test_a_codex_that_was_killed_is_freed_with_the_request_that_it_ran",
            "tests/hostile/test_memory.py::test_the_gateway_does_not_grow_with_what_it_is_sent",
        ),
    ),
    Requirement(
        id="limits.queue.told",
        sentence="`x-turnbridge-queued-ms` says how long a request waited for its turn.",
        source=OURS,
        tests=(
            "tests/real/test_limits_and_time.py::test_who_finds_a_full_queue_is_told_to_come_back_and_who_waits_is_told_how_long",
        ),
    ),
    Requirement(
        id="limits.key-turns",
        sentence="A key may have `PROXY_KEY_MAX_TURNS` at once; others are not disturbed.",
        source=OURS,
        tests=(
            "tests/engine/test_admission.py::test_a_client_may_have_so_many_turns_running_or_waiting_and_others_are_not_disturbed",
            "tests/real/test_idempotency.py::test_a_key_that_goes_too_far_is_told_so_as_the_sdk_understands_it",
        ),
    ),
    Requirement(
        id="limits.body",
        sentence=(
            "No body of up to 16 MB, whatever it holds, keeps another client's `/healthz` waiting longer than 250 ms; "
            "one with more values, items, parts or tools than any client sends is a 400."
        ),
        source=OURS,
        tests=(
            "tests/hostile/test_big_bodies.py::test_no_body_keeps_others_waiting",
            "tests/api/shared/test_body_budget.py::test_what_nobody_sends_is_refused",
        ),
    ),
    Requirement(
        id="limits.schemas",
        sentence=(
            "A schema that takes too long to compile is a 400, and an answer that takes too long to check a 422; "
            "neither keeps other clients waiting."
        ),
        source=OURS,
        tests=(
            "tests/hostile/test_schemas.py::test_the_schema_of_an_answer_keeps_nobody_waiting",
            "tests/hostile/test_schemas.py::test_the_schemas_of_tools_keep_nobody_waiting",
            "tests/offload/test_schemas.py::test_what_takes_too_long_is_the_schemas_fault",
        ),
    ),
    Requirement(
        id="limits.rate",
        sentence="`PROXY_RATE_LIMIT` bounds the requests of each key; one too many is a 429 with `Retry-After`.",
        source=RATE_LIMITS,
        tests=(
            "tests/web/middleware/test_rate_limit.py::test_every_answer_tells_what_remains_and_one_too_many_is_told_when_to_come_back",
            "tests/web/middleware/test_rate_limit.py::test_each_key_has_limits_of_its_own",
            "tests/real/test_idempotency.py::test_a_key_that_goes_too_far_is_told_so_as_the_sdk_understands_it",
            "tests/web/middleware/test_rate_limit.py::test_requests_at_the_same_time_get_no_more_than_the_limit",
        ),
    ),
    Requirement(
        id="limits.rate.headers",
        sentence="Each answer has OpenAI's `x-ratelimit-*` headers for requests.",
        source=RATE_LIMITS,
        tests=(
            "tests/web/middleware/test_rate_limit.py::test_every_answer_tells_what_remains_and_one_too_many_is_told_when_to_come_back",
            "tests/web/middleware/test_rate_limit.py::test_a_duration_is_written_as_openai_does",
        ),
        divergence="Tokens are not limited here, so there are no such headers for them.",
    ),
    Requirement(
        id="limits.rate.shared",
        sentence="Replicas that share a Redis count together; one that cannot reach it counts alone.",
        source=OURS,
        tests=(
            "tests/web/middleware/test_rate_limit.py::test_replicas_that_share_a_redis_count_together",
            "tests/web/middleware/test_rate_limit.py::test_a_replica_counts_alone_while_it_cannot_reach_the_redis",
            "tests/web/middleware/test_rate_limit.py::test_a_redis_that_does_not_answer_holds_nobody_up",
        ),
    ),
    Requirement(
        id="limits.time",
        sentence="A turn that is silent or goes on for too long is interrupted and fails with 504 `turn_timeout`.",
        source=OURS,
        tests=(
            "tests/real/test_limits_and_time.py::test_a_turn_whose_time_is_up_is_interrupted_and_its_client_told_once",
            "tests/real/test_limits_and_time.py::test_the_error_says_which_time_is_up",
            "tests/real/test_limits_and_time.py::test_every_word_of_the_model_gives_it_more_time",
        ),
    ),
    Requirement(
        id="limits.time.connect",
        sentence=(
            "A provider that fails or cannot be reached is told as 502, 503 or 429 within seconds, streamed or not; "
            "a shorter outage is ridden out. `PROXY_CONNECT_TIMEOUT_MS` bounds Codex's retries."
        ),
        source=OURS,
        tests=(
            "tests/faults/test_failing_provider.py::test_every_way_of_failing_is_a_status_though_codex_would_retry",
            "tests/faults/test_failing_provider.py::test_by_default_a_dead_provider_is_told_soon_whatever_its_transport",
            "tests/faults/test_failing_provider.py::test_a_short_outage_is_ridden_out_however_long_the_model_then_thinks",
            "tests/faults/test_failing_provider.py::test_neither_headers_nor_blanks_are_sent_while_codex_retries",
        ),
    ),
    Requirement(
        id="limits.time.tools",
        sentence="The time that a client takes for its tools does not count.",
        source=OURS,
        tests=("tests/real/test_limits_and_time.py::test_the_time_that_a_client_takes_for_its_tools_does_not_count",),
    ),
    Requirement(
        id="limits.keepalive",
        sentence=(
            "While the model is silent, a stream shows a sign of life: on chat a comment, on Responses "
            "`response.in_progress`."
        ),
        source=CLIENTS,
        tests=(
            "tests/real/test_keepalive.py::test_a_chat_stream_has_comments_while_the_model_is_silent_and_none_after",
            "tests/real/test_keepalive.py::test_a_response_stream_has_data_while_the_model_is_silent_and_stays_in_order",
            "tests/real/test_keepalive.py::test_a_stream_has_no_signs_of_life_while_the_model_speaks",
        ),
        divergence="OpenAI sends `response.in_progress` once.",
    ),
    Requirement(
        id="limits.keepalive.whole",
        sentence="A whole answer that takes long begins with blanks once the model has begun, and is valid JSON.",
        source=CLIENTS,
        tests=(
            "tests/real/test_keepalive.py::test_a_whole_answer_that_takes_long_begins_with_blanks_and_is_valid_json",
            "tests/real/test_keepalive.py::test_a_whole_answer_has_no_blanks_before_the_model_has_said_anything",
            "tests/real/test_keepalive.py::test_the_official_client_does_not_notice_signs_of_life_in_a_chat",
            "tests/real/test_keepalive.py::test_a_whole_answer_that_fails_after_its_first_blank_is_broken_off_and_never_a_good_one",
        ),
        divergence="A failure after the first blank breaks the connection off: its status has been sent.",
    ),
    Requirement(
        id="limits.keepalive.off",
        sentence="`x-no-keepalive: 1` switches the signs of life off.",
        source=OURS,
        tests=("tests/real/test_keepalive.py::test_a_client_that_wants_no_signs_of_life_gets_none",),
    ),
    Requirement(
        id="limits.slow-readers",
        sentence="A client that stops reading holds back only its own turn; memory stays bounded, then the turn ends.",
        source=OURS,
        tests=(
            "tests/faults/test_slow_readers.py::test_a_turn_that_nobody_reads_is_interrupted_and_logged",
            "tests/faults/test_slow_readers.py::test_the_memory_for_an_answer_that_nobody_reads_is_bounded",
        ),
    ),
    Requirement(
        id="limits.silent-clients",
        sentence="A client that stops asking or reading half-way holds nothing for ever: 408 for a body, else closed.",
        source=OURS,
        tests=(
            "tests/web/server/test_silent_clients.py::test_a_body_that_stops_coming_is_told_so_and_its_connection_closed",
            "tests/web/server/test_silent_clients.py::test_a_body_that_comes_slowly_may_take_as_long_as_it_likes",
            "tests/web/server/test_silent_clients.py::test_a_connection_on_which_no_whole_request_comes_is_closed",
            "tests/web/server/test_unread_answers.py::test_who_takes_nothing_of_an_answer_any_more_is_given_up",
        ),
    ),
    Requirement(
        id="limits.idempotency",
        sentence="A repeat under the same `Idempotency-Key` gets the stored answer, or joins the running one.",
        source=OURS,
        tests=(
            "tests/real/test_idempotency.py::test_a_repeat_gets_the_very_same_answer_and_the_model_is_asked_once",
            "tests/real/test_idempotency.py::test_a_client_whose_connection_broke_joins_the_stream_from_its_beginning",
            "tests/real/test_idempotency.py::test_the_turn_is_interrupted_when_the_last_client_leaves",
        ),
    ),
    Requirement(
        id="limits.idempotency.other-body",
        sentence="Another body under the same key is a 400; a failure is not kept.",
        source=OURS,
        tests=(
            "tests/web/middleware/test_idempotency.py::test_another_body_under_the_same_key_is_refused",
            "tests/web/middleware/test_idempotency.py::test_what_failed_is_not_kept",
        ),
    ),
)

FAULTS = (
    Requirement(
        id="faults.leaving",
        sentence="A client that leaves, at whatever stage, interrupts its turn in Codex.",
        source=OURS,
        tests=(
            "tests/real/test_leaving.py::test_a_client_that_leaves_while_it_waits_interrupts_its_turn",
            "tests/real/test_leaving.py::test_a_client_that_leaves_between_two_pieces_of_a_chat_interrupts_every_choice",
            "tests/real/test_leaving.py::test_a_client_that_leaves_during_a_repair_interrupts_it",
            "tests/real/test_leaving.py::test_clients_that_leave_before_their_turn_has_begun_leave_nothing_behind",
            "tests/faults/test_leaving_clients.py::test_a_client_that_leaves_after_so_many_events_leaves_nothing_behind",
        ),
    ),
    Requirement(
        id="faults.death.unseen",
        sentence="A turn whose Codex dies before its client has seen anything runs once more, elsewhere, unseen.",
        source=OURS,
        tests=(
            "tests/faults/test_killed_codex.py::test_a_turn_without_output_is_run_again_unseen",
            "tests/faults/test_killed_codex.py::test_a_request_that_meets_a_codex_just_dead_is_served_by_another",
            "tests/faults/test_bad_codex.py::test_a_turn_that_kills_every_app_server_is_tried_twice_and_no_more",
        ),
    ),
    Requirement(
        id="faults.death.told",
        sentence="A stream that has begun ends with one typed error at once; turns beside it go on.",
        source=OURS,
        tests=("tests/faults/test_killed_codex.py::test_a_stream_that_has_begun_hears_of_the_death_once_and_at_once",),
    ),
    Requirement(
        id="faults.hung",
        sentence="A Codex that hangs is treated as dead.",
        source=OURS,
        tests=(
            "tests/faults/test_bad_start.py::test_an_app_server_that_answers_the_probe_badly_is_alive_and_one_that_hangs_is_still_noticed",
            "tests/faults/test_killed_codex.py::test_a_turn_without_output_is_run_again_unseen",
            "tests/faults/test_killed_codex.py::test_a_turn_that_waited_for_a_tool_in_a_dead_codex_is_replayed",
        ),
    ),
    Requirement(
        id="faults.unanswered",
        sentence=(
            "A Codex that does not answer a call within `WORKER_REQUEST_TIMEOUT_MS` is replaced, and the turn run "
            "again; other turns in it come to their end."
        ),
        source=OURS,
        tests=(
            "tests/faults/test_bad_codex.py::test_an_app_server_that_leaves_a_call_unanswered_is_replaced_and_ends_its_other_turns",
            "tests/faults/test_bad_codex.py::test_what_ends_a_turn_ends_it_once_and_is_made_good_if_its_client_has_seen_nothing",
        ),
    ),
    Requirement(
        id="faults.internal-error",
        sentence="An internal error of Codex's is retried once, and then 503 `backend_unavailable`.",
        source=OURS,
        tests=(
            "tests/faults/test_bad_codex.py::test_an_internal_error_of_codex_is_the_servers_fault",
            "tests/codex/protocol/test_errors.py::test_a_defect_of_codex_is_no_fault_of_the_prompt",
        ),
    ),
    Requirement(
        id="faults.data-removed",
        sentence="A data directory that is removed is made again, or `/readyz` and a 503 say why it cannot be.",
        source=OURS,
        tests=(
            "tests/faults/test_removed_data.py::test_a_home_that_was_removed_is_made_again_for_the_next_request",
            "tests/faults/test_removed_data.py::test_a_home_that_cannot_be_made_again_is_told_until_it_can",
        ),
    ),
    Requirement(
        id="faults.garbage",
        sentence="Garbage, half lines, 50 MB lines, wrong ids and unknown notifications of Codex's harm no turn.",
        source=OURS,
        tests=(
            "tests/faults/test_bad_codex.py::test_what_concerns_no_turn_harms_none",
            "tests/codex/process/test_connection.py::test_a_line_that_cannot_be_read_is_counted_and_harms_nothing",
        ),
    ),
    Requirement(
        id="faults.one-ending",
        sentence="Whatever ends a turn ends it once, disturbs no other, and leaves no process, descriptor or task.",
        source=OURS,
        tests=(
            "tests/faults/test_bad_codex.py::test_what_ends_a_turn_ends_it_once_and_is_made_good_if_its_client_has_seen_nothing",
        ),
    ),
    Requirement(
        id="faults.start",
        sentence="A Codex that cannot be started is told by `/readyz` and a 503, and tried again until it can be.",
        source=OURS,
        tests=(
            "tests/faults/test_bad_start.py::test_a_start_that_fails_is_told_and_made_good_as_soon_as_it_can_be",
            "tests/test_bootstrap.py::test_a_codex_that_cannot_be_started_is_named_by_readiness_and_to_clients",
        ),
    ),
    Requirement(
        id="faults.backoff",
        sentence="What keeps dying is started less and less often, and never given up.",
        source=OURS,
        tests=(
            "tests/codex/process/test_pool.py::test_what_cannot_be_started_is_tried_less_and_less_often",
            "tests/codex/process/test_pool.py::test_what_dies_before_it_can_serve_is_started_less_and_less_often",
        ),
    ),
    Requirement(
        id="faults.reserve",
        sentence="A Codex in reserve takes the place of one that died, at once.",
        source=OURS,
        tests=(
            "tests/codex/process/test_pool.py::test_a_crash_is_made_good_by_the_reserve_and_the_reserve_by_a_new_start",
        ),
    ),
    Requirement(
        id="faults.recycling",
        sentence="A Codex past its `WORKER_MAX_THREADS`, age or memory is replaced; its turns finish or are replayed.",
        source=OURS,
        tests=(
            "tests/real/test_recycling.py::test_sixty_turns_in_a_row_are_served_while_app_servers_are_replaced",
            "tests/real/test_recycling.py::test_a_turn_that_runs_on_a_replaced_app_server_is_finished_there",
            "tests/real/test_recycling.py::test_a_turn_that_waits_for_its_client_on_a_replaced_app_server_is_served",
            "tests/real/test_recycling.py::test_a_conversation_whose_thread_was_kept_on_a_replaced_app_server_goes_on_by_a_replay",
            "tests/codex/process/test_pool.py::test_an_app_server_that_has_had_its_threads_is_replaced_and_ends",
            "tests/codex/process/test_pool.py::test_an_app_server_that_has_grown_too_old_or_too_large_is_replaced_when_it_is_next_looked_at",
        ),
    ),
    Requirement(
        id="faults.signals",
        sentence="SIGTERM and SIGINT end everything cleanly, also while Codex starts or hangs.",
        source=OURS,
        tests=(
            "tests/cli/test_serve.py::test_a_signal_ends_everything_cleanly",
            "tests/cli/test_serve.py::test_a_codex_that_hangs_does_not_outlive_the_gateway",
        ),
    ),
    Requirement(
        id="faults.orphans",
        sentence="However the gateway ends, SIGKILL included, no Codex survives it, nor anything that it has started.",
        source=OURS,
        tests=(
            "tests/faults/test_shutdown.py::test_no_codex_survives_a_gateway_that_is_killed",
            "tests/faults/test_shutdown.py::test_no_codex_survives_a_gateway_that_is_killed_as_it_starts",
            "tests/faults/test_orphans.py::test_nothing_of_codex_survives_the_gateway",
            "tests/codex/process/test_process.py::test_every_child_ends_within_its_bound",
        ),
    ),
    Requirement(
        id="faults.drain",
        sentence=(
            "When it is told to stop, the gateway lets nobody in, lets turns finish for `PROXY_DRAIN_S`, and ends the "
            "rest with 503 `shutting_down`; a second signal stops it at once. A terminal that closes tells it to stop, "
            "except under `nohup`."
        ),
        source=OURS,
        tests=(
            "tests/faults/test_shutdown.py::test_running_turns_finish_while_new_ones_are_refused",
            "tests/faults/test_shutdown.py::test_turns_that_do_not_finish_in_time_and_those_that_wait_are_told_so",
            "tests/faults/test_shutdown.py::test_a_second_signal_stops_at_once",
            "tests/faults/test_shutdown.py::test_a_terminal_that_closes_cuts_no_stream",
            "tests/faults/test_shutdown.py::test_under_nohup_a_terminal_that_closes_changes_nothing",
        ),
    ),
    Requirement(
        id="faults.disk",
        sentence="A full or read-only disk disturbs no running turn, is told by `/readyz`, and is recovered from.",
        source=OURS,
        tests=(
            "tests/faults/test_disk.py::test_a_gateway_that_cannot_write_says_so_and_recovers_by_itself",
            "tests/faults/test_disk.py::test_a_disk_that_fills_up_disturbs_no_turn_and_nothing_is_given_up_for_good",
        ),
    ),
    Requirement(
        id="faults.clock",
        sentence="A jump of the clock is noticed by no turn and no Codex.",
        source=OURS,
        tests=("tests/faults/test_clock.py::test_a_jump_of_the_clock_is_noticed_by_no_turn_and_no_worker",),
    ),
    Requirement(
        id="faults.soak",
        sentence="Mixed load with random faults has no unexplained outcome and no leak.",
        source=OURS,
        tests=("tests/faults/test_soak.py::test_a_short_soak_has_no_unexplained_outcome_and_no_leak",),
    ),
    Requirement(
        id="faults.other-versions",
        sentence="The tests notice when another Codex binary speaks another protocol.",
        source=OURS,
        tests=(
            "tests/codex/protocol/test_messages.py::test_we_can_read_whatever_codex_may_send",
            "tests/codex/protocol/test_encode.py::test_the_binary_knows_everything_that_it_is_sent",
            "tests/codex/protocol/test_recordings.py::test_the_binary_still_says_what_was_recorded",
        ),
    ),
)
