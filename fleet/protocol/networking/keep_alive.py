"""Keep-alives on a reverse tunnel: the agent pings, and either end counts how long it heard nothing.

Teleport's keep_alive_interval and keep_alive_count_max (docs/nodes.md). Pure: `now` is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


class TunnelLiveness(Enum):
    """What silence makes of a tunnel."""

    LIVE = auto()
    #: Not offered to users any more; a ping makes it live again.
    OFFLINE = auto()
    #: Half-open for so long that it is closed.
    DEAD = auto()


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """How often an end pings, and how many may stay unanswered."""

    #: Seconds between pings.
    interval: float = 300.0
    count_max: int = 3

    @property
    def timeout(self) -> float:
        """Silence after which a tunnel is offline, seconds."""
        return self.interval * self.count_max

    @property
    def close_after(self) -> float:
        """Silence after which a proxy closes a tunnel, seconds: three times the threshold, as Teleport."""
        return 3 * self.timeout

    def for_peer(self, interval: float) -> KeepAlive:
        """What to expect of a peer that pings every `interval` seconds: the longer of both, within an hour."""
        interval = min(interval, _LONGEST_INTERVAL)
        return self if interval <= self.interval else replace(self, interval=interval)

    def liveness(self, last_seen_at: float, now: float) -> TunnelLiveness:
        """What silence since `heard_at` makes of a tunnel, as the proxy sees it."""
        silence = now - last_seen_at
        if silence > self.close_after:
            return TunnelLiveness.DEAD
        return TunnelLiveness.OFFLINE if silence > self.timeout else TunnelLiveness.LIVE


#: As the networking config has it: an agent that says more would be live for ever.
_LONGEST_INTERVAL = 3600.0
#: Weight of a new sample: TCP's (RFC 6298), whose round-trip times are as noisy as a ping's.
_RTT_GAIN = 1 / 8


def smoothed_rtt(before: float | None, sample: float) -> float:
    """The smoothed round-trip time after a ping was answered, seconds; the first sample counts whole."""
    return sample if before is None else before + _RTT_GAIN * (sample - before)
