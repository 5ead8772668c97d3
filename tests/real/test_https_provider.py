"""A provider behind https, as every real one is: Codex trusts the system's certificates, or those it is told of."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import openai
import pytest
import trustme
from openai.types.chat import ChatCompletionMessageParam

from tests.support.gateway import (
    API_KEY,
    Bridge,
    listening,
    official_client,
    plain_client,
    settings_for_tests,
)
from tests.support.processes import with_variable
from turnbridge.bootstrap import running_gateway
from turnbridge.codex.process import certificates
from turnbridge.codex.process.certificates import SystemStore
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import in_order
from turnbridge.scripted_model.websocket import WebSocketModel

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]


# Codex adds what the first one names to the certificates of the system, and reads the second one in their place.
VARIABLES = ("CODEX_CA_CERTIFICATE", "SSL_CERT_FILE")


@pytest.fixture(params=VARIABLES)
def authority(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """Return an authority of the operator's own, of which Codex is told."""
    authority = trustme.CA()
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    for variable in (*VARIABLES, "SSL_CERT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(request.param, str(file))
    return authority


@contextlib.asynccontextmanager
async def behind_tls(base_url: str, certificate: trustme.LeafCert) -> AsyncIterator[str]:
    """Serve what is at `base_url` over https too."""
    inner = urlsplit(base_url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)

    async def passed_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(inner.hostname, inner.port)
        await asyncio.gather(passed_on(reader, inner_writer), passed_on(inner_reader, writer))

    server = await asyncio.start_server(joined, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}{inner.path}"


@contextlib.asynccontextmanager
async def asking(
    data_dir: Path, certificate: trustme.LeafCert, transport: Literal["http", "websocket"] = "http"
) -> AsyncIterator[Bridge]:
    """Run a gateway, which is soon discouraged, whose provider shows this certificate."""
    async with (
        WebSocketModel(in_order(answer(message("Hello over https.")))) as model,
        behind_tls(model.base_url, certificate) as provider,
        running_gateway(
            settings_for_tests(data_dir, PROXY_CONNECT_TIMEOUT_MS=1),
            api_key=API_KEY,
            provider=provider if transport == "http" else f"ws{provider.removeprefix('http')}",
        ) as gateway,
        listening(gateway) as url,
    ):
        await gateway.pool.worker()
        async with official_client(url) as client, plain_client(url) as http:
            yield Bridge(url=url, gateway=gateway, model=model, client=client, http=http)


@pytest.mark.promise("start.certificates")
async def test_a_provider_of_an_authority_that_codex_is_told_of_is_reached(
    authority: trustme.CA, tmp_path: Path
) -> None:
    async with asking(tmp_path / "data", authority.issue_cert("127.0.0.1")) as bridge:
        completion = await bridge.client.chat.completions.create(model="gpt-5.5", messages=ASKED)

    assert completion.choices[0].message.content == "Hello over https."


@pytest.mark.promise("start.certificates")
async def test_a_provider_that_cannot_be_trusted_is_a_failure_that_says_so(tmp_path: Path) -> None:
    stranger = trustme.CA().issue_cert("127.0.0.1")

    async with asking(tmp_path / "data", stranger) as bridge:
        with pytest.raises(openai.InternalServerError) as failed:
            await bridge.client.chat.completions.create(model="gpt-5.5", messages=ASKED)

    assert (failed.value.status_code, failed.value.code) == (502, "upstream_error")
    assert "Codex cannot reach the provider" in failed.value.message
    assert "its certificate" in failed.value.message


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """Return an authority that the system trusts besides another one; nobody has chosen certificates."""
    if sys.platform != "linux" or shutil.which("openssl") is None:
        pytest.skip("the directory of certificates is that of Linux, and openssl makes its names")
    directory, authority = tmp_path / "certs", trustme.CA()
    directory.mkdir()
    store = SystemStore(file=directory / "ca-certificates.crt", directory=directory)
    for number, trusted in enumerate((trustme.CA(), authority)):
        trusted.cert_pem.write_to_path(str(directory / f"{number}.pem"))
        trusted.cert_pem.write_to_path(str(store.file), append=True)
    subprocess.run(["openssl", "rehash", str(directory)], check=True, capture_output=True)
    monkeypatch.setattr(certificates, "SYSTEM_STORE", store)
    for variable in certificates.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return authority


# The directory that Codex is told of.
TRANSPORTS: dict[Literal["http", "websocket"], str] = {"http": "certs", "websocket": "data/demo-home/certificates"}


@pytest.mark.promise("start.certificates")
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_systems_authorities_are_trusted_when_codex_reads_them_only_once(
    system: trustme.CA, tmp_path: Path, transport: Literal["http", "websocket"]
) -> None:
    async with asking(tmp_path / "data", system.issue_cert("127.0.0.1"), transport) as bridge:
        completion = await bridge.client.chat.completions.create(model="gpt-5.5", messages=ASKED)
        told = with_variable("SSL_CERT_DIR", str(tmp_path / TRANSPORTS[transport]))

    assert completion.choices[0].message.content == "Hello over https."
    assert told, "Codex read certificates as it does by itself."
    assert isinstance(bridge.model, WebSocketModel)
    assert bool(bridge.model.sockets) == (transport == "websocket")


@pytest.mark.promise("start.certificates")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.usefixtures("system")
async def test_no_other_authority_is_trusted_then(tmp_path: Path, transport: Literal["http", "websocket"]) -> None:
    async with asking(tmp_path / "data", trustme.CA().issue_cert("127.0.0.1"), transport) as bridge:
        with pytest.raises(openai.InternalServerError) as failed:
            await bridge.client.chat.completions.create(model="gpt-5.5", messages=ASKED)

    assert "its certificate" in failed.value.message
