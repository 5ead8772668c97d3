"""Promises about function calls and other tools."""

from tests.compat.promise import (
    CHAT,
    CHAT_STREAM,
    CLIENTS,
    FUNCTIONS,
    OURS,
    RESPONSES_STREAM,
    VISION,
    WEB_SEARCH,
    Promise,
)

TOOLS = (
    Promise(
        id="tools.declared",
        sentence="Functions are declared flat on Responses and nested on chat; either shape is understood.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.legacy",
        sentence="The legacy `functions` and `function_call` work, streamed or not.",
        source=CHAT,
    ),
    Promise(
        id="tools.names",
        sentence="Names that Codex refuses or keeps for itself are changed for it; the client sees only its own.",
        source=CLIENTS,
        divergence="The model sees the changed name: `mcp__x` becomes `client_mcp__x`, a dot an underscore.",
    ),
    Promise(
        id="tools.schemas",
        sentence="The model is given each description and schema as it was declared; nothing of any schema is lost.",
        source=FUNCTIONS,
        divergence=(
            "Keywords that Codex's smaller schema language lacks, and schemas that it would cut down, are told in "
            "descriptions instead. Codex puts properties in alphabetical order."
        ),
    ),
    Promise(
        id="tools.objects",
        sentence="Parameters that say of themselves that they are no object are a 400 in OpenAI's words.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.batch.together",
        sentence="All calls of one model response leave together, in the model's order, with its `call_id`s.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.batch.responses",
        sentence="A call is an item with `added`, argument deltas that concatenate, `arguments.done` and `item.done`.",
        source=RESPONSES_STREAM,
        divergence="There is one delta: Codex passes a call on when it is whole.",
    ),
    Promise(
        id="tools.batch.chat",
        sentence="A call's first fragment has its id, type and name, all have its `index`; it ends as `tool_calls`.",
        source=CHAT_STREAM,
    ),
    Promise(
        id="tools.batch.text",
        sentence="Text before the calls is kept.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.usage",
        sentence="The usage of a request is that of its own leg of the turn.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.parked",
        sentence="The request that brings the outputs resumes the very turn that made the calls, for many rounds.",
        source=OURS,
    ),
    Promise(
        id="tools.parked.any-order",
        sentence="Outputs may come in any order.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.parked.between",
        sentence="What concerns only the answer, such as `stream` or a token limit, may change between the legs.",
        source=OURS,
    ),
    Promise(
        id="tools.parked.rewritten",
        sentence="Arguments that the client writes anew, with other spaces, are still the same call.",
        source=CLIENTS,
    ),
    Promise(
        id="tools.parked.bounded",
        sentence="Turns that wait are bounded in number; the oldest of the key that has most is interrupted.",
        source=OURS,
    ),
    Promise(
        id="tools.output.text",
        sentence="An output arrives as it is: empty, an error, 200 KB, any characters.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.output.parts",
        sentence="An output may be a list of texts.",
        source=FUNCTIONS,
        divergence="A list of one text is shown to the model as that text.",
    ),
    Promise(
        id="tools.output.images",
        sentence="An output may hold images, with their detail; a broken one is a 400.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.replay",
        sentence="If the turn is gone, the same request is served by replay, and neither end can tell.",
        source=OURS,
    ),
    Promise(
        id="tools.replay.reasoning",
        sentence="The model's reasoning before a call is kept for clients that cannot send it back.",
        source=OURS,
    ),
    Promise(
        id="tools.replay.killed",
        sentence="A Codex that is killed between the legs changes nothing for the client or the model.",
        source=OURS,
    ),
    Promise(
        id="tools.replay.expired",
        sentence=(
            "A client that does not come back has its turn interrupted after `PROXY_PARKED_TURN_TTL_S`, and is still "
            "served if it comes later."
        ),
        source=OURS,
    ),
    Promise(
        id="tools.replay.unknown-calls",
        sentence="A history with calls that this gateway never made, as after its restart, reaches the model whole.",
        source=OURS,
    ),
    Promise(
        id="tools.edited",
        sentence="A history that differs from the parked one, or asks for other settings, is replayed as it was sent.",
        source=OURS,
    ),
    Promise(
        id="tools.mismatch",
        sentence="Missing or unknown `call_id`s are a 400 as OpenAI answers, and the turn still waits.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.sent-twice",
        sentence="A second leg that is sent twice gets the same answer twice.",
        source=CLIENTS,
    ),
    Promise(
        id="tools.interleaved",
        sentence="Twenty conversations at once are never mixed up.",
        source=OURS,
    ),
    Promise(
        id="tools.unfit",
        sentence="A call that no client can serve is answered by Codex; the others of its batch go on.",
        source=OURS,
        divergence="OpenAI passes on arguments that are no JSON; Codex tells the model to call again.",
    ),
    Promise(
        id="tools.frameworks",
        sentence="Agents of `openai-agents` and LangChain run their tool loops in one turn, on both routes.",
        source=CLIENTS,
    ),
    Promise(
        id="tools.broken-off",
        sentence="Whole calls of an answer that then broke off are passed on, and their outputs are taken.",
        source=OURS,
    ),
    Promise(
        id="tools.choice",
        sentence="`none`, `auto`, `required`, a function and `allowed_tools` decide what the model is given.",
        source=FUNCTIONS,
        divergence="Functions that may not be called are not declared at all: Codex knows only `auto`.",
    ),
    Promise(
        id="tools.choice.required",
        sentence="A missing required call is requested once more, on the same thread.",
        source=FUNCTIONS,
        divergence="OpenAI's models are forced to call; here the text of the first attempt is shown too.",
    ),
    Promise(
        id="tools.choice.failure",
        sentence="If the call still does not come, the request fails with 422 `tool_call_missing`.",
        source=OURS,
        divergence="OpenAI has no such error.",
    ),
    Promise(
        id="tools.parallel-off",
        sentence="`parallel_tool_calls: false` lets one call through, and tells the model that others were not run.",
        source=FUNCTIONS,
        divergence="OpenAI keeps the model from making more; Codex always allows them.",
    ),
    Promise(
        id="tools.strict",
        sentence=(
            "Wrong arguments of a strict function are answered as a failed call, at most twice, before the client "
            "sees anything."
        ),
        source=FUNCTIONS,
        divergence="OpenAI enforces the schema; Codex declares every function as not strict.",
    ),
    Promise(
        id="tools.strict.default",
        sentence="On Responses, a function without `strict` is strict if its schema is of the strict subset.",
        source=FUNCTIONS,
        divergence="OpenAI also rewrites other schemas into strict ones where it can; here they stay as sent.",
    ),
    Promise(
        id="tools.strict.failure",
        sentence="A strict call that stays wrong is a 422 `invalid_tool_arguments`.",
        source=OURS,
        divergence="OpenAI has no such error.",
    ),
    Promise(
        id="tools.strict.schema",
        sentence="The schema of a strict function must be of OpenAI's strict subset, else it is a 400.",
        source=FUNCTIONS,
    ),
    Promise(
        id="tools.custom",
        sentence=(
            "Custom (free-form) tools are declared, called and chosen as at OpenAI, on both routes; their calls have "
            "the model's text, whole."
        ),
        source=FUNCTIONS,
        divergence=(
            "To the model they are functions with one text, since Codex declares no others; the text comes in one "
            "delta."
        ),
    ),
    Promise(
        id="tools.custom.grammar",
        sentence="The grammar of a custom tool is in its description, and `x-turnbridge-ignored` names it.",
        source=FUNCTIONS,
        divergence="OpenAI enforces the grammar; Codex cannot.",
    ),
    Promise(
        id="tools.custom.corrected",
        sentence="A custom call that is no text is answered as a failed call before the client sees anything.",
        source=OURS,
    ),
    Promise(
        id="tools.namespaces",
        sentence="Namespaces reach the model as they are declared; calls have the namespace and the function's name.",
        source=FUNCTIONS,
        divergence=(
            "Names that Codex reserves get a prefix for the model. Codex puts the functions of a namespace in "
            "alphabetical order. Chat Completions has namespaces here only: there the name of a "
            "function has both, as in `crm__find`."
        ),
    ),
    Promise(
        id="tools.search",
        sentence="A search for tools that the client runs is called as at OpenAI; what it finds can be called.",
        source=FUNCTIONS,
        divergence=(
            "To the model the search is a function. The provider's own search is ignored: all deferred functions are "
            "declared from the beginning, and `x-turnbridge-ignored` names them."
        ),
    ),
    Promise(
        id="tools.added",
        sentence="Tools that an `additional_tools` item in the input declares can be called.",
        source=CLIENTS,
        divergence="The model sees them among all other tools, not at the place of the item.",
    ),
    Promise(
        id="tools.codex-cli",
        sentence="Codex CLI, with the tools that it has by default, patches files and runs commands.",
        source=CLIENTS,
    ),
    Promise(
        id="tools.image-generation",
        sentence="With a ChatGPT login, `image_generation` makes images; without one it is a 400 with the reason.",
        source=VISION,
        divergence="Codex chooses size and quality; no partial images. The model is told the path of a removed file.",
    ),
    Promise(
        id="tools.images-api",
        sentence="`POST /v1/images/generations` makes up to four images, with a ChatGPT login.",
        source=VISION,
        divergence="A model passes the prompt on; size, quality and the like are named as ignored; base64 only.",
    ),
    Promise(
        id="tools.hosted",
        sentence="Hosted tools other than web search, images and MCP are a 400 with each type, its index, and why.",
        source=FUNCTIONS,
        divergence="OpenAI runs them.",
    ),
    Promise(
        id="tools.web-search",
        sentence="Web search is switched on with its options, for the thread of this request only.",
        source=WEB_SEARCH,
    ),
    Promise(
        id="tools.web-search.shown",
        sentence="Searches are items and citations annotations; a search before a call stays in the model's memory.",
        source=WEB_SEARCH,
    ),
    Promise(
        id="tools.mode.direct",
        sentence="In direct mode, a model that Codex ships to write scripts calls functions one by one.",
        source=OURS,
    ),
    Promise(
        id="tools.mode.native",
        sentence="In native mode, calls from a model's script reach the client as ordinary ones, and are replayed so.",
        source=OURS,
    ),
    Promise(
        id="tools.mode.native-at-once",
        sentence="Calls that a script makes at once all reach the client, together or one by one as it wants them.",
        source=OURS,
    ),
    Promise(
        id="tools.mode.auto",
        sentence="In auto mode, a model whose direct tools the provider refuses is served natively from then on, "
        "and each answer says what Codex adds in that mode.",
        source=OURS,
    ),
)
