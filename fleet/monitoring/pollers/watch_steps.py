"""What a round does at a cluster whose source can watch: apply changes, take the lease, or wait. No I/O."""

from __future__ import annotations

import enum
from collections.abc import Collection

from fleet.monitoring.state.codec import FeedState
from fleet.monitoring.state.watch_leases import WatchLease

#: Shortest lease in seconds: a busy worker renews it later than it should.
_MIN_LEASE_SECONDS = 1.5
#: A lease lasts less than a round, so that another worker takes it in the second round after a crash.
_LEASE_SHARE = 0.8
#: Renewals per round.
_RENEWALS_PER_ROUND = 4
#: Shortest interval of renewals, and shortest time for a response, in seconds.
_MIN_RENEWAL_SECONDS = 0.25
_MIN_RESPONSE_SECONDS = 1.0


class WatchStep(enum.Enum):
    """Steps of a round."""

    #: Record the changes of the watch, which another round began.
    APPLY = enum.auto()
    #: Take the lease, open a watch and read the complete list.
    TAKE = enum.auto()
    #: Leave the agents as they are: another worker is opening a watch.
    WAIT = enum.auto()


def decide_step(lease: WatchLease | None, feed: FeedState, addresses: Collection[str]) -> WatchStep:
    """Return the step of a round.

    `feed`: the record's place in the changes. `addresses`: the auths whose lists may be read.
    """
    if lease is None:
        return WatchStep.TAKE
    if not lease.is_ready:
        return WatchStep.WAIT
    if lease.token != feed.epoch or feed.is_listing:
        # The record was rebuilt, or another list was recorded meanwhile.
        return WatchStep.TAKE
    if lease.address not in addresses:
        # Somebody entered other addresses: the lists of this auth may be old.
        return WatchStep.TAKE
    has_gap = list(lease.changes) != list(range(feed.revision + 1, feed.revision + 1 + len(lease.changes)))
    return WatchStep.TAKE if has_gap else WatchStep.APPLY


def lease_seconds(round_interval: float) -> float:
    """Return how long a lease lasts without renewal, in seconds."""
    return max(round_interval * _LEASE_SHARE, _MIN_LEASE_SECONDS)


def renewal_seconds(round_interval: float) -> float:
    """Return the seconds between two renewals."""
    return max(round_interval / _RENEWALS_PER_ROUND, _MIN_RENEWAL_SECONDS)


def response_seconds(round_interval: float) -> float:
    """Return the seconds in which a watched instance must respond: a silent one is noticed within two rounds."""
    return max(round_interval / _RENEWALS_PER_ROUND, _MIN_RESPONSE_SECONDS)
