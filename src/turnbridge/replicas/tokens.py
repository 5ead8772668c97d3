"""Token limits of clients, counted for all replicas by one script in Redis, by its clock.

A request reserves tokens before it runs, as many as its body is likely to have, and what it used replaces them when it
ends. What is stored in the database remains what counts in the end: a Redis that knows less is told.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnbridge.engine.sharing import Budget, Reservation, SharedStateAway
from turnbridge.replicas.replica import LEASE_S
from turnbridge.replicas.script import Script

if TYPE_CHECKING:
    from turnbridge.replicas.redis import SharedRedis
    from turnbridge.replicas.replica import Replica

MICROSECONDS = 1_000_000

# KEYS: reservations, their sum, then what was used in each window. ARGV: lease, member, tokens, then for each window
# what the replica knows to be used, the limit, and the seconds until its end. A member ends in the tokens it reserves.
RESERVE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lease, member, tokens = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))) do
    redis.call('ZREM', KEYS[1], lapsed)
    redis.call('DECRBY', KEYS[2], lapsed:match('%d+$'))
end
if redis.call('ZCARD', KEYS[1]) == 0 then redis.call('DEL', KEYS[2]) end
-- Asked again, since the first answer was lost, it does not stand in its own way.
local had = redis.call('ZSCORE', KEYS[1], member) and tokens or 0
local reserved, reply = tonumber(redis.call('GET', KEYS[2]) or 0) - had, {1}
for i = 3, #KEYS do
    local known, limit, ends = unpack(ARGV, 3 * i - 5, 3 * i - 3)
    local used = tonumber(redis.call('GET', KEYS[i]) or -1)
    if used < tonumber(known) then
        used = tonumber(known)
        redis.call('SET', KEYS[i], known, 'EX', ends)
    end
    reply[#reply + 1] = tonumber(limit) - used - reserved
    if reply[#reply] <= 0 then reply[1] = 0 end
end
if reply[1] == 1 then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + lease), member)
    redis.call('INCRBY', KEYS[2], tokens - had)
    redis.call('PEXPIRE', KEYS[1], math.ceil(lease / 1000))
    redis.call('PEXPIRE', KEYS[2], math.ceil(lease / 1000))
end
return reply
""")
# What was used is added only where a replica has said what had been used before, and once: what has no reservation
# leaves a mark. Redis hears of the rest from the store.
SETTLE = Script("""
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
    redis.call('DECRBY', KEYS[2], ARGV[1]:match('%d+$'))
elseif ARGV[3] == '1' or not redis.call('SET', KEYS[1] .. ':' .. ARGV[1], '', 'NX', 'EX', 60) then
    return {}
end
for i = 3, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('INCRBY', KEYS[i], ARGV[2]) end
end
return {}
""")
RENEW = Script("""
local time = redis.call('TIME')
local until_then = string.format('%.0f', time[1] * 1000000 + time[2] + ARGV[1])
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', until_then, ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] / 1000))
redis.call('PEXPIRE', KEYS[2], math.ceil(ARGV[1] / 1000))
return {}
""")


class SharedTokens:
    """The token budgets of all replicas."""

    def __init__(self, replica: "Replica", redis: "SharedRedis | None") -> None:
        self._replica = replica
        self._redis = redis
        self.share = replica.share
        self._numbers = itertools.count(1)
        self._reservations: set[Reservation] = set()
        replica.renewals.append(self._renew)

    async def reserve(
        self, client: str, budgets: Sequence[Budget], tokens: int
    ) -> tuple[Reservation | None, list[int]]:
        """Reserve tokens if every budget has some left; return also what is left of each.

        Raises `SharedStateAway`.
        """
        if self._redis is None:
            raise SharedStateAway
        made = Reservation(client, self._member(tokens))
        values: list[str | int] = [round(LEASE_S * MICROSECONDS), made.member, tokens]
        for budget in budgets:
            values += [budget.used, budget.limit, budget.ends_in_s]
        granted, *left = await self._redis.script(RESERVE, _keys(client, budgets), values)
        if not granted:
            return None, left
        self._reservations.add(made)
        return made, left

    def settle(self, client: str, reservation: Reservation | None, budgets: Sequence[Budget], tokens: int) -> None:
        """End a reservation, and count what was used; nobody waits for that."""
        if reservation is not None:
            self._reservations.discard(reservation)
        if self._redis is not None:
            # If it is lost, the reservation lapses, and what was used comes from the store.
            member = self._member(0) if reservation is None else reservation.member
            self._redis.post(SETTLE, _keys(client, budgets), [member, tokens, int(reservation is not None)])

    def _member(self, tokens: int) -> str:
        return f"{self._replica.id}:{next(self._numbers)}:{tokens}"

    async def _renew(self) -> None:
        by_client: dict[str, list[str | int]] = {}
        for each in self._reservations:
            by_client.setdefault(each.client, [round(LEASE_S * MICROSECONDS)]).append(each.member)
        if self._redis is not None:
            for client, values in by_client.items():
                await self._redis.script(RENEW, _keys(client, ()), values)


def _keys(client: str, budgets: Sequence[Budget]) -> list[str]:
    reserved = [f"turnbridge:tokens:{client}:reserved", f"turnbridge:tokens:{client}:reserved:sum"]
    return reserved + [f"turnbridge:tokens:{client}:{budget.window}:{budget.start}" for budget in budgets]
