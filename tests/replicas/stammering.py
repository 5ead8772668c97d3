"""A connection to Redis whose results get lost, so that each script is sent, and runs, twice."""

from collections.abc import Sequence

from turnbridge.engine.sharing import SharedStateAway
from turnbridge.replicas.redis import SharedRedis, _Call


class Stammering(SharedRedis):
    """A connection that loses results while it `stammers`."""

    stammers = False

    async def _evaluated(self, batch: Sequence[_Call]) -> Sequence[list[int] | SharedStateAway]:
        if self.stammers:
            await super()._evaluated(batch)
        return await super()._evaluated(batch)
