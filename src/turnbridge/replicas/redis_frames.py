"""The frames of background responses that replicas share: a stream for each in Redis."""

from redis.asyncio import Redis

from turnbridge.engine.sharing import FramesSoFar, SharedChunk
from turnbridge.replicas.redis import SharedRedis
from turnbridge.replicas.script import Script

# An entry's id is the number of frames up to its end, so that a reader names its place. This one is above all others:
# Redis adds nothing after it. It is the largest integer that Lua counts exactly.
SEALED = 2**53 - 1
# The stream of a response that nobody ends, since no replica is left.
LIFETIME_MS = 3_600_000
# For readers that have not seen the seal yet.
SEALED_LIFETIME_MS = 60_000
# How much a reader takes at once: 16 entries have at most 4 MB.
ENTRIES = 16

ADD = Script("""
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local frames = '0'
if last[1] then frames = string.match(last[1][1], '^%d+') end
if frames == ARGV[5] then return {-1} end
if frames ~= ARGV[1] then return {tonumber(frames)} end
redis.call('XADD', KEYS[1], ARGV[2] .. '-0', 'f', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {tonumber(ARGV[2])}
""")
COUNT = Script("""
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
return {last[1] and tonumber(string.match(last[1][1], '^%d+')) or 0}
""")
SEAL = Script("""
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if not (last[1] and string.match(last[1][1], '^%d+') == ARGV[1]) then
    redis.call('XADD', KEYS[1], ARGV[1] .. '-0', 'f', '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {0}
""")
DROP = Script("""
redis.call('DEL', KEYS[1])
redis.call('XADD', KEYS[1], ARGV[1] .. '-0', 'f', '')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {0}
""")


class RedisFrames:
    """`SharedFrames` in Redis. What is lost with Redis, the maker adds again."""

    interval_s = 0.05

    def __init__(self, redis: SharedRedis) -> None:
        self._redis = redis

    async def add(self, response_id: str, *, after: int, chunk: SharedChunk) -> int | None:
        lifetime_ms = SEALED_LIFETIME_MS if chunk.frames == SEALED else LIFETIME_MS
        values = (after, chunk.frames, chunk.body, lifetime_ms, SEALED)
        (frames,) = await self._redis.script(ADD, [_key(response_id)], values)
        return None if frames < 0 else frames

    async def after(self, response_id: str, position: int) -> FramesSoFar:
        first = f"{position + 1}-0"

        async def read(client: Redis) -> list[tuple[bytes, dict[bytes, bytes]]]:
            found: list[tuple[bytes, dict[bytes, bytes]]] = await client.xrange(
                _key(response_id), min=first, count=ENTRIES
            )
            return found

        chunks = [SharedChunk(int(entry.split(b"-")[0]), fields[b"f"]) for entry, fields in await self._redis.run(read)]
        sealed = bool(chunks) and chunks[-1].frames == SEALED
        return FramesSoFar(chunks=tuple(chunks[:-1] if sealed else chunks), sealed=sealed)

    async def count(self, response_id: str) -> int:
        (frames,) = await self._redis.script(COUNT, [_key(response_id)], ())
        return frames

    async def seal(self, response_id: str) -> FramesSoFar:
        await self._redis.script(SEAL, [_key(response_id)], (SEALED, LIFETIME_MS))
        chunks: list[SharedChunk] = []
        while True:
            found = await self.after(response_id, chunks[-1].frames if chunks else 0)
            chunks += found.chunks
            if found.sealed or not found.chunks:
                return FramesSoFar(chunks=tuple(chunks), sealed=True)

    async def drop(self, response_id: str) -> None:
        await self._redis.script(DROP, [_key(response_id)], (SEALED, SEALED_LIFETIME_MS))


def _key(response_id: str) -> str:
    return f"turnbridge:frames:{response_id}"
