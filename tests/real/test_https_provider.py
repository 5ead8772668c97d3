"""A provider behind https, as every real one is: Codex trusts the system's certificates, or those it is told of."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest
import trustme
from openai.types.chat import ChatCompletionMessageParam

from tests.support.gateway import (
    API_KEY,
    TIMEOUT_S,
    listening,
    settings_for_tests,
)
from turnbridge.bootstrap import running_gateway
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel, in_order

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
async def asking(data_dir: Path, certificate: trustme.LeafCert) -> AsyncIterator[openai.AsyncOpenAI]:
    """Run a gateway, which is soon discouraged, whose provider shows this certificate; yield a client of it."""
    async with (
        ScriptedModel(in_order(answer(message("Hello over https.")))) as model,
        behind_tls(model.base_url, certificate) as provider,
        running_gateway(
            settings_for_tests(data_dir, PROXY_CONNECT_TIMEOUT_MS=1), api_key=API_KEY, provider=provider
        ) as gateway,
        listening(gateway) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=API_KEY, max_retries=0, timeout=TIMEOUT_S) as client,
    ):
        await gateway.pool.worker()
        yield client


@pytest.mark.promise("start.certificates")
async def test_a_provider_of_an_authority_that_codex_is_told_of_is_reached(
    authority: trustme.CA, tmp_path: Path
) -> None:
    async with asking(tmp_path / "data", authority.issue_cert("127.0.0.1")) as client:
        completion = await client.chat.completions.create(model="gpt-5.5", messages=ASKED)

    assert completion.choices[0].message.content == "Hello over https."


@pytest.mark.promise("start.certificates")
async def test_a_provider_that_cannot_be_trusted_is_a_failure_that_says_so(tmp_path: Path) -> None:
    stranger = trustme.CA().issue_cert("127.0.0.1")

    async with asking(tmp_path / "data", stranger) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            await client.chat.completions.create(model="gpt-5.5", messages=ASKED)

    assert (failed.value.status_code, failed.value.code) == (502, "upstream_error")
    assert "Codex cannot reach the provider" in failed.value.message
    assert "its certificate" in failed.value.message
