"""host:port, read and spelled."""

from __future__ import annotations

import pytest

from fleet.nodes.shared import addresses


@pytest.mark.parametrize("text", ["127.0.0.1:5", "[::1]:5", "proxy.example.com:443"])
def test_parse_and_join_are_each_others_inverse(text: str) -> None:
    """What is read is spelled the same."""
    assert addresses.join(*addresses.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "host", ":5", "host:", "host:x", "host:70000", "host:-1", "host:\u0665", "a b:5", "a\0:5", "a..b:5"],
)
def test_parse_anything_else_is_refused_with_its_text(text: str) -> None:
    """The sentence shows what was given."""
    with pytest.raises(ValueError, match="is not host:port"):
        addresses.parse(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "edge.example")),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    """Names other than localhost may lead anywhere."""
    assert addresses.is_loopback(host) is loopback
