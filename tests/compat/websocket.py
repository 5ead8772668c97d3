"""Promises about the Responses API over WebSocket."""

from tests.compat.promise import CLIENTS, OURS, WEBSOCKET_MODE, Promise

WEBSOCKET = (
    Promise(
        id="websocket.handshake",
        sentence=(
            "`GET /v1/responses` becomes a WebSocket. The key and the `Origin` are checked before, and a refusal is "
            "an HTTP status with OpenAI's error object."
        ),
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.clients",
        sentence="The official SDKs for Python and node, and Codex, use it as they use OpenAI's.",
        source=CLIENTS,
    ),
    Promise(
        id="websocket.same-events",
        sentence="A response has the events that its stream has over HTTP, one in each message, and no `[DONE]`.",
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.errors",
        sentence=(
            "An error before the first event is a message with its status and headers; the connection stays. An error "
            "after it is an `error` event before `response.failed`."
        ),
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.lanes",
        sentence="Responses with one `stream_id` come one after another, those with different ones at once.",
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.echo",
        sentence="Every event of a response repeats its `stream_id`, errors too; without one, none has the field.",
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.lane-limits",
        sentence="Of one connection 16 responses run at once, further ones wait; it has at most 32 names of lanes.",
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.memory",
        sentence=(
            "The latest response of each lane can be continued on its connection with `store: false`; nobody else "
            "finds it."
        ),
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.eviction",
        sentence=(
            "A failed continuation removes the response that it names from the memory of its own lane, and a failed "
            "fork from another lane does not."
        ),
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.warm-up",
        sentence="`generate: false` is answered at once by an empty response that can be continued.",
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.steering",
        sentence=(
            "A response that is steered ends at the next boundary of an item, and a successor continues it with the "
            "input; input that cannot be committed is given back."
        ),
        source=WEBSOCKET_MODE,
        divergence="The successor is another turn, so a long history is sent to the model again.",
    ),
    Promise(
        id="websocket.limits",
        sentence="Each response counts for rate limit, queue and metrics, and has a log line of its own, as over HTTP.",
        source=OURS,
    ),
    Promise(
        id="websocket.age",
        sentence=(
            "After 60 minutes no response begins: `websocket_connection_limit_reached`. Running ones end, then the "
            "connection is closed."
        ),
        source=WEBSOCKET_MODE,
    ),
    Promise(
        id="websocket.drain",
        sentence="When the gateway is stopped, running responses end within `PROXY_DRAIN_S`; the close code is 1012.",
        source=CLIENTS,
    ),
    Promise(
        id="websocket.leaving",
        sentence="A client that disconnects interrupts all its turns.",
        source=OURS,
    ),
    Promise(
        id="websocket.keepalive",
        sentence="A silent client is pinged; while the model is silent, `response.in_progress` is repeated.",
        source=CLIENTS,
    ),
    Promise(
        id="websocket.bounds",
        sentence=(
            "A message above `PROXY_MAX_BODY_MB`, 8 MB of unread events, or no first message within 75 seconds end the "
            "connection. Connections are bounded per key and in all."
        ),
        source=OURS,
    ),
    Promise(
        id="websocket.undisturbed",
        sentence="Whatever one connection sends, other clients are served as before.",
        source=OURS,
    ),
    Promise(
        id="websocket.killed-codex",
        sentence="If Codex dies, the responses that it ran fail on their lanes, and the connection stays.",
        source=OURS,
    ),
)
