"""Promises about what is kept, what is bounded, and what happens when something breaks or ends."""

from tests.compat.promise import (
    CLIENTS,
    OURS,
    RATE_LIMITS,
    Promise,
)

THREADS = (
    Promise(
        id="threads.warm",
        sentence="A conversation that only grows continues in its thread, so the provider's cache stays warm.",
        source=OURS,
    ),
    Promise(
        id="threads.same",
        sentence="The model sees on a warm thread what it would see on a replay.",
        source=OURS,
        divergence="A thread also has the reasoning and commentary that a chat client cannot send back.",
    ),
    Promise(
        id="threads.told",
        sentence="`x-turnbridge-thread` says how a request was served: `fresh`, `warm`, `parked` or `replayed`.",
        source=OURS,
    ),
    Promise(
        id="threads.edited",
        sentence="Any other history, and one that asks for other settings, is replayed on a thread of its own.",
        source=OURS,
    ),
    Promise(
        id="threads.alone",
        sentence="Two requests never share a thread.",
        source=OURS,
    ),
    Promise(
        id="threads.cut-off",
        sentence="A thread whose answer was cut off is not kept.",
        source=OURS,
    ),
    Promise(
        id="threads.keys",
        sentence="A thread belongs to the key that began it.",
        source=OURS,
    ),
    Promise(
        id="threads.warm.fair",
        sentence="No key evicts the warm threads of another: the oldest of the key with most are evicted.",
        source=OURS,
    ),
)

LIMITS = (
    Promise(
        id="limits.turns",
        sentence="At most `PROXY_MAX_TURNS` run at once; further requests wait, and nothing is lost or starved.",
        source=OURS,
    ),
    Promise(
        id="limits.fair",
        sentence="Keys enter in rotation, however many requests each one has waiting.",
        source=OURS,
    ),
    Promise(
        id="limits.queue",
        sentence="A full queue is a 429 and too long a wait a 503, both with `Retry-After`.",
        source=OURS,
    ),
    Promise(
        id="limits.shares.live",
        sentence="Turns are shared between as many keys as there are now.",
        source=OURS,
    ),
    Promise(
        id="limits.queue.fair",
        sentence="No key keeps another from its turns: the one that holds most of a full queue gets the 429.",
        source=OURS,
    ),
    Promise(
        id="limits.queue.size",
        sentence="Requests that wait are bounded in size, too.",
        source=OURS,
    ),
    Promise(
        id="limits.memory",
        sentence="Nothing of a request stays in the gateway's memory when it is over, however it ended.",
        source=OURS,
    ),
    Promise(
        id="limits.queue.told",
        sentence="`x-turnbridge-queued-ms` says how long a request waited for its turn.",
        source=OURS,
    ),
    Promise(
        id="limits.server-timing",
        sentence="`Server-Timing` says how long decoding, queue, thread and the model's first output took; of a whole "
        "answer, the total too.",
        source=OURS,
    ),
    Promise(
        id="limits.key-turns",
        sentence="A key may have `PROXY_KEY_MAX_TURNS` at once; others are not disturbed.",
        source=OURS,
    ),
    Promise(
        id="limits.body",
        sentence=(
            "No body of up to 16 MB, whatever it holds, keeps another client's `/healthz` waiting longer than 250 ms; "
            "one with more values, items, parts or tools than any client sends is a 400."
        ),
        source=OURS,
    ),
    Promise(
        id="limits.answers",
        sentence="No answer of a model, however long or deeply nested, keeps another client's `/healthz` waiting.",
        source=OURS,
    ),
    Promise(
        id="limits.schemas",
        sentence=(
            "A schema that takes too long to compile is a 400, and an answer that takes too long to check a 422; "
            "neither keeps other clients waiting."
        ),
        source=OURS,
    ),
    Promise(
        id="limits.rate",
        sentence="`PROXY_RATE_LIMIT` bounds the requests of each key; one too many is a 429 with `Retry-After`.",
        source=RATE_LIMITS,
    ),
    Promise(
        id="limits.rate.headers",
        sentence="Each answer has OpenAI's `x-ratelimit-*` headers for requests.",
        source=RATE_LIMITS,
        divergence="Tokens are not limited here, so there are no such headers for them.",
    ),
    Promise(
        id="limits.time",
        sentence="A turn that is silent or goes on for too long is interrupted and fails with 504 `turn_timeout`.",
        source=OURS,
    ),
    Promise(
        id="limits.time.connect",
        sentence=(
            "A provider that fails or cannot be reached is a 502, 503 or 429 within seconds, streamed or not; "
            "a shorter outage is bridged. `PROXY_CONNECT_TIMEOUT_MS` bounds Codex's retries."
        ),
        source=OURS,
    ),
    Promise(
        id="limits.time.tools",
        sentence="The time that a client takes for its tools does not count.",
        source=OURS,
    ),
    Promise(
        id="limits.keepalive",
        sentence=(
            "While the model is silent, a stream sends keepalives: on chat a comment, on Responses "
            "`response.in_progress`."
        ),
        source=CLIENTS,
        divergence="OpenAI sends `response.in_progress` once.",
    ),
    Promise(
        id="limits.keepalive.whole",
        sentence="A slow non-streamed answer begins with whitespace once the model has begun, and is valid JSON.",
        source=CLIENTS,
        divergence="A failure after the first whitespace closes the connection: its status has been sent.",
    ),
    Promise(
        id="limits.keepalive.off",
        sentence="`x-no-keepalive: 1` switches keepalives off.",
        source=OURS,
    ),
    Promise(
        id="limits.slow-readers",
        sentence="A client that stops reading delays only its own turn; memory stays bounded, then the turn ends.",
        source=OURS,
    ),
    Promise(
        id="limits.silent-clients",
        sentence="A client that stops sending or reading half-way holds nothing for ever: 408 for a body, else closed.",
        source=OURS,
    ),
    Promise(
        id="limits.idempotency",
        sentence="A repeat under the same `Idempotency-Key` gets the stored answer, or joins the running one.",
        source=OURS,
    ),
    Promise(
        id="limits.idempotency.other-body",
        sentence="Another body under the same key is a 400; failures are not stored.",
        source=OURS,
    ),
)

