"""Only hosts of the public internet may be reached."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnbridge.outbound.guard import (
    Endpoint,
    IpAddress,
    is_public,
    resolve,
)

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2606:4700:4700::1111",
    "2a00:1450:4001:801::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]

NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_reached(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.promise("safety.addresses")
@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_any_other_address_may_not_be_reached(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.promise("safety.addresses")
@given(st.ip_addresses())
@example(ip_address("224.0.0.1"))
@example(ip_address("ff0e::1"))
def test_what_may_be_reached_is_global_for_the_standard_library_too(address: IpAddress) -> None:
    real = _carried(address)
    assert not is_public(address) or (
        real.is_global
        and not real.is_multicast
        and not real.is_private
        and not real.is_loopback
        and not real.is_link_local
        and not real.is_reserved
        and not real.is_unspecified
    )


@given(st.ip_addresses(v=4), st.sampled_from(["mapped", "nat64"]))
def test_an_address_inside_another_decides(inner: IPv4Address, form: str) -> None:
    prefix = {"mapped": IPv6Address("::ffff:0:0"), "nat64": IPv6Address("64:ff9b::")}[form]
    assert is_public(IPv6Address(int(prefix) | int(inner))) == is_public(inner)


@given(st.ip_addresses(v=4))
def test_tunnels_to_ipv4_may_not_be_reached(inner: IPv4Address) -> None:
    sixtofour = IPv6Address((0x2002 << 112) | (int(inner) << 80))
    teredo = IPv6Address((0x2001 << 112) | (int(inner) ^ 0xFFFF_FFFF))
    assert (sixtofour.sixtofour, is_public(sixtofour)) == (inner, False)
    assert (teredo.teredo and teredo.teredo[1], is_public(teredo)) == (inner, False)


@pytest.mark.anyio
async def test_the_system_resolver_gives_addresses_with_the_port() -> None:
    assert await resolve("127.0.0.1", 443) == [Endpoint(IPv4Address("127.0.0.1"), 443)]


def _carried(address: IpAddress) -> IpAddress:
    if isinstance(address, IPv4Address):
        return address
    if address.compressed.startswith("64:ff9b::"):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address
