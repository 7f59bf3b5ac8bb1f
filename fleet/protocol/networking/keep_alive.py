"""Keep-alives on a reverse tunnel: the agent pings, and both ends measure how long they received nothing.

Teleport's keep_alive_interval and keep_alive_count_max (docs/reference/nodes.md). Pure: `now` is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


class TunnelLiveness(Enum):
    """State of a tunnel after a time without any message."""

    LIVE = auto()
    #: Not used for new user connections; the next ping makes it live again.
    OFFLINE = auto()
    #: Without a message for so long that it is closed.
    DEAD = auto()


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Ping interval, and how many pings may stay unanswered."""

    #: Seconds between pings.
    interval: float = 300.0
    count_max: int = 3

    @property
    def timeout(self) -> float:
        """Seconds without a message after which a tunnel is offline."""
        return self.interval * self.count_max

    @property
    def close_after(self) -> float:
        """Seconds without a message after which a proxy closes a tunnel: three times `timeout`, as in Teleport."""
        return 3 * self.timeout

    def for_peer(self, interval: float) -> KeepAlive:
        """Return the keep-alive for a peer that pings every `interval` seconds: the longer one, at most an hour."""
        interval = min(interval, _LONGEST_INTERVAL)
        return self if interval <= self.interval else replace(self, interval=interval)

    def liveness(self, last_seen_at: float, now: float) -> TunnelLiveness:
        """Return the state, as a proxy sees it, of a tunnel whose last message arrived at `last_seen_at`."""
        silence = now - last_seen_at
        if silence > self.close_after:
            return TunnelLiveness.DEAD
        return TunnelLiveness.OFFLINE if silence > self.timeout else TunnelLiveness.LIVE


#: The maximum of the networking config: without it, an agent that claims more would count as live forever.
_LONGEST_INTERVAL = 3600.0
#: Weight of a new sample: TCP's (RFC 6298), whose round-trip times vary as much as a ping's.
_RTT_GAIN = 1 / 8


def smooth_rtt(previous_rtt: float | None, sample: float) -> float:
    """Return the smoothed round-trip time in seconds after a ping was answered; the first sample counts in full."""
    return sample if previous_rtt is None else previous_rtt + _RTT_GAIN * (sample - previous_rtt)
