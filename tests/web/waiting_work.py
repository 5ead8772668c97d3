"""Something to do that takes until it is let go."""

import asyncio


class Work:
    """Waits until it may end, and tells how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended_as = ""

    async def run(self) -> None:
        """Do it."""
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended_as = "cancelled"
            raise
        self.ended_as = "whole"
