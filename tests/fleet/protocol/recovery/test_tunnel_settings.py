"""Tunnel settings from flags, networking config and defaults."""

from __future__ import annotations

import pytest

from fleet.protocol.networking.config import NetworkingConfig, Strategy
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.graceful_closing import ClosingPolicy
from fleet.protocol.recovery.tunnel_settings import Overrides, TunnelSettings, resolve

CONFIG = NetworkingConfig(
    keep_alive_interval=7.0,
    keep_alive_count_max=4,
    tunnel_strategy=Strategy.PROXY_PEERING,
    agent_connection_count=3,
    graceful_tunnel_closing=True,
)


def test_defaults() -> None:
    """One tunnel, Teleport's keep-alive, and no closing."""
    assert resolve(Overrides(), None) == TunnelSettings(1, KeepAlive(300.0, 3), ClosingPolicy())


def test_networking_config_is_used() -> None:
    """The cluster sets strategy, keep-alive and closing."""
    tunnel_settings = resolve(Overrides(), CONFIG)
    assert tunnel_settings == TunnelSettings(3, KeepAlive(7.0, 4), ClosingPolicy(graceful=True))
    assert resolve(Overrides(), NetworkingConfig(tunnel_strategy=Strategy.AGENT_MESH)).connection_count == 0


def test_flags_override_the_config() -> None:
    """Each flag overrides one value; mesh is a flag, too."""
    assert resolve(Overrides(connection_count=0), CONFIG).connection_count == 0
    assert resolve(Overrides(keep_alive_interval=1.0), CONFIG).keep_alive == KeepAlive(1.0, 4)
    assert resolve(Overrides(keep_alive_count_max=9), CONFIG).keep_alive == KeepAlive(7.0, 9)


@pytest.mark.parametrize(
    ("flags", "expected_wait"),
    [
        (Overrides(closing_wait_min=1.0, closing_wait_max=2.0), (1.0, 2.0)),
        (Overrides(closing_wait_max=2.0), (2.0, 2.0)),
        (Overrides(closing_wait_min=7200.0), (7200.0, 7200.0)),
    ],
)
def test_closing_wait_flags(flags: Overrides, expected_wait: tuple[float, float]) -> None:
    """A bound from a flag applies, and adjusts the other one."""
    closing = resolve(flags, CONFIG).closing_policy
    assert (closing.graceful, closing.wait_bounds) == (True, expected_wait)


def test_contradicting_closing_wait_flags_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter than the minimum"):
        Overrides(closing_wait_min=2.0, closing_wait_max=1.0)
