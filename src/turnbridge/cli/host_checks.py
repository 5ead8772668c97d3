"""Checks of this machine for `turnbridge doctor`: proxies, port, permissions, disk, store and key."""

import asyncio
import http.client
import importlib.util
import ipaddress
import os
import shlex
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from turnbridge.cli.api_key import KEY_FILE, known_key
from turnbridge.cli.config import masked
from turnbridge.cli.finding import Finding
from turnbridge.cli.gateway_client import Endpoint, NotTurnbridge, configured_endpoint
from turnbridge.codex.account import LOGIN_FILE
from turnbridge.codex.process.home import NO_PROXY_VARIABLES, hosts_without_proxy
from turnbridge.settings.fields import Settings
from turnbridge.settings.installation import adding
from turnbridge.store.schema import sqlite_file, store_url
from turnbridge.store.sql_store import open_store
from turnbridge.turn.errors import GatewayError

BYTES_PER_MB = 1024 * 1024
# The store alone may take PROXY_STORE_MAX_MB, and Codex keeps databases of its own.
LOW_DISK_MB = 1024
FULL_DISK_MB = 64
# A proxy answers in milliseconds, or not at all.
CONNECT_TIMEOUT_S = 3.0
DEFAULT_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
# File systems that other machines may have mounted too.
NETWORK_FILE_SYSTEMS = (
    *("9p", "afs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"),
    *("fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"),
)
MOUNTS = Path("/proc/self/mountinfo")
FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_proxy(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the proxies of the environment can be reached, and are not used for this machine."""
    proxies = {name: url for name, url in getproxies_environment().items() if name in ("http", "https", "all")}
    if not proxies:
        yield Finding("proxy", "ok", "no proxy is set")
        return
    for name, url in proxies.items():
        problem = _connection_problem(url)
        variable = f"{name.upper()}_PROXY"
        if problem is None:
            yield Finding("proxy", "ok", f"{variable} is {masked(url)}")
        else:
            remedy = f"Correct or unset {variable}."
            yield Finding("proxy", "wrong", f"{variable} is {masked(url)}, which cannot be reached: {problem}", remedy)
    if proxies.keys() & {"http", "all"} and not proxy_bypass_environment("127.0.0.1"):
        hosts = shlex.quote(hosts_without_proxy(environment))
        remedy = f"export {' '.join(f'{name}={hosts}' for name in NO_PROXY_VARIABLES)}"
        yield Finding("proxy", "warning", "clients on this machine may send their requests to the proxy", remedy)


def check_port(settings: Settings) -> Iterator[Finding]:
    """Check that the gateway serves, or could."""
    endpoint = configured_endpoint(settings)
    if settings.api_key is None and not _is_loopback(settings.host):
        text = f"`serve` refuses to listen on {settings.host} with a generated key"
        yield Finding("port", "wrong", text, "Set PROXY_API_KEY, or PROXY_HOST to 127.0.0.1.")
    try:
        readiness = endpoint.readiness()
    except NotTurnbridge as error:
        yield Finding("port", "wrong", error.message, "Choose another port: PORT, or `serve --port`.")
        return
    if readiness is None:
        yield Finding("port", "ok", f"port {settings.port} is free; no gateway is running")
    elif readiness.status == "ready":
        yield Finding("port", "ok", f"a gateway is ready on {endpoint.base_url}, fidelity {readiness.fidelity}")
    else:
        text = f"a gateway runs on {endpoint.base_url}, but is not ready"
        yield Finding("port", "wrong", text, readiness.reason)


def check_key(settings: Settings) -> Iterator[Finding]:
    """Check that there is a key, and that a running gateway accepts it."""
    endpoint = configured_endpoint(settings)
    key = known_key(settings)
    where = "PROXY_API_KEY" if settings.api_key is not None else str(settings.data_dir / KEY_FILE)
    if key is None:
        file = settings.data_dir / KEY_FILE
        if file.exists():
            yield Finding("key", "wrong", f"{file} cannot be read, or holds no key", f"Remove {file}, and start again.")
        else:
            yield Finding("key", "ok", "none yet; `serve` generates one at its first start")
        return
    if not _accepts(endpoint):
        text = f"the running gateway does not accept the key in {where}"
        yield Finding("key", "wrong", text, "Restart the gateway with these settings, or use its own key.")
    else:
        yield Finding("key", "ok", f"in {where}")


def _accepts(endpoint: Endpoint) -> bool:
    """Tell whether a running gateway takes the key; where none runs, there is nothing against it."""
    try:
        if endpoint.readiness() is None:
            return True
        with endpoint.request("GET", "/v1/models", timeout_s=CONNECT_TIMEOUT_S) as response:
            return response.status != http.client.UNAUTHORIZED
    except (NotTurnbridge, OSError, http.client.HTTPException):
        return True


def check_permissions(settings: Settings) -> Iterator[Finding]:
    """Check that only the owner can read what is secret."""
    secret = (settings.data_dir, settings.data_dir / KEY_FILE, settings.codex_home / LOGIN_FILE)
    exposed = [path for path in secret if _is_exposed(path)]
    for path in exposed:
        remedy = f"chmod go-rwx {shlex.quote(str(path))}"
        yield Finding("permissions", "warning", f"other users may read {path}", remedy)
    if settings.data_dir.exists() and not os.access(settings.data_dir, os.W_OK | os.X_OK):
        remedy = "Make it writable for this user, or choose another directory in PROXY_DATA_DIR."
        yield Finding("permissions", "wrong", f"{settings.data_dir} is not writable", remedy)
    elif not exposed:
        yield Finding("permissions", "ok", "only this user can read the key, the login and the store")


def check_shared_login(settings: Settings) -> Iterator[Finding]:
    """Check that no other machine may use the same login; the file itself is not read."""
    file = (settings.codex_home / LOGIN_FILE).resolve()
    if not file.exists():
        return
    remedy = "Give each machine a CODEX_HOME on a disk of its own, and run `turnbridge login` there."
    kind = _file_system(file)
    if kind in NETWORK_FILE_SYSTEMS:
        text = f"{file} is on a network file system ({kind}): its refresh token works once, on one machine"
        yield Finding("login file", "warning", text, remedy)
    elif file.stat().st_nlink > 1:
        yield Finding("login file", "warning", f"{file} has other names too (hard links)", remedy)
    else:
        yield Finding("login file", "ok", "on a disk of this machine")


def _file_system(file: Path) -> str:
    """Return the kind of file system that a file is on; nothing where the system does not tell."""
    found: tuple[int, str] = 0, ""
    lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines() if MOUNTS.exists() else []
    for line in lines:
        mount, _, source = line.partition(" - ")
        place = mount.split()[4].replace("\\040", " ")
        if file.is_relative_to(place) and len(place) >= found[0]:
            found = len(place), source.split()[0]
    return found[1]


def check_disk(settings: Settings) -> Iterator[Finding]:
    """Check that there is room for the store and for Codex."""
    place = next(path for path in (settings.data_dir, *settings.data_dir.parents) if path.exists())
    free_mb = shutil.disk_usage(place).free // BYTES_PER_MB
    text = f"{free_mb} MB are free in {place}"
    remedy = f"Free some space, or choose another directory in PROXY_DATA_DIR. {LOW_DISK_MB} MB are enough."
    if free_mb < FULL_DISK_MB:
        yield Finding("disk", "wrong", text, remedy)
    elif free_mb < LOW_DISK_MB:
        yield Finding("disk", "warning", text, remedy)
    else:
        yield Finding("disk", "ok", text)


def check_packages() -> Iterator[Finding]:
    """Say how to add what is optional, and no setting asks for."""
    if importlib.util.find_spec("pypdf") is None:
        yield Finding("packages", "ok", f"PDF files are refused, which pypdf could read: {adding('pypdf')}")
    else:
        yield Finding("packages", "ok", "PDF files can be read")


def check_store(settings: Settings) -> Iterator[Finding]:
    """Check that the store can be opened and read."""
    if settings.store_ttl_days == 0:
        yield Finding("store", "ok", "off: PROXY_STORE_TTL_DAYS is 0")
        return
    url = settings.database_url or store_url(settings.data_dir)
    file = sqlite_file(url)
    if file is not None and not file.exists():
        yield Finding("store", "ok", f"empty: {file} does not exist yet")
        return
    try:
        responses, size = asyncio.run(_figures(url))
    except (GatewayError, OSError) as error:
        reason = f"{error} ({error.__cause__})" if error.__cause__ is not None else str(error)
        remedy = "Move the file away, or correct PROXY_DATABASE_URL; answers are not stored meanwhile."
        yield Finding("store", "wrong", f"{masked(url)} cannot be used: {reason}", remedy)
        return
    yield Finding("store", "ok", f"{masked(url)}: {responses} responses, {size / BYTES_PER_MB:.1f} MB")


async def _figures(url: str) -> tuple[int, int]:
    store = await open_store(url)
    try:
        figures = await store.figures()
    finally:
        await store.aclose()
    return figures.responses, figures.bytes


def _connection_problem(url: str) -> str | None:
    """Return why there is no connection to the host of a URL."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        address = parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme, 80)
        with socket.create_connection(address, timeout=CONNECT_TIMEOUT_S):
            return None
    except (OSError, ValueError) as error:
        return str(error)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_exposed(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & FOR_OTHERS)
    except OSError:
        return False
