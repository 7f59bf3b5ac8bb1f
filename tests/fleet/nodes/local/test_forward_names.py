"""The names of forwards, for whoever has no forwarder loaded."""

from __future__ import annotations

from fleet.nodes.local.forward_names import BACKEND, PORTS, ForwardMode


def test_modes_are_words_of_the_control_api() -> None:
    """What a forwarder lists and takes."""
    assert [str(mode) for mode in ForwardMode] == ["pass", "hold", "cut"]


def test_backend_is_no_port_of_an_instance() -> None:
    """Forwards of one instance have names of their own."""
    assert all(BACKEND not in parts and len({*parts}) == len(parts) for parts in PORTS.values())
