"""Promises about what one client can do to the gateway, and to the others."""

from tests.compat.requirement import OURS, Requirement

BOUNDS = (
    Requirement(
        id="bounds.heads",
        sentence="A request head above 64 KB or 100 headers is a 431, and its connection is closed.",
        source=OURS,
        tests=(
            "tests/web/server/test_request_heads.py::test_a_head_above_the_bound_is_refused_and_its_connection_closed",
            "tests/hostile/test_heads.py::test_a_head_without_end_is_refused_and_not_kept",
        ),
    ),
    Requirement(
        id="bounds.connections",
        sentence="Connections are bounded in all and per address; idle ones are closed first. Codex can still start.",
        source=OURS,
        tests=(
            "tests/web/server/test_connection_limits.py::test_an_idle_connection_gives_way_and_a_served_one_does_not",
            "tests/web/server/test_connection_limits.py::test_one_peer_cannot_take_the_places_of_the_others",
            "tests/hostile/test_connections.py::test_connections_that_wait_for_nothing_give_way_to_the_neighbour",
            "tests/hostile/test_connections.py::test_codex_is_started_again_although_connections_are_at_their_limit",
        ),
    ),
    Requirement(
        id="bounds.uploads",
        sentence="Bodies that are being received share 256 MB; no key's halves cost another key its own body.",
        source=OURS,
        tests=(
            "tests/web/test_bodies.py::test_the_client_that_holds_most_loses_its_oldest_body_to_another_client",
            "tests/web/test_bodies.py::test_a_rejected_body_is_a_503_and_its_connection_is_closed",
        ),
    ),
    Requirement(
        id="bounds.key-guessing",
        sentence="After 20 wrong keys in a minute an address gets 429; keys that were right from it before still pass.",
        source=OURS,
        tests=(
            "tests/web/middleware/test_auth.py::test_after_many_wrong_keys_a_peer_learns_nothing_of_the_next",
            "tests/web/middleware/test_auth.py::test_guesses_do_not_hurt_whoever_had_the_right_key_behind_the_same_address",
            "tests/hostile/test_logs.py::test_guessing_keys_does_not_hurt_the_neighbour_on_the_same_machine",
        ),
    ),
    Requirement(
        id="bounds.key-length",
        sentence="Off loopback a key or token of fewer than 16 characters is refused at the start.",
        source=OURS,
        tests=("tests/cli/test_serve.py::test_a_short_key_is_refused_where_others_could_guess_it",),
    ),
    Requirement(
        id="bounds.log-lines",
        sentence="Lines of the log and the trace are bounded, and hold nothing that ends a line or steers a terminal.",
        source=OURS,
        tests=(
            "tests/logs/test_logs.py::test_no_line_is_long_and_each_still_says_what_happened",
            "tests/logs/test_logs.py::test_a_line_of_json_is_one_line_for_every_reader_and_steers_no_terminal",
            "tests/trace/test_lines.py::test_a_line_is_one_line_for_every_reader_and_steers_no_terminal",
            "tests/hostile/test_logs.py::test_the_words_of_a_client_stay_within_a_line_and_its_key_out_of_it",
        ),
    ),
)
