"""The order in which a worker polls clusters: one that does not respond must not delay the others. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

#: Share of the deadline of a poll from which on a cluster is slow.
_SLOW_SHARE = 0.5


class _LastPoll(NamedTuple):
    """When the last poll of a cluster began, and how long it took; seconds of a clock that never jumps."""

    began_at: float
    seconds: float


class PollOrder:
    """How long the last poll of each cluster took in this process."""

    def __init__(self, deadline: float) -> None:
        """`deadline`: of one poll, in seconds."""
        self._slow_seconds = deadline * _SLOW_SHARE
        self._polls: dict[str, _LastPoll] = {}

    def note(self, cluster: str, began_at: float, ended_at: float) -> None:
        """Note a poll of a part of a cluster."""
        self._polls[cluster] = _LastPoll(began_at, ended_at - began_at)

    def keep_only(self, clusters: Collection[str]) -> None:
        """Forget all other clusters: they were removed or paused."""
        for cluster in self._polls.keys() - set(clusters):
            del self._polls[cluster]

    def sort_key(self, cluster: str) -> float:
        """Return the key by which clusters are sorted: first those that are not slow, in any order.

        The slow ones follow, the one first that was not polled for longest: if there are too many of them for one
        round, each has its turn in one of the next rounds.
        """
        poll = self._polls.get(cluster)
        return 0.0 if poll is None or poll.seconds < self._slow_seconds else 1.0 + max(poll.began_at, 0.0)