FAULTS = (
    Promise(
        id="faults.leaving",
        sentence="A client that disconnects, at any stage, interrupts its turn in Codex.",
        source=OURS,
    ),
    Promise(
        id="faults.death.unseen",
        sentence="A turn whose Codex dies before its client has received anything runs once more, elsewhere.",
        source=OURS,
    ),
    Promise(
        id="faults.death.told",
        sentence="A stream that has begun ends with one typed error at once; turns beside it go on.",
        source=OURS,
    ),
    Promise(
        id="faults.hung",
        sentence="A Codex that hangs is treated as dead.",
        source=OURS,
    ),
    Promise(
        id="faults.unanswered",
        sentence=(
            "A Codex that does not answer a call within `WORKER_REQUEST_TIMEOUT_MS` is replaced, and the turn run "
            "again; its other turns finish."
        ),
        source=OURS,
    ),
    Promise(
        id="faults.internal-error",
        sentence="An internal error of Codex's is retried once, and then 503 `backend_unavailable`.",
        source=OURS,
    ),
    Promise(
        id="faults.data-removed",
        sentence="A data directory that is removed is made again, or `/readyz` and a 503 say why it cannot be.",
        source=OURS,
    ),
    Promise(
        id="faults.garbage",
        sentence="Garbage, half lines, 50 MB lines, wrong ids and unknown notifications of Codex's harm no turn.",
        source=OURS,
    ),
    Promise(
        id="faults.one-ending",
        sentence="Whatever ends a turn ends it once, disturbs no other, and leaves no process, descriptor or task.",
        source=OURS,
    ),
    Promise(
        id="faults.start",
        sentence="If Codex cannot be started, `/readyz` and a 503 say so, and it is retried until it starts.",
        source=OURS,
    ),
    Promise(
        id="faults.backoff",
        sentence="A Codex that keeps crashing is restarted with backoff, for ever.",
        source=OURS,
    ),
    Promise(
        id="faults.restart",
        sentence="A Codex that died is started again at once; requests meanwhile go to another one, or wait.",
        source=OURS,
    ),
    Promise(
        id="faults.recycling",
        sentence="A Codex past its age or `WORKER_MAX_GROWTH_MB` is replaced; its turns finish or are replayed.",
        source=OURS,
    ),
    Promise(
        id="faults.signals",
        sentence="SIGTERM and SIGINT end everything cleanly, also while Codex starts or hangs.",
        source=OURS,
    ),
    Promise(
        id="faults.orphans",
        sentence="However the gateway ends, SIGKILL included, no Codex survives it, nor anything that it has started.",
        source=OURS,
    ),
    Promise(
        id="faults.drain",
        sentence=(
            "On shutdown, the gateway accepts no requests, lets turns finish for `PROXY_DRAIN_S`, and ends "
            "the rest with 503 `shutting_down`; a second signal stops it at once. A closed terminal stops it, "
            "except under `nohup`."
        ),
        source=OURS,
    ),
    Promise(
        id="faults.disk",
        sentence="A full or read-only disk disturbs no running turn, shows in `/readyz`, and is recovered from.",
        source=OURS,
    ),
    Promise(
        id="faults.clock",
        sentence="A jump of the clock disturbs no turn and no Codex.",
        source=OURS,
    ),
    Promise(
        id="faults.soak",
        sentence="Mixed load with random faults has no unexplained outcome and no leak.",
        source=OURS,
    ),
    Promise(
        id="faults.other-versions",
        sentence="The tests notice when another Codex binary speaks another protocol.",
        source=OURS,
    ),
)
