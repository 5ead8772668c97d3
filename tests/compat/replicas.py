"""What is promised of several gateways that share a Postgres, a Redis or both."""

from tests.compat.promise import OURS, Promise

REPLICAS = (
    Promise(
        id="replicas.rates",
        sentence="Replicas that share a Redis count requests together: at a limit of 60, exactly 60 pass.",
        source=OURS,
    ),
    Promise(
        id="replicas.redis-away",
        sentence="While Redis is away, each replica holds its share of every limit and never the whole, no request "
        "waits for Redis, `/readyz` says `degraded`, and the counts are right again afterwards.",
        source=OURS,
    ),
)
