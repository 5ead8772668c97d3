"""The model sees what the client sent: the same items, in order, and nothing else; judged on the model's side.

Over WebSocket, what counts is the whole conversation as the provider puts it together from messages of new items.
"""

import pytest
from dirty_equals import IsInt, IsJson, IsStr, IsUUID

from tests.real.fidelity_cases import (
    CASES,
    CUSTOM_CALL,
    CUSTOM_RESULT,
    FOUND_BY_PROVIDER,
    SHELL_CALL,
    Case,
    call,
    result,
    said,
)
from tests.support.gateway import Bridge
from turnbridge.scripted_model.replies import answer, message, reasoning
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ROUTES = {"responses": "/v1/responses", "chat": "/v1/chat/completions"}
MODEL = "gpt-5.5"
# Over WebSocket, Codex tells its provider also when it sent the message.
SENT_AT = "x-codex-ws-stream-request-start-ms"
UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
ID_OF_CODEX = IsStr(regex=f"[a-z]+_{UUID}")


def whole_request(
    items: list[JsonObject], *, model: str, reasoning: JsonObject, metadata: JsonObject, extra: JsonObject
) -> dict[str, object]:
    """Return everything that Codex may send to the provider; a field that it adds one day is not in here."""
    turn_metadata = {
        "installation_id": IsUUID(),
        "session_id": IsUUID(),
        "thread_id": IsUUID(),
        "turn_id": IsUUID(),
        "root_turn_id": IsUUID(),
        "context_window_id": IsUUID(),
        "window_id": IsStr(regex=f"{UUID}:0"),
        "window_number": 0,
        "agent_name": "/root",
        "request_kind": "turn",
        "history_initialization": "new",
        "sandbox": IsStr(),
        "sandbox_mode": "read-only",
        "auto_review_enabled": False,
        "node_repl_auto_review_required": False,
        "node_repl_disabled": False,
        "turn_started_at_unix_ms": IsInt(),
        "analytics_enabled": False,
        "model": model,
        "reasoning_effort": reasoning["effort"],
        **metadata,
    }
    return {
        "model": model,
        "input": [{"id": ID_OF_CODEX, **item} for item in items],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": reasoning,
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": IsUUID(),
        "client_metadata": {
            "session_id": IsUUID(),
            "thread_id": IsUUID(),
            "turn_id": IsUUID(),
            "root_turn_id": IsUUID(),
            "x-codex-installation-id": IsUUID(),
            "x-codex-window-id": IsStr(regex=f"{UUID}:0"),
            "x-codex-turn-metadata": IsJson(turn_metadata),
        },
        **extra,
    }


@pytest.fixture
def bridge(either_bridge: Bridge) -> Bridge:
    """Return a gateway for each transport to the provider."""
    return either_bridge


def seen(bridge: Bridge) -> JsonObject:
    """Return the only request that the model got, but for what belongs to its transport."""
    request = bridge.seen()
    metadata = request["client_metadata"]
    assert isinstance(metadata, dict)
    return {**request, "client_metadata": {name: value for name, value in metadata.items() if name != SENT_AT}}


def requests() -> list[object]:
    """Return every case in the words of each API that has words for it."""
    return [
        pytest.param(route, body, case, id=f"{case.name}, {route}")
        for case in CASES
        for route, body in (("responses", case.responses), ("chat", case.chat))
        if body is not None
    ]


@pytest.mark.promise(
    "items.exact",
    "items.instructions",
    "items.system-messages",
    "items.history",
    "items.refusals",
    "items.names",
    "items.namespaces",
    "items.fields",
    "items.long",
    "items.markup",
    "parameters.verbosity",
    "parameters.service-tier",
    "parameters.metadata",
    "structured.enforced",
    "reasoning.effort",
    "reasoning.summary",
    "reasoning.chat",
    "tools.replay.unknown-calls",
)
@pytest.mark.parametrize(("route", "body", "case"), requests())
async def test_the_model_sees_exactly_what_the_client_sent(
    bridge: Bridge, route: str, body: JsonObject, case: Case
) -> None:
    bridge.says(case.answer)
    answered = await bridge.http.post(ROUTES[route], json={"model": MODEL, **body})
    assert (answered.status_code, answered.headers.get("x-turnbridge-ignored")) == (200, case.ignored)
    # Chat clients show reasoning when there is some, and have no word to ask for it.
    summary: JsonObject = {"summary": "auto"} if route == "chat" and "reasoning" not in body else {}
    assert seen(bridge) == whole_request(
        list(case.input),
        model=MODEL,
        reasoning={**summary, **case.reasoning},
        metadata=case.metadata,
        extra=case.extra,
    )


