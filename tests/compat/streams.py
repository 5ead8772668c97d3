"""Promises about streamed answers."""

from tests.compat.requirement import (
    CHAT_STREAM,
    CLIENTS,
    OURS,
    RESPONSES_STREAM,
    Requirement,
)

STREAMS = (
    Requirement(
        id="streaming.responses.order",
        sentence="A response stream has the full typed sequence, from `created` to its end.",
        source=RESPONSES_STREAM,
        tests=(
            "tests/real/test_streaming.py::test_a_response_stream_has_the_full_typed_order",
            "tests/api/responses/test_encode.py::test_a_typical_turn_is_told_event_by_event",
        ),
    ),
    Requirement(
        id="streaming.responses.sequence-numbers",
        sentence="`sequence_number` counts from 0 without a gap.",
        source=RESPONSES_STREAM,
        tests=(
            "tests/real/test_streaming.py::test_a_response_stream_has_the_full_typed_order",
            "tests/api/responses/test_encode.py::test_the_stream_alone_rebuilds_the_response",
        ),
    ),
    Requirement(
        id="streaming.responses.stable-ids",
        sentence="An item keeps its id and its place in all events and in the final output.",
        source=CLIENTS,
        tests=("tests/real/test_streaming.py::test_everything_in_a_response_stream_keeps_its_id_and_place",),
    ),
    Requirement(
        id="streaming.responses.one-terminal-event",
        sentence="Exactly one terminal event ends the stream, and everything that was opened is closed before it.",
        source=CLIENTS,
        tests=(
            "tests/api/responses/test_encode.py::test_the_stream_alone_rebuilds_the_response",
            "tests/codex/protocol/test_decode.py::test_any_turn_gives_a_stream_that_keeps_its_promises",
            "tests/codex/protocol/test_decode.py::test_a_turn_that_codex_leaves_unfinished_ends_once_it_is_closed",
        ),
    ),
    Requirement(
        id="streaming.responses.envelope",
        sentence="From `created` to `completed` the envelope changes only in what the answer decides.",
        source=CLIENTS,
        tests=(
            "tests/real/test_streaming.py::test_the_envelope_of_a_response_changes_only_in_what_the_answer_decides",
        ),
    ),
    Requirement(
        id="streaming.responses.frames",
        sentence="Each frame is one `event:` line, equal to the type, and one `data:` line that the SDK can read.",
        source=CLIENTS,
        tests=(
            "tests/real/test_streaming.py::test_every_event_of_a_response_stream_is_one_that_the_sdk_knows",
            "tests/api/shared/test_sse.py::test_frames_are_written_whole",
        ),
    ),
    Requirement(
        id="streaming.chat.order",
        sentence="A chat stream is the role, the text, one `finish_reason`, and `[DONE]`.",
        source=CHAT_STREAM,
        tests=(
            "tests/real/test_streaming.py::test_a_chat_stream_is_role_text_finish_usage_and_done",
            "tests/api/chat/test_encode.py::test_a_typical_turn_is_told_chunk_by_chunk",
        ),
    ),
    Requirement(
        id="streaming.chat.same-head",
        sentence="`id`, `object`, `created` and `model` are the same in all chunks.",
        source=CLIENTS,
        tests=("tests/real/test_streaming.py::test_a_chat_stream_is_role_text_finish_usage_and_done",),
    ),
    Requirement(
        id="streaming.chat.usage",
        sentence="A last chunk with the usage and no choices comes if `include_usage` asks for it, else none does.",
        source=CHAT_STREAM,
        tests=(
            "tests/real/test_streaming.py::test_a_chat_stream_is_role_text_finish_usage_and_done",
            "tests/real/test_streaming.py::test_a_chat_stream_has_no_usage_unless_asked_for",
        ),
    ),
    Requirement(
        id="streaming.as-they-come",
        sentence="Deltas are passed on as they come, in the model's own pieces: `hel`, `lo` arrive so.",
        source=OURS,
        tests=(
            "tests/real/test_streaming.py::test_text_in_pieces_arrives_whole_and_in_those_pieces",
            "tests/real/test_streaming.py::test_a_piece_arrives_while_the_model_still_thinks_and_no_frame_is_split",
        ),
    ),
    Requirement(
        id="streaming.whole-frames",
        sentence="No frame is split over two writes.",
        source=CLIENTS,
        tests=(
            "tests/real/test_streaming.py::test_a_piece_arrives_while_the_model_still_thinks_and_no_frame_is_split",
        ),
    ),
    Requirement(
        id="streaming.no-empty-delta",
        sentence="There is no empty delta, also when the answer is empty.",
        source=CLIENTS,
        tests=("tests/real/test_streaming.py::test_an_empty_answer_is_a_whole_stream_without_an_empty_delta",),
    ),
    Requirement(
        id="streaming.any-text",
        sentence="No character of a text is taken for the end of a line or of the stream.",
        source=OURS,
        tests=(
            "tests/real/test_streaming.py::test_no_character_is_taken_for_the_end_of_a_line",
            "tests/api/shared/test_sse.py::test_any_text_survives_a_stream",
        ),
    ),
    Requirement(
        id="streaming.ten-thousand",
        sentence="10,000 deltas arrive complete and in order.",
        source=OURS,
        tests=("tests/real/test_streaming.py::test_ten_thousand_deltas_arrive_complete_and_in_order",),
    ),
    Requirement(
        id="streaming.never-mixed",
        sentence="Streams at the same time never mix.",
        source=OURS,
        tests=("tests/real/test_streaming.py::test_streams_at_once_never_mix",),
    ),
    Requirement(
        id="streaming.any-chunking",
        sentence="However the pipe from Codex is cut into pieces, the events are the same.",
        source=OURS,
        tests=(
            "tests/codex/process/test_connection.py::test_any_chunking_of_the_pipe_gives_the_same",
            "tests/codex/protocol/test_recordings.py::test_any_chunking_of_the_pipe_gives_the_same_events",
        ),
    ),
    Requirement(
        id="streaming.headers-wait",
        sentence=(
            "The headers wait for the first output, at most `PROXY_STREAM_HOLD_MS`, so that an early failure is an "
            "HTTP status and a thinking model does not look dead."
        ),
        source=OURS,
        tests=(
            "tests/real/test_errors.py::test_a_failure_before_any_output_is_a_status",
            "tests/real/test_errors.py::test_a_silent_model_gets_its_headers_after_the_hold_and_its_failure_in_the_stream",
            "tests/real/test_errors.py::test_a_model_that_speaks_after_the_hold_is_heard_whole",
        ),
        divergence="OpenAI sends the headers at once.",
    ),
    Requirement(
        id="streaming.retried-by-codex",
        sentence="A message that Codex begins anew after a break is never shown twice.",
        source=OURS,
        tests=(
            "tests/codex/protocol/test_recordings.py::test_a_recorded_turn_becomes_exactly_these_events",
            "tests/codex/protocol/test_decode.py::test_any_turn_gives_a_stream_that_keeps_its_promises",
        ),
        divergence="If some of it was shown, the stream ends as failed: two attempts need not begin alike.",
    ),
)
