"""What holds of flags, networking config and defaults."""

from __future__ import annotations

import pytest

from fleet.protocol.networking.config import NetworkingConfig, Strategy
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.graceful_closing import ClosingPolicy
from fleet.protocol.recovery.tunnel_settings import Overrides, TunnelSettings, settings

CONFIG = NetworkingConfig(
    keep_alive_interval=7.0,
    keep_alive_count_max=4,
    tunnel_strategy=Strategy.PROXY_PEERING,
    agent_connection_count=3,
    graceful_tunnel_closing=True,
)


def test_nobody_said_anything() -> None:
    """One tunnel, Teleport's pings, and nothing is closed."""
    assert settings(Overrides(), None) == TunnelSettings(1, KeepAlive(300.0, 3), ClosingPolicy())


def test_config_is_followed() -> None:
    """Strategy, keep-alive and closing are the cluster's to say."""
    found = settings(Overrides(), CONFIG)
    assert found == TunnelSettings(3, KeepAlive(7.0, 4), ClosingPolicy(graceful=True))
    assert settings(Overrides(), NetworkingConfig(tunnel_strategy=Strategy.AGENT_MESH)).connections == 0


def test_flags_win() -> None:
    """Each flag by itself; mesh is a flag too."""
    assert settings(Overrides(connections=0), CONFIG).connections == 0
    assert settings(Overrides(keep_alive_interval=1.0), CONFIG).keep_alive == KeepAlive(1.0, 4)
    assert settings(Overrides(keep_alive_count_max=9), CONFIG).keep_alive == KeepAlive(7.0, 9)


@pytest.mark.parametrize(
    ("flags", "wait"),
    [
        (Overrides(closing_wait_min=1.0, closing_wait_max=2.0), (1.0, 2.0)),
        (Overrides(closing_wait_max=2.0), (2.0, 2.0)),
        (Overrides(closing_wait_min=7200.0), (7200.0, 7200.0)),
    ],
)
def test_bounds_by_flag(flags: Overrides, wait: tuple[float, float]) -> None:
    """Bounds given by flag hold, and the other one gives way."""
    closing = settings(flags, CONFIG).closing
    assert (closing.graceful, closing.wait) == (True, wait)


def test_bounds_the_wrong_way_round() -> None:
    """Two flags that contradict each other are a mistake."""
    with pytest.raises(ValueError, match="shorter than the minimum"):
        Overrides(closing_wait_min=2.0, closing_wait_max=1.0)
