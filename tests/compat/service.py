"""Promises about starting the gateway, its HTTP side, and the machine that it runs on."""

from tests.compat.requirement import (
    CLIENTS,
    DEBUGGING,
    ERRORS,
    OURS,
    Requirement,
)

START = (
    Requirement(
        id="start.demo",
        sentence="The demo runs the real Codex without an account, and prints a curl line and Python that work.",
        source=OURS,
        tests=(
            "tests/cli/test_serve.py::test_what_is_printed_can_be_pasted",
            "tests/docs/test_docs.py::test_the_readme_shows_what_the_demo_prints",
        ),
    ),
    Requirement(
        id="start.examples",
        sentence="The examples of the documentation run as they stand.",
        source=OURS,
        tests=(
            "tests/docs/test_docs.py::test_the_python_example_of_the_readme_runs",
            "tests/docs/test_docs.py::test_the_curl_example_of_the_readme_runs",
            "tests/docs/test_docs.py::test_the_node_example_of_the_clients_page_runs",
        ),
    ),
    Requirement(
        id="start.again",
        sentence="A second start has the same key, and examines Codex no more; it writes only to its data directory.",
        source=OURS,
        tests=("tests/cli/test_serve.py::test_a_second_start_has_the_same_key_and_knows_its_codex_already",),
    ),
    Requirement(
        id="start.own-home",
        sentence=(
            "Of the user's Codex home, only the login and what concerns models and providers is used; sessions, MCP "
            "servers, skills, hooks and AGENTS.md are not."
        ),
        source=OURS,
        tests=(
            "tests/codex/process/test_home.py::test_only_models_providers_and_login_come_along",
            "tests/real/test_host_safety.py::test_behind_the_gateway_it_falls_into_none",
            "tests/real/test_host_safety.py::test_the_users_choice_of_an_effort_counts_and_the_answer_says_so",
        ),
    ),
    Requirement(
        id="start.users-home",
        sentence="Nothing is written to the user's Codex home, but the login that Codex itself renews.",
        source=OURS,
        tests=(
            "tests/codex/process/test_home.py::test_nothing_is_written_to_the_users_home",
            "tests/codex/process/test_home.py::test_the_login_is_a_link_that_is_written_through",
            "tests/test_bootstrap.py::test_a_login_serves_the_next_request_and_nothing_else_of_the_users_comes_along",
        ),
    ),
    Requirement(
        id="start.small-home",
        sentence="The gateway's own home keeps no sessions, which would slow down each turn, and no endless log.",
        source=OURS,
        tests=(
            "tests/codex/process/test_home.py::test_an_empty_sessions_folder_is_removed",
            "tests/codex/process/test_home.py::test_the_log_database_is_bounded",
        ),
    ),
    Requirement(
        id="start.no-login",
        sentence=(
            "Without a login the server starts, `/readyz` says why to key holders, and requests get 401 "
            "`codex_login_required` with the command that helps."
        ),
        source=OURS,
        tests=(
            "tests/test_bootstrap.py::test_without_a_login_the_gateway_says_which_command_helps",
            "tests/test_bootstrap.py::test_a_login_that_cannot_be_checked_now_is_not_called_missing",
        ),
    ),
    Requirement(
        id="start.login-command",
        sentence="That command can be pasted, also without a Codex home and with spaces in paths; it is printed first.",
        source=OURS,
        tests=("tests/cli/test_serve.py::test_the_login_command_can_be_pasted_by_someone_who_never_used_codex",),
    ),
    Requirement(
        id="start.proxy",
        sentence="It becomes ready behind any proxy that the environment names: Codex reaches loopback directly.",
        source=OURS,
        tests=(
            "tests/real/test_outside_connections.py::test_the_demo_calls_nobody_and_is_ready_behind_any_proxy",
            "tests/codex/process/test_environment.py::test_loopback_is_reached_without_a_proxy_besides_what_the_user_lists",
        ),
    ),
    Requirement(
        id="start.unheard",
        sentence="That nobody can read what it prints or logs does not keep the gateway from serving.",
        source=OURS,
        tests=("tests/cli/test_serve.py::test_it_serves_also_if_nobody_can_read_what_it_writes",),
    ),
    Requirement(
        id="start.reasons",
        sentence="What keeps Codex from starting is told once, in `/readyz` and in the log.",
        source=OURS,
        tests=("tests/test_bootstrap.py::test_the_reason_of_a_start_that_fails_is_told_once",),
    ),
    Requirement(
        id="start.no-provider-key",
        sentence="A provider's `env_key` that is not set is 401 `codex_login_required`; the message names it.",
        source=OURS,
        tests=(
            "tests/faults/test_failing_provider.py::test_a_missing_key_of_the_provider_is_a_missing_login_that_names_the_variable",
        ),
    ),
    Requirement(
        id="start.later-login",
        sentence="A login that comes later counts at once, without a restart.",
        source=OURS,
        tests=(
            "tests/test_bootstrap.py::test_a_login_serves_the_next_request_and_nothing_else_of_the_users_comes_along",
            "tests/test_bootstrap.py::test_a_login_makes_the_gateway_ready_although_nobody_asks",
        ),
    ),
    Requirement(
        id="start.settings.unknown",
        sentence="A variable that looks like a setting and is none is reported, with the nearest name.",
        source=OURS,
        tests=(
            "tests/settings/test_settings.py::test_a_name_that_is_no_setting_is_reported_with_the_nearest_one",
            "tests/cli/test_serve.py::test_what_is_printed_can_be_pasted",
        ),
    ),
    Requirement(
        id="start.settings.empty",
        sentence="An empty variable is an unset one.",
        source=OURS,
        tests=(
            "tests/settings/test_settings.py::test_an_empty_variable_is_an_unset_one",
            "tests/settings/test_settings.py::test_an_empty_text_in_the_file_is_unset_too",
        ),
    ),
    Requirement(
        id="start.settings.bad",
        sentence="A bad value is refused at the start by the name of its setting.",
        source=OURS,
        tests=(
            "tests/settings/test_settings.py::test_a_bad_value_is_refused_with_the_name_of_its_setting_and_what_it_expects",
            "tests/cli/test_serve.py::test_a_bad_setting_is_refused_by_its_name_without_a_traceback",
            "tests/cli/test_serve.py::test_a_host_that_has_no_address_is_named_before_anything_else_is_asked_for",
            "tests/settings/test_settings.py::test_a_program_without_a_slash_is_looked_for_on_the_path",
            "tests/settings/test_settings.py::test_a_user_without_a_home_directory_is_told_what_to_set",
        ),
    ),
)

