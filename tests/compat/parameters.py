"""Promises about parameters, and about the shape of an answer."""

from tests.compat.promise import (
    CHAT,
    CLIENTS,
    OURS,
    RESPONSES,
    STRUCTURED,
    Promise,
)

PARAMETERS = (
    Promise(
        id="parameters.stop",
        sentence="A stop sequence ends the answer before it, and the turn in Codex at once.",
        source=CHAT,
        divergence="Responses has `stop` too, which OpenAI has not. Narration and reasoning are not searched.",
    ),
    Promise(
        id="parameters.stop.nothing-lost",
        sentence="Text that only looks like a stop sequence is not lost.",
        source=OURS,
    ),
    Promise(
        id="parameters.max-tokens",
        sentence=(
            "`max_output_tokens` ends the answer as `incomplete`, `max_completion_tokens` and `max_tokens` as "
            "`length`; the turn ends in Codex at once."
        ),
        source=RESPONSES,
        divergence="Only the text counts, not the reasoning: Codex knows no limit, and the gateway sees the text.",
    ),
    Promise(
        id="parameters.max-tokens.counted",
        sentence="The limit is counted with the model's tokenizer: the longest text within it passes.",
        source=OURS,
    ),
    Promise(
        id="parameters.max-tokens.bounded",
        sentence="Text that is slow to count keeps no other client waiting.",
        source=OURS,
    ),
    Promise(
        id="parameters.n",
        sentence="`n` choices are `n` turns that run at the same time, each in its own order.",
        source=CHAT,
        divergence="The usage counts the input once for each choice, since each one costs it.",
    ),
    Promise(
        id="parameters.n.failure",
        sentence="A choice that fails ends the others, and the request fails.",
        source=OURS,
    ),
    Promise(
        id="parameters.verbosity",
        sentence="`verbosity` reaches the model.",
        source=RESPONSES,
    ),
    Promise(
        id="parameters.service-tier",
        sentence="`service_tier` reaches the provider.",
        source=RESPONSES,
        divergence="Codex carries `flex` and `priority` (also called `fast`); others are ignored and named.",
    ),
    Promise(
        id="parameters.metadata",
        sentence="`metadata`, `user` and `safety_identifier` are echoed, and go to the provider.",
        source=RESPONSES,
        divergence="They go there in Codex's client metadata, not as the provider's own fields.",
    ),
    Promise(
        id="parameters.ignored",
        sentence=(
            "`temperature`, `top_p`, penalties, `seed`, `logit_bias`, `prompt_cache_key` and "
            "`max_tool_calls` are accepted, and named in `x-turnbridge-ignored`."
        ),
        source=CHAT,
        divergence="They have no effect: Codex has no way to send them to the model.",
    ),
    Promise(
        id="parameters.unknown",
        sentence="A parameter that nobody knows is accepted, and named in `x-turnbridge-ignored`.",
        source=CLIENTS,
        divergence="OpenAI refuses it; clients add fields faster than they can be listed.",
    ),
    Promise(
        id="parameters.default-values",
        sentence="A parameter at its default value is met, and neither named nor refused.",
        source=OURS,
    ),
    Promise(
        id="parameters.strict",
        sentence="`PROXY_STRICT_PARAMS=true` makes each ignored parameter a 400 that names it.",
        source=OURS,
    ),
    Promise(
        id="parameters.logprobs",
        sentence="Log probabilities and audio are a 400 that names the parameter.",
        source=CHAT,
        divergence="OpenAI gives them; Codex passes none on, and an answer without them would be another one.",
    ),
    Promise(
        id="parameters.bounds",
        sentence="A value out of OpenAI's bounds is a 400 in its words, and one on the bounds passes.",
        source=RESPONSES,
    ),
    Promise(
        id="parameters.truncation",
        sentence='`truncation: "auto"` is accepted, and named in `x-turnbridge-ignored`.',
        source=RESPONSES,
        divergence="Nothing is left out of the input: Codex could only summarise it, and is kept from that.",
    ),
    Promise(
        id="parameters.output-mode",
        sentence="`x-proxy-output-mode: obsidian-xml` writes calls into the text; an unknown mode is a 400.",
        source=CLIENTS,
    ),
    Promise(
        id="parameters.operator",
        sentence="The operator can set the output mode, leave out system messages and hide tools from the model.",
        source=CLIENTS,
    ),
)

STRUCTURED_ANSWERS = (
    Promise(
        id="structured.enforced",
        sentence="A strict schema is enforced by the provider, on both routes.",
        source=STRUCTURED,
        divergence="The provider sees the schema under a name of Codex's.",
    ),
    Promise(
        id="structured.sdks",
        sentence="The SDKs' `parse` gives the parsed object, on both routes, streamed or not.",
        source=STRUCTURED,
    ),
    Promise(
        id="structured.not-strict",
        sentence="A schema that is not strict is met too.",
        source=STRUCTURED,
        divergence="If it is outside the strict subset, a developer message shows it to the model.",
    ),
    Promise(
        id="structured.json-object",
        sentence="`json_object` takes any JSON object, if the conversation speaks of JSON.",
        source=STRUCTURED,
        divergence="The provider is not asked to enforce it: Codex cannot; the answer is checked instead.",
    ),
    Promise(
        id="structured.refused-schemas",
        sentence="A schema that OpenAI would refuse is a 400 before Codex is asked.",
        source=STRUCTURED,
    ),
    Promise(
        id="structured.checked",
        sentence="The final text is validated against the schema; narration is no part of it.",
        source=OURS,
    ),
    Promise(
        id="structured.repair",
        sentence="An answer that does not conform is repaired once, on the same thread; the usage is the sum.",
        source=OURS,
    ),
    Promise(
        id="structured.failure",
        sentence="An answer that still does not conform is a 422, which no SDK tries again.",
        source=OURS,
        divergence="OpenAI has no such error.",
    ),
    Promise(
        id="structured.streams",
        sentence="A streamed answer that does not conform ends as failed.",
        source=OURS,
        divergence="It is not repaired: what a client has read cannot be taken back.",
    ),
    Promise(
        id="structured.cut-short",
        sentence="An answer that was cut short is incomplete, and neither checked nor repaired.",
        source=STRUCTURED,
    ),
)
