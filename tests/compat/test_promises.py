"""Promises that are small enough to be shown here: what is logged, and what happens when a provider refuses."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from structlog.testing import capture_logs

from tests.support.gateway import Bridge, running_bridge
from tests.support.logs import logged_requests
from tests.support.tool_clients import HI, ask, weather_call
from turnbridge.codex.process.connection import Connection
from turnbridge.scripted_model.replies import (
    HttpReply,
    Reply,
    answer,
    error_reply,
    message,
)
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio

# Codex ships this model to call its tools from scripts.
SCRIPTING = "gpt-6.1-sol"
SECRET = "the-quick-brown-fox"
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": SECRET}]
NO_SUMMARY: JsonObject = {"message": "No summaries.", "param": "reasoning.summary", "code": "unsupported_value"}


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    """Return a gateway of the test's own: it remembers what a provider refused."""
    async with running_bridge(tmp_path) as running:
        yield running


@pytest.mark.promise("reasoning.chat.no-summaries")
@pytest.mark.real
async def test_a_provider_that_gives_no_summaries_serves_chats_without_and_refuses_those_who_insist(
    bridge: Bridge,
) -> None:
    def respond(request: JsonObject) -> Reply:
        wants = isinstance(wish := request["reasoning"], dict) and "summary" in wish
        return HttpReply(status=400, body={"error": NO_SUMMARY}) if wants else answer(message("hello"))

    bridge.model.respond = respond
    for _ in range(2):
        completion = await bridge.client.chat.completions.create(model="gpt-5.5", messages=QUESTION)
        assert completion.choices[0].message.content == "hello"
    assert len(bridge.model.requests) == 3
    with pytest.raises(openai.BadRequestError) as caught:
        await bridge.client.responses.create(model="gpt-5.5", input="hi", reasoning={"summary": "auto"})
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "reasoning.summary")


@pytest.mark.promise("tools.mode.direct")
@pytest.mark.real
async def test_a_model_that_codex_ships_to_write_scripts_calls_functions_one_by_one(bridge: Bridge) -> None:
    bridge.script(answer(weather_call("Rome", "call_1"), weather_call("Oslo", "call_2")))
    _, calls = await ask(bridge, "responses", [HI], model=SCRIPTING)
    assert [call_id for call_id, _, _ in calls] == ["call_1", "call_2"]
    assert [tool["type"] for tool in json.loads(json.dumps(bridge.seen()["tools"]))] == ["function"] * 3


@pytest.mark.promise("tools.mode.auto")
@pytest.mark.real
async def test_a_model_that_is_left_native_is_named_in_the_log(bridge: Bridge) -> None:
    bridge.model.respond = lambda request: error_reply(400, "No.") if request.get("tools") else answer(message("Yes."))
    with capture_logs() as logs:
        await ask(bridge, "chat", [HI], model=SCRIPTING)
    assert [log["model"] for log in logs if log["event"] == "native_tool_mode"] == [SCRIPTING]


@pytest.mark.promise("tools.mode.auto")
@pytest.mark.real
async def test_a_provider_that_refuses_both_tool_modes_is_heard(bridge: Bridge) -> None:
    bridge.model.respond = lambda _: error_reply(400, "Not for you.")
    with pytest.raises(openai.BadRequestError, match="Not for you"):
        await ask(bridge, "chat", [HI], model=SCRIPTING)
    assert len(bridge.model.requests) == 2


@pytest.mark.promise("tools.mode.auto")
@pytest.mark.real
async def test_what_a_provider_refuses_on_a_thread_that_was_left_native_is_not_tried_again(tmp_path: Path) -> None:
    refusals = [error_reply(400, text) for text in ("Not so.", "Not for you.", "Not for you.")]
    history = [HI]
    async with running_bridge(tmp_path, PROXY_WARM_THREADS_MAX=1) as bridge:
        bridge.script(refusals[0], answer(message("Yes.")), *refusals[1:])
        await ask(bridge, "chat", history, model=SCRIPTING)
        with pytest.raises(openai.BadRequestError, match="Not for you"):
            await ask(bridge, "chat", [*history, HI], model=SCRIPTING)
        assert len(bridge.model.requests) == 3


@pytest.mark.promise("ingress.log.private")
@pytest.mark.real
async def test_the_log_holds_nothing_of_questions_and_answers(bridge: Bridge) -> None:
    bridge.script(answer(message(f"Why {SECRET}?")), error_reply(500, "Broken."))
    with capture_logs() as logs:
        await bridge.client.chat.completions.create(model="gpt-5.5", messages=QUESTION)
        with pytest.raises(openai.InternalServerError):
            await bridge.client.chat.completions.create(model="gpt-5.5", messages=QUESTION)
        lines = await logged_requests(logs, 2)
    assert [line["status"] for line in lines] == [200, 502]
    assert SECRET not in str(logs)


@pytest.mark.promise("safety.declined")
async def test_a_request_of_codexs_that_is_declined_is_counted_and_logged() -> None:
    written: list[bytes] = []
    connection = Connection(written.append)
    with capture_logs() as logs:
        connection.receive(b'{"id": 1, "method": "item/tool/requestUserInput", "params": {"threadId": "t"}}\n')
    assert len(written) == 1
    assert connection.skipped == {"declined item/tool/requestUserInput": 1}
    assert [(log["event"], log["method"]) for log in logs] == [("codex_request_declined", "item/tool/requestUserInput")]
