"""Rates of requests, counted for all replicas by one script in Redis, by its clock.

Each replica remembers the requests that it has allowed. While Redis is away, it allows its share of each rate, and what
it has allowed before counts for that; when Redis is back, it registers them there again, so that a Redis that came back
empty counts right.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from turnbridge.engine.sharing import SharedStateAway
from turnbridge.engine.windows import MovingWindows, Taken, Used
from turnbridge.replicas.script import Script
from turnbridge.turn.rates import Rate

if TYPE_CHECKING:
    from turnbridge.replicas.replica import Replica

MICROSECONDS = 1_000_000
# Requests that one command registers again: it keeps Redis busy for a millisecond.
REGISTERED_AT_ONCE = 500
# Of which no more can be under way when Redis stops to answer.
MOST_DOUBTFUL = 1000

TAKE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local reply = {now, 1}
for i, key in ipairs(KEYS) do
    local amount, window = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - window))
    -- A request that is asked for again, since the first answer was lost, does not stand in its own way.
    local used = redis.call('ZCARD', key) - (redis.call('ZSCORE', key, ARGV[1]) and 1 or 0)
    local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    if used >= amount then reply[2] = 0 end
    reply[#reply + 1] = amount - used
    reply[#reply + 1] = oldest and window - (now - tonumber(oldest)) or window
end
if reply[2] == 1 then
    for i, key in ipairs(KEYS) do
        redis.call('ZADD', key, string.format('%.0f', now), ARGV[1])
        redis.call('PEXPIRE', key, math.ceil(ARGV[2 * i + 1] / 1000))
    end
end
return reply
""")
REGISTER = Script("""
for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {}
""")
FORGET = Script("return {redis.call('ZREM', KEYS[1], ARGV[1])}")


class SharedRates:
    """The windows of all replicas."""

    def __init__(self, replica: "Replica", now: Callable[[], float] = time.time) -> None:
        self._replica = replica
        self._redis = replica.redis
        self._now = now
        self._own = MovingWindows()
        self._clock_ahead_s = 0.0
        """How far Redis's clock is ahead of this machine's."""
        self._unregistered = 0
        """How many requests were allowed without Redis since the last registration."""
        self._doubtful: list[tuple[str, Sequence[Rate], int]] = []
        """Requests that were refused after Redis had been asked in vain: it may count them when it goes on."""
        if self._redis is not None:
            self._redis.on_back.append(self._register)

    async def take(self, client: str, rates: Sequence[Rate]) -> Taken:
        """Count a request if all rates allow it."""
        number = self._own.next_number()
        if self._redis is not None and not self._redis.is_away:
            values = [self._member(number)]
            for rate in rates:
                values += [str(rate.amount), str(rate.seconds * MICROSECONDS)]
            try:
                now, allowed, *found = await self._redis.script(TAKE, [_key(client, rate) for rate in rates], values)
            except SharedStateAway:
                taken = self._take_alone(client, rates, number)
                if not taken.allowed and len(self._doubtful) < MOST_DOUBTFUL:
                    self._doubtful.append((client, rates, number))
                return taken
            at = now / MICROSECONDS
            self._clock_ahead_s = at - self._now()
            if allowed:
                self._own.note(client, rates, at, number)
            pairs = zip(found[::2], found[1::2], strict=True)
            return Taken(allowed == 1, [Used(left, frees_in / MICROSECONDS) for left, frees_in in pairs])
        return self._take_alone(client, rates, number)

    def _member(self, number: int) -> str:
        return f"{self._replica.id}:{number}"

    def _take_alone(self, client: str, rates: Sequence[Rate], number: int) -> Taken:
        """Count a request for this replica's share."""
        now = self._now() + self._clock_ahead_s
        taken = self._own.take(client, rates, now, self._replica.share, number)
        self._unregistered += taken.allowed
        return taken

    async def _register(self) -> bool:
        """Let Redis know what this replica has allowed; tell whether nothing was allowed meanwhile."""
        if self._redis is None:
            return True
        self._unregistered, doubtful = 0, self._doubtful
        self._doubtful = []
        for client, rates, number in doubtful:
            for rate in rates:
                await self._redis.script(FORGET, [_key(client, rate)], [self._member(number)], while_away=True)
        for client, rate, entries in self._own.entries(self._now() + self._clock_ahead_s):
            for start in range(0, len(entries), REGISTERED_AT_ONCE):
                values: list[str | int] = [rate.seconds * 1000]
                for entry in entries[start : start + REGISTERED_AT_ONCE]:
                    values += [round(entry.at * MICROSECONDS), self._member(entry.number)]
                await self._redis.script(REGISTER, [_key(client, rate)], values, while_away=True)
        return self._unregistered == 0


def _key(client: str, rate: Rate) -> str:
    return f"turnbridge:rate:{client}:{rate.amount}/{rate.seconds}"
