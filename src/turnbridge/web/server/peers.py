"""The address of a peer, and the host name under which it reached the gateway."""

from collections.abc import Container
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from starlette.types import Scope

from turnbridge.web.http import header_values

# Parsed addresses and host names: as many as there are connections.
CACHE_SIZE = 4096
# The smallest network that an IPv6 customer gets: one peer may use all of its addresses.
IPV6_NETWORK_BITS = 64


def address_of(scope: Scope) -> str:
    """Return the address of a request's peer; empty on a Unix socket."""
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else ""


@lru_cache(maxsize=CACHE_SIZE)
def network_of(address: str) -> str:
    """Return the unit that limits per peer count: an IPv4 address, or the network of an IPv6 customer."""
    match _parsed(address):
        case IPv6Address() as found:
            return str(IPv6Network((found, IPV6_NETWORK_BITS), strict=False))
        case None:
            return address
        case found:
            return str(found)


@lru_cache(maxsize=CACHE_SIZE)
def is_loopback(address: str) -> bool:
    found = _parsed(address)
    return found is not None and found.is_loopback


def names_us(scope: Scope, names: Container[str]) -> bool:
    """Tell whether the Host header is missing, an IP address, `localhost`, or one of `names`.

    Under DNS rebinding, a web page's own host name resolves to our address, and stands in the Host header.
    """
    hosts = [_without_port(value) for value in header_values(scope, b"host")]
    if len(hosts) != 1:
        return not hosts
    (host,) = hosts
    return host == "localhost" or host.endswith(".localhost") or host in names or _parsed(host) is not None


@lru_cache(maxsize=CACHE_SIZE)
def _without_port(value: bytes) -> str:
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address)
    except ValueError:
        return None
    # A dual-stack socket shows 127.0.0.1 as ::ffff:127.0.0.1.
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
