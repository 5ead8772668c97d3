"""Which MCP servers an operator lets clients name: none, public ones, or those of a list."""

import re
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

Access: TypeAlias = Literal["off", "public", "hosts"]

HOSTS_PREFIX = "hosts:"
DEFAULT_PORTS = {"https": 443, "http": 80}
LONGEST_URL = 2048
# A name in ASCII, an IPv4 address, or an IPv6 address without brackets.
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
# Every character that a target may have; all others must be escaped already.
_TARGET = re.compile(r"[!-~]*")


class Origin(NamedTuple):
    """Where a server listens."""

    scheme: str
    host: str
    port: int


class ServerHosts(Struct, frozen=True, kw_only=True):
    """The servers that clients may name."""

    access: Access = "off"
    origins: frozenset[Origin] = frozenset()

    def allows(self, origin: Origin) -> bool:
        """Tell whether a server may be asked here; the addresses of public ones are checked when they are known."""
        if self.access == "public":
            return origin.scheme == "https" and origin.port == DEFAULT_PORTS["https"]
        return self.access == "hosts" and origin in self.origins


def origin_of(url: str) -> Origin:
    """Return where a URL leads to; raises `ValueError` with the reason if it is not one that a server may have."""
    # `urlsplit` silently drops line breaks, and two parsers must not see two hosts.
    if len(url) > LONGEST_URL or not _TARGET.fullmatch(url):
        raise ValueError("it is too long, or has characters that must be escaped")
    parts = urlsplit(url)
    port = parts.port
    host = parts.hostname or ""
    if parts.scheme not in DEFAULT_PORTS or not _HOST.fullmatch(host):
        raise ValueError("it must be an https URL")
    if "@" in parts.netloc:
        raise ValueError("a user name or password in it is not accepted; use `headers` or `authorization`")
    if parts.fragment:
        raise ValueError("it must not have a fragment")
    return Origin(parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port)


def parse_hosts(setting: str) -> ServerHosts:
    """Return what `PROXY_MCP` allows; raises `ValueError` if it is not understood."""
    if setting in ("off", "public"):
        return ServerHosts(access="off" if setting == "off" else "public")
    names = [name.strip() for name in setting.removeprefix(HOSTS_PREFIX).split(",") if name.strip()]
    if not setting.startswith(HOSTS_PREFIX) or not names:
        raise ValueError("expected `off`, `public`, or `hosts:` with names such as `hosts:mcp.example.com`")
    origins = set[Origin]()
    for name in names:
        url = name if "://" in name else f"https://{name}"
        try:
            origins.add(origin_of(url.lower()))
        except ValueError:
            raise ValueError("expected hosts such as `mcp.example.com`, `mcp.example.com:8443` or an origin") from None
    return ServerHosts(access="hosts", origins=frozenset(origins))
