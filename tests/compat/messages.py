"""Promises about what the model sees, and about whole answers."""

from tests.compat.requirement import (
    CHAT,
    CHAT_STREAM,
    CLIENTS,
    FUNCTIONS,
    OURS,
    RESPONSES,
    RESPONSES_STREAM,
    WEB_SEARCH,
    Requirement,
)

ITEMS = (
    Requirement(
        id="items.exact",
        sentence="The model sees the client's items in their order, and nothing else.",
        source=OURS,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/real/test_fidelity.py::test_a_streamed_request_reaches_the_model_like_any_other",
        ),
        divergence="Codex gives an `id` to items that have none, and adds client metadata of its own.",
    ),
    Requirement(
        id="items.every-model",
        sentence="That holds for every model that Codex offers, hidden ones too.",
        source=OURS,
        tests=("tests/real/test_catalogue_models.py::test_every_model_sees_only_the_clients_items",),
    ),
    Requirement(
        id="items.instructions",
        sentence="`instructions`, and nothing else, fill the place of Codex's own prompt, before all items.",
        source=RESPONSES,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/codex/protocol/test_encode.py::test_a_thread_starts_with_the_clients_instructions_and_verbosity",
        ),
        divergence="The model sees them as a first developer message: Codex sends its prompt that way.",
    ),
    Requirement(
        id="items.system-messages",
        sentence="System and developer messages stay where they are, first, last or in the middle.",
        source=CHAT,
        tests=("tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",),
        divergence="System messages become developer messages: Codex would drop them.",
    ),
    Requirement(
        id="items.history",
        sentence=(
            "History reaches the model as items, never flattened to text: messages with their `phase`, encrypted "
            "reasoning, calls, outputs, images, searches."
        ),
        source=OURS,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/codex/protocol/test_encode.py::test_every_item_is_injected_as_the_model_would_see_it",
        ),
    ),
    Requirement(
        id="items.shapes.responses",
        sentence="Every shape of `input` that the official SDK can send is understood: text, bare messages, parts.",
        source=RESPONSES,
        tests=(
            "tests/api/responses/test_decode.py::test_a_text_is_a_message_of_the_user",
            "tests/api/responses/test_decode.py::test_every_shape_of_input_means_what_it_says",
            "tests/api/shared/test_parts.py::test_every_kind_of_text_is_text",
        ),
    ),
    Requirement(
        id="items.shapes.chat",
        sentence="Every shape of message that the official SDK can send is understood, legacy function calls too.",
        source=CHAT,
        tests=("tests/api/chat/test_decode.py::test_every_shape_of_message_means_what_it_says",),
    ),
    Requirement(
        id="items.uncarried",
        sentence="An item that Codex cannot carry is a 400 that names its place.",
        source=OURS,
        tests=(
            "tests/api/responses/test_decode.py::test_an_item_that_codex_cannot_carry_is_named",
            "tests/real/test_fidelity.py::test_what_codex_would_drop_or_invent_is_refused",
        ),
        divergence="Items of tools that run at OpenAI (computer, code interpreter, MCP and so on) are refused.",
    ),
    Requirement(
        id="items.references",
        sentence="An item reference is the item that was kept under its id; one to nothing is a 404 with its place.",
        source=RESPONSES,
        tests=(
            "tests/real/test_state_responses.py::test_references_to_items_resolve",
            "tests/api/responses/test_stored.py::test_a_reference_becomes_what_it_refers_to",
            "tests/api/responses/test_stored.py::test_a_reference_to_nothing_is_named_with_its_place",
        ),
    ),
    Requirement(
        id="items.given-back",
        sentence="An answer that the client gives back reaches the model as it was.",
        source=RESPONSES,
        tests=(
            "tests/real/test_fidelity.py::test_what_the_sdk_got_from_responses_goes_back_to_the_model_as_it_was",
            "tests/real/test_fidelity.py::test_what_the_sdk_got_from_chat_goes_back_to_the_model",
        ),
    ),
    Requirement(
        id="items.refusals",
        sentence="An earlier refusal of the model's is part of its history.",
        source=CHAT,
        tests=("tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",),
        divergence="It is shown as plain text: Codex drops refusals.",
    ),
    Requirement(
        id="items.names",
        sentence="A message may have the `name` of its speaker.",
        source=CHAT,
        tests=("tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",),
        divergence="The name does not reach the model, and is named in `x-turnbridge-ignored`.",
    ),
    Requirement(
        id="items.namespaces",
        sentence="The `namespace` of a call, and the function that an output names, reach the model and come back.",
        source=RESPONSES,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/real/test_namespaces.py::test_the_namespace_of_a_call_reaches_the_client_and_goes_back_to_the_model",
            "tests/real/test_namespaces.py::test_a_call_in_a_namespace_that_nobody_declared_is_answered_by_codex",
        ),
        divergence="Tools of type `namespace` cannot be declared.",
    ),
    Requirement(
        id="items.fields",
        sentence="A field of an item that Codex does not carry is named in `x-turnbridge-ignored`.",
        source=OURS,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/api/responses/test_decode.py::test_fields_of_items_that_codex_does_not_carry_are_named_once",
        ),
    ),
    Requirement(
        id="items.pairs",
        sentence="A call without its output, or an output without its call, is a 400 in OpenAI's words.",
        source=FUNCTIONS,
        tests=(
            "tests/api/shared/test_call_pairing.py::test_what_has_no_counterpart_is_refused_in_openais_words",
            "tests/real/test_fidelity.py::test_what_codex_would_drop_or_invent_is_refused",
        ),
    ),
    Requirement(
        id="items.long",
        sentence="Long texts, long tool outputs and hundreds of items arrive whole.",
        source=OURS,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/real/test_tool_edges.py::test_an_output_arrives_as_it_is",
        ),
    ),
    Requirement(
        id="items.markup",
        sentence="Text that looks like markup of Codex, of a model or of a protocol is just text.",
        source=OURS,
        tests=("tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",),
    ),
)

