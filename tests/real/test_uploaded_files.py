"""Uploaded files: the official SDKs store and read them, and the model sees them as if they were sent inline."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.real.fidelity_cases import call, result, said, text
from tests.real.test_files import encoded, file_part, pdf
from tests.real.test_images import data_url, png
from tests.support.gateway import API_KEY, NO_CERTIFICATES, TIMEOUT_S, Bridge, running_bridge
from tests.support.node import run_script
from tests.support.tool_clients import bare, weather_call
from turnbridge.scripted_model.replies import answer, message
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import open_store
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

OTHER_KEY = "sk-test-another-0123456789"
PICTURE = png(3, 2)
ROUTES = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "anthropic": "/v1/messages"}
NEEDED: dict[str, JsonObject] = {"anthropic": {"max_tokens": 50_000}}


@pytest.fixture(scope="module")
async def keeping(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway with two keys that keeps threads."""
    del anyio_backend
    keys = f"{API_KEY},{OTHER_KEY}"
    async with running_bridge(tmp_path_factory.mktemp("files"), api_key=keys, PROXY_WARM_THREADS_MAX=64) as running:
        yield running


async def upload(bridge: Bridge, name: str, data: bytes, **options: Any) -> str:
    purpose = options.pop("purpose", "user_data")
    return (await bridge.client.files.create(file=(name, data), purpose=purpose, **options)).id


async def ask(bridge: Bridge, route: str, items: list[Any], *, expected: str, **options: object) -> list[Json]:
    """Ask once, check how it was served, and return what the model saw."""
    key = "input" if route == "responses" else "messages"
    reply = await bridge.http.post(
        ROUTES[route], json={"model": "gpt-5.5", key: items, **NEEDED.get(route, {}), **options}
    )
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-turnbridge-thread"] == expected
    seen = bare(bridge.model.requests[-1].body["input"])
    assert isinstance(seen, list)
    return seen


def image_part(route: str, **source: Json) -> JsonObject:
    if route == "responses":
        return {"type": "input_image", **source}
    return {"type": "image_url", **(source if "file_id" in source else {"image_url": {"url": source["image_url"]}})}


def asking(route: str, *parts: JsonObject) -> JsonObject:
    return {"role": "user", "content": [text("Read", "input_text" if route == "responses" else "text"), *parts]}


KINDS = {"text": ("list.txt", b"buy milk"), "pdf": ("a.pdf", pdf("Dear Ann")), "image": ("a.png", PICTURE)}


async def both_forms(bridge: Bridge, route: str, kind: str) -> tuple[JsonObject, JsonObject]:
    """Return a part by the id of an uploaded file, and one with the same bytes inline."""
    name, data = KINDS[kind]
    file_id = await upload(bridge, name, data)
    if route == "anthropic":
        block: JsonObject = {"type": "image"} if kind == "image" else {"type": "document", "title": name}
        own: JsonObject = {"type": "base64", "data": base64.b64encode(data).decode()}
        return {**block, "source": {"type": "file", "file_id": file_id}}, {**block, "source": own}
    if kind == "image":
        return image_part(route, file_id=file_id), image_part(route, image_url=data_url(data))
    return file_part(route, file_id=file_id), file_part(route, file_data=encoded(data), filename=name)


@pytest.mark.promise("media.file.uploaded")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ROUTES)
async def test_the_model_sees_the_same_by_file_id_as_inline_fresh_and_warm(
    keeping: Bridge, route: str, kind: str
) -> None:
    by_id, inline = await both_forms(keeping, route, kind)
    shown = []
    for part in (by_id, inline):
        keeping.script(answer(message("Milk.")), answer(message("Two.")))
        keeping.gateway.warm.close()
        history = [asking(route, part)]
        first = await ask(keeping, route, history, expected="fresh")
        history += [{"role": "assistant", "content": "Milk."}, {"role": "user", "content": "How many?"}]
        second = await ask(keeping, route, history, expected="warm")
        shown.append((first, second))
    assert shown[0] == shown[1]
    assert len(shown[0][1]) == 3


@pytest.mark.promise("media.file.uploaded")
async def test_a_thread_that_saw_a_file_inline_goes_on_with_its_id(keeping: Bridge) -> None:
    by_id, inline = await both_forms(keeping, "responses", "image")
    keeping.script(answer(message("Black.")), answer(message("Six.")))
    await ask(keeping, "responses", [asking("responses", inline)], expected="fresh")
    history = [asking("responses", by_id), said("assistant", "Black."), said("user", "How many pixels?")]
    seen: Any = await ask(keeping, "responses", history, expected="warm")
    assert seen[0]["content"][1]["image_url"] == data_url(PICTURE)


TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.promise("media.file.uploaded")
@pytest.mark.parametrize(("kind", "way"), [("text", "parked"), ("text", "replayed"), ("image", "replayed")])
async def test_files_stand_before_calls_and_in_their_outputs(keeping: Bridge, kind: str, way: str) -> None:
    by_id, inline = await both_forms(keeping, "responses", "text")
    outputs = await both_forms(keeping, "responses", kind)
    shown = []
    for part, in_output in zip((by_id, inline), outputs, strict=True):
        keeping.script(answer(weather_call("Rome", "call_1")), answer(message("Sunny.")))
        keeping.gateway.warm.close()
        keeping.gateway.calls.close()
        history: list[Any] = [asking("responses", part)]
        await ask(keeping, "responses", history, expected="fresh", tools=[TOOL])
        history += [call("call_1", "weather", '{"city":"Rome"}'), result("call_1", [text("Here:"), in_output])]
        if way == "replayed":
            keeping.gateway.calls.close()
        shown.append(await ask(keeping, "responses", history, expected=way, tools=[TOOL]))
    assert shown[0] == shown[1]
    seen: Any = shown[0]
    assert seen[0]["content"][1] == text("File: list.txt\n\nbuy milk")
    shown_part = seen[-1]["output"][1]
    assert shown_part.get("image_url", shown_part.get("text")) in (data_url(PICTURE), "File: list.txt\n\nbuy milk")


@pytest.mark.promise("media.file.uploaded")
async def test_a_name_in_the_part_stands_for_that_of_the_upload(bridge: Bridge) -> None:
    file_id = await upload(bridge, "a.txt", b"buy milk")
    bridge.says("ok")
    part = file_part("chat", file_id=file_id, filename="shopping.txt")
    seen: Any = await ask(bridge, "chat", [asking("chat", part)], expected="fresh")
    assert seen[0]["content"][1] == text("File: shopping.txt\n\nbuy milk")


@pytest.mark.promise("files.errors", "state.keys")
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("which", ["unknown", "foreign", "deleted"])
async def test_a_file_that_is_not_there_is_refused_and_named(keeping: Bridge, which: str, background: bool) -> None:
    file_id = "file-unknown"
    if which == "foreign":
        theirs = keeping.client.with_options(api_key=OTHER_KEY)
        file_id = (await theirs.files.create(file=("a.txt", b"a"), purpose="user_data")).id
        with pytest.raises(openai.NotFoundError):
            await keeping.client.files.retrieve(file_id)
    elif which == "deleted":
        file_id = await upload(keeping, "a.txt", b"a")
        await keeping.client.files.delete(file_id)
    keeping.script()
    for route, param in (("responses", "input[0].content[1].file_id"), ("chat", "messages[0].content[1].file_id")):
        for part in (file_part(route, file_id=file_id), image_part(route, file_id=file_id)):
            if route == "chat" and (background or part["type"] == "image_url"):
                continue
            key = "input" if route == "responses" else "messages"
            sent: JsonObject = {"model": "gpt-5.5", key: [asking(route, part)]}
            if route == "responses":
                sent["background"] = background
            refused = await keeping.http.post(ROUTES[route], json=sent)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"], error["param"]) == (404, "file_not_found", param)
            assert file_id in error["message"]
    assert keeping.model.requests == []


@pytest.mark.promise("media.file.uploaded", "media.uncarried")
@pytest.mark.parametrize(
    ("data", "as_image", "code"),
    [
        pytest.param(b"\x00\x01", False, "unsupported_file", id="binary"),
        pytest.param(b"%PDF-1.7 no more", False, "unsupported_file", id="broken pdf"),
        pytest.param(b"buy milk", True, "invalid_image_format", id="text as an image"),
        pytest.param(png(1, 1)[:16] + b"\x00\x01\x00\x00" * 2, True, "image_too_large", id="too many pixels"),
    ],
)
async def test_an_uploaded_file_is_checked_like_one_that_is_sent(
    bridge: Bridge, data: bytes, as_image: bool, code: str
) -> None:
    file_id = await upload(bridge, "a.bin", data)
    bridge.script()
    part = image_part("responses", file_id=file_id) if as_image else file_part("responses", file_id=file_id)
    refused = await bridge.http.post("/v1/responses", json={"model": "gpt-5.5", "input": [asking("responses", part)]})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, code, "input[0].content[1]")


