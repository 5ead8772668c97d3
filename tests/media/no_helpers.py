"""A gateway whose helper processes are all busy, for tests that need none."""

from turnbridge.engine.ports import NoHelper


class NoHelpers:
    """Takes no job."""

    async def run(self, given: bytes) -> bytes:
        del given
        raise NoHelper


NO_HELPERS = NoHelpers()
