"""The metrics of a real gateway against its documentation and Prometheus' own linter."""

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from tests.support.gateway import Bridge, running_bridge
from tests.support.waiting import LOOK_AGAIN_S, PATIENCE_S
from turnbridge.codex.process.process import Reason
from turnbridge.scripted_model.replies import answer, error_reply, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
DOCUMENTED = re.compile(r"^\| `(turnbridge_\w+)` \| (gauge|counter|histogram) \| ([^|]*) \|", re.MULTILINE)
SHOWN = re.compile(r"^# TYPE (turnbridge_\w+) (\w+)$", re.MULTILINE)
UNTOLD = ("turnbridge_plan_used_ratio", "turnbridge_plan_reset_timestamp_seconds")
"""Without a plan these have no values, and so no labels."""
OF_REPLICAS = re.compile(r"turnbridge_(?:redis|replica|shared_legs|streams_followed)\w*")
"""Only gateways that share a Postgres or a Redis have these."""
COUNTED = re.compile(r'^turnbridge_requests_total{.*route="/v1/responses".*} (\S+)$', re.MULTILINE)
REQUESTS = 5
ASK = {"model": "gpt-5.5", "input": "hi"}


async def exercised(bridge: Bridge) -> str:
    """Return a scrape after an answer, a failure of the provider's, and unknown names of models."""
    bridge.script(answer(message("hello")), error_reply(429, "Too fast."))
    for _ in range(2):
        await bridge.http.post("/v1/responses", json=ASK)
    for number in range(3):
        refused = await bridge.http.post("/v1/responses", json={**ASK, "model": f"made-up-{number}"})
        assert refused.status_code == 404
    # A request is counted when its answer has left, which its client may see a moment earlier.
    async with asyncio.timeout(PATIENCE_S):
        while sum(map(float, COUNTED.findall(text := (await bridge.http.get("/metrics")).text))) < REQUESTS:  # noqa: ASYNC110 - Polled, as Prometheus does.
            await asyncio.sleep(LOOK_AGAIN_S)
    return text


@pytest.mark.promise("ingress.metrics", "ingress.metrics.labels")
async def test_the_page_lists_every_metric_with_its_type_and_labels(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_LOG_PROTO=True) as bridge:
        text = await exercised(bridge)
    documented = {name: (kind, labels) for name, kind, labels in DOCUMENTED.findall(PAGE.read_text(encoding="utf-8"))}
    of_one = {name: about for name, about in documented.items() if not OF_REPLICAS.match(name)}
    assert {name: kind for name, (kind, _) in of_one.items()} == dict(SHOWN.findall(text))
    for name, (_, labels) in of_one.items():
        if name in UNTOLD:
            continue
        (first, *_) = re.findall(rf"^{name}(?:_count|_bucket)?(?:{{(.*)}})? \S+$", text, re.MULTILINE)
        shown = set(re.findall(r'(\w+)="', first)) - {"le"}
        assert shown == set(re.findall(r"`(\w+)`", labels)), name
    assert "made-up" not in text
    assert 'turnbridge_errors_total{code="rate_limit_exceeded",source="provider"} 1.0' in text
    assert "turnbridge_ready 1.0\n" in text
    assert "turnbridge_logged_in 1.0\n" in text
    reasons = re.findall(r'^turnbridge_app_server_replacements_total{reason="(\w+)"} 0.0$', text, re.MULTILINE)
    assert reasons == list(get_args(Reason))


@pytest.mark.promise("ingress.metrics")
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed")
async def test_prometheus_linter_finds_nothing(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_LOG_PROTO=True) as bridge:
        text = await exercised(bridge)
    assert await asyncio.to_thread(linted, text) == (0, "")


def linted(text: str) -> tuple[int, str]:
    """Return what Prometheus' own tool says of a scrape."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, encoding="utf-8", check=False, timeout=30
    )
    return done.returncode, done.stdout + done.stderr