INGRESS = (
    Requirement(
        id="ingress.routes",
        sentence="Both generation routes and both model routes are served, with and without `/v1`.",
        source=CLIENTS,
        tests=("tests/real/test_ingress_routes.py::test_every_route_is_served_with_and_without_v1",),
    ),
    Requirement(
        id="ingress.probes",
        sentence="`/healthz`, `/livez` and `/readyz` need no key under a name of the server's, by their exact path.",
        source=OURS,
        tests=(
            "tests/real/test_ingress_routes.py::test_probes_need_no_key",
            "tests/web/middleware/test_auth.py::test_probes_are_open_to_whoever_knows_a_name_of_the_server",
            "tests/web/middleware/test_auth.py::test_under_another_name_probes_ask_for_the_key_too",
            "tests/web/middleware/test_auth.py::test_open_routes_are_reached_by_their_exact_path_only",
        ),
    ),
    Requirement(
        id="ingress.probes.reason",
        sentence="Why turns cannot be run, which may name paths, `/readyz` tells only to requests with the key.",
        source=OURS,
        tests=("tests/test_bootstrap.py::test_the_reason_of_readyz_is_for_those_who_have_the_key",),
    ),
    Requirement(
        id="ingress.old-http",
        sentence="An HTTP/1.0 client gets no chunks; an answer without a length ends with the connection.",
        source=CLIENTS,
        tests=(
            "tests/web/server/test_request_heads.py::test_an_http_1_0_client_gets_no_chunks_and_the_end_by_the_close",
        ),
    ),
    Requirement(
        id="ingress.websockets",
        sentence="A request for a WebSocket is a 426, at which Codex falls back to HTTP at once.",
        source=CLIENTS,
        tests=(
            "tests/real/test_ingress_routes.py::test_a_websocket_is_refused_with_what_is_served_instead",
            "tests/real/test_codex_as_client.py::test_codex_falls_back_to_http_at_once_when_it_is_refused_a_websocket",
        ),
        divergence="OpenAI serves `/v1/responses` over WebSocket, too.",
    ),
    Requirement(
        id="ingress.unknown-routes",
        sentence="Any other route is a 404, and a wrong verb a 405 with `Allow`, both as OpenAI's error object.",
        source=ERRORS,
        tests=("tests/real/test_ingress_routes.py::test_a_wrong_route_or_verb_is_an_openai_error",),
    ),
    Requirement(
        id="ingress.offers",
        sentence="A client that offers HTTP/2 in plain text, as Java's own does, is answered in HTTP/1.1.",
        source=CLIENTS,
        tests=(
            "tests/web/server/test_http_protocol.py::test_a_request_that_offers_http_2_keeps_its_body_in_any_pieces",
        ),
    ),
    Requirement(
        id="ingress.request-id",
        sentence="Every answer has `x-request-id`: the client's own if it sent one, else a fresh one.",
        source=DEBUGGING,
        tests=(
            "tests/real/test_ingress_routes.py::test_a_clients_request_id_comes_back",
            "tests/real/test_ingress_routes.py::test_every_answer_has_a_request_id_that_the_sdk_can_tell",
            "tests/web/middleware/test_ingress.py::test_any_other_request_id_is_replaced_by_a_fresh_one",
        ),
    ),
    Requirement(
        id="ingress.key",
        sentence="A missing or wrong key is a 401 on every route but the probes, unknown routes too.",
        source=CLIENTS,
        tests=(
            "tests/real/test_ingress_routes.py::test_a_wrong_key_is_an_authentication_error",
            "tests/web/middleware/test_auth.py::test_without_a_key_the_client_is_told_how_to_give_it",
            "tests/web/middleware/test_auth.py::test_a_key_that_is_nearly_right_is_wrong",
            "tests/web/middleware/test_auth.py::test_an_unknown_path_asks_for_the_key_too",
        ),
    ),
    Requirement(
        id="ingress.key.made",
        sentence="Without `PROXY_API_KEY` a key is made at the first start, and kept with mode 0600.",
        source=OURS,
        tests=(
            "tests/test_bootstrap.py::test_the_key_is_made_once_and_for_its_user_only",
            "tests/cli/test_serve.py::test_a_second_start_has_the_same_key_and_knows_its_codex_already",
        ),
    ),
    Requirement(
        id="ingress.key.chosen",
        sentence="A key that the user chose is never printed, and a generated one to a terminal only.",
        source=OURS,
        tests=(
            "tests/cli/test_serve.py::test_a_key_that_the_user_chose_is_not_printed",
            "tests/cli/test_serve.py::test_a_second_start_has_the_same_key_and_knows_its_codex_already",
            "tests/docs/test_docs.py::test_the_readme_shows_what_the_demo_prints",
        ),
    ),
    Requirement(
        id="ingress.loopback",
        sentence="It listens on 127.0.0.1, and elsewhere only with a key that the user chose.",
        source=OURS,
        tests=(
            "tests/settings/test_settings.py::test_without_any_choice_the_gateway_is_private_and_uses_the_users_codex",
            "tests/cli/test_serve.py::test_other_addresses_than_loopback_need_a_key_that_the_user_chose",
            "tests/cli/test_serve.py::test_an_empty_key_in_the_file_is_not_one_that_the_user_chose",
        ),
    ),
    Requirement(
        id="ingress.log",
        sentence="Each request is one structured log line: ids, client, peer, route, model, status, tokens, times.",
        source=OURS,
        tests=(
            "tests/hostile/test_logs.py::test_each_line_names_the_client_and_its_peer",
            "tests/web/middleware/test_access_log.py::test_the_line_tells_who_waited_how_long_for_what",
            "tests/web/middleware/test_access_log.py::test_an_error_told_inside_the_stream_is_a_failure_though_the_status_was_200",
            "tests/web/middleware/test_access_log.py::test_a_client_that_leaves_mid_stream_is_logged_as_gone",
        ),
    ),
    Requirement(
        id="ingress.log.private",
        sentence="Logs hold no prompts, answers, paths, queries or keys.",
        source=OURS,
        tests=(
            "tests/compat/test_promises.py::test_the_log_holds_nothing_of_questions_and_answers",
            "tests/web/middleware/test_access_log.py::test_the_line_tells_who_waited_how_long_for_what",
            "tests/web/middleware/test_access_log.py::test_an_unknown_path_is_not_logged_but_called_other",
            "tests/logs/test_logs.py::test_secrets_are_replaced_at_any_depth_and_counts_are_not",
            "tests/logs/test_logs.py::test_a_traceback_is_written_without_local_variables",
            "tests/logs/test_logs.py::test_a_key_is_removed_wherever_a_client_has_put_it",
        ),
    ),
    Requirement(
        id="ingress.cors",
        sentence="Pages on loopback, Obsidian and those that the operator names may call; others may not.",
        source=CLIENTS,
        tests=(
            "tests/web/middleware/test_cors.py::test_a_page_of_an_allowed_origin_can_read_the_answer",
            "tests/web/middleware/test_cors.py::test_a_page_of_any_other_origin_is_served_but_cannot_read_the_answer",
            "tests/real/test_ingress_routes.py::test_another_page_may_not_even_preflight",
        ),
    ),
    Requirement(
        id="ingress.cors.preflight",
        sentence="A preflight needs no key and allows the SDKs' headers; a page may read all of ours.",
        source=CLIENTS,
        tests=(
            "tests/real/test_ingress_routes.py::test_obsidian_may_preflight_with_the_sdks_headers_and_no_key",
            "tests/real/test_ingress_routes.py::test_obsidian_may_read_the_answer_and_what_its_headers_say",
        ),
    ),
    Requirement(
        id="ingress.metrics",
        sentence="`/metrics` counts requests, times, tokens and errors in Prometheus' format.",
        source=OURS,
        tests=(
            "tests/real/test_ingress_routes.py::test_metrics_count_requests_times_tokens_and_errors",
            "tests/web/middleware/test_metrics.py::test_metrics_speak_openmetrics_to_those_who_ask",
        ),
    ),
    Requirement(
        id="ingress.metrics.labels",
        sentence="Its labels are bounded: routes by template, errors by known codes.",
        source=OURS,
        tests=(
            "tests/web/middleware/test_metrics.py::test_requests_are_counted_by_template_status_and_outcome",
            "tests/web/middleware/test_metrics.py::test_errors_are_counted_by_known_codes_only",
        ),
    ),
    Requirement(
        id="ingress.metrics.access",
        sentence="`/metrics` asks everyone for `PROXY_METRICS_TOKEN`; without one, for the key.",
        source=OURS,
        tests=(
            "tests/web/middleware/test_metrics.py::test_a_token_is_asked_of_everyone_and_enough",
            "tests/web/middleware/test_metrics.py::test_without_a_token_metrics_ask_for_the_key_of_everyone",
        ),
    ),
)