@pytest.mark.promise("media.file.uploaded")
async def test_the_input_is_counted_with_its_files(bridge: Bridge) -> None:
    file_id = await upload(bridge, "a.txt", b"milk " * 100)
    part: Any = file_part("responses", file_id=file_id)
    counted = await bridge.client.responses.input_tokens.count(model="gpt-5.5", input=[asking("responses", part)])  # type: ignore[list-item]
    assert counted.input_tokens > 100


@pytest.mark.promise("files.sdks")
async def test_the_async_sdk_uploads_lists_reads_and_deletes(bridge: Bridge) -> None:
    files = bridge.client.files
    async for old in files.list():
        await files.delete(old.id)
    made = [
        await files.create(file=(f"größe {number}.txt", b"x" * number), purpose="vision" if number % 2 else "user_data")
        for number in range(5)
    ]
    assert [file.id async for file in files.list()] == [file.id for file in reversed(made)]
    assert [file.id async for file in files.list(limit=2, order="asc")] == [file.id for file in made]
    assert [file.id async for file in files.list(purpose="vision", order="asc")] == [made[1].id, made[3].id]
    found = await files.retrieve(made[3].id)
    assert found == made[3]
    assert (found.filename, found.bytes, found.purpose, found.status) == ("größe 3.txt", 3, "vision", "processed")
    assert (await files.content(found.id)).content == b"xxx"
    assert (await files.delete(found.id)).deleted
    for gone in (files.retrieve(found.id), files.content(found.id), files.delete(found.id)):
        with pytest.raises(openai.NotFoundError) as caught:
            await gone
        assert (caught.value.code, caught.value.param) == ("not_found", "id")


@pytest.mark.promise("files.sdks", "files.expiry")
async def test_the_sync_sdk_uploads_a_file_from_disk_that_expires(bridge: Bridge, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(256)) * 20_000)

    def use() -> None:
        with (
            openai.DefaultHttpxClient(verify=NO_CERTIFICATES) as http,
            openai.OpenAI(
                base_url=f"{bridge.url}/v1", api_key=API_KEY, max_retries=0, timeout=TIMEOUT_S, http_client=http
            ) as client,
        ):
            lasting = client.files.create(file=path, purpose="assistants")
            short = client.files.create(
                file=path, purpose="assistants", expires_after={"anchor": "created_at", "seconds": 3600}
            )
            assert short.expires_at == short.created_at + 3600
            assert lasting.expires_at == lasting.created_at + 30 * 24 * 3600
            assert lasting.filename == "a.bin"
            assert client.files.content(lasting.id).content == path.read_bytes()

    await asyncio.to_thread(use)


@pytest.mark.promise("files.sdks")
async def test_the_node_sdk_uploads_and_shows_files(bridge: Bridge) -> None:
    bridge.script(answer(message("Milk.")), answer(message("Milk.")))
    printed = await run_script("files.mjs", bridge)
    assert printed == {
        "filename": "list.txt",
        "bytes": 8,
        "lifetime": 3600,
        "content": "buy milk",
        "listed": True,
        "answers": ["Milk.", "Milk."],
        "deleted": True,
        "gone": {"status": 404, "code": "not_found"},
        "refused": {"status": 400, "code": "unsupported_purpose", "param": "purpose"},
    }
    seen: Any = [request.body["input"] for request in bridge.model.requests]
    assert [each[0]["content"] for each in seen] == [[text("File: list.txt\n\nbuy milk")]] * 2


@pytest.mark.promise("files.off")
async def test_nothing_is_uploaded_where_nothing_is_kept(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_STORE_TTL_DAYS=0) as bridge:
        for attempt in (upload(bridge, "a.txt", b"a"), bridge.client.files.retrieve("file-1")):
            with pytest.raises(openai.BadRequestError) as caught:
                await attempt
            assert caught.value.code == "nothing_is_stored"
            assert "PROXY_STORE_TTL_DAYS" in caught.value.message
        part = file_part("responses", file_id="file-1")
        sent = {"model": "gpt-5.5", "input": [asking("responses", part)]}
        refused = await bridge.http.post("/v1/responses", json=sent)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "file_not_found")
    store = await open_store(store_url(tmp_path))
    assert (await store.figures()).files == 0
    await store.aclose()


@pytest.mark.promise("files.expiry", "state.restart")
async def test_files_outlive_a_restart(tmp_path: Path) -> None:
    async with running_bridge(tmp_path) as bridge:
        file_id = await upload(bridge, "list.txt", b"buy milk")
    async with running_bridge(tmp_path) as bridge:
        bridge.says("Milk.")
        part = file_part("responses", file_id=file_id)
        seen: Any = await ask(bridge, "responses", [asking("responses", part)], expected="fresh")
    assert seen[0]["content"][1] == text("File: list.txt\n\nbuy milk")
