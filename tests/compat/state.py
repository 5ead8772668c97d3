"""Promises about what is kept: responses, conversations, chat completions, and who gets at them."""

from tests.compat.promise import (
    BACKGROUND,
    CHAT,
    CLIENTS,
    CONVERSATIONS,
    OURS,
    REASONING,
    RESPONSES,
    STATE_GUIDE,
    Promise,
)

MADE_LATER = "tests/real/test_state_background.py"
KILLED_CODEX = "tests/faults/test_killed_codex.py"

STATE = (
    Promise(
        id="state.compacted",
        sentence=(
            "`POST /v1/responses/compact` answers with the user's messages and a `compaction` item; in later requests "
            "the model is shown what the item holds."
        ),
        source=RESPONSES,
        divergence="The item holds a summary that the model wrote for this purpose, not the model's own state.",
    ),
    Promise(
        id="state.context-management",
        sentence=(
            "`context_management` with a `compact_threshold` compacts a longer history before it is answered: the "
            "output begins with a `compaction` item, and what stands before that is not shown to the model any more."
        ),
        source=RESPONSES,
        divergence=(
            "Tokens are estimated, once for each request; what grows during an answer waits for the next one. The "
            "item holds a summary, and the latest messages of the user."
        ),
    ),
    Promise(
        id="state.compaction-seal",
        sentence="A `compaction` item of this gateway's that was changed is refused; those of others are passed on.",
        source=OURS,
    ),
    Promise(
        id="state.stored",
        sentence="A response is stored unless `store` is false, and is retrieved unchanged.",
        source=RESPONSES,
        divergence="The answer's `store` is false if it could not be stored.",
    ),
    Promise(
        id="state.continued",
        sentence="`previous_response_id` continues any earlier response, so that conversations branch.",
        source=STATE_GUIDE,
    ),
    Promise(
        id="state.hidden-calls",
        sentence=(
            "A response that is continued after a restart shows the model its calls that the client was not given "
            "(`parallel_tool_calls: false`, corrected arguments), and what it was told of them."
        ),
        source=OURS,
    ),
    Promise(
        id="state.instructions",
        sentence="Instructions of an earlier response do not carry over.",
        source=RESPONSES,
    ),
    Promise(
        id="state.tools",
        sentence="Outputs with `previous_response_id` resume the turn that waits for them.",
        source=STATE_GUIDE,
    ),
    Promise(
        id="state.reasoning",
        sentence="The model's reasoning is part of the continued history, even if the client never saw it.",
        source=REASONING,
    ),
    Promise(
        id="state.restart",
        sentence="All of this survives a restart of the gateway and of Codex.",
        source=OURS,
    ),
    Promise(
        id="state.input-items",
        sentence="`input_items` lists what a response was made from, in pages and in both orders.",
        source=RESPONSES,
        divergence="It lists the whole context, with what `previous_response_id` or a conversation brought.",
    ),
    Promise(
        id="state.include",
        sentence="Encrypted reasoning is shown again to those who ask for it with `include`.",
        source=RESPONSES,
    ),
    Promise(
        id="state.deleted",
        sentence="A deleted response is gone, and responses that continue it stay complete.",
        source=RESPONSES,
    ),
    Promise(
        id="state.errors",
        sentence=(
            "Unknown ids and impossible combinations are refused with OpenAI's messages before the model is asked."
        ),
        source=RESPONSES,
    ),
    Promise(
        id="state.keys",
        sentence="To another key, none of it exists.",
        source=OURS,
    ),
    Promise(
        id="state.no-trace",
        sentence="A request that stores nothing leaves no trace on disk; keys are never written.",
        source=OURS,
    ),
    Promise(
        id="state.retention",
        sentence="Entries older than `PROXY_STORE_TTL_DAYS`, or beyond `PROXY_STORE_MAX_MB`, are deleted.",
        source=OURS,
    ),
    Promise(
        id="state.retention.fair",
        sentence="No key evicts another's entries: the oldest of the key that uses most are deleted.",
        source=OURS,
    ),
    Promise(
        id="state.off",
        sentence=(
            "`PROXY_STORE_TTL_DAYS=0` stores nothing: requests are answered, and those that need the store get an "
            "error."
        ),
        source=OURS,
    ),
    Promise(
        id="state.broken-store",
        sentence="A failing store costs no answer: it has `store: false`, and the log has the reason.",
        source=OURS,
    ),
    Promise(
        id="state.hanging-store",
        sentence="A store that hangs delays one answer by two seconds, and no other; what needs it is a 503 at once.",
        source=OURS,
    ),
    Promise(
        id="state.killed",
        sentence="Whenever the gateway is killed, every answer that was read is stored, and none in part.",
        source=OURS,
    ),
    Promise(
        id="state.failed",
        sentence="A failed stream is stored as failed, and its complete items can be continued.",
        source=RESPONSES,
    ),
    Promise(
        id="state.background.polled",
        sentence="`background: true` answers at once; the response is found by polling, and once its end is told, "
        "it may be continued.",
        source=BACKGROUND,
    ),
    Promise(
        id="state.background.streamed",
        sentence="Its stream can be read by many, at any time, from any event on (`starting_after`).",
        source=BACKGROUND,
        divergence="While it is made, only the gateway that makes it has the stream.",
    ),
    Promise(
        id="state.background.cancelled",
        sentence="Cancelling twice, or after completion, is a no-op.",
        source=BACKGROUND,
        divergence="Its stream ends in `response.incomplete` with the status `cancelled` inside.",
    ),
    Promise(
        id="state.background.lost",
        sentence="A response whose gateway was stopped or killed fails, with the reason.",
        source=OURS,
    ),
    Promise(
        id="state.background.one-end",
        sentence="One that ends while the store is away is kept when it is back; no client gets two ends.",
        source=OURS,
    ),
    Promise(
        id="state.replicas.calls",
        sentence=(
            "With several gateways on one Postgres, any of them continues with the outputs of calls: the "
            "model sees what "
            "it would have seen in the parked turn, with reasoning that the client dropped. The turn that was parked "
            "elsewhere is ended at once."
        ),
        source=OURS,
    ),
    Promise(
        id="state.replicas.conversation",
        sentence="Responses that several gateways add to one conversation are all kept, in the order of their ends.",
        source=OURS,
    ),
    Promise(
        id="state.replicas.stream",
        sentence=(
            "A background response is streamed by any gateway on the same Postgres while one of them makes it: the "
            "same events from any position, no gap, no repetition, one end, also if its gateway is killed."
        ),
        source=OURS,
    ),
    Promise(
        id="state.replicas.cancel",
        sentence="A background response is cancelled and deleted through any gateway on the same Postgres, at once.",
        source=OURS,
    ),
    Promise(
        id="state.replicas.fenced",
        sentence=(
            "A gateway that was suspended for longer than its lease cannot change what another one has stored; its own "
            "readers are told that end."
        ),
        source=OURS,
    ),
    Promise(
        id="state.conversations",
        sentence="Conversations and their items are created, read, listed, changed and deleted.",
        source=CONVERSATIONS,
        divergence="An item that is deleted disappears from every history that shares it.",
    ),
    Promise(
        id="state.conversation",
        sentence="A response with `conversation` sees its items, and is added to them.",
        source=CONVERSATIONS,
    ),
    Promise(
        id="state.conversation.failed",
        sentence="A response that failed or was cancelled leaves nothing in its conversation, streamed or not.",
        source=CONVERSATIONS,
    ),
    Promise(
        id="state.chats",
        sentence="Chat completions with `store: true` are listed, filtered, read, updated, deleted, with messages.",
        source=CHAT,
    ),
    Promise(
        id="state.chats.reasoning",
        sentence="The history of calls of a stored chat is replayed with the model's reasoning, also after a restart.",
        source=OURS,
    ),
    Promise(
        id="state.sdks",
        sentence="The state calls of the official SDKs for Python and node work unchanged.",
        source=CLIENTS,
    ),
    Promise(
        id="state.seen",
        sentence="A continued response shows images and files as the model saw them; links are not loaded again.",
        source=STATE_GUIDE,
        divergence="Up to 16 MB for each response; lists show the links as they were sent.",
    ),
)