SAFETY = (
    Requirement(
        id="safety.built-ins",
        sentence="A model that calls a tool of Codex's own gets nothing executed on the host.",
        source=OURS,
        tests=(
            "tests/real/test_host_safety.py::test_a_function_of_codex_is_not_there",
            "tests/real/test_host_safety.py::test_a_custom_tool_of_codex_is_not_there",
            "tests/real/test_host_safety.py::test_a_call_of_another_kind_does_nothing",
        ),
    ),
    Requirement(
        id="safety.scripts",
        sentence="A model's script finds no tool of the host's and no module.",
        source=OURS,
        tests=(
            "tests/real/test_host_safety.py::test_a_script_of_a_model_that_calls_tools_from_scripts_finds_no_tool_and_no_module",
        ),
    ),
    Requirement(
        id="safety.surroundings",
        sentence="Nothing of the host's starts or reaches the model: MCP servers, hooks, skills, notifiers, AGENTS.md.",
        source=OURS,
        tests=(
            "tests/real/test_host_safety.py::test_codex_alone_falls_into_every_trap",
            "tests/real/test_host_safety.py::test_behind_the_gateway_it_falls_into_none",
        ),
    ),
    Requirement(
        id="safety.stopped",
        sentence="A turn in which Codex acts on the host all the same is stopped.",
        source=OURS,
        tests=(
            "tests/codex/protocol/test_decode.py::test_a_turn_in_which_codex_acts_on_the_host_is_stopped",
            "tests/codex/protocol/test_messages.py::test_every_kind_of_item_is_known_to_be_an_action_on_the_host_or_not",
        ),
    ),
    Requirement(
        id="safety.declined",
        sentence="Every request of Codex's for approval, input or elicitation is declined at once, counted and logged.",
        source=OURS,
        tests=(
            "tests/compat/test_promises.py::test_a_request_of_codexs_that_is_declined_is_counted_and_logged",
            "tests/codex/process/test_connection.py::test_a_request_of_codexs_is_declined_at_once",
            "tests/codex/protocol/test_messages.py::test_every_request_of_codex_is_declined_or_knowingly_refused",
            "tests/codex/protocol/test_messages.py::test_codex_understands_each_decline",
        ),
    ),
    Requirement(
        id="safety.switched-off",
        sentence="Every feature of Codex's that could act is switched off, and the binary knows each switch.",
        source=OURS,
        tests=(
            "tests/codex/protocol/test_encode.py::test_a_thread_starts_with_the_whole_recipe",
            "tests/codex/protocol/test_encode.py::test_the_binary_has_every_feature_that_is_switched_off",
            "tests/codex/protocol/test_encode.py::test_every_model_of_the_binary_loses_its_extras_and_nothing_else",
        ),
    ),
    Requirement(
        id="safety.connections",
        sentence="Codex calls its provider and nobody else: no plugins, apps or analytics, and no `git`.",
        source=OURS,
        tests=(
            "tests/real/test_outside_connections.py::test_the_demo_calls_nobody_and_is_ready_behind_any_proxy",
            "tests/real/test_outside_connections.py::test_a_custom_provider_is_the_only_one_that_is_called",
            "tests/real/test_outside_connections.py::test_a_chatgpt_login_brings_no_plugins_apps_or_analytics",
        ),
        divergence="With a ChatGPT login it also asks the account's own server where requests go.",
    ),
    Requirement(
        id="safety.secrets",
        sentence="Codex gets none of the gateway's own secrets.",
        source=OURS,
        tests=(
            "tests/codex/process/test_process.py::test_a_child_has_its_own_home_and_session_and_none_of_the_gateways_secrets",
        ),
    ),
    Requirement(
        id="safety.addresses",
        sentence="No private, link-local or otherwise internal address is fetched, however it is written.",
        source=OURS,
        tests=(
            "tests/media/test_fetching.py::test_by_default_internal_hosts_are_refused_however_they_are_written",
            "tests/media/test_fetching.py::test_one_internal_address_among_public_ones_refuses_the_host",
            "tests/media/test_ssrf_guard.py::test_any_other_address_may_not_be_reached",
            "tests/media/test_ssrf_guard.py::test_what_may_be_reached_is_global_for_the_standard_library_too",
        ),
        divergence="OpenAI fetches from its own network; here the gateway stands in the user's.",
    ),
    Requirement(
        id="safety.redirects",
        sentence="Neither a redirect nor a name that changes its address leads there.",
        source=OURS,
        tests=(
            "tests/media/test_fetching.py::test_a_redirect_is_checked_like_the_first_url",
            "tests/media/test_fetching.py::test_a_redirect_to_the_same_host_checks_it_anew",
            "tests/media/test_fetching.py::test_a_name_that_changes_its_address_is_not_asked_a_second_time",
        ),
    ),
    Requirement(
        id="safety.schemas",
        sentence="Nothing that a client's schema refers to is read.",
        source=OURS,
        tests=(
            "tests/engine/test_structured_output.py::test_nothing_that_a_schema_refers_to_is_read",
            "tests/api/shared/test_strict_schema.py::test_nothing_that_a_schema_refers_to_is_read",
        ),
    ),
)
