"""Dashboard, alerts and scraping: only metrics that exist, and Prometheus itself for the rest."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.deploy.proxies import DEPLOY
from tests.support.gateway import running_bridge
from tests.support.ports import free_port
from tests.support.waiting import LOOK_AGAIN_S
from tools.docs import metrics

PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = DEPLOY / "grafana" / "turnbridge.json"
# Of Prometheus itself, and of its client library.
OTHERS = {"up", "process_open_fds", "process_max_fds", "process_resident_memory_bytes"}
SUFFIXES = ("_bucket", "_sum", "_count")
TOKEN = "a-token-for-prometheus"
PATIENCE_S = 25

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def known() -> set[str]:
    """Return every metric of the gateway, as its page lists them."""
    return set(re.findall(r"`(turnbridge_\w+)`", metrics())) | OTHERS


def used_in(text: str) -> set[str]:
    names = set(re.findall(r"\b((?:turnbridge|process)_\w+)", text))
    return {name.removesuffix(suffix) for name in names for suffix in SUFFIXES if name.endswith(suffix)} | {
        name for name in names if not name.endswith(SUFFIXES)
    }


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.promise("deploy.monitoring")
def test_dashboard_and_alerts_use_only_metrics_that_exist() -> None:
    alerts = (PROMETHEUS / "alerts.yml").read_text(encoding="utf-8")
    assert used_in(DASHBOARD.read_text(encoding="utf-8")) - known() == set()
    assert used_in(re.sub(r"^\s*(summary|description):.*$", "", alerts, flags=re.MULTILINE)) - known() == set()


@pytest.mark.promise("deploy.monitoring")
def test_the_dashboard_shows_every_metric() -> None:
    shown = used_in(" ".join(expressions()))
    assert {name for name in known() if name.startswith("turnbridge_")} - shown == set()


@needs_promtool
@pytest.mark.promise("deploy.monitoring")
def test_prometheus_accepts_the_alerts_and_each_fires_when_it_should(tmp_path: Path) -> None:
    _promtool("check", "rules", str(PROMETHEUS / "alerts.yml"))
    _promtool("test", "rules", str(PROMETHEUS / "alerts_test.yml"))
    alerts = re.findall(r"alert: (\w+)", (PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))
    tried = re.findall(r"alertname: (\w+)", (PROMETHEUS / "alerts_test.yml").read_text(encoding="utf-8"))
    assert sorted(tried) == sorted([*alerts, *alerts]), "Each is tried when it should fire, and when it should not."
    # Grafana's own variables have a value only there.
    rules = [
        {"record": f"panel_{number}", "expr": each.replace("$__rate_interval", "5m")}
        for number, each in enumerate(expressions())
    ]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    _promtool("check", "rules", str(tmp_path / "panels.yml"))


def _promtool(*words: str) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, encoding="utf-8", check=False, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
@pytest.mark.anyio
@pytest.mark.real
@pytest.mark.promise("deploy.monitoring")
async def test_prometheus_scrapes_a_gateway_with_the_given_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    shutil.copy(PROMETHEUS / "alerts.yml", tmp_path)
    async with running_bridge(tmp_path / "gateway", PROXY_METRICS_TOKEN=TOKEN) as bridge:
        config = (PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8")
        changes = {
            "127.0.0.1:11435": bridge.url.removeprefix("http://"),
            "/etc/prometheus/turnbridge-token": str(tmp_path / "token"),
            "15s": "1s",
        }
        for was, becomes in changes.items():
            assert was in config, was
            config = config.replace(was, becomes)
        (tmp_path / "prometheus.yml").write_text(config, encoding="utf-8")
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            *("prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"),
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert await _asked(port, 'up{job="turnbridge"}') == 1
            assert await _asked(port, "turnbridge_ready") == 1
        finally:
            process.terminate()
            await process.wait()


async def _asked(port: int, query: str) -> float:
    """Return the value that Prometheus has, as soon as it has one."""
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        while True:
            try:
                found = (await http.get("/api/v1/query", params={"query": query})).json()["data"]["result"]
            except (httpx2.TransportError, ValueError):
                found = []
            if found:
                return float(found[0]["value"][1])
            await asyncio.sleep(LOOK_AGAIN_S)
