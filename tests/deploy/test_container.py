"""The Dockerfile without Docker: its rules, and its steps in a clean folder, run as a user without rights."""

import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.proxies import DEPLOY
from tests.support.ports import free_port

ROOT = DEPLOY.parent
DOCKER = DEPLOY / "docker"
UNTOLD = 65534
"""The user id of nobody."""
BUILD_TIMEOUT_S = 100
RECENT = "import sys; sys.exit(sys.version_info < (3, 11))"
# uv does the same as pip, and has what was loaded before.
INTO = "--python ${PREFIX}/bin/python"
WITH_UV = {
    "python -m venv": "uv venv --quiet --python ${PYTHON}",
    "${PREFIX}/bin/pip install --no-cache-dir --disable-pip-version-check": f"uv pip install --quiet {INTO}",
    "${PREFIX}/bin/pip uninstall --yes": f"uv pip uninstall --quiet {INTO}",
}
START_TIMEOUT_S = 30


def steps() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage, with their words."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    stages: list[list[tuple[str, str]]] = []
    for line in joined.splitlines():
        name, _, words = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, words))
    return stages


def last(name: str) -> str:
    return [words for step, words in steps()[-1] if step == name][-1]


@pytest.mark.promise("deploy.container")
def test_the_image_is_small_pinned_and_without_rights() -> None:
    build, final = steps()
    assert [words.split()[0] for name, words in (build[0], final[0]) if name == "FROM"] == ["python:3.13-slim"] * 2
    names = [name for name, _ in (*build, *final)]
    assert "ADD" not in names, "COPY does nothing that is not written there."
    assert int(last("USER")) > 0
    assert last("ENTRYPOINT") == '["turnbridge"]'
    assert "/livez" in last("HEALTHCHECK")
    # Only what was built comes into the second stage, and no setting has a secret.
    assert [words for name, words in final if name == "COPY"] == ["--from=build /opt/turnbridge /opt/turnbridge"]
    assert not re.search("KEY|TOKEN|PASSWORD", last("ENV"))
    installs = [words for name, words in build if name == "RUN" and "pip install" in words]
    assert all(
        "--require-hashes" in words or "--no-deps" in words for each in installs for words in each.split("&&")[1:3]
    )


@pytest.mark.promise("deploy.container")
def test_all_that_the_dockerfile_copies_is_in_its_context() -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"
    }
    copied = [words.split()[:-1] for name, words in steps()[0] if name == "COPY"]
    for source in (each for words in copied for each in words):
        assert (ROOT / source).exists()
        assert source.split("/")[0] in allowed


@pytest.mark.promise("deploy.container")
@pytest.mark.parametrize("name", ["compose.yaml", "compose.shared.yaml"])
def test_compose_files_publish_to_this_machine_only_and_ask_for_a_key(name: str) -> None:
    text = (DOCKER / name).read_text(encoding="utf-8")
    published = re.findall(r'- "(\S+:\d+)"', text)
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert "PROXY_API_KEY: ${PROXY_API_KEY:?" in text
    assert "stop_grace_period: 45s" in text


def public_python() -> str | None:
    """Return a Python that any user may run."""
    for path in (Path(sys.executable).resolve(), Path("/usr/bin/python3")):
        open_to_all = path.exists() and all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)
        if open_to_all and subprocess.run([path, "-c", RECENT], check=False).returncode == 0:
            return str(path)
    return None


@pytest.mark.real
@pytest.mark.timeout(BUILD_TIMEOUT_S + START_TIMEOUT_S + 60)
@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="another user can be had by root only")
@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed, and pip would load 100 MB each time")
@pytest.mark.skipif(public_python() is None, reason="there is no Python that another user may run")
@pytest.mark.promise("deploy.container")
def test_the_steps_of_the_dockerfile_make_a_gateway_that_another_user_can_run(tmp_path: Path) -> None:
    # pytest's own folder is for its user alone.
    place = Path("/var/tmp") / f"turnbridge-image-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        prefix = place / "opt"
        _build(place / "src", prefix)
        _serve(prefix, place / "home", tmp_path / "gateway.log")
    finally:
        shutil.rmtree(place)


def _build(source: Path, prefix: Path) -> None:
    """Run the steps of the first stage."""
    source.mkdir()
    for name, words in steps()[0]:
        if name == "COPY":
            *sources, target = words.split()
            (source / target).mkdir(exist_ok=True, parents=True)
            for each in sources:
                if (ROOT / each).is_dir():
                    shutil.copytree(ROOT / each, source / target, dirs_exist_ok=True)
                else:
                    shutil.copy(ROOT / each, source / target)
        elif name == "RUN":
            script = words
            for pip, uv in WITH_UV.items():
                assert pip in script
                script = script.replace(pip, uv)
            done = subprocess.run(
                ["/bin/sh", "-euc", script],
                cwd=source,
                env={**os.environ, "PREFIX": str(prefix), "PYTHON": public_python() or ""},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                check=False,
                timeout=BUILD_TIMEOUT_S,
            )
            assert done.returncode == 0, done.stdout


def _serve(prefix: Path, home: Path, log: Path) -> None:
    """Run the entry point with the image's settings as nobody, until the health check is content."""
    home.mkdir()
    os.chown(home, UNTOLD, UNTOLD)
    port = free_port()
    chosen = dict(word.split("=", 1) for word in shlex.split(last("ENV").replace("$PATH", "/usr/bin:/bin")))
    moved = {
        name: value.replace("/var/lib/turnbridge", str(home)).replace("/opt/turnbridge", str(prefix))
        for name, value in chosen.items()
    }
    environment = {**moved, "PORT": str(port), "PROXY_API_KEY": "sk-0123456789abcdef", "LANG": "C.UTF-8"}
    command = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD")), "--demo"]
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    as_nobody: dict[str, Any] = {"user": UNTOLD, "group": UNTOLD, "extra_groups": [], "env": environment, "cwd": home}
    with log.open("wb") as output:
        gateway = subprocess.Popen([str(prefix / "bin" / command[0]), *command[1:]], stderr=output, **as_nobody)
    try:
        check[0] = str(prefix / "bin" / check[0])
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _listens(port):
            assert gateway.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline
            time.sleep(0.1)
        subprocess.run(check, check=True, timeout=10, **as_nobody)
    finally:
        gateway.terminate()
        gateway.wait(timeout=START_TIMEOUT_S)
    assert subprocess.run(check, check=False, timeout=10, capture_output=True, **as_nobody).returncode == 1


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
