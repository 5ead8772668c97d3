"""Every example runs as it stands, against the demo."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.real.test_claude_code import claude as claude  # noqa: PLC0414  # A fixture.
from tests.real.test_files import pdf
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
    """Run a script as a user would, and return what it prints."""
    return await output(demo, [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, words)])


async def output(demo: Bridge, command: list[str], **environment: str) -> str:
    """Run a command that knows the gateway from its environment, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "OPENAI_BASE_URL": f"{demo.url}/v1", "OPENAI_API_KEY": API_KEY, **environment},
        stdin=asyncio.subprocess.DEVNULL,
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
    examples = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh", ".json")}
    scripts = {"openai_sdk.py", "agents_sdk.py", "langchain_agent.py", "extract_from_pdf.py", "batch.py"}
    assert examples == {*scripts, "claude_code.sh", "n8n.json"}
    assert all(f"examples/{name}" in table for name in examples)


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
    invoice = tmp_path / "invoice.pdf"
    invoice.write_bytes(pdf("Invoice 7 of ACME: 12.50 EUR"))
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


@pytest.mark.promise("start.examples")
async def test_claude_code_answers_without_a_change_of_its_settings(demo: Bridge, tmp_path: Path, claude: str) -> None:
    path = f"{Path(claude).parent}:{os.environ['PATH']}"
    command = ["sh", str(EXAMPLES / "claude_code.sh"), "Say hello."]
    assert "scripted demo model" in await output(demo, command, HOME=str(tmp_path), PATH=path)
    assert "Say hello." in json.dumps(demo.model.requests[-1].body["input"])
    assert not (tmp_path / ".claude" / "settings.json").exists()


@pytest.mark.promise("start.examples")
async def test_the_flow_of_n8n_is_whole_and_asks_as_its_nodes_do(demo: Bridge) -> None:
    """n8n itself takes 2 GB. Its chat model is LangChain's, so LangChain runs what the nodes say."""
    flow = json.loads((EXAMPLES / "n8n.json").read_text(encoding="utf-8"))
    nodes = {node["name"]: node["parameters"] for node in flow["nodes"]}
    linked = {(link["type"], name, link["node"]) for name, ends in flow["connections"].items() for link in _links(ends)}
    assert {("main", "When clicking Execute", "AI Agent"), ("ai_tool", "Calculator", "AI Agent")} < linked
    assert {name for _, *ends in linked for name in ends} == set(nodes)

    @tool
    def calculator(expression: str) -> str:
        """Calculate."""
        return f"{expression} is 42"

    settings = nodes["OpenAI Chat Model"]
    model = ChatOpenAI(
        model=settings["model"]["value"],
        use_responses_api=settings["responsesApiEnabled"],
        base_url=f"{demo.url}/v1",
        api_key=SecretStr(API_KEY),
    )
    agent = create_agent(model, [calculator], system_prompt=nodes["AI Agent"]["options"]["systemMessage"])
    asked = {"role": "user", "content": nodes["AI Agent"]["text"]}
    answer = await agent.ainvoke({"messages": [asked]})
    assert "is 42" in answer["messages"][-1].text


def _links(ends: dict[str, list[list[dict[str, str]]]]) -> list[dict[str, str]]:
    return [link for outputs in ends.values() for links in outputs for link in links]
