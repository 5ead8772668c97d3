"""MCP servers on Responses: a real server, called by the gateway for the model behind the real Codex."""

import base64
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import openai
import pytest
from structlog.testing import capture_logs

from tests.real.test_images import png
from tests.support.gateway import Bridge, running_bridge
from tests.support.logs import logged_requests
from tests.support.mcp_server import McpSite, running_mcp_server
from turnbridge.scripted_model.replies import OutputItem, answer, error_reply, function_call, message, reasoning

pytestmark = [pytest.mark.anyio, pytest.mark.real]

FIDELITY, THREAD = "x-turnbridge-fidelity", "x-turnbridge-thread"
SECRET = "a secret that is not to be seen"
OSLO, BERN = {"city": "Oslo"}, {"city": "Bern"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A gateway that may reach one MCP server."""

    bridge: Bridge
    site: McpSite

    async def create(self, **body: Any) -> Any:
        """Return an answer by the official SDK, and its headers."""
        usual = {"model": "gpt-5.5", "input": "Weather?", "tools": [self.site.tool()]}
        raw = await self.bridge.client.responses.with_raw_response.create(**{**usual, **body})
        return raw.parse(), raw.headers

    @property
    def seen(self) -> list[Any]:
        """Return the requests that the model got."""
        return [request.body for request in self.bridge.model.requests]


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Served]:
    """Return a gateway and its server, for all tests here."""
    del anyio_backend  # Named so that its scope is this one's.
    async with running_mcp_server() as site:
        allowed = f"hosts:mcp.example,{site.origin}"
        folder = tmp_path_factory.mktemp("mcp")
        async with running_bridge(folder, PROXY_MCP=allowed, PROXY_WARM_THREADS_MAX=4) as bridge:
            yield Served(bridge=bridge, site=site)


@pytest.fixture
async def served(running: Served) -> Served:
    """Return the same, with nothing noted yet and no thread kept."""
    TEST.clear()
    TEST.add(next(NUMBERS))
    running.site.requests.clear()
    running.site.calls.clear()
    running.bridge.gateway.warm.close()
    return running


def tool_call(name: str, arguments: dict[str, Any]) -> OutputItem:
    """Return a call of a server's tool."""
    call = function_call(name, arguments, call_id=call_id(name, arguments))
    return replace(call, item={**call.item, "namespace": "mcp_wx"})


def call_id(name: str, arguments: dict[str, Any]) -> str:
    """Return the id of a call, which no other test has."""
    return f"call_{next(iter(TEST))}_{name}_{arguments['city']}"


def made(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the same as the model is shown it later."""
    said = {"type": "function_call", "call_id": call_id(name, arguments), "name": name, "namespace": "mcp_wx"}
    return {**said, "arguments": json.dumps(arguments)}


def given(made_before: dict[str, Any], output: str) -> dict[str, Any]:
    """Return the output of a call as the model is shown it."""
    return {"type": "function_call_output", "call_id": made_before["call_id"], "output": output}


def without_ids(items: Any) -> Any:
    """Return items without ids, and without fields that say nothing."""
    if isinstance(items, list):
        return [without_ids(item) for item in items]
    if isinstance(items, dict):
        return {k: without_ids(v) for k, v in items.items() if k not in ("id", "status") and v not in (None, [])}
    return items


TEST: set[int] = set()
"""The number of the test that runs."""
NUMBERS = itertools.count()
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}


@pytest.mark.promise("mcp.calls", "mcp.exact")
async def test_the_model_has_the_tools_of_a_server_and_no_others_and_sees_what_they_give(served: Served) -> None:
    served.bridge.script(
        answer(reasoning(["Hm."]), tool_call("look", OSLO), tool_call("store", BERN)), answer(message("Sunny."))
    )
    tool = served.site.tool(server_description="Weather of cities.", allowed_tools=["look", "store"])
    response, headers = await served.create(tools=[tool])
    assert sorted(served.site.calls) == [("look", "Oslo"), ("store", "Bern")]
    assert headers[FIDELITY] == "exact"
    listed, thought, look, store, said = response.output
    assert [tool.name for tool in listed.tools] == ["look", "store"]
    assert listed.tools[0].annotations["readOnlyHint"] is True
    assert (thought.type, said.content[0].text) == ("reasoning", "Sunny.")
    assert (look.type, look.status, look.arguments, look.output, look.error) == (
        *("mcp_call", "completed", '{"city": "Oslo"}', "sunny in Oslo", None),
    )
    assert (store.server_label, store.name, store.output) == ("wx", "store", "stored Bern for 3 days")
    assert response.usage.output_tokens == 10, "of both model calls"
    first, second = served.seen
    (namespace,) = first["tools"]
    assert (namespace["type"], namespace["name"], namespace["description"]) == (
        *("namespace", "mcp_wx", "Weather of cities."),
    )
    assert [function["name"] for function in namespace["tools"]] == ["look", "store"]
    assert second["tools"] == first["tools"]
    assert without_ids(second["input"]) == [
        USER,
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        made("look", OSLO),
        made("store", BERN),
        given(made("look", OSLO), "sunny in Oslo"),
        given(made("store", BERN), "stored Bern for 3 days"),
    ]


@pytest.mark.promise("mcp.stream")
async def test_the_stream_has_openai_events_for_lists_and_calls(served: Served) -> None:
    served.bridge.script(answer(tool_call("look", OSLO)), answer(message("Sunny.")))
    tools: Any = [served.site.tool()]
    stream = await served.bridge.client.responses.create(model="gpt-5.5", input="?", tools=tools, stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress"),
        *("output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done"),
        *("output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done"),
        *("mcp_call.completed", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
        *("output_item.done", "completed"),
    ]
    whole: Any = events[-1]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == whole.response.output
    assert [item.type for item in done] == ["mcp_list_tools", "mcp_call", "message"]


@pytest.mark.promise("mcp.failures")
async def test_a_tool_that_fails_is_a_failed_call_and_the_model_is_told(served: Served) -> None:
    served.bridge.script(answer(tool_call("fail", OSLO)), answer(tool_call("gone", OSLO)), answer(message("Sorry.")))
    response, _ = await served.create()
    _, failed, said = response.output
    assert (failed.status, failed.output, failed.error.type) == ("failed", None, "mcp_tool_execution_error")
    inputs = [request["input"] for request in served.seen]
    assert "no weather in Oslo" in inputs[1][-1]["output"]
    # Codex itself answers a call of what was never declared.
    assert "gone" in json.dumps(inputs[2][-1])
    assert said.content[0].text == "Sorry."


@pytest.mark.promise("mcp.history")
@pytest.mark.parametrize("state", ["previous_response_id", "history"])
async def test_the_next_request_continues_in_the_warm_thread_and_a_replay_shows_the_same(
    served: Served, state: str
) -> None:
    bridge = served.bridge
    seen = []
    for kept in (True, False):
        bridge.script(
            answer(tool_call("look", OSLO), tool_call("fail", BERN)),
            answer(tool_call("store", BERN)),
            answer(message("Sunny.")),
            answer(message("Bye.")),
        )
        first, _ = await served.create()
        if not kept:
            bridge.gateway.warm.close()
        asked = len(served.site.posted)
        if state == "history":
            history = [item.model_dump(exclude_none=True, warnings=False) for item in first.output]
            body: Any = {
                "input": [{"role": "user", "content": "Weather?"}, *history, {"role": "user", "content": "Bye"}]
            }
        else:
            body = {"input": "Bye", "previous_response_id": first.id}
        second, headers = await served.create(**body)
        assert headers[THREAD] == ("warm" if kept else "replayed")
        assert [item.type for item in second.output] == ["message"], "the list of tools is in the history already"
        assert len(served.site.posted) == asked, "and the server is not asked again"
        request = served.seen[-1]
        seen.append((request["tools"], without_ids(request["input"])))
    assert seen[0] == seen[1]
    calls = [item for item in seen[0][1] if item["type"] == "function_call"]
    assert [call["name"] for call in calls] == ["look", "fail", "store"]


@pytest.mark.promise("mcp.images", "mcp.history")
@pytest.mark.parametrize("state", ["previous_response_id", "history"])
async def test_the_model_sees_the_images_that_a_tool_gives_and_a_replay_shows_them_again(
    served: Served, state: str
) -> None:
    bridge, picture = served.bridge, base64.b64encode(png(4, 4)).decode()
    # Nobody can read the last two: one is broken behind its header, one is no image at all.
    served.site.images = [picture, base64.b64encode(png(4, 4)[:40]).decode(), base64.b64encode(b"hello").decode()]
    seen = []
    for kept in (True, False):
        bridge.script(answer(tool_call("photo", OSLO)), answer(message("Nice.")), answer(message("Bye.")))
        first, headers = await served.create()
        assert headers[FIDELITY] == "exact"
        blocks = json.loads(first.output[1].output)
        assert [block.get("text", block.get("data")) for block in blocks] == ["This is Oslo:", *served.site.images]
        if not kept:
            bridge.gateway.warm.close()
        body: Any = {"input": "Bye", "previous_response_id": first.id}
        if state == "history":
            said = [item.model_dump(exclude_none=True, warnings=False) for item in first.output]
            body = {"input": [{"role": "user", "content": "Weather?"}, *said, {"role": "user", "content": "Bye"}]}
        _, headers = await served.create(**body)
        assert headers[THREAD] == ("warm" if kept else "replayed")
        seen.append([without_ids(request["input"]) for request in served.seen[-2:]])
    (at_once, warm), (_, replayed) = seen
    assert replayed == warm
    assert at_once[-1]["output"] == [
        {"type": "input_text", "text": "This is Oslo:"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{picture}", "detail": "high"},
        {"type": "input_text", "text": "image content omitted because it could not be processed"},
        {"type": "input_text", "text": "[image of type image/png: not shown]"},
    ]


@pytest.mark.promise("mcp.approval")
@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("state", ["previous_response_id", "history"])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_call_waits_for_its_approval_parked_or_replayed(
    served: Served, approve: bool, state: str, kept: bool
) -> None:
    bridge, tool = served.bridge, served.site.tool(require_approval="always", allowed_tools=["store"])
    bridge.script(answer(message("I store."), tool_call("store", BERN)), answer(message("Done.")))
    first, _ = await served.create(tools=[tool])
    *_, asked = first.output
    assert (asked.type, asked.server_label, asked.name, asked.arguments) == (
        *("mcp_approval_request", "wx", "store", '{"city": "Bern"}'),
    )
    assert (first.status, served.site.calls) == ("completed", [])
    if not kept:
        bridge.gateway.calls.close()
    response = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": approve}
    if not approve:
        response["reason"] = "Not Bern."
    body: Any = {"input": [response], "previous_response_id": first.id}
    if state == "history":
        history = [item.model_dump(exclude_none=True) for item in first.output]
        body = {"input": [{"role": "user", "content": "Weather?"}, *history, response]}
    second, headers = await served.create(tools=[tool], **body)
    assert headers[THREAD] == ("parked" if kept else "replayed")
    assert served.site.calls == ([("store", "Bern")] if approve else [])
    text = "stored Bern for 3 days" if approve else "The user declined this tool call. Not Bern."
    shown_items = without_ids(served.seen[-1]["input"])
    assert shown_items[2:] == [made("store", BERN), given(made("store", BERN), text)]
    if approve:
        called, said = second.output
        assert (called.type, called.approval_request_id, called.output) == ("mcp_call", asked.id, text)
    else:
        (said,) = second.output
    assert said.content[0].text == "Done."
    bridge.script(answer(message("Bye.")))
    _, headers = await served.create(tools=[tool], input="Bye", previous_response_id=second.id)
    assert headers[THREAD] == "warm", "the history that was stored is what the thread holds"
    assert without_ids(served.seen[0]["input"])[: len(shown_items)] == shown_items


@pytest.mark.promise("mcp.approval")
async def test_what_was_approved_runs_once_however_often_the_request_is_repeated(served: Served) -> None:
    bridge, tool = served.bridge, served.site.tool(require_approval="always")
    bridge.script(answer(tool_call("store", BERN)), error_reply(400, "no"), answer(message("Done.")))
    first, _ = await served.create(tools=[tool])
    approval = {"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": True}
    body: Any = {"input": [approval], "previous_response_id": first.id, "tools": [tool]}
    with pytest.raises(openai.BadRequestError):
        await served.create(**body)
    second, _ = await served.create(**body)
    assert served.site.calls == [("store", "Bern")]
    assert [item.type for item in second.output] == ["mcp_call", "message"]


@pytest.mark.promise("mcp.approval")
async def test_an_approval_must_have_its_request_its_answer_and_its_server(served: Served) -> None:
    bridge, tool = served.bridge, served.site.tool(require_approval="always")
    bridge.script(answer(tool_call("store", BERN)))
    first, _ = await served.create(tools=[tool])
    asked = first.output[-1]
    approval = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}
    for body, problem in (
        ({"input": "Go on", "tools": [tool]}, "No approval response found"),
        ({"input": [{**approval, "approval_request_id": "mcpr_x"}], "tools": [tool]}, "No approval request found"),
        ({"input": [approval], "tools": []}, "needs the MCP server 'wx'"),
        ({"input": [approval, approval], "tools": [tool]}, "answered twice"),
    ):
        with pytest.raises(openai.BadRequestError, match=problem):
            await served.create(previous_response_id=first.id, **body)
    assert served.site.calls == []


@pytest.mark.promise("mcp.filters")
@pytest.mark.parametrize(
    ("fields", "offered", "asks"),
    [
        ({"allowed_tools": {"read_only": True}}, ["look"], []),
        ({"allowed_tools": {"tool_names": ["store", "fail"]}}, ["fail", "store"], []),
        ({"require_approval": {"never": {"tool_names": ["look"]}}}, ["fail", "look", "photo", "store"], ["store"]),
        ({"require_approval": {"always": {"tool_names": ["store"]}}}, ["fail", "look", "photo", "store"], ["store"]),
        ({"require_approval": {"never": {"read_only": True}}}, ["fail", "look", "photo", "store"], ["store"]),
        ({"require_approval": None}, ["fail", "look", "photo", "store"], ["look", "store"]),
    ],
)
async def test_filters_choose_the_tools_and_those_that_need_approval(
    served: Served, fields: dict[str, Any], offered: list[str], asks: list[str]
) -> None:
    names = [name for name in ("look", "store") if name in offered]
    served.bridge.script(*(answer(tool_call(name, OSLO)) for name in names), answer(message("Done.")))
    response, _ = await served.create(tools=[served.site.tool(**fields)])
    (namespace,) = served.seen[0]["tools"]
    assert [function["name"] for function in namespace["tools"]] == offered
    questions = [item.name for item in response.output if item.type == "mcp_approval_request"]
    assert questions == asks[:1]
    assert [name for name, _ in served.site.calls] == [name for name in names if name not in asks]


@pytest.mark.promise("mcp.mixed")
async def test_servers_and_functions_are_called_side_by_side(served: Served) -> None:
    bridge = served.bridge
    function = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
    tools = [served.site.tool(), function]
    bridge.script(
        answer(tool_call("look", OSLO)),
        answer(tool_call("look", BERN), function_call("mine", {}, call_id="call_mine")),
        answer(message("Done.")),
    )
    first, _ = await served.create(tools=tools)
    assert [item.type for item in first.output] == ["mcp_list_tools", "mcp_call", "mcp_call", "function_call"]
    output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "mine too"}
    second, _ = await served.create(tools=tools, input=[output], previous_response_id=first.id)
    assert second.output[0].content[0].text == "Done."
    assert without_ids(served.seen[-1]["input"]) == [
        USER,
        made("look", OSLO),
        given(made("look", OSLO), "sunny in Oslo"),
        made("look", BERN),
        given(made("look", BERN), "sunny in Bern"),
        {"type": "function_call", "call_id": "call_mine", "name": "mine", "arguments": "{}"},
        given({"call_id": "call_mine"}, "mine too"),
    ]


@pytest.mark.promise("mcp.mixed")
async def test_a_turn_that_called_a_server_before_a_function_is_parked(served: Served) -> None:
    bridge = served.bridge
    function = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
    tools = [served.site.tool(), function]
    bridge.script(
        answer(tool_call("look", OSLO)),
        answer(function_call("mine", {}, call_id="call_mine")),
        answer(message("Done.")),
    )
    first, _ = await served.create(tools=tools)
    output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "mine too"}
    _, headers = await served.create(tools=tools, input=[output], previous_response_id=first.id)
    assert headers[THREAD] == "parked"


@pytest.mark.promise("mcp.choice")
async def test_a_choice_may_name_a_server_or_one_of_its_tools(served: Served) -> None:
    choice: Any = {"type": "mcp", "server_label": "wx", "name": "look"}
    served.bridge.script(answer(tool_call("look", OSLO)), answer(message("Sunny.")))
    await served.create(tool_choice=choice)
    (namespace,) = served.seen[0]["tools"]
    assert [function["name"] for function in namespace["tools"]] == ["look"]
    with pytest.raises(openai.BadRequestError, match="'other' not found"):
        await served.create(tool_choice={"type": "mcp", "server_label": "other"})
    served.bridge.says("Hello")
    await served.create(tool_choice="none")
    assert not served.seen[0].get("tools")


@pytest.mark.promise("mcp.choice")
async def test_calls_beyond_the_limit_are_not_run(served: Served) -> None:
    served.bridge.script(answer(tool_call("look", OSLO), tool_call("look", BERN)), answer(message("Done.")))
    response, _ = await served.create(max_tool_calls=1)
    assert response.max_tool_calls == 1
    assert [item.status for item in response.output if item.type == "mcp_call"] == ["completed", "failed"]
    assert len(served.site.calls) == 1


@pytest.mark.promise("mcp.secrets")
async def test_headers_reach_the_server_and_nothing_else(served: Served, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("secrets")
    allowed = f"hosts:{served.site.origin}"
    tool = served.site.tool(headers={"x-custom": SECRET}, authorization=SECRET)
    with capture_logs() as logs:
        async with running_bridge(folder, PROXY_MCP=allowed, PROXY_LOG_PROTO=True) as bridge:
            bridge.script(answer(tool_call("look", OSLO)), answer(message("Sunny.")))
            raw = await bridge.http.post(
                "/v1/responses", json={"model": "gpt-5.5", "input": "Weather?", "tools": [tool]}
            )
            stored = await bridge.http.get(f"/v1/responses/{raw.json()['id']}")
            await logged_requests(logs, 2)
            sent = json.dumps([request.body for request in bridge.model.requests])
    assert served.site.posted
    assert {(r["x-custom"], r["authorization"]) for r in served.site.posted} == {(SECRET, f"Bearer {SECRET}")}
    assert raw.json()["tools"] == stored.json()["tools"]
    assert raw.json()["tools"][0]["server_url"] == f"{served.site.origin}/<redacted>"
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and "codex" not in path.parts)
    assert (folder / "trace" / "wire.ndjson").stat().st_size > 0
    for place in (raw.text, stored.text, repr(logs), sent, written.decode("utf-8", "replace")):
        assert SECRET not in place
        assert "secret-path" not in place


@pytest.mark.promise("mcp.own")
async def test_threads_are_not_shared_between_other_headers(served: Served) -> None:
    bridge = served.bridge
    used = []
    for token in ("one", "two", "two"):
        bridge.script(answer(tool_call("look", OSLO)), answer(message("Sunny.")), answer(message("Bye.")))
        first, _ = await served.create(tools=[served.site.tool(authorization="one")])
        body = {"input": "Bye", "previous_response_id": first.id, "tools": [served.site.tool(authorization=token)]}
        _, headers = await served.create(**body)
        used.append(headers[THREAD])
        bridge.gateway.warm.close()
    assert used == ["warm", "replayed", "replayed"]
