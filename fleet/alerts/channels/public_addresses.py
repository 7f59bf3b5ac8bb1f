"""Public IP addresses, to which channels may send without special permission. Pure.

Addresses that are not known to be public are refused. `is_global` of Python differs between releases and accepts
addresses that embed another one (https://www.iana.org/assignments/iana-ipv4-special-registry and
iana-ipv6-special-registry).
"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

#: Special blocks of IPv4: this network, private, carrier-grade NAT, loopback, link-local, protocol assignments (some
#: used by clouds), documentation, 6to4 relays, benchmarks, multicast, reserved and broadcast.
_SPECIAL_IPV4_NETWORKS = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            # Formally public, but served by the host of an Azure virtual machine.
            "168.63.129.16/32",
        ),
    )
)
#: The only block of public IPv6 addresses, and its special blocks: protocol assignments with Teredo, documentation,
#: 6to4, the former 6bone.
_GLOBAL_IPV6_NETWORK = IPv6Network("2000::/3")
_SPECIAL_IPV6_NETWORKS = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3ffe::/16", "3fff::/20"))
)
#: Blocks with an IPv4 address in the last 32 bits: IPv4-mapped, and NAT64 (RFC 6052).
_IPV4_EMBEDDING_NETWORKS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
#: Middle part of an ISATAP address (RFC 5214), before the embedded IPv4 address.
_ISATAP_MARKERS = (0x00005EFE, 0x02005EFE)


def is_public(address: str) -> bool:
    """Return whether an IP address is public. Raises ValueError if it is not an IP address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return _is_public_ipv4(ip) if isinstance(ip, IPv4Address) else _is_public_ipv6(ip)


def _is_public_ipv4(ip: IPv4Address) -> bool:
    return not any(ip in block for block in _SPECIAL_IPV4_NETWORKS)


def _is_public_ipv6(ip: IPv6Address) -> bool:
    embedded_ipv4 = IPv4Address(int(ip) & 0xFFFFFFFF)
    if any(ip in block for block in _IPV4_EMBEDDING_NETWORKS):
        return _is_public_ipv4(embedded_ipv4)
    if (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP_MARKERS and not _is_public_ipv4(embedded_ipv4):
        return False
    return ip in _GLOBAL_IPV6_NETWORK and not any(ip in block for block in _SPECIAL_IPV6_NETWORKS)
