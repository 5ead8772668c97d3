"""Turn slots: how many turns all replicas run, and each client has, counted by one script in Redis, by its clock.

A slot is a member of a sorted set whose score is its deadline. The replica that holds it renews it; the slots of a
replica that was killed lapse. Slots that are given back travel with the next request for one, so that a turn costs one
command under load. Members of a replica that was away, or of a Redis that came back empty, are registered again: the
turns run, whatever was counted.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from turnbridge.engine.sharing import SharedStateAway, SlotLease, Verdict
from turnbridge.replicas.replica import LEASE_S
from turnbridge.replicas.script import Script

if TYPE_CHECKING:
    from turnbridge.replicas.replica import Replica

T = TypeVar("T")

MICROSECONDS = 1_000_000
# How long a slot that was given back may wait for a command that brings the news. One that counts for a client's limit
# does not wait: that client may ask another replica as soon as it has its answer.
GIVE_BACK_S = 0.01
# A replica that asked for a slot in vain is asked for again within a tenth of this, or has nobody waiting any more.
WAITING_S = 1.0
# Members that one command carries.
MEMBERS_AT_ONCE = 500
# Members that wait for a Redis that is away; further ones lapse there by themselves.
MOST_GIVEN_BACK = 10_000

RUNNING = "turnbridge:turns:running"
HELD = "turnbridge:turns:held"
WAITING = tuple(f"turnbridge:turns:waiting{part}" for part in ("", ":until", ":turns"))
REPLICAS = "turnbridge:replicas"

# KEYS: running, running of the client, held by the client, waiting replicas (order, deadline, turns), the replica that
# waits for a turn of the client, then those of the members that are given back. It returns the verdict, and how many
# turns the client has. What runs already has been started by this very call, whose answer was lost.
TAKE = Script("""
local replica, lease, patience = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local total, of_client, most = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local start, turns, share = ARGV[7] == '1', tonumber(ARGV[8]), tonumber(ARGV[9])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end
local function live(key)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now))
    return redis.call('ZCARD', key)
end
local function hold(key, count)
    for i = 1, count do redis.call('ZADD', key, text(now + lease), ARGV[9 + i]) end
    redis.call('PEXPIRE', key, math.ceil(lease / 1000))
end
for i = 8, #KEYS do redis.call('ZREM', KEYS[i], ARGV[9 + turns + i - 7]) end
local function tell_first()
    local first = redis.call('ZRANGE', KEYS[4], 0, 0)[1]
    if first and first ~= replica then redis.call('PUBLISH', 'turnbridge:to:' .. first, 'slot') end
end
if #KEYS > 7 then tell_first() end
if most > 0 then
    local held = live(KEYS[3])
    if not redis.call('ZSCORE', KEYS[3], ARGV[10]) and held + share > most then return {5, held} end
    hold(KEYS[3], share)
end
if not start then return {4, 0} end
if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[10]) or 0) > now then return {1, 0} end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', text(now))) do
    redis.call('ZREM', KEYS[4], gone)
    redis.call('ZREM', KEYS[5], gone)
    redis.call('HDEL', KEYS[6], gone)
end
if of_client < total then
    -- A replica that waits for a turn of this client has the next one; the others leave it one.
    local waits = redis.call('GET', KEYS[7])
    if waits and waits ~= replica then of_client = of_client - 1 end
    if live(KEYS[2]) > math.max(of_client - turns, 0) then
        if not waits or waits == replica then redis.call('SET', KEYS[7], replica, 'PX', math.ceil(patience / 1000)) end
        return {3, 0}
    end
    if waits == replica then redis.call('DEL', KEYS[7]) end
end
local free, before = total - live(KEYS[1]), redis.call('ZRANK', KEYS[4], replica) or redis.call('ZCARD', KEYS[4])
if before > 0 then
    -- What the first of those before it waits for, and a turn for each of the others.
    local first = redis.call('ZRANGE', KEYS[4], 0, 0)[1]
    free = free - tonumber(redis.call('HGET', KEYS[6], first) or 1) - (before - 1)
