"""Promises about Ollama's API, and about the listener that serves it."""

from tests.compat.promise import CLIENTS, OLLAMA, OURS, Promise

OLLAMA_API = (
    Promise(
        id="ollama.chat",
        sentence="`POST /api/chat` answers messages, streamed unless `stream` is false.",
        source=OLLAMA,
    ),
    Promise(
        id="ollama.generate",
        sentence="`POST /api/generate` answers a prompt, with a system prompt and images.",
        source=OLLAMA,
        divergence="`suffix` and `raw` are refused; `template` and `context` have no effect.",
    ),
    Promise(
        id="ollama.fidelity",
        sentence="The model sees a conversation of this API just as if it had come through `/v1/chat/completions`.",
        source=OURS,
    ),
    Promise(
        id="ollama.stream",
        sentence="A stream is NDJSON: every line is an object, calls are one line before the last, "
        "the last has `done` and the counts.",
        source=OLLAMA,
        divergence="`created_at` is the same in all lines; durations are the gateway's own times.",
    ),
    Promise(
        id="ollama.stream.fold",
        sentence="The fold of a stream is the answer that is sent whole.",
        source=OLLAMA,
    ),
    Promise(
        id="ollama.stream.keepalive",
        sentence="A silent stream has lines with an empty text, and nothing that is not an object.",
        source=CLIENTS,
    ),
    Promise(
        id="ollama.usage",
        sentence="`prompt_eval_count` and `eval_count` are the provider's tokens; no duration is 0.",
        source=OLLAMA,
    ),
    Promise(
        id="ollama.tools",
        sentence="Tools are declared as they come; arguments of calls are objects, with the id of the call.",
        source=OLLAMA,
        divergence="Arguments that are no JSON object are in `unparsed_arguments`.",
    ),
    Promise(
        id="ollama.tools.without-ids",
        sentence="Results are paired with calls by id, by name or by order; a result too few or too many is a 400.",
        source=CLIENTS,
    ),
    Promise(
        id="ollama.threads",
        sentence="Results resume their turn, also from clients that keep no ids, and the next question stays warm.",
        source=OURS,
    ),
    Promise(
        id="ollama.images",
        sentence="`images` are base64, with or without the head of a data URL.",
        source=OLLAMA,
    ),
    Promise(
        id="ollama.format",
        sentence="`format` gives JSON, or JSON that conforms to a schema, or an error.",
        source=OLLAMA,
        divergence="A message asks the model for the format where the provider does not enforce it.",
    ),
    Promise(
        id="ollama.think",
        sentence="`think` sets the effort, and whether `thinking` is shown; a tag of the model's name sets it too.",
        source=OLLAMA,
        divergence="`false` asks for the least effort that the model has; `thinking` is the provider's summary.",
    ),
    Promise(
        id="ollama.options",
        sentence="`options.num_predict` and `options.stop` are met; all others are named in `x-turnbridge-ignored`.",
        source=OLLAMA,
        divergence="Codex has no sampling parameters. `logprobs` is refused.",
    ),
    Promise(
        id="ollama.load",
        sentence="A request without messages or prompt loads or unloads nothing, says so, and runs no turn.",
        source=OLLAMA,
    ),
    Promise(
        id="ollama.models",
        sentence=(
            "`/api/tags` and `/api/show` have names, capabilities and the true context window; an existing model "
            "can be pulled."
        ),
        source=CLIENTS,
        divergence="Size and time are placeholders; `/api/ps` is empty.",
    ),
    Promise(
        id="ollama.presence",
        sentence="`/` and `/api/version` answer as clients expect, to HEAD too.",
        source=CLIENTS,
        divergence="The version is a constant: clients choose features by it.",
    ),
    Promise(
        id="ollama.unserved",
        sentence="Embeddings and the management of models are a 404 that says why.",
        source=OURS,
    ),
    Promise(
        id="ollama.errors",
        sentence='Errors are `{"error": ...}`: with a status before the answer, as the last line after it began.',
        source=OLLAMA,
    ),
    Promise(
        id="ollama.listener",
        sentence="The listener is off unless asked for, and serves `/v1/*` as the main port does.",
        source=OURS,
    ),
    Promise(
        id="ollama.listener.keys",
        sentence="Programs on this machine need no key; other machines and clients of a proxy do.",
        source=OURS,
    ),
    Promise(
        id="ollama.listener.pages",
        sentence="Web pages of foreign origins, and hosts that are not this machine's, are refused.",
        source=OURS,
    ),
    Promise(
        id="ollama.listener.client",
        sentence="Requests without a key are the client `ollama`: in the log, in limits, and in what is stored.",
        source=OURS,
    ),
    Promise(
        id="ollama.clients",
        sentence="Real clients work: ollama for Python and node, LangChain, and what VS Code and Home Assistant send.",
        source=CLIENTS,
    ),
    Promise(
        id="ollama.bounds",
        sentence="Messages, images and schemas of a request have a budget; no body stalls the gateway.",
        source=OURS,
    ),
)
