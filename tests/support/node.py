"""Scripts that use the official SDKs for node."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.gateway import API_KEY, Bridge
from turnbridge.turn.items import JsonObject

FOLDER = Path(__file__).parents[1] / "node"
# Longer than any of the scripts takes on a busy machine.
PATIENCE_S = 90


async def run_script(name: str, bridge: Bridge, *, package: str = "openai", **variables: str) -> JsonObject:
    """Return what a script printed; skip the test where there is no node, or no SDK for it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("There is no node on this machine.")
    if not (FOLDER / "node_modules" / package).is_dir():
        pytest.skip(f"The {package} package for node is not installed: run `make node`.")
    async with asyncio.timeout(PATIENCE_S):
        script = await asyncio.create_subprocess_exec(
            node,
            name,
            cwd=FOLDER,
            env={**os.environ, "OPENAI_BASE_URL": f"{bridge.url}/v1", "OPENAI_API_KEY": API_KEY, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            printed, complaints = await script.communicate()
        finally:
            if script.returncode is None:
                script.kill()
                await script.wait()
    assert (script.returncode, complaints) == (0, b"")
    told: JsonObject = json.loads(printed)
    return told
