"""What clients can write into the log: no line of their own, nothing that steers a terminal, no key, no megabytes."""

import contextlib
import json
import re
import socket

import pytest

from tests.hostile.site import HOSTILE_KEY, NEIGHBOUR_KEY, Site
from tests.web.server.raw_connection import until

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MOST_LINE_BYTES = 16 * 1024
TRICKS = "\x1b[2J\x7f\x9b\u2028\u2029\x85\r\n" + '{"event":"request","client":"forged"}'


@pytest.mark.promise("bounds.log-lines")
async def test_the_words_of_a_client_stay_within_a_line_and_its_key_out_of_it(site: Site) -> None:
    models = ("m" * 1_000_000, TRICKS, HOSTILE_KEY, f"gpt-5.5 {HOSTILE_KEY}", "sk-proj-0123456789abcdef")
    for model in models:
        body = {"model": model, "input": "Hello", "user": HOSTILE_KEY}
        headers = {"x-request-id": HOSTILE_KEY, "idempotency-key": f"{HOSTILE_KEY}{model[:9].encode().hex()}"}
        reply = await site.hostile.post("/v1/responses", json=body, headers=headers)
        assert reply.status_code in (200, 404), reply.text
        assert reply.headers["x-request-id"] != HOSTILE_KEY
    await site.hostile.get(f"/v1/responses/{HOSTILE_KEY}")
    await site.hostile.get("/" + "x" * 60_000)
    await site.hostile.options(
        "/v1/models", headers={"origin": f"http://{HOSTILE_KEY}", "access-control-request-method": "GET"}
    )
    with socket.create_connection(site.address, timeout=30) as client, contextlib.suppress(ConnectionError):
        client.sendall(f"{TRICKS}{HOSTILE_KEY}\r\n\r\n".encode())
        client.recv(1000)
    await site.assert_neighbour_is_served()

    written = site.gateway.log()
    assert all(line.isprintable() and len(line.encode()) <= MOST_LINE_BYTES for line in written.split("\n"))
    lines = [json.loads(line) for line in written.splitlines()]
    assert "forged" not in [line.get("client") for line in lines]
    for secret in (HOSTILE_KEY, NEIGHBOUR_KEY, "sk-proj-0123456789abcdef"):
        assert secret not in written


@pytest.mark.promise("ingress.log")
async def test_each_line_names_the_client_and_its_peer(site: Site) -> None:
    await site.hostile.get("/v1/models", headers={"x-request-id": "from the hostile"})
    await site.neighbour.get("/v1/models", headers={"x-request-id": "from the neighbour"})
    # A line is written when its answer has left.
    await until(lambda: "from the neighbour" in site.gateway.log())
    lines = [json.loads(line) for line in site.gateway.log().splitlines()]
    found = {line["request_id"]: (line["client"], line["peer"]) for line in lines if line["event"] == "request"}
    (hostile, peer), (neighbour, _) = found["from the hostile"], found["from the neighbour"]
    assert hostile != neighbour
    assert peer == "127.0.0.1"
    assert re.fullmatch(r"key-[0-9a-f]{8}", hostile)


@pytest.mark.promise("bounds.key-guessing")
async def test_guessing_keys_does_not_hurt_the_neighbour_on_the_same_machine(site: Site) -> None:
    async def guess() -> None:
        statuses = {
            (await site.hostile.get("/v1/models", headers={"authorization": f"Bearer {number:020}"})).status_code
            for number in range(100)
        }
        assert statuses <= {401, 429}
        assert 429 in statuses

    await site.assert_undisturbed(guess)
