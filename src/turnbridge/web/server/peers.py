"""Who is at the other end of a connection, and under which name it reached the gateway."""

from collections.abc import Container
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from starlette.types import Scope

from turnbridge.web.http import header_value, header_values

REMEMBERED = 4096
"""Addresses and host names whose meaning is kept: as many as there are connections."""

IPV6_NETWORK_BITS = 64
"""What one IPv6 customer has at least: whoever has one address of it has all of them."""


def address_of(scope: Scope) -> str:
    """Return the address of a request's peer; nothing if it has none, as on a Unix socket."""
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else ""


@lru_cache(maxsize=REMEMBERED)
def network_of(address: str) -> str:
    """Return what limits per peer count for: an IPv4 address, or the network that an IPv6 customer has."""
    match _parsed(address):
        case IPv6Address() as found:
            return str(IPv6Network((found, IPV6_NETWORK_BITS), strict=False))
        case None:
            return address
        case found:
            return str(found)


@lru_cache(maxsize=REMEMBERED)
def is_loopback(address: str) -> bool:
    """Tell whether an address is of this machine alone."""
    found = _parsed(address)
    return found is not None and found.is_loopback


def names_us(scope: Scope, names: Container[str]) -> bool:
    """Tell whether the Host header is an address, `localhost`, one of `names`, or missing.

    A web page whose name resolves to our address (DNS rebinding) has a Host that is a name, and no other.
    """
    if header_value(scope, b"host") is None:
        return True
    host = _host(scope)
    return host is not None and (_is_localhost(host) or host in names or _parsed(host) is not None)


def _host(scope: Scope) -> str | None:
    """Return the host that a request names, without its port; nothing unless there is just one."""
    values = header_values(scope, b"host")
    return _without_port(values[0]) if len(values) == 1 else None


@lru_cache(maxsize=REMEMBERED)
def _without_port(value: bytes) -> str:
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _is_localhost(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address)
    except ValueError:
        return None
    # A socket that listens on both families shows 127.0.0.1 as ::ffff:127.0.0.1.
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
