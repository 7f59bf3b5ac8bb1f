"""Tunnel settings of agents and proxies: flags override the networking config, which overrides defaults. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.protocol.networking.config import NetworkingConfig
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.graceful_closing import ClosingPolicy

_KEEP_ALIVE = KeepAlive()
#: Tunnels that an agent opens before it received a config: more may be too many for the cluster.
_DEFAULT_CONNECTION_COUNT = 1


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings from command-line flags; None leaves the setting to the networking config."""

    #: Number of tunnels; 0 means one to every desired proxy (agent mesh).
    connection_count: int | None = None
    #: Seconds.
    keep_alive_interval: float | None = None
    keep_alive_count_max: int | None = None
    #: Bounds of the wait before a tunnel is closed, seconds.
    closing_wait_min: float | None = None
    closing_wait_max: float | None = None

    def __post_init__(self) -> None:
        low, high = self.closing_wait_min, self.closing_wait_max
        if low is not None and high is not None and low > high:
            raise ValueError("the maximum wait before a tunnel is closed is shorter than the minimum wait")


@dataclass(frozen=True, slots=True)
class TunnelSettings:
    """Tunnel settings in effect."""

    connection_count: int = _DEFAULT_CONNECTION_COUNT
    keep_alive: KeepAlive = _KEEP_ALIVE
    closing_policy: ClosingPolicy = field(default_factory=ClosingPolicy)


def resolve(overrides: Overrides, config: NetworkingConfig | None) -> TunnelSettings:
    """Return the settings in effect; `config` is None until the first one arrives, which means defaults."""
    connection_count = overrides.connection_count
    if connection_count is None:
        connection_count = _DEFAULT_CONNECTION_COUNT if config is None else config.connection_count
    return TunnelSettings(
        connection_count=connection_count,
        keep_alive=KeepAlive(
            overrides.keep_alive_interval or (config and config.keep_alive_interval) or _KEEP_ALIVE.interval,
            overrides.keep_alive_count_max
            or (config and config.keep_alive_count_max)
            or _KEEP_ALIVE.count_max,
        ),
        closing_policy=ClosingPolicy() if config is None else _closing_policy(overrides, config),
    )


def _closing_policy(overrides: Overrides, config: NetworkingConfig) -> ClosingPolicy:
    low, high = config.closing_wait_bounds
    if overrides.closing_wait_min is not None:
        low = overrides.closing_wait_min
    if overrides.closing_wait_max is not None:
        high = overrides.closing_wait_max
    elif overrides.closing_wait_min is not None:
        high = max(low, high)
    policy = ClosingPolicy.of(config)
    return ClosingPolicy(policy.graceful, (min(low, high), high), policy.threshold)
