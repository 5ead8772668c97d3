"""The oldest Codex that is supported, 0.92.0, behind a gateway, in each of the dialects that it speaks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.codex_versions.installed import OLDEST, installed_codex
from tests.support.gateway import Bridge, running_bridge
from turnbridge.codex.protocol.capabilities import Dialect
from turnbridge.scripted_model.replies import error_reply
from turnbridge.scripted_model.server import ScriptedModel


@pytest.fixture(scope="session")
def old_codex() -> Path:
    """Return the binary, or skip the test and say how to get it."""
    binary = installed_codex(OLDEST)
    if binary is None:
        pytest.skip(f"Codex {OLDEST} is not installed: run `make codex-old`, which needs node and npm.")
    return binary


@pytest.fixture(scope="session")
async def offline(anyio_backend: object) -> AsyncIterator[None]:
    """Keep the old Codex on this machine: it asks OpenAI for its models, whoever the provider is."""
    del anyio_backend  # Named so that its scope is this one's.
    async with ScriptedModel(lambda _: error_reply(404, "No models here.")) as nobody:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_BASE_URL", nobody.base_url)
            yield


async def old_bridge(directory: Path, binary: Path, dialect: Dialect) -> AsyncIterator[Bridge]:
    """Run a gateway with the old Codex."""
    async with running_bridge(directory, CODEX_BIN=binary, PROXY_APP_SERVER_DIALECT=dialect) as bridge:
        yield bridge


@pytest.fixture(scope="session")
async def early(tmp_path_factory: pytest.TempPathFactory, old_codex: Path, offline: None) -> AsyncIterator[Bridge]:
    """Return a gateway that speaks v2-early."""
    del offline
    async for bridge in old_bridge(tmp_path_factory.mktemp("early"), old_codex, "v2-early"):
        yield bridge


@pytest.fixture(scope="session")
async def v1(tmp_path_factory: pytest.TempPathFactory, old_codex: Path, offline: None) -> AsyncIterator[Bridge]:
    """Return a gateway that speaks v1."""
    del offline
    async for bridge in old_bridge(tmp_path_factory.mktemp("v1"), old_codex, "v1"):
        yield bridge


@pytest.fixture(params=["v2-early", "v1"])
def old(request: pytest.FixtureRequest) -> Bridge:
    """Return a gateway for each dialect in turn."""
    bridge: Bridge = request.getfixturevalue("early" if request.param == "v2-early" else "v1")
    return bridge
