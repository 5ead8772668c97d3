"""Promises about models: what they are called, how they reason, and what they can be shown."""

from tests.compat.requirement import (
    CLIENTS,
    ERRORS,
    FILES,
    MODELS,
    OURS,
    REASONING,
    RESPONSES,
    RESPONSES_STREAM,
    VISION,
    Requirement,
)

REASONING_ANSWERS = (
    Requirement(
        id="reasoning.effort",
        sentence="`reasoning.effort` and `reasoning_effort` reach the model.",
        source=REASONING,
        tests=("tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",),
    ),
    Requirement(
        id="reasoning.effort.unknown",
        sentence="An effort that neither the model lists nor OpenAI knows is a 400 that names those it lists.",
        source=REASONING,
        tests=(
            "tests/engine/test_models.py::test_an_effort_that_nobody_knows_is_refused_with_those_the_model_has",
            "tests/real/test_errors.py::test_a_malformed_request_is_told_what_is_wrong_and_where",
        ),
    ),
    Requirement(
        id="reasoning.summary",
        sentence="`reasoning.summary` reaches the model; summaries and open reasoning are items with events.",
        source=RESPONSES_STREAM,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/real/test_streaming.py::test_a_response_stream_has_the_full_typed_order",
        ),
    ),
    Requirement(
        id="reasoning.chat",
        sentence="Chat asks for summaries by itself, and shows them as `reasoning_content`, never in the text.",
        source=CLIENTS,
        tests=(
            "tests/real/test_fidelity.py::test_the_model_sees_exactly_what_the_client_sent",
            "tests/real/test_streaming.py::test_a_chat_stream_is_role_text_finish_usage_and_done",
            "tests/real/test_answers.py::test_a_chat_completion_is_the_fold_of_its_stream",
        ),
        divergence="OpenAI's chat shows no reasoning; many clients know this field of other servers.",
    ),
    Requirement(
        id="reasoning.chat.no-summaries",
        sentence="Where the provider gives no summaries, a chat is served without one.",
        source=OURS,
        tests=(
            "tests/compat/test_promises.py::test_a_provider_that_gives_no_summaries_serves_chats_without_and_refuses_those_who_insist",
        ),
    ),
    Requirement(
        id="reasoning.encrypted",
        sentence="Encrypted reasoning is given to those who ask with `include`, and to no others.",
        source=REASONING,
        tests=("tests/real/test_answers.py::test_encrypted_reasoning_is_given_only_to_those_who_ask",),
    ),
    Requirement(
        id="reasoning.given-back",
        sentence="Reasoning that the client gives back reaches the model with its encrypted content.",
        source=REASONING,
        tests=("tests/real/test_fidelity.py::test_what_the_sdk_got_from_responses_goes_back_to_the_model_as_it_was",),
    ),
    Requirement(
        id="reasoning.narration.chat",
        sentence="Narration (`phase: commentary`) is on the reasoning side of a chat answer.",
        source=OURS,
        tests=("tests/real/test_answers.py::test_narration_is_on_the_reasoning_side_of_a_chat_completion",),
    ),
    Requirement(
        id="reasoning.narration.responses",
        sentence="Narration is an item of its own in a response.",
        source=RESPONSES,
        tests=("tests/real/test_answers.py::test_narration_is_an_item_of_its_own_in_a_response",),
    ),
)

