"""Promises about models: what they are called, how they reason, and what they can be shown."""

from tests.compat.promise import (
    CLIENTS,
    ERRORS,
    FILES,
    MODELS,
    OURS,
    REASONING,
    RESPONSES,
    RESPONSES_STREAM,
    VISION,
    Promise,
)

REASONING_ANSWERS = (
    Promise(
        id="reasoning.effort",
        sentence="`reasoning.effort` and `reasoning_effort` reach the model.",
        source=REASONING,
    ),
    Promise(
        id="reasoning.effort.unknown",
        sentence="An effort that neither the model lists nor OpenAI knows is a 400 that names those it lists.",
        source=REASONING,
    ),
    Promise(
        id="reasoning.summary",
        sentence="`reasoning.summary` reaches the model; summaries and open reasoning are items with events.",
        source=RESPONSES_STREAM,
    ),
    Promise(
        id="reasoning.chat",
        sentence="Chat asks for summaries by itself, and shows them as `reasoning_content`, never in the text.",
        source=CLIENTS,
        divergence="OpenAI's chat shows no reasoning; many clients know this field of other servers.",
    ),
    Promise(
        id="reasoning.chat.no-summaries",
        sentence="Where the provider gives no summaries, a chat is served without one.",
        source=OURS,
    ),
    Promise(
        id="reasoning.encrypted",
        sentence="Encrypted reasoning is given to those who ask with `include`, and to no others.",
        source=REASONING,
    ),
    Promise(
        id="reasoning.given-back",
        sentence="Reasoning that the client gives back reaches the model with its encrypted content.",
        source=REASONING,
    ),
    Promise(
        id="reasoning.narration.chat",
        sentence="Narration (`phase: commentary`) is on the reasoning side of a chat answer.",
        source=OURS,
    ),
    Promise(
        id="reasoning.narration.responses",
        sentence="Narration is an item of its own in a response.",
        source=RESPONSES,
    ),
)

MEDIA = (
    Promise(
        id="media.image.data-url",
        sentence="An image in a data URL reaches the model byte for byte.",
        source=VISION,
        divergence="Codex turns GIF into PNG.",
    ),
    Promise(
        id="media.image.true-type",
        sentence="An image counts as what its bytes are: PNG, JPEG, GIF or WebP; anything else is a 400.",
        source=VISION,
    ),
    Promise(
        id="media.image.pixels",
        sentence="An image of more than 50 million pixels is a 400 `image_too_large`, before anybody unpacks it.",
        source=OURS,
    ),
    Promise(
        id="media.image.https",
        sentence="An image behind an https URL is fetched by the gateway and shown.",
        source=VISION,
        divergence="Plain http is refused.",
    ),
    Promise(
        id="media.image.detail",
        sentence="`detail` is kept.",
        source=VISION,
        divergence=(
            "`low` is ignored and named: Codex would show a text instead of the image. Large images are scaled "
            "down by Codex unless the detail is `original`."
        ),
    ),
    Promise(
        id="media.image.broken",
        sentence="A broken image is a 400 `invalid_image` that names the part.",
        source=ERRORS,
    ),
    Promise(
        id="media.fetch.bounds",
        sentence="What is fetched is bounded in size, time and redirects.",
        source=OURS,
    ),
    Promise(
        id="media.file.text",
        sentence="A file of text reaches the model as text in its place, below its name.",
        source=FILES,
        divergence="OpenAI shows the model the file; Codex carries none.",
    ),
    Promise(
        id="media.file.pdf",
        sentence="A PDF reaches the model as its text; without the extra `pdf` the error says how to get it.",
        source=FILES,
        divergence="OpenAI also shows the model a picture of each page.",
    ),
    Promise(
        id="media.file.pdf-limits",
        sentence="A PDF that takes too long or too much memory to read is a 400, and keeps nobody waiting.",
        source=OURS,
    ),
    Promise(
        id="media.file.url",
        sentence="A file behind an https URL is fetched, under the same rules as an image.",
        source=FILES,
    ),
    Promise(
        id="media.file.uploaded",
        sentence="A `file_id` in an image or file part shows the model the same as the bytes inline.",
        source=FILES,
    ),
    Promise(
        id="media.uncarried",
        sentence="Audio, unknown parts and other binary files are a 400 that names the part.",
        source=OURS,
        divergence="OpenAI takes audio and more kinds of files; Codex carries none.",
    ),
)

MODEL_NAMES = (
    Promise(
        id="models.list",
        sentence="The list is read from Codex: models with limits, efforts, modalities and tiers, then `codex-5`.",
        source=MODELS,
        divergence="The object has more fields than OpenAI's, and `created` is 0 where it is not known.",
    ),
    Promise(
        id="models.retrieve",
        sentence="Each model is described under the name that was asked for.",
        source=MODELS,
    ),
    Promise(
        id="models.effort-suffix",
        sentence="`gpt-5.5-high`, `-l`, `-m`, `-h` and `-xh` name a model and an effort; one in the request wins.",
        source=OURS,
    ),
    Promise(
        id="models.earlier-names",
        sentence="The names of the earlier proxy (`codex-5`, `codev-5.2-h` and so on) still work.",
        source=OURS,
    ),
    Promise(
        id="models.own-names",
        sentence="The user's own names (`PROXY_MODEL_ALIASES`) work and are listed; one that leads nowhere is not.",
        source=OURS,
    ),
    Promise(
        id="models.default",
        sentence=(
            "`CODEX_MODEL`, else the user's Codex configuration, else Codex itself, says what the default is; no other "
            "model takes its place."
        ),
        source=OURS,
    ),
    Promise(
        id="models.configured",
        sentence=(
            "A configured model that Codex's catalogue lacks, as of Ollama, Azure or OpenRouter, is listed, and served "
            "by its name as exactly as any other."
        ),
        source=OURS,
    ),
    Promise(
        id="models.provider",
        sentence=(
            "`gpt-5.5@azure` asks the provider `azure` of the Codex configuration; threads of two providers never mix."
        ),
        source=OURS,
    ),
    Promise(
        id="models.unknown",
        sentence="An unknown name is a 404 `model_not_found` that offers near ones.",
        source=ERRORS,
    ),
    Promise(
        id="models.told",
        sentence="`model` echoes the requested name; `x-turnbridge-model` is the Codex model used.",
        source=OURS,
    ),
)
