"""Clients that leave before their answer is whole."""

import asyncio

from starlette.types import Receive


async def client_gone(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_gone(work: "asyncio.Future[None]", receive: Receive) -> None:
    """Wait for work, and raise what it raises; if the client leaves first, it is cancelled."""
    gone = asyncio.ensure_future(client_gone(receive))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        work.cancel()
        gone.cancel()
        await asyncio.wait((work, gone))
    if not work.cancelled():
        work.result()
