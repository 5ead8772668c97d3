"""How replicas on one Postgres share what they run: over Redis, or over Postgres itself if there is no Redis."""

from dataclasses import dataclass

from turnbridge.engine.sharing import SharedFrames, SharedRunStore
from turnbridge.replicas.messages import Messages
from turnbridge.replicas.replica import Replica
from turnbridge.replicas.stored_frames import StoredFrames


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRuns:
    """What replicas share of what they run."""

    messages: Messages
    frames: SharedFrames
    store: SharedRunStore
    replica: Replica

    def alone(self) -> bool:
        """Tell whether no other replica is known to be alive."""
        return self.replica.registry.live <= 1


def shared_runs(replica: Replica, store: SharedRunStore, database_url: str) -> SharedRuns:
    """Return how a replica shares what it runs; `store` is in the Postgres behind the URL."""
    # Optional extras, imported only by those who use them.
    if replica.redis is not None:
        from turnbridge.replicas.redis_frames import RedisFrames  # noqa: PLC0415
        from turnbridge.replicas.redis_messages import RedisMessages  # noqa: PLC0415

        messages: Messages = RedisMessages(replica.id, replica.redis)
        return SharedRuns(messages=messages, frames=RedisFrames(replica.redis), store=store, replica=replica)
    from turnbridge.replicas.postgres_messages import PostgresMessages  # noqa: PLC0415

    messages = PostgresMessages(replica.id, database_url)
    return SharedRuns(messages=messages, frames=StoredFrames(store, replica.id), store=store, replica=replica)
