"""What is promised of several gateways that share a Postgres, a Redis or both."""

from tests.compat.promise import OURS, Promise

REPLICAS = (
    Promise(
        id="replicas.rates",
        sentence="Replicas that share a Redis count requests together: at a limit of 60, exactly 60 pass.",
        source=OURS,
    ),
    Promise(
        id="replicas.turns",
        sentence="Turns are limited for all replicas together, in all and for each client, with the fair shares of one "
        "gateway; replicas that wait get turns in rotation.",
        source=OURS,
    ),
    Promise(
        id="replicas.lapse",
        sentence="The turns of a replica that was killed are free again within 30 seconds.",
        source=OURS,
    ),
    Promise(
        id="replicas.tokens",
        sentence="Token limits hold for all replicas together: a request reserves tokens before it runs, and what it "
        "used counts everywhere when it ends.",
        source=OURS,
        divergence="How much a turn uses is known when it ends, so the last ones may exceed the limit.",
    ),
    Promise(
        id="replicas.idempotency",
        sentence="A request with an `Idempotency-Key` is run once on all replicas: another one passes the answer on "
        "while it is made, and repeats it afterwards. A key whose replica was killed is free again within 30 seconds.",
        source=OURS,
        divergence="Finished answers are repeated elsewhere up to 256 KB packed. With Postgres alone, an answer that "
        "another replica makes is sent when it is whole.",
    ),
    Promise(
        id="replicas.redis-away",
        sentence="While Redis is away, each replica holds its share of every limit and never the whole, no request "
        "waits for Redis, `/readyz` says `degraded`, and the counts are right again afterwards.",
        source=OURS,
    ),
    Promise(
        id="replicas.start",
        sentence="Replicas that start at once on an empty database all serve: one migrates, the others wait.",
        source=OURS,
    ),
    Promise(
        id="replicas.killed",
        sentence="A replica that is killed leaves nothing half stored; its streams break without a false end, and what "
        "its clients send again is answered by another one.",
        source=OURS,
    ),
    Promise(
        id="replicas.conversation",
        sentence="Responses on one conversation at several replicas are all kept, in the order of their ends.",
        source=OURS,
    ),
    Promise(
        id="replicas.outage",
        sentence="While Postgres or Redis is killed, paused or cut off, replicas go on answering, and no replica's "
        "loop is blocked for a second.",
        source=OURS,
    ),
    Promise(
        id="replicas.affinity",
        sentence="Behind HAProxy with the file of `deploy/`, conversations stay on a replica, by the headers that "
        "agents send or by key: at least 90 % of the turns of stateless chats of ten are warm. Without affinity "
        "every answer is still right.",
        source=OURS,
    ),
    Promise(
        id="replicas.other-balancers",
        sentence="With the files of `deploy/`, nginx and Envoy keep conversations on a replica too, and pass streams "
        "and WebSockets on. A request is sent to another replica only if no connection could be made.",
        source=OURS,
        divergence="Behind nginx, take a replica out of the file before it stops: it is not noticed.",
    ),
    Promise(
        id="replicas.rolling",
        sentence="Replicas behind the balancer can be restarted one after the other, by a signal alone, and no request "
        "fails that needs less than `PROXY_DRAIN_S`.",
        source=OURS,
    ),
    Promise(
        id="replicas.login",
        sentence="`doctor` warns of a login file that other machines may use too, without reading it; when one of them "
        "has refreshed it, the 401 of the others names this cause and the command that helps.",
        source=OURS,
    ),
    Promise(
        id="replicas.replay",
        sentence="The outputs of calls that another replica made are replayed just as the parked turn would have seen "
        "them, reasoning included, and the other replica lets go of its turn.",
        source=OURS,
    ),
    Promise(
        id="replicas.background",
        sentence="The stream of a background response is live and the same at every replica from every position; "
        "cancel and delete at one end the turn at another.",
        source=OURS,
    ),
    Promise(
        id="replicas.lost",
        sentence="The background responses of a replica that was killed, or paused beyond its lease, have failed with "
        "the reason; its late writes are refused, and clocks that differ change nothing.",
        source=OURS,
    ),
)