end
if free < turns then
    redis.call('ZADD', KEYS[4], 'NX', text(now), replica)
    redis.call('ZADD', KEYS[5], text(now + patience), replica)
    redis.call('HSET', KEYS[6], replica, turns)
    return {2, 0}
end
hold(KEYS[1], turns)
hold(KEYS[2], turns)
redis.call('ZREM', KEYS[4], replica)
redis.call('ZREM', KEYS[5], replica)
redis.call('HDEL', KEYS[6], replica)
return {1, 0}
""")
# KEYS and members in pairs: the first ARGV[2] are held from now on, the others are given back. The first two are those
# of this replica, and of the waiting ones.
REGISTER = Script("""
local time = redis.call('TIME')
local until_then = string.format('%.0f', time[1] * 1000000 + time[2] + ARGV[1])
for i, key in ipairs(KEYS) do
    if i == 2 then
        -- Only read, below.
    elseif i <= tonumber(ARGV[2]) then
        redis.call('ZADD', key, until_then, ARGV[2 + i])
        redis.call('PEXPIRE', key, math.ceil(ARGV[1] / 1000))
    else
        redis.call('ZREM', key, ARGV[2 + i])
    end
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
if first and tonumber(ARGV[2]) < #KEYS then redis.call('PUBLISH', 'turnbridge:to:' .. first, 'slot') end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', time[1] * 1000000 + time[2]))
return {redis.call('ZCARD', KEYS[1])}
""")


class SharedSlots:
    """The turn slots of all replicas."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._redis = replica.redis
        self.share = replica.share
        self._numbers = itertools.count(1)
        self._leases: set[SlotLease] = set()
        """All that this replica holds, in Redis or by its share."""
        self._given_back: list[tuple[str, str]] = []
        """Keys and members."""
        self._unregistered = False
        """Whether something was admitted by share since the last registration."""
        self.on_free: list[Callable[[], None]] = []
        """Called when a turn of another replica has ended that this one may have waited for."""
        self._sending: asyncio.TimerHandle | None = None
        self._tasks: set[object] = set()
        if self._redis is not None:
            self._redis.on_back.append(self._register)
            replica.renewals.append(self._renew)
            replica.on_message["slot"] = self._on_slot
            replica.endings.append(self._stop)

    @property
    def counted(self) -> bool:
        """Tell whether Redis counts for all replicas now."""
        return self._redis is not None and not self._redis.is_away

    def lease(self, client: str, turns: int, share: int, most: int | None) -> SlotLease:
        """Return a lease that holds nothing yet."""
        lease = SlotLease(next(self._numbers), client, turns, share, most)
        self._leases.add(lease)
        return lease

    def _on_slot(self, _: str) -> None:
        for listener in self.on_free:
            listener()

    async def take(self, lease: SlotLease, *, total: int, of_client: int, start: bool) -> tuple[Verdict, int]:
        """Count a lease for its client, and let it run if it is to be started and there are turns for it."""
        if not self.counted:
            return Verdict.AWAY, 0
        # A request that is cancelled meanwhile has its lease given back after this, and not before.
        return await asyncio.shield(self._spawn(self._take(lease, total, of_client, start=start)))

    def take_alone(self, lease: SlotLease, *, started: bool) -> None:
        """Note what a lease holds that this replica has admitted by its share."""
        if lease in self._leases:
            lease.started, self._unregistered = started, True

    def give_back(self, lease: SlotLease) -> None:
        """End a lease."""
        self._leases.discard(lease)
        if self._redis is None:
            return
        if len(self._given_back) < MOST_GIVEN_BACK:
            self._given_back += self._members(lease)
        if lease.most is not None:
            self._send_given_back()
        elif self._sending is None and self.counted:
            self._sending = asyncio.get_running_loop().call_later(GIVE_BACK_S, self._send_given_back)

    async def _take(self, lease: SlotLease, total: int, of_client: int, *, start: bool) -> tuple[Verdict, int]:
        redis = self._redis
        if redis is None:
            return Verdict.AWAY, 0
        given_back = self._pop_given_back()
        of = (f"{RUNNING}:{lease.client}", f"{HELD}:{lease.client}")
        times = (round(LEASE_S * MICROSECONDS), round(WAITING_S * MICROSECONDS))
        limits = (total, of_client, lease.most or 0)
        values: list[str | int] = [
            self._replica.id,
            *times,
            *limits,
            int(start),
            lease.turns,
            lease.share,
            *self._names(lease),
        ]
        try:
            found, held = await redis.script(
                TAKE,
                [RUNNING, *of, *WAITING, f"{of[0]}:waits", *(key for key, _ in given_back)],
                [*values, *(member for _, member in given_back)],
            )
        except SharedStateAway:
            self._given_back += given_back
            return Verdict.AWAY, 0
        verdict = Verdict(found)
        if lease not in self._leases:
            self.give_back(lease)
        elif verdict is Verdict.STARTED:
            lease.started = True
        return verdict, held

    def _names(self, lease: SlotLease) -> list[str]:
        return [f"{self._replica.id}:{lease.number}:{turn}" for turn in range(lease.turns)]

    def _members(self, lease: SlotLease) -> Iterator[tuple[str, str]]:
        """Return what a lease may hold: keys and members."""
        for turn, name in enumerate(self._names(lease)):
            yield RUNNING, name
            yield f"{RUNNING}:{lease.client}", name
            if lease.most is not None and turn < lease.share:
                yield f"{HELD}:{lease.client}", name

    def _pop_given_back(self) -> list[tuple[str, str]]:
        given_back, self._given_back = self._given_back[:MEMBERS_AT_ONCE], self._given_back[MEMBERS_AT_ONCE:]
        return given_back

    def _send_given_back(self) -> None:
        """Let Redis know, if no other command has."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        while self._given_back and self.counted:
            self._spawn(self._send(self._pop_given_back()))

    async def _send(self, given_back: list[tuple[str, str]]) -> None:
        try:
            await self._write([], given_back)
        except SharedStateAway:
            self._given_back += given_back

    async def _renew(self) -> None:
        """Renew what this replica holds, and say that it is alive."""
        await self._write([each for lease in self._leases for each in self._held(lease)], [])

    async def _register(self) -> bool:
        """Let Redis know what this replica holds and what not; tell whether nothing has changed meanwhile."""
        self._unregistered, given_back = False, self._given_back
        self._given_back = []
        held = [each for lease in self._leases for each in self._held(lease)]
        try:
            await self._write(held, given_back, while_away=True)
        except SharedStateAway:
            self._given_back += given_back
            raise
        return not self._unregistered and not self._given_back

    async def _stop(self) -> None:
        """Give everything back: this replica stops."""
        if self._sending is not None:
            self._sending.cancel()
        ended = [each for lease in self._leases for each in self._members(lease)]
        await self._write([], [*self._given_back, *ended, (REPLICAS, self._replica.id)])

    def _held(self, lease: SlotLease) -> Iterator[tuple[str, str]]:
        return (each for each in self._members(lease) if lease.started or each[0].startswith(HELD))

    async def _write(
        self, held: Sequence[tuple[str, str]], given_back: Sequence[tuple[str, str]], *, while_away: bool = False
    ) -> None:
        if self._redis is None:
            return
        marked = [(each, True) for each in held] + [(each, False) for each in given_back]
        for begin in range(0, max(len(marked), 1), MEMBERS_AT_ONCE):
            part = marked[begin : begin + MEMBERS_AT_ONCE]
            pairs = [(REPLICAS, self._replica.id), (WAITING[0], ""), *(each for each, _ in part)]
            (live,) = await self._redis.script(
                REGISTER,
                [key for key, _ in pairs],
                [round(LEASE_S * MICROSECONDS), 2 + sum(kept for _, kept in part), *(name for _, name in pairs)],
                while_away=while_away,
            )
            self._replica.registry.told(live)

    def _spawn(self, work: Coroutine[None, None, T]) -> "asyncio.Task[T]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
