"""Promises about streamed answers."""

from tests.compat.promise import (
    CHAT_STREAM,
    CLIENTS,
    OURS,
    RESPONSES_STREAM,
    Promise,
)

STREAMS = (
    Promise(
        id="streaming.responses.order",
        sentence="A response stream has the full typed sequence, from `created` to its end.",
        source=RESPONSES_STREAM,
    ),
    Promise(
        id="streaming.responses.sequence-numbers",
        sentence="`sequence_number` counts from 0 without a gap.",
        source=RESPONSES_STREAM,
    ),
    Promise(
        id="streaming.responses.stable-ids",
        sentence="An item keeps its id and its place in all events and in the final output.",
        source=CLIENTS,
    ),
    Promise(
        id="streaming.responses.one-terminal-event",
        sentence="Exactly one terminal event ends the stream, and everything that was opened is closed before it.",
        source=CLIENTS,
    ),
    Promise(
        id="streaming.responses.envelope",
        sentence="From `created` to `completed` the envelope changes only in what the answer decides.",
        source=CLIENTS,
    ),
    Promise(
        id="streaming.responses.frames",
        sentence="Each frame is one `event:` line, equal to the type, and one `data:` line that the SDK can read.",
        source=CLIENTS,
    ),
    Promise(
        id="streaming.chat.order",
        sentence="A chat stream is the role, the text, one `finish_reason`, and `[DONE]`.",
        source=CHAT_STREAM,
    ),
    Promise(
        id="streaming.chat.same-head",
        sentence="`id`, `object`, `created` and `model` are the same in all chunks.",
        source=CLIENTS,
    ),
    Promise(
        id="streaming.chat.usage",
        sentence="A last chunk with the usage and no choices comes if `include_usage` asks for it, else none does.",
        source=CHAT_STREAM,
    ),
    Promise(
        id="streaming.as-they-come",
        sentence="Deltas are passed on as they come, in the model's own pieces: `hel`, `lo` arrive so.",
        source=OURS,
    ),
    Promise(
        id="streaming.whole-frames",
        sentence="No frame is split over two writes.",
        source=CLIENTS,
    ),
    Promise(
        id="streaming.no-empty-delta",
        sentence="There is no empty delta, also when the answer is empty.",
        source=CLIENTS,
    ),
    Promise(
        id="streaming.any-text",
        sentence="No character of a text is taken for the end of a line or of the stream.",
        source=OURS,
    ),
    Promise(
        id="streaming.ten-thousand",
        sentence="10,000 deltas arrive complete and in order.",
        source=OURS,
    ),
    Promise(
        id="streaming.never-mixed",
        sentence="Streams at the same time never mix.",
        source=OURS,
    ),
    Promise(
        id="streaming.any-chunking",
        sentence="However the pipe from Codex is cut into pieces, the events are the same.",
        source=OURS,
    ),
    Promise(
        id="streaming.headers-wait",
        sentence=(
            "The headers wait for the first output, at most `PROXY_STREAM_HOLD_MS`, so that an early failure is an "
            "HTTP status and a thinking model does not look dead."
        ),
        source=OURS,
        divergence="OpenAI sends the headers at once.",
    ),
    Promise(
        id="streaming.retried-by-codex",
        sentence="A message that Codex begins anew after a break is never shown twice.",
        source=OURS,
        divergence="If some of it was shown, the stream ends as failed: two attempts need not begin alike.",
    ),
)
