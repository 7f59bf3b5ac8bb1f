"""What agents and proxies do about tunnels: their flags first, then the networking config, then defaults. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.protocol.networking.config import NetworkingConfig
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.graceful_closing import ClosingPolicy

_KEEP_ALIVE = KeepAlive()
#: What an agent wants that nobody told anything: more would be too many where the cluster wants one.
_DEFAULT_CONNECTIONS = 1


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the flags of a node say; None is for the config to say."""

    #: 0 means one to every desired proxy (agent mesh).
    connections: int | None = None
    #: Seconds.
    keep_alive_interval: float | None = None
    keep_alive_count_max: int | None = None
    #: Bounds of the wait before a tunnel is closed, seconds.
    closing_wait_min: float | None = None
    closing_wait_max: float | None = None

    def __post_init__(self) -> None:
        low, high = self.closing_wait_min, self.closing_wait_max
        if low is not None and high is not None and low > high:
            raise ValueError("the longest wait before a tunnel is closed is below the shortest")


@dataclass(frozen=True, slots=True)
class TunnelSettings:
    """What holds in the end."""

    connections: int = _DEFAULT_CONNECTIONS
    keep_alive: KeepAlive = _KEEP_ALIVE
    closing: ClosingPolicy = field(default_factory=ClosingPolicy)


def settings(overrides: Overrides, config: NetworkingConfig | None) -> TunnelSettings:
    """What flags and config make together; without a config, before one was told, the defaults."""
    connections = overrides.connections
    if connections is None:
        connections = _DEFAULT_CONNECTIONS if config is None else config.connection_count
    return TunnelSettings(
        connections=connections,
        keep_alive=KeepAlive(
            overrides.keep_alive_interval or (config and config.keep_alive_interval) or _KEEP_ALIVE.interval,
            overrides.keep_alive_count_max
            or (config and config.keep_alive_count_max)
            or _KEEP_ALIVE.count_max,
        ),
        closing=ClosingPolicy() if config is None else _closing(overrides, config),
    )


def _closing(overrides: Overrides, config: NetworkingConfig) -> ClosingPolicy:
    low, high = config.closing_wait
    if overrides.closing_wait_min is not None:
        low = overrides.closing_wait_min
    if overrides.closing_wait_max is not None:
        high = overrides.closing_wait_max
    elif overrides.closing_wait_min is not None:
        high = max(low, high)
    policy = ClosingPolicy.of(config)
    return ClosingPolicy(policy.graceful, (min(low, high), high), policy.threshold)
