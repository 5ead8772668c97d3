"""Every example runs as it stands, against the demo."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateway import API_KEY, Bridge, running_bridge
from turnbridge.scripted_model.persona import respond

pytestmark = [pytest.mark.anyio, pytest.mark.real]

EXAMPLES = Path(__file__).parents[2] / "examples"
# Importing LangChain takes seconds on a busy machine.
PATIENCE_S = 60
PROMPTS = 24


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway with the demo model behind it."""
    del anyio_backend  # Named so that its scope fits.
    async with running_bridge(tmp_path_factory.mktemp("examples")) as running:
        running.model.respond = respond
        yield running


async def printed(demo: Bridge, name: str, *words: object) -> str:
    """Run an example as a user would, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, words)),
        env={**os.environ, "OPENAI_BASE_URL": f"{demo.url}/v1", "OPENAI_API_KEY": API_KEY},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        told, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return told.decode()


@pytest.mark.promise("start.examples")
def test_every_example_is_in_the_table_and_is_run_here() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == {"openai_sdk", "agents_sdk", "langchain_agent", "extract_from_pdf", "batch"}
    assert all(f"`python examples/{name}.py" in table for name in scripts)


@pytest.mark.promise("start.examples")
async def test_the_openai_sdk_answers_streams_and_calls(demo: Bridge) -> None:
    first, streamed, called = (await printed(demo, "openai_sdk")).splitlines()
    assert "Say hello in one sentence." in first
    assert "Count to five." in streamed
    assert "It is sunny in" in called


@pytest.mark.promise("start.examples")
@pytest.mark.parametrize("name", ["agents_sdk", "langchain_agent"])
async def test_an_agent_uses_its_tool(demo: Bridge, name: str) -> None:
    assert "It is sunny in" in await printed(demo, name)


@pytest.mark.promise("start.examples")
async def test_a_document_becomes_fields(demo: Bridge, tmp_path: Path) -> None:
    invoice = tmp_path / "invoice.txt"
    invoice.write_text("Invoice 7 of ACME: 12.50 EUR", encoding="utf-8")
    assert set(json.loads(await printed(demo, "extract_from_pdf", invoice))) == {
        "number",
        "seller",
        "total",
        "currency",
    }
    shown = json.dumps(demo.model.requests[-1].body["input"])
    assert "Invoice 7 of ACME" in shown


@pytest.mark.promise("start.examples")
async def test_a_batch_answers_every_prompt_in_order(demo: Bridge, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"Prompt {number}.\n" for number in range(PROMPTS)), encoding="utf-8")
    results = [json.loads(line) for line in (await printed(demo, "batch", prompts)).splitlines()]
    assert [result["prompt"] for result in results] == [f"Prompt {number}." for number in range(PROMPTS)]
    assert all(f"“{result['prompt']}”" in result["answer"] for result in results)
