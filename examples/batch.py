"""Many prompts, eight at a time: one prompt a line in, one JSON object a line out, in the same order."""

import asyncio
import json
import os
import sys
from pathlib import Path

from openai import APIError, AsyncOpenAI

MODEL = os.environ.get("MODEL", "codex-5")
AT_ONCE = 8


async def main(prompts: list[str]) -> None:
    # The SDK tries again by itself when the gateway or the provider is busy.
    client, places, done = AsyncOpenAI(max_retries=5), asyncio.Semaphore(AT_ONCE), 0

    async def ask(prompt: str) -> dict[str, str]:
        nonlocal done
        async with places:
            try:
                response = await client.responses.create(model=MODEL, input=prompt, store=False)
                result = {"prompt": prompt, "answer": response.output_text}
            except APIError as error:
                result = {"prompt": prompt, "error": error.message}
        done += 1
        print(f"\r{done} of {len(prompts)}", end="", file=sys.stderr, flush=True)
        return result

    for result in await asyncio.gather(*map(ask, prompts)):
        print(json.dumps(result, ensure_ascii=False))
    print(file=sys.stderr)


asyncio.run(main([line for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines() if line.strip()]))