CHAT_ANSWERS = (
    Requirement(
        id="chat.completion",
        sentence="A completion has every field of OpenAI's object, and none that the official SDK does not know.",
        source=CHAT,
        tests=(
            "tests/real/test_answers.py::test_a_chat_completion_is_whole",
            "tests/real/test_answers.py::test_both_answers_are_what_the_sdks_types_demand",
            "tests/api/chat/test_encode.py::test_the_official_client_knows_every_field_of_every_chunk",
        ),
        divergence="`reasoning_content` is added, which many clients show; `system_fingerprint` is left out.",
    ),
    Requirement(
        id="chat.fold",
        sentence="A completion is the fold of its stream.",
        source=CHAT_STREAM,
        tests=(
            "tests/real/test_answers.py::test_a_chat_completion_is_the_fold_of_its_stream",
            "tests/api/chat/test_encode.py::test_the_stream_alone_rebuilds_the_completion",
        ),
    ),
    Requirement(
        id="chat.finish-reason",
        sentence="`finish_reason` is `stop`, `length`, `content_filter` or `tool_calls`, as the turn ended.",
        source=CHAT,
        tests=(
            "tests/api/chat/test_encode.py::test_the_end_of_a_turn_is_a_reason_to_finish",
            "tests/real/test_errors.py::test_an_answer_that_the_provider_cut_short_is_incomplete",
            "tests/real/test_tools.py::test_calls_are_streamed_on_chat_with_their_heads_in_the_first_fragments",
        ),
    ),
    Requirement(
        id="chat.several-messages",
        sentence="Several messages of one turn are one text with a blank line between them.",
        source=OURS,
        tests=(
            "tests/real/test_answers.py::test_two_messages_are_one_chat_text_with_a_blank_line_between",
            "tests/api/chat/test_encode.py::test_the_texts_are_the_models_with_blank_lines_between_them",
        ),
    ),
    Requirement(
        id="chat.citations",
        sentence="Citations are annotations that point at their place in the text, whole and streamed.",
        source=WEB_SEARCH,
        tests=(
            "tests/real/test_answers.py::test_citations_arrive_in_a_chat_completion",
            "tests/real/test_answers.py::test_citations_arrive_in_a_chat_stream",
            "tests/api/chat/test_encode.py::test_a_citation_points_at_its_place_in_the_whole_text",
        ),
    ),
    Requirement(
        id="chat.sdks",
        sentence="The official SDKs for Python and node read chat answers, streamed or not, and raise its errors.",
        source=CLIENTS,
        tests=(
            "tests/real/test_streaming.py::test_the_sdks_chat_stream_ends_in_the_final_completion",
            "tests/real/test_errors.py::test_the_sdk_raises_the_error_of_a_chat_stream_with_its_code",
            "tests/real/test_node.py::test_the_node_sdk_gets_what_it_should",
        ),
    ),
)

