"""Uploads of every shape: one clear error each, and neither the neighbour's latency nor its files suffer."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.hostile.site import Site
from turnbridge.api.files.routes import MOST_FILES

pytestmark = [pytest.mark.anyio, pytest.mark.real]

FORM = {"content-type": "multipart/form-data; boundary=b"}
MB = 2**20


def form(content: bytes, *, filename: str = "a.txt", more: bytes = b"") -> bytes:
    head = f'--b\r\ncontent-disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'.encode()
    purpose = b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    return purpose + more + head + content + b"\r\n--b--\r\n"


def parts(count: int) -> bytes:
    head = b'--b\r\ncontent-disposition: form-data; name="p%d"\r\n\r\nx\r\n'
    return b"".join(head % number for number in range(count))


def bad() -> Iterator[tuple[str, bytes, int, str]]:
    """Yield what it is, the body, and the status and code that it gets."""
    yield "a thousand parts", form(b"hi", more=parts(1000)), 400, "invalid_form"
    yield "a million parts", parts(300_000), 400, "invalid_form"
    yield "no end", form(b"x" * 16 * MB)[:-6], 400, "invalid_form"
    yield "a head without an end", b"--b\r\n" + b"h" * 16 * MB, 400, "invalid_form"
    yield "heads only", b"--b\r\n" * 2 * MB, 400, "invalid_form"
    yield "21 MB", form(b"x" * 21 * MB), 413, "request_too_large"
    yield "a path", form(b"hi", filename="../../etc/passwd"), 400, "invalid_value"
    yield "a Windows path", form(b"hi", filename="..\\\\boot.ini"), 400, "invalid_value"
    yield "an escape sequence", form(b"hi", filename="\x1b[2J"), 400, "invalid_value"
    yield "a line break", form(b"hi", filename="a%0D%0Aset-cookie: a=b"), 400, "invalid_value"
    yield "quotation marks", form(b"hi", filename='\\"' * 1300), 400, "invalid_value"


BAD = {name: (body, status, code) for name, body, status, code in bad()}


@pytest.mark.promise("bounds.files")
@pytest.mark.parametrize("name", BAD)
async def test_a_bad_form_is_refused_and_disturbs_nobody(site: Site, name: str) -> None:
    body, status, code = BAD[name]

    async def attack() -> None:
        refused = await site.hostile.post("/v1/files", content=body, headers=FORM)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)

    await site.assert_undisturbed(attack)


def head(site: Site, *headers: str) -> bytes:
    """Return the head of an upload for a raw socket."""
    key = f"authorization: {site.hostile.headers['authorization']}"
    lines = ("POST /v1/files HTTP/1.1", "host: 127.0.0.1", key, f"content-type: {FORM['content-type']}", *headers)
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.promise("bounds.files")
async def test_a_huge_announcement_is_refused_before_anything_is_read(site: Site) -> None:
    async def attack() -> None:
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(head(site, f"content-length: {2 * 1024 * MB}"))
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
        writer.close()

    await site.assert_undisturbed(attack)


@pytest.mark.promise("bounds.files")
async def test_an_upload_that_never_ends_is_refused_at_its_limit(site: Site) -> None:
    async def attack() -> None:
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(head(site, "transfer-encoding: chunked"))
        answering = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
        chunk, sent = b"10000\r\n" + b"x" * 0x10000 + b"\r\n", 0
        while not answering.done():
            writer.write(chunk)
            await writer.drain()
            sent += len(chunk)
        assert (await answering).startswith(b"HTTP/1.1 413 ")
        assert 20 * MB < sent < 64 * MB
        writer.close()

    await site.assert_undisturbed(attack)


@pytest.mark.promise("bounds.files")
async def test_uploads_that_stall_hold_up_only_their_own_key(site: Site) -> None:
    writers = []
    for _ in range(20):
        _, writer = await asyncio.open_connection(*site.address)
        writer.write(head(site, "content-length: 1000") + b"--b")
        await writer.drain()
        writers.append(writer)
    try:
        made = await site.neighbour.post("/v1/files", content=form(b"mine"), headers=FORM)
        assert made.status_code == 200, made.text
    finally:
        for writer in writers:
            writer.close()
    again = await site.hostile.post("/v1/files", content=form(b"mine"), headers=FORM)
    assert again.status_code == 200, again.text


@pytest.mark.promise("bounds.files")
async def test_many_small_files_of_one_key_are_no_more_than_its_share(site: Site) -> None:
    made = await site.neighbour.post("/v1/files", content=form(b"the neighbour's"), headers=FORM)
    outcomes: list[tuple[int, str | None]] = []

    async def upload_some() -> None:
        for _ in range(MOST_FILES // 16 + 4):
            reply = await site.hostile.post("/v1/files", content=form(b"x"), headers=FORM)
            outcomes.append((reply.status_code, reply.json().get("error", {}).get("code")))

    async def attack() -> None:
        await asyncio.gather(*(upload_some() for _ in range(16)))

    await site.assert_undisturbed(attack)
    assert set(outcomes) == {(200, None), (400, "file_limit_exceeded")}
    listed = (await site.hostile.get("/v1/files")).json()["data"]
    assert len(listed) == MOST_FILES
    content = await site.neighbour.get(f"/v1/files/{made.json()['id']}/content")
    assert content.content == b"the neighbour's"
    for file in listed:
        assert (await site.hostile.delete(f"/v1/files/{file['id']}")).status_code == 200


@pytest.mark.promise("bounds.files")
async def test_large_files_are_written_read_and_deleted_beside_others(site: Site) -> None:
    content = bytes(range(256)) * 4096 * 19

    async def attack() -> None:
        made = await site.hostile.post("/v1/files", content=form(content), headers=FORM)
        path = f"/v1/files/{made.json()['id']}"
        assert (await site.hostile.get(f"{path}/content")).content == content
        assert (await site.hostile.delete(path)).json()["deleted"]

    await site.assert_undisturbed(attack)
