"""Promises about what the model sees, and about whole answers."""

from tests.compat.promise import (
    CHAT,
    CHAT_STREAM,
    CLIENTS,
    FUNCTIONS,
    OURS,
    RESPONSES,
    RESPONSES_STREAM,
    WEB_SEARCH,
    Promise,
)

ITEMS = (
    Promise(
        id="items.exact",
        sentence="The model sees the client's items in their order, and nothing else.",
        source=OURS,
        divergence="Codex gives an `id` to items that have none, and adds client metadata of its own.",
    ),
    Promise(
        id="items.every-model",
        sentence="That holds for every model that Codex offers, hidden ones too.",
        source=OURS,
    ),
    Promise(
        id="items.instructions",
        sentence="`instructions`, and nothing else, fill the place of Codex's own prompt, before all items.",
        source=RESPONSES,
        divergence="The model sees them as a first developer message: Codex sends its prompt that way.",
    ),
    Promise(
        id="items.system-messages",
        sentence="System and developer messages stay where they are, first, last or in the middle.",
        source=CHAT,
        divergence="System messages become developer messages: Codex would drop them.",
    ),
    Promise(
        id="items.history",
        sentence=(
            "History reaches the model as items, never flattened to text: messages with their `phase`, encrypted "
            "reasoning, calls, outputs, images, searches."
        ),
        source=OURS,
    ),
    Promise(
        id="items.shapes.responses",
        sentence="Every shape of `input` that the official SDK can send is understood: text, bare messages, parts.",
        source=RESPONSES,
    ),
    Promise(
        id="items.shapes.chat",
        sentence="Every shape of message that the official SDK can send is understood, legacy function calls too.",
        source=CHAT,
    ),
    Promise(
        id="items.uncarried",
        sentence="An item that Codex cannot carry is a 400 that names its place.",
        source=OURS,
        divergence=(
            "Items of tools that run at OpenAI (computer, code interpreter, MCP and so on) are refused, except web and "
            "tool searches, images and compacted histories."
        ),
    ),
    Promise(
        id="items.references",
        sentence="An item reference is the item that was kept under its id; one to nothing is a 404 with its place.",
        source=RESPONSES,
    ),
    Promise(
        id="items.given-back",
        sentence="An answer that the client gives back reaches the model as it was.",
        source=RESPONSES,
    ),
    Promise(
        id="items.refusals",
        sentence="An earlier refusal of the model's is part of its history.",
        source=CHAT,
        divergence="It is shown as plain text: Codex drops refusals.",
    ),
    Promise(
        id="items.names",
        sentence="A message may have the `name` of its speaker.",
        source=CHAT,
        divergence="The name does not reach the model, and is named in `x-turnbridge-ignored`.",
    ),
    Promise(
        id="items.namespaces",
        sentence="The `namespace` of a call, and the function that an output names, reach the model and come back.",
        source=RESPONSES,
    ),
    Promise(
        id="items.fields",
        sentence="A field of an item that Codex does not carry is named in `x-turnbridge-ignored`.",
        source=OURS,
    ),
    Promise(
        id="items.pairs",
        sentence="A call without its output, or an output without its call, is a 400 in OpenAI's words.",
        source=FUNCTIONS,
    ),
    Promise(
        id="items.long",
        sentence="Long texts, long tool outputs and hundreds of items arrive whole.",
        source=OURS,
    ),
    Promise(
        id="items.markup",
        sentence="Text that looks like markup of Codex, of a model or of a protocol is just text.",
        source=OURS,
    ),
)

CHAT_ANSWERS = (
    Promise(
        id="chat.completion",
        sentence="A completion has every field of OpenAI's object, and none that the official SDK does not know.",
        source=CHAT,
        divergence="`reasoning_content` is added, which many clients show; `system_fingerprint` is left out.",
    ),
    Promise(
        id="chat.fold",
        sentence="A completion is the fold of its stream.",
        source=CHAT_STREAM,
    ),
    Promise(
        id="chat.finish-reason",
        sentence="`finish_reason` is `stop`, `length`, `content_filter` or `tool_calls`, as the turn ended.",
        source=CHAT,
    ),
    Promise(
        id="chat.several-messages",
        sentence="Several messages of one turn are one text with a blank line between them.",
        source=OURS,
    ),
    Promise(
        id="chat.citations",
        sentence="Citations are annotations that point at their place in the text, whole and streamed.",
        source=WEB_SEARCH,
    ),
    Promise(
        id="chat.sdks",
        sentence="The official SDKs for Python and node read chat answers, streamed or not, and raise its errors.",
        source=CLIENTS,
    ),
)

RESPONSE_ANSWERS = (
    Promise(
        id="responses.envelope",
        sentence="A response has every field that strict clients look for, each at the value in force.",
        source=CLIENTS,
        divergence="`temperature` and `top_p` are 1, whatever was asked: so it was run.",
    ),
    Promise(
        id="responses.sdk-types",
        sentence="Responses and their events have no field that the official SDK does not know.",
        source=CLIENTS,
        divergence="Except `store` and both penalties, which strict clients want.",
    ),
    Promise(
        id="responses.fold",
        sentence="A response is the fold of its stream.",
        source=RESPONSES_STREAM,
    ),
    Promise(
        id="responses.incomplete",
        sentence="An answer that was cut off has the status `incomplete`, the reason, and its text so far.",
        source=RESPONSES,
    ),
    Promise(
        id="responses.citations",
        sentence="Citations are annotations of their text, and events in its stream.",
        source=WEB_SEARCH,
    ),
    Promise(
        id="responses.prompt",
        sentence="`prompt` is a 400 that names it.",
        source=RESPONSES,
        divergence="Stored prompts live at OpenAI.",
    ),
    Promise(
        id="responses.sdks",
        sentence="The official SDKs for Python and node read responses, streamed or not, and raise their errors.",
        source=CLIENTS,
    ),
)
