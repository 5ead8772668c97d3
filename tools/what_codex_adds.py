"""Measures and draws what Codex adds to a request: `python -m tools.what_codex_adds`.

The same question goes to a scripted model twice, from plain Codex and through the gateway. The picture shows the tokens
that reach the model.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from codex_cli_bin import bundled_codex_path

from bench.plots import bars, svg
from tests.support.gateway import running_bridge
from turnbridge.codex.process.home import provider_overrides
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.tokens import OpenAITokenizer
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import as_list

PICTURE = Path(__file__).parent.parent / "docs/pictures/what-codex-adds.svg"
MODEL = "gpt-5.5"
QUESTION = "Hello!"
TIMEOUT_S = 60


async def from_plain_codex() -> JsonObject:
    """Return what the model is asked by `codex exec`, in an empty folder with an empty home."""
    with tempfile.TemporaryDirectory() as home:
        async with ScriptedModel(in_order(answer(message("Hi."))), record=True) as model:
            settings = [word for one in provider_overrides(model.base_url) for word in ("-c", one)]
            process = await asyncio.create_subprocess_exec(
                *(str(bundled_codex_path()), "exec", "--skip-git-repo-check", "-m", MODEL, *settings, QUESTION),
                env={"PATH": os.environ["PATH"], "HOME": home, "CODEX_HOME": home},
                cwd=home,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            async with asyncio.timeout(TIMEOUT_S):
                await process.wait()
            return model.requests[0].body


async def through_the_gateway() -> JsonObject:
    """Return what the model is asked by a client of the gateway."""
    with tempfile.TemporaryDirectory() as data:
        async with running_bridge(Path(data)) as bridge:
            bridge.says("Hi.")
            await bridge.client.responses.create(model=MODEL, input=QUESTION)
            return bridge.seen()


def counted(body: JsonObject) -> dict[str, int]:
    """Return the tokens of each part of a request."""
    tokenizer = OpenAITokenizer()
    tokenizer.prepare()
    texts = {"texts": "\n".join([*_texts(body["input"]), str(body.get("instructions") or "")]).strip()}
    tools = {"tools": json.dumps(body["tools"]) if body.get("tools") else ""}
    return {name: tokenizer.count(text) for name, text in (tools | texts).items()}


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for name, below in value.items():
            yield from [below] if name == "text" and isinstance(below, str) else _texts(below)
    elif isinstance(value, list):
        for below in value:
            yield from _texts(below)


async def main() -> None:
    """Measure both, say what was seen, and draw it."""
    values: dict[str, float] = {}
    for label, body in (("plain Codex", await from_plain_codex()), ("Turnbridge", await through_the_gateway())):
        tools = [tool for tool in as_list(body.get("tools")) if isinstance(tool, dict)]
        names = [tool.get("name", tool["type"]) for tool in tools]
        print(f"{label}: {counted(body)}, tools: {', '.join(map(str, names)) or 'none'}")
        values.update({f"{label}: {part}": tokens for part, tokens in counted(body).items()})
    PICTURE.write_text(
        svg(bars("what-codex-adds", f"What the model is given for “{QUESTION}”", "tokens", values)), "utf-8"
    )


if __name__ == "__main__":
    asyncio.run(main())
