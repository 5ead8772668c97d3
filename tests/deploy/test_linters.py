"""What linters say of the files for containers and balancers: each is skipped without `make replica-tools`."""

import json
import subprocess

import jsonschema  # type: ignore[import-untyped]  # As this one does.
import pytest
import yaml  # type: ignore[import-untyped]  # It comes with other packages of ours, without types.

from tests.deploy.proxies import DEPLOY, ENVOY, REPLICA_TOOLS

HADOLINT = REPLICA_TOOLS / "bin" / "hadolint"
COMPOSE_SCHEMA = REPLICA_TOOLS / "check_jsonschema" / "builtin_schemas" / "vendor" / "compose-spec.json"
TIMEOUT_S = 60
NOT_THERE = "run: make replica-tools"


def said(*command: str) -> tuple[int, str]:
    """Return how a program ended, and what it said."""
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=TIMEOUT_S)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(not HADOLINT.exists(), reason=NOT_THERE)
@pytest.mark.promise("deploy.container")
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert said(str(HADOLINT), str(DEPLOY / "docker" / "Dockerfile")) == (0, "")


@pytest.mark.skipif(not COMPOSE_SCHEMA.exists(), reason=NOT_THERE)
@pytest.mark.promise("deploy.container")
@pytest.mark.parametrize("name", ["compose.yaml", "compose.shared.yaml"])
def test_compose_files_follow_the_specification(name: str) -> None:
    schema = json.loads(COMPOSE_SCHEMA.read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load((DEPLOY / "docker" / name).read_text(encoding="utf-8")), schema)


@pytest.mark.skipif(not ENVOY.exists(), reason=NOT_THERE)
@pytest.mark.promise("deploy.replicas")
def test_envoy_accepts_its_file() -> None:
    status, text = said(str(ENVOY), "--mode", "validate", "-l", "error", "-c", str(DEPLOY / "envoy" / "envoy.yaml"))
    assert (status, "OK" in text) == (0, True), text