@pytest.mark.promise("items.exact")
async def test_a_streamed_request_reaches_the_model_like_any_other(bridge: Bridge) -> None:
    bridge.says("ok")
    sent: JsonObject = {"model": MODEL, "stream": True, "input": "hi"}
    assert (await bridge.http.post("/v1/responses", json=sent)).status_code == 200
    assert seen(bridge) == whole_request(
        [said("user", "hi")], model=MODEL, reasoning={"effort": "medium"}, metadata={}, extra={}
    )


@pytest.mark.promise("items.given-back", "reasoning.given-back")
async def test_what_the_sdk_got_from_responses_goes_back_to_the_model_as_it_was(bridge: Bridge) -> None:
    bridge.script(
        answer(
            reasoning(["Two and two."], id="rs_a", encrypted="secret"),
            message("I add.", id="msg_a", phase="commentary"),
            message("It is 4.", id="msg_b", phase="final_answer"),
        ),
        answer(message("It is 6.")),
    )
    first = await bridge.client.responses.create(
        model=MODEL, input="2 + 2?", include=["reasoning.encrypted_content"], store=False
    )
    await bridge.client.responses.create(
        model=MODEL,
        input=[{"role": "user", "content": "2 + 2?"}, *first.output, {"role": "user", "content": "3 + 3?"}],  # type: ignore[list-item]
        store=False,
    )
    assert bridge.model.requests[1].body["input"] == [
        {"id": ID_OF_CODEX, **said("user", "2 + 2?")},
        {
            "type": "reasoning",
            "id": "rs_a",
            "summary": [{"type": "summary_text", "text": "Two and two."}],
            "content": None,
            "encrypted_content": "secret",
        },
        said("assistant", "I add.", id="msg_a", phase="commentary"),
        said("assistant", "It is 4.", id="msg_b", phase="final_answer"),
        {"id": ID_OF_CODEX, **said("user", "3 + 3?")},
    ]


@pytest.mark.promise("items.given-back")
async def test_what_the_sdk_got_from_chat_goes_back_to_the_model(bridge: Bridge) -> None:
    bridge.script(answer(reasoning(["Two and two."]), message("It is 4.")), answer(message("It is 6.")))
    first = await bridge.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "2 + 2?"}])
    await bridge.client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "user", "content": "2 + 2?"},
            first.choices[0].message,  # type: ignore[list-item]
            {"role": "user", "content": "3 + 3?"},
        ],
    )
    assert bridge.model.requests[1].body["input"] == [
        {"id": ID_OF_CODEX, **said("user", "2 + 2?")},
        {"id": ID_OF_CODEX, **said("assistant", "It is 4.")},
        {"id": ID_OF_CODEX, **said("user", "3 + 3?")},
    ]


@pytest.mark.promise("items.uncarried", "items.pairs")
@pytest.mark.parametrize(
    ("items", "param"),
    [
        pytest.param([result("c1", "42")], "input", id="an output without its call"),
        pytest.param([result("c1", "42"), call("c1")], "input", id="an output before its call"),
        pytest.param([call("c1")], "input", id="a call without its output"),
        pytest.param([call("c1"), CUSTOM_RESULT], "input", id="a call with an output of another kind"),
        pytest.param([CUSTOM_CALL, result("c1", "42")], "input", id="a custom call with an output of another kind"),
        pytest.param([{"type": "message", "role": "tool", "content": "a"}], "input[0].role", id="an unknown role"),
        pytest.param([{"type": "unheard_of"}], "input[0].type", id="an unknown item"),
        *(
            pytest.param([{"type": kind, "id": "x", "call_id": "c1"}], "input[0].type", id=kind)
            for kind in ("compaction_trigger", "local_shell_call_output", "shell_call", "apply_patch_call")
        ),
        pytest.param([SHELL_CALL], "input", id="a shell call without its output"),
        pytest.param([FOUND_BY_PROVIDER[0]], "input", id="a search for tools without its output"),
        pytest.param([FOUND_BY_PROVIDER[1]], "input", id="the output of a search for tools without it"),
        pytest.param([{"type": "compaction"}], "input", id="an item that Codex cannot read"),
    ],
)
async def test_what_codex_would_drop_or_invent_is_refused(bridge: Bridge, items: list[Json], param: str) -> None:
    bridge.says("ok")
    refused = await bridge.http.post("/v1/responses", json={"model": MODEL, "input": items})
    assert (refused.status_code, bridge.model.requests) == (400, [])
    assert refused.json()["error"]["param"] == param
