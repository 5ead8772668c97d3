"""The SSRF guard: TCP connections to checked addresses only.

A name is resolved here, all of its addresses are checked, and the connection goes to one of those very addresses. So a
name that resolves to something else a moment later (DNS rebinding) leads nowhere.

`ipaddress.is_global` is not used: its result differs between versions of Python, includes multicast, and ignores IPv4
addresses that are embedded in IPv6 addresses.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple, TypeAlias

import httpcore2

# For one address, so that there is time for the next one.
CONNECT_SECONDS = 3.0

# IANA's special-purpose registry of IPv4, multicast and the reserved class E.
_REGISTRY_V4 = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
_SPECIAL_V4 = tuple(map(IPv4Network, _REGISTRY_V4.split()))
# No other addresses are assigned to hosts on the public internet.
_GLOBAL_UNICAST_V6 = IPv6Network("2000::/3")
# Except for these: IETF protocols (with Teredo), documentation, 6to4. Teredo and 6to4 tunnel to IPv4, and are dead.
_SPECIAL_V6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
# NAT64, by which IPv6-only networks reach IPv4 hosts: the last 32 bits are the destination.
_NAT64 = IPv6Network("64:ff9b::/96")

IpAddress: TypeAlias = IPv4Address | IPv6Address


class Endpoint(NamedTuple):
    """The destination of a connection."""

    address: IpAddress
    port: int


Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[Endpoint]]]
"""Resolves a host name and a port; raises OSError or UnicodeError if that fails."""

AddressCheck: TypeAlias = Callable[[IpAddress], bool]
"""Tells whether the gateway may connect to an address."""


class HostNotAllowed(Exception):
    """A host has no address, or one that is not allowed. Two errors would reveal which internal names exist."""


class HostSilent(Exception):
    """No address of a host accepts a connection."""


def is_public(address: IpAddress) -> bool:
    """Tell whether the address belongs to a host on the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _GLOBAL_UNICAST_V6 and not any(address in network for network in _SPECIAL_V6)


async def resolve(host: str, port: int) -> Sequence[Endpoint]:
    """Resolve a name with the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Endpoint(ip_address(sockaddr[0]), port) for *_, sockaddr in found]


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Opens TCP connections to checked addresses only."""

    def __init__(self, resolver: Resolver, allowed: AddressCheck) -> None:
        self._resolver = resolver
        self._allowed = allowed
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class defines it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of the host that answers, if all of its addresses are allowed."""
        for endpoint in await self._checked_endpoints(host, port):
            try:
                return await self._network.connect_tcp(
                    str(endpoint.address), endpoint.port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue  # with the next address
        raise HostSilent

    async def _checked_endpoints(self, host: str, port: int) -> Sequence[Endpoint]:
        try:
            endpoints = await self._resolver(host, port)
        except (OSError, UnicodeError):
            endpoints = []
        if not endpoints or not all(self._allowed(endpoint.address) for endpoint in endpoints):
            raise HostNotAllowed
        return endpoints
