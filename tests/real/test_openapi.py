"""The OpenAPI document against what is served: the same routes, and answers as described to whatever is asked."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from starlette.routing import BaseRoute, Route, Router

import turnbridge.app
from tests.support.gateway import API_KEY, Bridge, running_bridge
from turnbridge.api.openapi.document import document
from turnbridge.api.openapi.gateway import PART as GATEWAY
from turnbridge.bootstrap import DESCRIBED
from turnbridge.scripted_model.persona import respond
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance"),
)
# `make fuzz-api` sets it: so many generated requests for each route, and every phase.
LONG = os.environ.get("TURNBRIDGE_FUZZ_EXAMPLES")
PHASES = "examples,fuzzing,stateful" if LONG is None else "examples,coverage,fuzzing,stateful"
BOUND_S = 90 if LONG is None else 3600


# Codex makes images with a ChatGPT login only, which this gateway has not.
WITH_A_LOGIN = ("/v1/images/generations",)
OPERATIONS = {key: each for part in (GATEWAY, *DESCRIBED) for key, each in part.operations.items()}
EXAMPLES = [
    (path, each.example)
    for (_, path), each in OPERATIONS.items()
    if each.example is not None and path not in WITH_A_LOGIN
]


@pytest.mark.promise("ingress.openapi")
async def test_the_document_has_exactly_the_routes_that_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Route] = []

    class Spied(Router):
        def __init__(self, routes: Sequence[BaseRoute]) -> None:
            served.extend(route for route in routes if isinstance(route, Route))
            super().__init__(routes)

    monkeypatch.setattr(turnbridge.app, "Router", Spied)
    async with running_bridge(tmp_path) as bridge:
        told = (await bridge.http.get("/openapi.json")).json()
        page = bridge.gateway.page
    assert page is not None
    assert told == document([GATEWAY, *DESCRIBED, page.described()])
    shown = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    # Refusals, which take any method, are no routes of an API; HEAD comes with every GET.
    pairs = {(method, each.path_format) for each in served for method in each.methods or ()}
    found = {(method, path) for method, path in pairs if method != "HEAD" or ("GET", path) not in pairs}
    # The page for browsers and its files are no API.
    found = {(method, path) for method, path in found if path != "/" and not path.startswith("/turnbridge/page/")}
    assert shown == {(method, path) for method, path in found if (method, f"/v1{path}") not in found}


@pytest.mark.promise("ingress.openapi")
async def test_the_document_asks_for_the_key(bridge: Bridge) -> None:
    refused = await bridge.http.get("/openapi.json", headers={"authorization": "Bearer wrong"})
    assert refused.status_code == 401


@pytest.mark.promise("ingress.openapi")
@pytest.mark.parametrize(("path", "body"), EXAMPLES, ids=[path for path, _ in EXAMPLES])
async def test_every_example_is_answered(bridge: Bridge, path: str, body: JsonObject) -> None:
    bridge.says("Hello.")
    assert (await bridge.http.post(path, json=body)).status_code == 200


@pytest.mark.promise("ingress.openapi")
@pytest.mark.timeout(BOUND_S + 30)
async def test_schemathesis_finds_no_answer_that_is_not_described(tmp_path: Path) -> None:
    async with running_bridge(tmp_path) as bridge:
        bridge.model.respond = respond
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{bridge.url}/openapi.json"),
            # Its stream does not end by itself, and its answers are compared in tests/page.
            *("--exclude-path-regex", "^/turnbridge/"),
            *("--header", f"Authorization: Bearer {API_KEY}", "--checks", ",".join(CHECKS)),
            *("--phases", PHASES, "--max-examples", LONG or "4", "--seed", "1", "--generation-database", "none"),
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(BOUND_S):
            printed, _ = await process.communicate()
    told = printed.decode()
    assert process.returncode == 0, told
    # It leaves out the document's own route.
    assert f"Tested: {len(OPERATIONS) - 1}\n" in told, told
