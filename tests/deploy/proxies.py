"""Reverse proxies for tests: the files of `deploy/`, with other names, ports and certificates, run for real."""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import trustme

DEPLOY = Path(__file__).parents[2] / "deploy"
START_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseProxy:
    """A running reverse proxy."""

    url: str
    trust: ssl.SSLContext


@contextlib.asynccontextmanager
async def running_proxy(kind: str, directory: Path, gateway: str) -> AsyncIterator[ReverseProxy]:
    """Run nginx or Caddy in front of a gateway."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(directory / "authority.pem")
    certificate.cert_chain_pems[0].write_to_path(directory / "certificate.pem")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    port = free_port()
    write = _nginx if kind == "nginx" else _caddy
    command, variables = write(directory, gateway.removeprefix("http://"), port)
    with (directory / "proxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **variables}, stdout=log, stderr=log, cwd=directory
        )
    try:
        await until_it_listens(port, process, directory / "proxy.log")
        trust = ssl.create_default_context(cafile=str(directory / "authority.pem"))
        yield ReverseProxy(url=f"https://localhost:{port}", trust=trust)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def _nginx(directory: Path, gateway: str, port: int) -> tuple[list[str], dict[str, str]]:
    site = (DEPLOY / "nginx" / "turnbridge.conf").read_text(encoding="utf-8")
    changes = {
        "127.0.0.1:11435": gateway,
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


def _caddy(directory: Path, gateway: str, port: int) -> tuple[list[str], dict[str, str]]:
    site = (DEPLOY / "caddy" / "Caddyfile").read_text(encoding="utf-8")
    certificate = f"\ttls {directory}/certificate.pem {directory}/key.pem\n"
    changed = re.sub(r"^(\{\$TURNBRIDGE_SITE:.*\{\n)", lambda found: found[1] + certificate, site, flags=re.MULTILINE)
    assert changed != site
    path = directory / "Caddyfile"
    path.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + changed, encoding="utf-8")
    variables = {"TURNBRIDGE_SITE": f"localhost:{port}", "TURNBRIDGE_UPSTREAM": gateway}
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


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