RESPONSE_ANSWERS = (
    Requirement(
        id="responses.envelope",
        sentence="A response has every field that strict clients look for, each at the value in force.",
        source=CLIENTS,
        tests=(
            "tests/real/test_answers.py::test_the_envelope_of_a_response_holds_every_field_at_the_value_in_force",
            "tests/real/test_parameters.py::test_what_is_in_force_is_shown_in_the_envelope",
            "tests/api/responses/test_encode.py::test_the_envelope_shows_what_is_in_force",
        ),
        divergence="`temperature` and `top_p` are 1, whatever was asked: so it was run.",
    ),
    Requirement(
        id="responses.sdk-types",
        sentence="Responses and their events have no field that the official SDK does not know.",
        source=CLIENTS,
        tests=(
            "tests/real/test_answers.py::test_both_answers_are_what_the_sdks_types_demand",
            "tests/api/responses/test_encode.py::test_the_official_client_knows_every_field_of_every_event",
        ),
        divergence="Except `store` and both penalties, which strict clients want.",
    ),
    Requirement(
        id="responses.fold",
        sentence="A response is the fold of its stream.",
        source=RESPONSES_STREAM,
        tests=(
            "tests/real/test_answers.py::test_a_response_is_the_fold_of_its_stream",
            "tests/api/responses/test_encode.py::test_the_stream_alone_rebuilds_the_response",
        ),
    ),
    Requirement(
        id="responses.incomplete",
        sentence="An answer that was cut off has the status `incomplete`, the reason, and its text so far.",
        source=RESPONSES,
        tests=(
            "tests/real/test_errors.py::test_an_answer_that_the_provider_cut_short_is_incomplete",
            "tests/real/test_errors.py::test_a_stream_that_the_provider_cut_short_ends_as_incomplete",
            "tests/api/responses/test_encode.py::test_an_answer_that_is_cut_off_is_closed_as_incomplete",
        ),
    ),
    Requirement(
        id="responses.citations",
        sentence="Citations are annotations of their text, and events in its stream.",
        source=WEB_SEARCH,
        tests=("tests/real/test_answers.py::test_citations_arrive_in_a_response_and_its_stream",),
    ),
    Requirement(
        id="responses.prompt",
        sentence="`prompt` is a 400 that names it.",
        source=RESPONSES,
        tests=(
            "tests/real/test_parameters.py::test_what_would_change_the_answers_meaning_is_refused",
            "tests/api/responses/test_decode.py::test_a_bad_request_is_refused_by_code_and_place",
        ),
        divergence="Stored prompts live at OpenAI.",
    ),
    Requirement(
        id="responses.sdks",
        sentence="The official SDKs for Python and node read responses, streamed or not, and raise their errors.",
        source=CLIENTS,
        tests=(
            "tests/real/test_streaming.py::test_the_sdks_response_stream_ends_in_the_final_response",
            "tests/real/test_errors.py::test_a_failure_before_any_output_is_a_status",
            "tests/real/test_node.py::test_the_node_sdk_gets_what_it_should",
        ),
    ),
)
