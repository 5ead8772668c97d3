"""Promises about Anthropic's Messages API."""

from tests.compat.promise import ANTHROPIC, CLIENTS, OURS, Promise

MESSAGES_API = (
    Promise(
        id="anthropic.messages",
        sentence="`POST /v1/messages` answers with a message, streamed or whole, whatever its query.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.fidelity",
        sentence="The model sees a conversation of this API just as if it had come through `/v1/responses`.",
        source=OURS,
    ),
    Promise(
        id="anthropic.content",
        sentence="Text, images, documents, calls and their results become the model's own items; "
        "a string is the same as one block of text.",
        source=ANTHROPIC,
        divergence="A document is shown as its text; `is_error` becomes a sentence before the result.",
    ),
    Promise(
        id="anthropic.system",
        sentence="The system prompt becomes `instructions`, without Claude Code's billing header; "
        "system messages stay in their place.",
        source=CLIENTS,
    ),
    Promise(
        id="anthropic.tools",
        sentence="Tools, `tool_choice` and `disable_parallel_tool_use` are obeyed.",
        source=ANTHROPIC,
        divergence="Of Anthropic's own tools only the web search is served; others are refused with 400.",
    ),
    Promise(
        id="anthropic.web-search",
        sentence="`web_search_*` is the provider's search; the answer has `server_tool_use` and citations.",
        source=ANTHROPIC,
        divergence="The list of results is empty: the provider does not send them.",
    ),
    Promise(
        id="anthropic.threads",
        sentence="A request with results resumes its turn, and the next question stays on the warm thread.",
        source=OURS,
    ),
    Promise(
        id="anthropic.thinking",
        sentence="Thinking is shown if requested; its signature returns the reasoning item to the model intact.",
        source=ANTHROPIC,
        divergence="A thinking block with a signature from elsewhere is left out.",
    ),
    Promise(
        id="anthropic.effort",
        sentence="`output_config.effort`, or else the thinking budget, becomes the nearest effort that the model has.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.structured",
        sentence="`output_config.format` gives an answer that conforms to its schema, or an error.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.parameters",
        sentence="`max_tokens`, `stop_sequences`, `metadata.user_id` and `cache_control` are accepted and enforced.",
        source=ANTHROPIC,
        divergence="`max_tokens` of 32,000 and more is not enforced: clients state the model's ceiling.",
    ),
    Promise(
        id="anthropic.stop-sequences",
        sentence="An answer that ends at a stop sequence says so, and names it.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.ignored",
        sentence="Fields and betas without effect are accepted, and named in `x-turnbridge-ignored`.",
        source=OURS,
    ),
    Promise(
        id="anthropic.versions",
        sentence="The versions 2023-06-01 and 2026-10-21 are served with their differences; another one is a 400.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.keys",
        sentence="A key is taken from `x-api-key` and from `Authorization`; two different ones are a 401.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.usage",
        sentence="`input_tokens` excludes cached tokens, which are in `cache_read_input_tokens`.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.count-tokens",
        sentence="`POST /v1/messages/count_tokens` counts by the gateway's own tokenizer, without the model.",
        source=ANTHROPIC,
        divergence="It counts what the model of Codex will see, by the same estimate as `/v1/responses/input_tokens`.",
    ),
    Promise(
        id="anthropic.models.names",
        sentence="Names of Anthropic's models stand for the default model, haiku for a small one, aliases come first.",
        source=OURS,
    ),
    Promise(
        id="anthropic.models.echo",
        sentence="`model` of a message is the requested name.",
        source=OURS,
    ),
    Promise(
        id="anthropic.models.list",
        sentence=(
            "`/v1/models` has Anthropic's shape for clients that send `anthropic-version`, and lists `claude-` aliases."
        ),
        source=CLIENTS,
    ),
    Promise(
        id="anthropic.hello",
        sentence="`HEAD /api/hello` is answered, without a key too.",
        source=CLIENTS,
    ),
    Promise(
        id="anthropic.stream.order",
        sentence="A stream has Anthropic's events in their order: dense indexes, one open block at a time.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.stream.fold",
        sentence="The fold of a stream is the message that is sent whole.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.stream.ping",
        sentence="A stream that is silent begins after the hold time, and has `ping` events.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.errors",
        sentence="Errors have Anthropic's shape and types; `x-should-retry` stops useless retries.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.errors.mid-stream",
        sentence="A turn that fails after output ends its stream in an `error` event.",
        source=ANTHROPIC,
    ),
    Promise(
        id="anthropic.errors.too-long",
        sentence="A request that is too long is a 400 that begins with `prompt is too long: A tokens > B maximum`.",
        source=CLIENTS,
        divergence="A is an estimate.",
    ),
    Promise(
        id="anthropic.bounds",
        sentence="Messages, blocks, schemas and images of a request have a budget; no body stalls the gateway.",
        source=OURS,
    ),
    Promise(
        id="anthropic.claude-code",
        sentence="Claude Code works: tools, web search, usage, and errors that are shown at once.",
        source=CLIENTS,
    ),
)
