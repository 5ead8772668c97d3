"""`Idempotency-Key` across replicas: who makes the answer to a key, and the finished answer for the others.

The replica that makes an answer holds a lease on its key. A replica that is killed holds it no longer; one that was
paused for longer than its lease cannot finish what another has begun since. Redis has the claims, or else Postgres.
"""

import contextlib
import itertools
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from turnbridge.engine.sharing import AnswerStore, Claim, LiveAnswers, SharedStateAway
from turnbridge.replicas.replica import LEASE_S
from turnbridge.replicas.script import Script
from turnbridge.turn.errors import GatewayError

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from turnbridge.replicas.redis import SharedRedis
    from turnbridge.replicas.replica import Replica

# How long a finished answer is kept: as long as on one gateway.
KEPT_S = 600
# How many finished answers of one client are kept; its oldest make room.
MOST_ANSWERS = 200

# A claim has a name of its own: one whose result was lost can be made again, and a replica that begins an answer anew
# does not end the new claim with the old one.
CLAIM = Script("""
local found = redis.call('HMGET', KEYS[1], 'owner', 'fingerprint', 'answer')
if not found[1] or (found[1] == ARGV[1] and not found[3]) then
    redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fingerprint', ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return {1}
end
if found[2] ~= ARGV[2] then return {2} end
if found[3] then return {3} end
return {4}
""")
# Nothing that has ended meanwhile is claimed again, and no finished answer is kept shorter.
RENEW = Script("""
local found = redis.call('HMGET', KEYS[1], 'owner', 'answer')
if found[1] == ARGV[1] and not found[2] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {}
""")
# An empty answer is none: the claim ends.
FINISH = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'answer', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('RPUSH', KEYS[2], KEYS[1])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
while redis.call('LLEN', KEYS[2]) > tonumber(ARGV[4]) do redis.call('DEL', redis.call('LPOP', KEYS[2])) end
return 1
"""


class _Claim(NamedTuple):
    owner: str
    fingerprint: str


class RedisAnswers:
    """Claims and answers in Redis."""

    def __init__(self, replica: "Replica", redis: "SharedRedis") -> None:
        self._replica = replica.id
        self._numbers = itertools.count(1)
        self._redis = redis
        self._mine: dict[str, _Claim] = {}
        """The answers that are made here."""
        # The client for Redis is an optional extra.
        from turnbridge.replicas.live_answers import RedisLiveAnswers  # noqa: PLC0415

        self.live: LiveAnswers | None = RedisLiveAnswers(replica, redis, self.owner)
        replica.renewals.append(self._renew)
        redis.on_back.append(self._register)

    def owner(self, identity: str) -> str | None:
        """Return the name of this replica's claim to an answer."""
        claim = self._mine.get(identity)
        return None if claim is None else claim.owner

    async def claim(self, identity: str, fingerprint: str) -> Claim:
        """Claim the answer to a key; raises `SharedStateAway`."""
        claim = _Claim(f"{self._replica}:{next(self._numbers)}", fingerprint)
        found = await self._claim(identity, claim)
        if found is Claim.MINE:
            self._mine[identity] = claim
        return found

    async def finished(self, identity: str) -> bytes | None:
        """Return a finished answer; raises `SharedStateAway`."""
        return await self._redis.run(
            lambda client: cast("Awaitable[bytes | None]", client.hget(_key(identity), "answer"))
        )

    async def finish(self, client: str, identity: str, answer: bytes | None) -> None:
        """Keep a finished answer, or end the claim; a claim that has lapsed is another's. Raises `SharedStateAway`."""
        claim = self._mine.pop(identity, None)
        if claim is None:
            return
        keys = (_key(identity), f"turnbridge:once-of:{client}")

        def finish(redis: "Redis") -> Awaitable[object]:
            found = redis.eval(FINISH, 2, *keys, claim.owner, answer or b"", KEPT_S * 1000, MOST_ANSWERS)
            return cast("Awaitable[object]", found)

        await self._redis.run(finish)

    async def _claim(self, identity: str, claim: _Claim, *, while_away: bool = False) -> Claim:
        values: list[str | int] = [claim.owner, claim.fingerprint, round(LEASE_S * 1000)]
        (found,) = await self._redis.script(CLAIM, [_key(identity)], values, while_away=while_away)
        return Claim(found)

    async def _renew(self) -> None:
        for identity, claim in list(self._mine.items()):
            await self._redis.script(RENEW, [_key(identity)], [claim.owner, round(LEASE_S * 1000)])

    async def _register(self) -> bool:
        for identity, claim in list(self._mine.items()):
            if self._mine.get(identity) is claim:
                await self._claim(identity, claim, while_away=True)
        return True


class StoredAnswers:
    """Claims and answers in a store that replicas share."""

    live: LiveAnswers | None = None

    def __init__(self, replica: "Replica", store: AnswerStore) -> None:
        self._owner = replica.id
        self._store = store
        self._mine: set[str] = set()
        replica.renewals.append(self._renew)

    async def claim(self, identity: str, fingerprint: str) -> Claim:
        """Claim the answer to a key; raises `SharedStateAway`."""
        with _store_may_be_away():
            found = await self._store.claim_answer(identity, fingerprint, self._owner, LEASE_S)
        if found is Claim.MINE:
            self._mine.add(identity)
        return found

    async def finished(self, identity: str) -> bytes | None:
        """Return a finished answer; raises `SharedStateAway`."""
        with _store_may_be_away():
            return await self._store.claimed_answer(identity)

    async def finish(self, client: str, identity: str, answer: bytes | None) -> None:
        """Keep a finished answer, or end the claim; a claim that has lapsed is another's. Raises `SharedStateAway`."""
        del client  # The store bounds all of them together, by their time.
        self._mine.discard(identity)
        with _store_may_be_away():
            await self._store.finish_answer(identity, self._owner, answer, KEPT_S)

    async def _renew(self) -> None:
        if self._mine:
            with _store_may_be_away():
                await self._store.renew_answers(sorted(self._mine), self._owner, LEASE_S)


@contextlib.contextmanager
def _store_may_be_away() -> Iterator[None]:
    try:
        yield
    except GatewayError as error:
        raise SharedStateAway from error


def shared_answers(replica: "Replica", store: AnswerStore | None) -> RedisAnswers | StoredAnswers | None:
    """Return where the answers of all replicas are claimed."""
    if replica.redis is not None:
        return RedisAnswers(replica, replica.redis)
    return None if store is None else StoredAnswers(replica, store)


def _key(identity: str) -> str:
    return f"turnbridge:once:{identity}"
