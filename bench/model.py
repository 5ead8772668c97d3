"""The scripted model as a process of its own, so that its work is nobody else's: prints its base URL, then serves."""

import asyncio
import sys

import uvloop

from turnbridge.demo.replies import Reply, answer, message
from turnbridge.demo.server import ScriptedModel
from turnbridge.turn.items import JsonObject


async def serve(deltas: int) -> None:
    """Answer every request with `deltas` words, until stdin ends."""

    def respond(_: JsonObject) -> Reply:
        return answer(message("word " * deltas, pieces=["word "] * deltas), burst=True)

    async with ScriptedModel(respond) as model:
        print(model.base_url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
