"""Parsing and formatting of host:port."""

from __future__ import annotations

import pytest

from fleet.nodes.shared import addresses


@pytest.mark.parametrize("text", ["127.0.0.1:5", "[::1]:5", "proxy.example.com:443"])
def test_joined_address_equals_the_parsed_text(text: str) -> None:
    """The round trip works for IPv4, IPv6 and host names."""
    assert addresses.join(*addresses.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "host", ":5", "host:", "host:x", "host:70000", "host:-1", "host:\u0665", "a b:5", "a\0:5", "a..b:5"],
)
def test_invalid_address_is_refused_with_its_text(text: str) -> None:
    """The error contains the text."""
    with pytest.raises(ValueError, match="is not host:port"):
        addresses.parse(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "edge.example")),
    ],
)
def test_only_loopback_addresses_and_localhost_are_loopback(host: str, loopback: bool) -> None:
    """Other names may resolve to any address."""
    assert addresses.is_loopback(host) is loopback