MEDIA = (
    Requirement(
        id="media.image.data-url",
        sentence="An image in a data URL reaches the model byte for byte.",
        source=VISION,
        tests=("tests/real/test_images.py::test_an_image_reaches_the_model_byte_for_byte",),
        divergence="Codex turns GIF into PNG.",
    ),
    Requirement(
        id="media.image.true-type",
        sentence="An image counts as what its bytes are: PNG, JPEG, GIF or WebP; anything else is a 400.",
        source=VISION,
        tests=(
            "tests/real/test_images.py::test_an_image_called_by_a_wrong_name_is_shown_under_its_own",
            "tests/real/test_images.py::test_what_is_no_image_that_may_be_shown_is_refused",
        ),
    ),
    Requirement(
        id="media.image.pixels",
        sentence="An image of more than 50 million pixels is a 400 `image_too_large`, before anybody unpacks it.",
        source=OURS,
        tests=(
            "tests/media/test_image_data_urls.py::test_an_image_with_too_many_pixels_is_refused",
            "tests/media/test_fetching.py::test_a_fetched_image_with_too_many_pixels_is_refused",
        ),
    ),
    Requirement(
        id="media.image.https",
        sentence="An image behind an https URL is fetched by the gateway and shown.",
        source=VISION,
        tests=("tests/real/test_images.py::test_an_image_behind_an_https_url_is_fetched_and_shown",),
        divergence="Plain http is refused.",
    ),
    Requirement(
        id="media.image.detail",
        sentence="`detail` is kept.",
        source=VISION,
        tests=(
            "tests/real/test_images.py::test_the_detail_is_kept",
            "tests/real/test_images.py::test_a_low_detail_is_named_as_ignored_and_the_image_is_shown",
            "tests/real/test_images.py::test_codex_scales_a_large_image_down_unless_its_detail_is_original",
        ),
        divergence=(
            "`low` is ignored and named: Codex would show a text instead of the image. Large images are scaled "
            "down by Codex unless the detail is `original`."
        ),
    ),
    Requirement(
        id="media.image.broken",
        sentence="A broken image is a 400 `invalid_image` that names the part.",
        source=ERRORS,
        tests=(
            "tests/real/test_images.py::test_a_broken_image_is_refused_and_named",
            "tests/real/test_images.py::test_a_broken_image_among_others_is_named_in_the_words_of_the_chat_route",
        ),
    ),
    Requirement(
        id="media.fetch.bounds",
        sentence="What is fetched is bounded in size, time and redirects.",
        source=OURS,
        tests=(
            "tests/media/test_fetching.py::test_an_image_of_the_largest_size_is_taken_and_one_byte_more_is_not",
            "tests/media/test_fetching.py::test_a_body_without_an_announced_length_ends_at_the_limit",
            "tests/media/test_fetching.py::test_a_host_that_keeps_silent_is_left_at_the_time_limit",
            "tests/media/test_fetching.py::test_time_spent_on_an_endless_body_counts",
            "tests/media/test_fetching.py::test_three_redirects_are_followed_and_a_fourth_is_not",
        ),
    ),
    Requirement(
        id="media.file.text",
        sentence="A file of text reaches the model as text in its place, below its name.",
        source=FILES,
        tests=(
            "tests/real/test_files.py::test_a_file_reaches_the_model_as_text_in_its_place",
            "tests/real/test_files.py::test_a_file_in_the_output_of_a_function_reaches_the_model_as_text",
            "tests/media/test_files.py::test_text_is_told_from_other_files",
        ),
        divergence="OpenAI shows the model the file; Codex carries none.",
    ),
    Requirement(
        id="media.file.pdf",
        sentence="A PDF reaches the model as its text; without the extra `pdf` the error says how to get it.",
        source=FILES,
        tests=(
            "tests/real/test_files.py::test_a_file_reaches_the_model_as_text_in_its_place",
            "tests/media/test_files.py::test_a_pdf_that_cannot_be_read_is_refused",
            "tests/media/test_files.py::test_without_pypdf_the_client_learns_how_to_get_it",
        ),
        divergence="OpenAI also shows the model a picture of each page.",
    ),
    Requirement(
        id="media.file.pdf-limits",
        sentence="A PDF that takes too long or too much memory to read is a 400, and keeps nobody waiting.",
        source=OURS,
        tests=(
            "tests/media/test_files.py::test_an_endless_pdf_is_left_at_the_time_limit_and_its_process_ends",
            "tests/media/test_files.py::test_a_pdf_that_fills_the_memory_is_refused",
        ),
    ),
    Requirement(
        id="media.file.url",
        sentence="A file behind an https URL is fetched, under the same rules as an image.",
        source=FILES,
        tests=(
            "tests/media/test_fetching.py::test_a_file_is_fetched_and_named",
            "tests/media/test_fetching.py::test_the_guard_also_holds_for_files",
        ),
    ),
    Requirement(
        id="media.file.uploaded",
        sentence="A `file_id` is a 400 that names the part.",
        source=FILES,
        tests=(
            "tests/real/test_files.py::test_a_file_that_cannot_be_carried_is_refused_and_named",
            "tests/real/test_images.py::test_what_is_no_image_that_may_be_shown_is_refused",
        ),
        divergence="There is no Files API here: the content or a URL is sent instead.",
    ),
    Requirement(
        id="media.uncarried",
        sentence="Audio, unknown parts and other binary files are a 400 that names the part.",
        source=OURS,
        tests=(
            "tests/real/test_files.py::test_a_part_of_another_kind_is_refused_and_named",
            "tests/real/test_files.py::test_a_file_that_cannot_be_carried_is_refused_and_named",
        ),
        divergence="OpenAI takes audio and more kinds of files; Codex carries none.",
    ),
)

