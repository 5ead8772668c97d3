"""Reverse proxies for tests: the files of `deploy/`, with other names, ports and certificates, run for real."""

import asyncio
import contextlib
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.support.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
START_TIMEOUT_S = 20
# Made by `make replica-tools`.
REPLICA_TOOLS = DEPLOY.parent / ".venv" / "replica-tools"
ENVOY = REPLICA_TOOLS / "envoy" / "_bin" / "envoy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseProxy:
    """A running reverse proxy."""

    url: str
    trust: ssl.SSLContext


@contextlib.asynccontextmanager
async def running_proxy(kind: str, directory: Path, *gateways: str) -> AsyncIterator[ReverseProxy]:
    """Run nginx or Caddy in front of a gateway, or nginx or Envoy in front of several."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(directory / "authority.pem")
    certificate.cert_chain_pems[0].write_to_path(directory / "certificate.pem")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    port = free_port()
    write = {"nginx": _nginx, "caddy": _caddy, "envoy": _envoy}[kind]
    command, variables = write(directory, [gateway.removeprefix("http://") for gateway in gateways], port)
    with (directory / "proxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **variables}, stdout=log, stderr=log, cwd=directory
        )
    try:
        await until_it_listens(port, process, directory / "proxy.log")
        trust = ssl.create_default_context(cafile=str(directory / "authority.pem"))
        scheme = "http" if kind == "envoy" else "https"
        yield ReverseProxy(url=f"{scheme}://localhost:{port}", trust=trust)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def _nginx(directory: Path, gateways: list[str], port: int) -> tuple[list[str], dict[str, str]]:
    site = (DEPLOY / "nginx" / "turnbridge.conf").read_text(encoding="utf-8")
    if len(gateways) > 1:
        site = _with_replicas(site, gateways)
    changes = {} if len(gateways) > 1 else {"127.0.0.1:11435": gateways[0]}
    changes |= {
        "gateway.example.com;": "localhost;",
        "/etc/letsencrypt/live/gateway.example.com/fullchain.pem": str(directory / "certificate.pem"),
        "/etc/letsencrypt/live/gateway.example.com/privkey.pem": str(directory / "key.pem"),
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "listen [::]:443 ssl http2;": "",
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "listen [::]:80;": "",
    }
    for was, becomes in changes.items():
        assert was in site, was
        site = site.replace(was, becomes)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
    # In the foreground and without a worker's own user, so that it runs as whoever runs the tests.
    whole = f"daemon off; master_process off; pid {directory}/nginx.pid; error_log stderr; events {{}} "
    path = directory / "nginx.conf"
    path.write_text(f"{whole} http {{ access_log off; {folders} {site} }}\n", encoding="utf-8")
    return [shutil.which("nginx") or "/usr/sbin/nginx", "-c", str(path), "-p", str(directory)], {}


def _with_replicas(site: str, gateways: list[str]) -> str:
    """Return the file for one gateway, changed as the file for replicas says."""
    replicas = (DEPLOY / "nginx" / "replicas.conf").read_text(encoding="utf-8")
    servers = "".join(f"    server {gateway} max_fails=1 fail_timeout=2s;\n" for gateway in gateways)
    replicas, count = re.subn(r"(    server \S+ max_fails=1 fail_timeout=2s;\n)+", servers, replicas)
    assert count == 1
    site, count = re.subn(r"upstream turnbridge \{.*?\n\}\n", lambda _: replicas, site, flags=re.DOTALL)
    assert count == 1
    assert "proxy_next_upstream off;" in site
    return site.replace("proxy_next_upstream off;", "proxy_next_upstream error;")


def _envoy(directory: Path, gateways: list[str], port: int) -> tuple[list[str], dict[str, str]]:
    whole = (DEPLOY / "envoy" / "envoy.yaml").read_text(encoding="utf-8")
    one = "              - endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}\n"
    endpoints = "".join(one.format(*gateway.split(":")) for gateway in gateways)
    whole, count = re.subn(r"(              - endpoint: .*\n)+", endpoints, whole)
    assert count == 1
    assert "port_value: 11434" in whole
    path = directory / "envoy.yaml"
    path.write_text(whole.replace("port_value: 11434", f"port_value: {port}"), encoding="utf-8")
    # Beside others of these tests on the same machine.
    return [str(ENVOY), "-c", str(path), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"], {}


def _caddy(directory: Path, gateways: list[str], port: int) -> tuple[list[str], dict[str, str]]:
    site = (DEPLOY / "caddy" / "Caddyfile").read_text(encoding="utf-8")
    certificate = f"\ttls {directory}/certificate.pem {directory}/key.pem\n"
    changed = re.sub(r"^(\{\$TURNBRIDGE_SITE:.*\{\n)", lambda found: found[1] + certificate, site, flags=re.MULTILINE)
    assert changed != site
    path = directory / "Caddyfile"
    path.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + changed, encoding="utf-8")
    variables = {"TURNBRIDGE_SITE": f"localhost:{port}", "TURNBRIDGE_UPSTREAM": gateways[0]}
    homes = {"HOME": str(directory), "XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}
    return ["caddy", "run", "--config", str(path), "--adapter", "caddyfile"], {**variables, **homes}


async def until_it_listens(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    """Return once a program listens."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                assert process.returncode is None, f"See {log}"
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
