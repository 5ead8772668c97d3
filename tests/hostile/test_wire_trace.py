"""The wire trace reads every body; while it is on, large ones still keep nobody else waiting."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hostile.site import HOSTILE_KEY, NEIGHBOUR_KEY, TIMEOUT_S, Site, running_site
from tests.hostile.test_big_bodies import CHAT, RESPONSES, SAID, asked, filled, numbered
from tests.support.waiting import until
from turnbridge.api.shared.body_budget import MAX_ITEMS, MAX_VALUES
from turnbridge.diagnostics import timeline

pytestmark = [pytest.mark.anyio, pytest.mark.real]

TEXT = b'{"model":"gpt-5.5","messages":[{"role":"user","content":"'
THEN = b'"},' + SAID + b"]}"
# It is refused, so that it is searched once and not on both wires.
REFUSED = b'"}],"n":1000}'
IMAGE = b'{"model":"gpt-5.5","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"'
CALL = b'{"model":"gpt-5.5","input":[{"type":"function_call","call_id":"c","name":"f","arguments":"['
OUTPUT = b'0]"},{"type":"function_call_output","call_id":"c","output":"x"},' + SAID + b"]}"
SECRET = "hunter2hunter2"

BODIES = {
    "empty arrays": (RESPONSES, filled(asked(b'"u":['), b"[],", b"[]]}")),
    "most values": (RESPONSES, numbered(asked(b'"u":['), b'"%d"', b"]}", MAX_VALUES - 100)),
    "most items": (RESPONSES, numbered(b'{"model":"gpt-5.5","input":[', SAID, b"]}", MAX_ITEMS)),
    "one text": (CHAT, filled(TEXT, b"x", THEN)),
    "beginnings of secrets": (CHAT, filled(TEXT, b'\\"token\\": \\"', REFUSED)),
    "secrets": (CHAT, filled(TEXT, b'\\"token\\": \\"hunter2hunter2\\", ', THEN)),
    "a secret without an end": (CHAT, filled(TEXT + b'\\"token\\": \\"', b"x", THEN)),
    "names of no secrets": (CHAT, filled(TEXT, b'sk-1 ?api_ \\"secre\\" ://a: bearer ', REFUSED)),
    "letters with accents": (CHAT, filled(TEXT + b"token", "É".encode(), REFUSED)),
    "image data": (CHAT, filled(IMAGE + b"data:image/png;base64,", b"iVBORw0KGgo/+AAA", b'"}}]},' + SAID + b"]}")),
    "a call full of JSON": (RESPONSES, filled(CALL + b'\\"token\\",', b"[],", OUTPUT)),
    "a long key": (RESPONSES, filled(asked(b'"'), b"token", b'":1}')),
    "no JSON": (RESPONSES, filled(b"token", b"\xff", b"")),
}


@pytest.fixture(scope="module")
async def traced_site(
    tmp_path_factory: pytest.TempPathFactory, learned: Path, anyio_backend: object
) -> AsyncIterator[Site]:
    """Return a gateway that writes down all that goes over its wires, and not only beginnings."""
    del anyio_backend  # Named so that its scope is this one's.
    directory = tmp_path_factory.mktemp("traced")
    shutil.copytree(learned, directory / "data" / "binaries")
    async with running_site(directory, {"PROXY_LOG_PROTO": True, "PROXY_TRACE_BODY_LIMIT": 0}) as running:
        yield running


@pytest.mark.promise("trace.off")
@pytest.mark.parametrize("kind", BODIES)
async def test_a_body_that_is_traced_keeps_nobody_waiting(traced_site: Site, kind: str) -> None:
    route, body = BODIES[kind]
    path = traced_site.gateway.directory / "data" / "trace" / "wire.ndjson"
    tries = 0

    async def send() -> None:
        nonlocal tries
        tries += 1
        headers = {"content-type": "application/json", "x-request-id": f"{kind} {tries}"}
        reply = await traced_site.hostile.post(route, content=body, headers=headers)
        assert reply.status_code in (200, 400), reply.text[:500]
        # All of the work on it counts: what is asked now is written after it.
        after = f"after {kind} {tries}"
        await traced_site.hostile.get("/v1/models", headers={"x-request-id": after})
        await until(lambda: after.encode() in end_of(path), within_s=TIMEOUT_S)

    await traced_site.assert_undisturbed(send)
    told = timeline.lines_of(path, f"{kind} {tries}")
    assert (told[0].kind, told[0].size) == ("request", len(body))
    written = b"".join(bytes(line.payload) for line in told)
    assert [secret for secret in (HOSTILE_KEY, NEIGHBOUR_KEY, SECRET) if secret.encode() in written] == []


def end_of(path: Path) -> bytes:
    """Return what was written last; a file that is full has just been moved away."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2**20))
        return file.read()
    return b""
