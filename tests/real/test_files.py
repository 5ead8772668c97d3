"""Files that hold text reach the model as text in their place; what cannot be carried is refused, and named."""

import base64

import pytest

from tests.real.fidelity_cases import (
    call,
    result,
    said,
    text,
)
from tests.support.gateway import Bridge
from turnbridge.engine import media_items as ready_items
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CSV = "name;größe\nann;1\n"


def pdf(words: str) -> bytes:
    """Return one page with these words."""
    page = b"BT /F 12 Tf 9 9 Td (%b) Tj ET" % words.encode()
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(page), page),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    body, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, start=1):
        places.append(b"%010d 00000 n \n" % len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"xref\n0 6\n0000000000 65535 f \n%btrailer\n<< /Size 6 /Root 1 0 R >>\n" % b"".join(places)
    return body + table + b"startxref\n%d\n%%%%EOF\n" % len(body)


def encoded(data: bytes | str, mime_type: str | None = None) -> str:
    plain = base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
    return plain if mime_type is None else f"data:{mime_type};base64,{plain}"


def file_part(route: str, **source: Json) -> JsonObject:
    """Return a file in the words of one API."""
    return {"type": "input_file", **source} if route == "responses" else {"type": "file", "file": source}


def question(route: str, part: JsonObject) -> JsonObject:
    """Return a request with this part between two texts."""
    words = "input_text" if route == "responses" else "text"
    content: list[Json] = [text("Read", words), part, text("please", words)]
    key = "input" if route == "responses" else "messages"
    return {"model": "gpt-5.5", key: [{"role": "user", "content": content}]}


ROUTES = {"responses": "/v1/responses", "chat": "/v1/chat/completions"}


@pytest.mark.promise("media.file.text", "media.file.pdf")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("data", "filename", "seen"),
    [
        pytest.param(encoded("buy milk"), "list.txt", "File: list.txt\n\nbuy milk", id="text"),
        pytest.param(encoded("buy milk"), None, "buy milk", id="text without a name"),
        pytest.param(encoded("# Hi\n", "text/markdown"), "a.md", "File: a.md\n\n# Hi\n", id="markdown"),
        pytest.param(encoded(CSV, "text/csv"), "a.csv", f"File: a.csv\n\n{CSV}", id="csv as a data URL"),
        pytest.param(encoded(CSV), "a.csv", f"File: a.csv\n\n{CSV}", id="csv as bare base64"),
        pytest.param(encoded(pdf("Dear Ann")), "a.pdf", "File: a.pdf\n\nDear Ann", id="pdf"),
        pytest.param(encoded(pdf("Dear Ann"), "application/pdf"), None, "Dear Ann", id="pdf as a data URL"),
        pytest.param("YnV5\r\nIG1p\nbGs=\n", None, "buy milk", id="base64 in lines"),
        pytest.param(encoded("", "text/plain"), "a.txt", "File: a.txt\n\n", id="empty"),
    ],
)
async def test_a_file_reaches_the_model_as_text_in_its_place(
    bridge: Bridge, route: str, data: str, filename: str | None, seen: str
) -> None:
    bridge.says("ok")
    part = file_part(route, file_data=data, filename=filename)
    assert (await bridge.http.post(ROUTES[route], json=question(route, part))).status_code == 200
    match bridge.seen()["input"]:
        case [{"content": content}]:
            assert content == [text("Read"), text(seen), text("please")]
        case other:
            pytest.fail(f"The model saw {other}")


@pytest.mark.promise("media.file.text")
async def test_a_file_in_the_output_of_a_function_reaches_the_model_as_text(bridge: Bridge) -> None:
    bridge.says("ok")
    part = file_part("responses", file_data=encoded("buy milk"), filename="list.txt")
    sent: JsonObject = {
        "model": "gpt-5.5",
        "input": [said("user", "a"), call("c1"), result("c1", [text("Here:"), part])],
    }
    assert (await bridge.http.post("/v1/responses", json=sent)).status_code == 200
    match bridge.seen()["input"]:
        case [_, _, {"output": output}]:
            assert output == [text("Here:"), text("File: list.txt\n\nbuy milk")]
        case other:
            pytest.fail(f"The model saw {other}")


@pytest.mark.promise("media.uncarried")
@pytest.mark.parametrize(
    ("source", "code"),
    [
        pytest.param({"file_data": encoded(b"\x00\x01"), "filename": "a.bin"}, "unsupported_file", id="binary"),
        pytest.param({"file_data": encoded(b"PK\x03\x04\x00", "application/zip")}, "unsupported_file", id="archive"),
        pytest.param({"file_data": encoded("%PDF-1.7 no more")}, "unsupported_file", id="broken pdf"),
        pytest.param({"filename": "a.txt"}, "unsupported_file_source", id="nothing"),
        pytest.param({"file_url": "http://example.com/a.txt"}, "invalid_file_url", id="http"),
        pytest.param({"file_url": "https://127.0.0.1/a.txt"}, "invalid_file_url", id="loopback"),
        pytest.param({"file_url": "file:///etc/hostname"}, "invalid_file_url", id="file"),
    ],
)
async def test_a_file_that_cannot_be_carried_is_refused_and_named(
    bridge: Bridge, source: JsonObject, code: str
) -> None:
    assert await refusal(bridge, "responses", file_part("responses", **source)) == (code, "input[0].content[1]")
    assert await refusal(bridge, "chat", file_part("chat", **source)) == (code, "messages[0].content[1]")


@pytest.mark.promise("media.fetch.bounds")
async def test_a_file_beyond_what_one_request_may_bring_in_is_refused_and_named(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_items, "LOADED_LIMIT", len(CSV))
    part = {"file_data": encoded(CSV), "filename": "a.csv"}
    refused = ("file_too_large", "input[0].content[1]")
    assert await refusal(bridge, "responses", file_part("responses", **part)) == refused


@pytest.mark.promise("media.uncarried")
@pytest.mark.parametrize(
    ("route", "part", "param"),
    [
        (
            "responses",
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            "input[0].content[1].type",
        ),
        (
            "chat",
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            "messages[0].content[1].type",
        ),
        ("chat", {"type": "video_url", "video_url": {"url": "https://a.example"}}, "messages[0].content[1].type"),
    ],
)
async def test_a_part_of_another_kind_is_refused_and_named(
    bridge: Bridge, route: str, part: JsonObject, param: str
) -> None:
    assert await refusal(bridge, route, part) == ("unsupported_content_part", param)


async def refusal(bridge: Bridge, route: str, part: JsonObject) -> tuple[str, str]:
    """Return code and param of the 400 for a request that must not reach the model."""
    bridge.says("ok")
    refused = await bridge.http.post(ROUTES[route], json=question(route, part))
    assert (refused.status_code, bridge.model.requests) == (400, [])
    error = refused.json()["error"]
    return error["code"], error["param"]
