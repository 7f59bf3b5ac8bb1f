"""Which addresses are public."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.alerts.channels.public_addresses import is_public

SPECIAL = (
    "127.0.0.1", "127.1.2.3", "10.1.2.3", "192.168.0.1", "172.16.0.1", "172.31.255.255", "169.254.169.254",
    "100.64.0.1", "100.100.100.200", "0.0.0.0", "0.1.2.3", "192.0.0.192", "192.0.0.1", "192.0.2.1",
    "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255", "168.63.129.16",
)  # fmt: skip
PUBLIC = (
    "93.184.216.34",
    "8.8.8.8",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "192.0.1.1",
)


@pytest.mark.parametrize("address", SPECIAL)
def test_special_address_is_not_public(address: str) -> None:
    """Neither by itself nor embedded in an IPv6 address."""
    number = int(ipaddress.IPv4Address(address))
    for prefix in (
        "::",  # IPv4-compatible
        "::ffff:0:0",  # mapped
        "::ffff:0:0:0",  # translated (SIIT)
        "64:ff9b::",  # NAT64
        "64:ff9b:1::",  # NAT64 of a network's own
        "fe80::5efe:0:0",  # ISATAP
        "2606:2800::5efe:0:0",
        "2606:2800::200:5efe:0:0",
    ):
        assert not is_public(str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) + number))), prefix
    assert not is_public(str(ipaddress.IPv6Address(0x2002 << 112 | number << 80)))  # 6to4
    assert not is_public(str(ipaddress.IPv6Address(0x20010000 << 96 | number << 64)))  # Teredo's server
    assert not is_public(str(ipaddress.IPv6Address(0x20010000 << 96 | (number ^ 0xFFFFFFFF))))  # its client
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1",
        "64:ff9b:1:fffe::1", "2001:db8::1", "2001:2::1", "2001:10::1", "2002::1", "3fff::1", "3ffe::1", "5f00::1",
        "4000::1",
    ],
)  # fmt: skip
def test_special_address_of_ipv6_is_not_public(address: str) -> None:
    """Loopback, link-local, site-local, unique local, multicast, documentation and unassigned addresses."""
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address(address: str) -> None:
    """By itself, mapped, and by a network's NAT64."""
    assert is_public(address)
    assert is_public(f"::ffff:{address}")
    assert is_public(f"64:ff9b::{address}")


def test_public_address_of_ipv6() -> None:
    """Addresses of providers."""
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")
    assert is_public("2a00:1450:4001:82a::200e")


@pytest.mark.parametrize(
    "text", ["localhost", "0", "2130706433", "0x7f000001", "127.1", "0177.0.0.1", "①②⑦.0.0.1", ""]
)
def test_other_spellings_are_not_accepted(text: str) -> None:
    """Only the canonical form is accepted."""
    with pytest.raises(ValueError, match="address"):
        is_public(text)


_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


@given(st.ip_addresses())
def test_public_address_is_global_in_pythons_tables(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """An address that Python calls private is not public; Python releases differ about mapped addresses."""
    if is_public(str(address)) and not (isinstance(address, ipaddress.IPv6Address) and address in _MAPPED):
        assert address.is_global
        assert not address.is_multicast
