"""The names of forwards, in a module that does not load the forwarder."""

from __future__ import annotations

from fleet.nodes.local.forward_names import BACKEND, PORTS, ForwardMode


def test_forward_modes_are_the_values_of_the_control_api() -> None:
    """The control API lists and accepts these texts."""
    assert [str(mode) for mode in ForwardMode] == ["pass", "hold", "cut"]


def test_backend_is_not_among_the_port_names() -> None:
    """Every forward of an instance has its own name."""
    assert all(BACKEND not in parts and len({*parts}) == len(parts) for parts in PORTS.values())
