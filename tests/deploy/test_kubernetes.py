"""The files for several machines: HAProxy accepts its file, and the parts of the Kustomize base fit one another."""

import os
import shutil
import subprocess
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # It comes with other packages of ours, without types.

from tests.deploy.proxies import DEPLOY
from turnbridge.settings.fields import known_names

KUBERNETES = DEPLOY / "kubernetes"
HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
# The end of the app-servers, after the drain.
ENDING_S = 6
REPLICAS = 4
"""As many as HAProxy's file has places for."""


def objects() -> dict[tuple[str, str], Any]:
    """Return every object of the base by kind and name."""
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    files = ((KUBERNETES / name).read_text(encoding="utf-8") for name in listed)
    return {(each["kind"], each["metadata"]["name"]): each for text in files for each in yaml.safe_load_all(text)}


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
@pytest.mark.promise("deploy.replicas")
@pytest.mark.parametrize("replicas", [2, REPLICAS])
def test_haproxy_accepts_its_file_with_and_without_names(replicas: int) -> None:
    places = {f"TURNBRIDGE_REPLICA_{number}": f"192.0.2.{number}:11435" for number in range(1, replicas + 1)}
    for variables in ({}, {"TURNBRIDGE_RESOLVE": "1"}):
        environment = {**os.environ, **places, **variables, "TURNBRIDGE_ADMIN": "/tmp/turnbridge-unused.sock"}
        command = [str(HAPROXY), "-c", "-V", "-f", str(DEPLOY / "haproxy" / "haproxy.cfg")]
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
        assert (done.returncode, "Configuration file is valid" in done.stdout) == (0, True), done.stderr


@pytest.mark.promise("deploy.replicas")
def test_a_pod_has_time_to_drain_and_a_login_and_volume_of_its_own() -> None:
    pod = objects()["StatefulSet", "turnbridge"]["spec"]
    spec = pod["template"]["spec"]
    (gateway,) = spec["containers"]
    settings = {each["name"]: each["value"] for each in gateway["env"]}
    assert set(settings) <= set(known_names())
    wait_s = int(gateway["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert spec["terminationGracePeriodSeconds"] > wait_s + float(settings["PROXY_DRAIN_S"]) + ENDING_S
    assert [gateway[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")] == ["/livez", "/readyz"]
    (claim,) = pod["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    for container in (*spec["initContainers"], gateway):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.promise("deploy.replicas")
def test_the_balancer_knows_as_many_pods_as_may_be_there() -> None:
    found = objects()
    (balancer,) = found["Deployment", "turnbridge-balancer"]["spec"]["template"]["spec"]["containers"]
    names = [each["value"] for each in balancer["env"] if each["name"].startswith("TURNBRIDGE_REPLICA_")]
    pods = "turnbridge-pods.turnbridge.svc.cluster.local:11435"
    assert names == [f"turnbridge-{number}.{pods}" for number in range(REPLICAS)]
    scaled = found["HorizontalPodAutoscaler", "turnbridge"]["spec"]
    assert scaled["maxReplicas"] == REPLICAS
    metric = scaled["metrics"][0]["pods"]["metric"]["name"]
    assert f"`{metric}`" in (DEPLOY.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    allowed = found["NetworkPolicy", "turnbridge"]["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert allowed == found["Deployment", "turnbridge-balancer"]["spec"]["template"]["metadata"]["labels"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.promise("deploy.replicas")
def test_kustomize_renders_the_base_with_the_balancers_file() -> None:
    command = ["kubectl", "kustomize", "--load-restrictor", "LoadRestrictionsNone", str(KUBERNETES)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    (config,) = (each for each in rendered if each["kind"] == "ConfigMap")
    assert config["data"]["haproxy.cfg"] == (DEPLOY / "haproxy" / "haproxy.cfg").read_text(encoding="utf-8")
    assert {each["metadata"]["namespace"] for each in rendered} == {"turnbridge"}
