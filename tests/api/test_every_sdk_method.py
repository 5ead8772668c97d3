"""Every method of the official SDK, called once: it works, or its error says why not."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from websockets.exceptions import InvalidStatus

from tests.api.sdk_methods import methods
from tests.engine.scripted_backend import ScriptedBackend, ScriptedThread, saying
from tests.support.gateway import API_KEY, listening, official_client, settings_for_tests
from turnbridge import bootstrap
from turnbridge.codex.process.backend import CodexBackend
from turnbridge.engine.ports import Model, ModelOffer
from turnbridge.turn.events import ImageDone, ImageStarted, TurnCompleted, TurnEvent, Usage
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import TurnRequest

pytestmark = pytest.mark.anyio

MODEL = Model(
    id="gpt-5.5",
    display_name="GPT-5.5",
    description="",
    efforts=("low", "medium"),
    default_effort="medium",
    context_window=272_000,
    max_context_window=272_000,
    modalities=("text", "image"),
    service_tiers=(),
    hidden=False,
    is_default=True,
)
OFFER = ModelOffer(models=(MODEL,))
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


PIXEL = "iVBORw0KGgo="


async def greet(_: CodexBackend, request: TurnRequest, *, suspect: bool = False) -> ScriptedThread:
    """Open a thread that greets everybody."""
    if request.spec.image_generation:
        image: list[list[TurnEvent]] = [
            [ImageStarted("ig_1")],
            [ImageDone("ig_1", "hi", PIXEL), TurnCompleted(Usage())],
        ]
        return await ScriptedBackend(turns=[image]).open(request, suspect=suspect)
    return await ScriptedBackend(turns=[saying("hello")]).open(request, suspect=suspect)


async def one_model(_: CodexBackend, __: str | None) -> ModelOffer:
    return OFFER


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[openai.AsyncOpenAI]:
    """Return the SDK, pointed at a gateway on a Codex with one model, which greets everybody."""
    monkeypatch.setattr(CodexBackend, "open", greet)
    monkeypatch.setattr(CodexBackend, "offer", one_model)
    settings = settings_for_tests(tmp_path, CODEX_BIN="/nowhere/codex")
    async with (
        bootstrap.running_gateway(settings, api_key=API_KEY) as gateway,
        listening(gateway) as url,
        official_client(url) as client,
    ):
        socket = f"{url.replace('http', 'ws', 1)}/v1"
        yield client.with_options(admin_api_key=API_KEY, websocket_base_url=socket)


Stored = dict[str, str]
"""What the methods that read or change something are given, by the names of their parameters."""


async def stored(client: openai.AsyncOpenAI) -> Stored:
    """Store a response, a conversation and a chat."""
    conversation = await client.conversations.create(items=[{"role": "user", "content": "hi"}])
    item = (await client.conversations.items.list(conversation.id)).data[0]
    response = await client.responses.create(model=MODEL.id, input="hi", background=True)
    chat = await client.chat.completions.create(model=MODEL.id, messages=HI, store=True)
    file = await client.files.create(file=("a.txt", b"a"), purpose="user_data")
    return {
        "conversation_id": conversation.id,
        "item_id": item.id or "",
        "response_id": response.id,
        "completion_id": chat.id,
        "file_id": file.id,
        "id": file.id,
        "purpose": "user_data",
        "model": MODEL.id,
        "input": "hi",
    }


def reason_of(error: openai.APIStatusError | InvalidStatus) -> tuple[object, str]:
    """Return the code and the message of an error, of a connection as well."""
    if isinstance(error, openai.APIStatusError):
        body = error.body if isinstance(error.body, dict) else {}
    else:
        body = json.loads(error.response.body or b"{}").get("error", {})
    return body.get("code"), str(body.get("message"))


SERVED = frozenset(
    {
        "admin.organization.usage.completions",
        *(f"chat.completions.{name}" for name in ("create", "parse", "stream", "list", "retrieve", "update", "delete")),
        "chat.completions.messages.list",
        *(f"responses.{name}" for name in ("create", "parse", "compact", "retrieve", "cancel", "delete")),
        "responses.input_items.list",
        "responses.input_tokens.count",
        *(f"conversations.{name}" for name in ("create", "retrieve", "update", "delete")),
        *(f"conversations.items.{name}" for name in ("create", "list", "retrieve", "delete")),
        *(f"files.{name}" for name in ("create", "list", "retrieve", "content", "delete", "wait_for_processing")),
        "files.retrieve_content",
        "images.generate",
        "models.list",
        "models.retrieve",
    }
)
"""What works."""
SAME = frozenset({"beta.chat.completions", "beta.responses"})
"""Other names of the same routes."""
OTHERWISE: JsonObject = {"models.delete": "method_not_allowed"}
"""Refused with a code of their own."""
TRIED_APART = frozenset({"responses.stream", "responses.connect", "beta.responses.connect"})
"""The first creates or retrieves, by its arguments; the others are conversations of their own."""


# Whole families of them are deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.promise("ingress.sdk", "ingress.unserved")
async def test_every_method_works_or_says_why_not(client: openai.AsyncOpenAI) -> None:
    worked, refused = set[str](), dict[str, object]()
    for method in methods(client):
        if method.name in TRIED_APART:
            continue
        known = await stored(client) if method.name.removeprefix("beta.") in SERVED else {}
        try:
            await method.run(**{name: known[name] for name in known if name in method.parameters})
        except (openai.APIStatusError, InvalidStatus) as error:
            code, why = reason_of(error)
            assert len(why) > 40, (method.name, why)
            assert "base URL" not in why, (method.name, why)
            refused[method.name] = code
        else:
            worked.add(method.name)
    same = {name for name in worked if name.startswith(tuple(SAME))}
    assert worked - same == SERVED
    assert {name.removeprefix("beta.") for name in same} <= SERVED
    others = {name: code for name, code in refused.items() if code != "not_served"}
    assert others == OTHERWISE
    assert len(refused) > 300, "The SDK was not looked at."


@pytest.mark.promise("ingress.sdk")
async def test_a_response_streams_when_it_is_made_and_again_later(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(model=MODEL.id, input="hi", background=True) as events:
        made = await events.get_final_response()
    async with client.responses.stream(response_id=made.id) as events:
        again = await events.get_final_response()
    assert (made.output_text, again.output_text) == ("hello", "hello")