MODEL_NAMES = (
    Requirement(
        id="models.list",
        sentence="The list is read from Codex: each model with context window, efforts, modalities and tiers.",
        source=MODELS,
        tests=(
            "tests/real/test_models_route.py::test_the_list_holds_what_codex_knows_of_its_visible_models",
            "tests/codex/process/test_worker.py::test_models_have_their_true_context_windows",
        ),
        divergence="The object has more fields than OpenAI's, and `created` is 0.",
    ),
    Requirement(
        id="models.retrieve",
        sentence="Each model is described under the name that was asked for.",
        source=MODELS,
        tests=(
            "tests/real/test_models_route.py::test_a_model_is_described_under_the_name_that_was_asked_for",
            "tests/real/test_ingress_routes.py::test_the_sdk_lists_the_models_and_retrieves_each",
        ),
    ),
    Requirement(
        id="models.effort-suffix",
        sentence="`gpt-5.5-high`, `-l`, `-m`, `-h` and `-xh` name a model and an effort; one in the request wins.",
        source=OURS,
        tests=(
            "tests/real/test_models_route.py::test_a_name_stands_for_a_model_and_an_effort",
            "tests/real/test_models_route.py::test_an_effort_in_the_request_wins_over_one_in_the_name",
        ),
    ),
    Requirement(
        id="models.earlier-names",
        sentence="The names of the earlier proxy (`codex-5`, `codev-5.2-h` and so on) still work.",
        source=OURS,
        tests=(
            "tests/real/test_models_route.py::test_a_name_stands_for_a_model_and_an_effort",
            "tests/engine/test_models.py::test_a_name_stands_for_a_model_and_perhaps_an_effort",
        ),
    ),
    Requirement(
        id="models.own-names",
        sentence="The user's own names (`PROXY_MODEL_ALIASES`) work and are listed; one that leads nowhere is not.",
        source=OURS,
        tests=(
            "tests/real/test_models_route.py::test_a_name_stands_for_a_model_and_an_effort",
            "tests/real/test_models_route.py::test_the_list_ends_in_the_users_own_names",
            "tests/real/test_models_route.py::test_an_alias_of_a_model_that_is_gone_spoils_nothing_else",
        ),
    ),
    Requirement(
        id="models.default",
        sentence=(
            "`CODEX_MODEL`, else the user's Codex configuration, else Codex itself, says what the default is; no other "
            "model takes its place."
        ),
        source=OURS,
        tests=(
            "tests/real/test_models_route.py::test_a_name_stands_for_a_model_and_an_effort",
            "tests/engine/test_models.py::test_a_name_without_a_model_of_its_own_gets_the_default",
            "tests/engine/test_models.py::test_a_default_model_that_codex_does_not_offer_is_not_replaced_by_another",
            "tests/real/test_configured_model.py::test_the_operators_choice_wins_over_the_configuration",
            "tests/codex/process/test_worker.py::test_models_have_their_true_context_windows",
        ),
    ),
    Requirement(
        id="models.configured",
        sentence=(
            "A configured model that Codex's catalogue lacks, as of Ollama, Azure or OpenRouter, is listed, and served "
            "by its name as exactly as any other."
        ),
        source=OURS,
        tests=(
            "tests/real/test_configured_model.py::test_the_model_sees_its_own_name_and_only_the_clients_items",
            "tests/real/test_configured_model.py::test_what_is_asked_of_it_reaches_it_though_nobody_knows_whether_it_can",
            "tests/real/test_configured_model.py::test_it_is_listed_with_what_nobody_knows_left_open",
            "tests/real/test_configured_model.py::test_the_model_of_the_users_codex_configuration_is_served",
            "tests/codex_versions/test_turns.py::test_a_model_that_the_configuration_names_is_served_by_its_name",
        ),
    ),
    Requirement(
        id="models.unknown",
        sentence="An unknown name is a 404 `model_not_found` that offers near ones.",
        source=ERRORS,
        tests=(
            "tests/real/test_models_route.py::test_an_unknown_name_is_a_404_that_offers_near_ones",
            "tests/real/test_models_route.py::test_a_name_that_is_like_no_other_is_a_404_with_all_names",
        ),
    ),
    Requirement(
        id="models.told",
        sentence="The answer has the client's name of the model, and `x-turnbridge-model` Codex's.",
        source=OURS,
        tests=("tests/real/test_models_route.py::test_a_name_stands_for_a_model_and_an_effort",),
    ),
)
