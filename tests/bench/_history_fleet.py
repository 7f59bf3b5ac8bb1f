"""A made-up history of a fleet: rounds in which agents change state or move, in the columns of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import ResourcePresence
from fleet.monitoring.history.change_rows import EVIDENCE_TAIL
from fleet.monitoring.history.past import CHANGE, Changes
from fleet.vocabulary.verdicts import Reason, Recovery, State

#: Seconds between two rounds with changes: 200 a day, with 1 % of 100,000 agents in each.
_ROUND_SECONDS = 432.0
DAY_SECONDS = 86_400.0
#: Number of tunnels of an agent: 1 to 3, 2 on average.
_MAX_TUNNELS = 3
_BAD_STATES = np.array([State.STRANDED, State.AT_RISK, State.DEGRADED], np.uint8)


@dataclass(slots=True)
class HistoryFleet:
    """Agents and instances by their keys, and the present state of each agent."""

    agents: npt.NDArray[np.uint32]
    auths: Sequence[int]
    proxies: npt.NDArray[np.uint32]
    draws: np.random.Generator
    states: npt.NDArray[np.uint8]

    def days(self, start: float, day_count: int, rows_per_day: int) -> Iterator[Changes]:
        """Yield the changes of each day from `start` (seconds since the epoch), oldest first.

        Half of the changes are of the state, to a bad one or back; the others are moves.
        """
        rounds_per_day = round(DAY_SECONDS / _ROUND_SECONDS)
        for day in range(day_count):
            sizes = np.diff(np.linspace(0, rows_per_day, rounds_per_day + 1).astype(int))
            rows = np.concatenate(
                [
                    self._round(start + day * DAY_SECONDS + number * _ROUND_SECONDS, int(size))
                    for number, size in enumerate(sizes)
                ]
            )
            yield Changes(rows, self._pack_proxies(len(rows)), _pack_evidence(rows))

    def _round(self, at: float, size: int) -> npt.NDArray[np.void]:
        positions = np.unique(self.draws.integers(0, len(self.agents), size))
        rows = np.zeros(len(positions), CHANGE)
        is_verdict = self.draws.random(len(positions)) < 0.5
        old = self.states[positions]
        bad = self.draws.choice(_BAD_STATES, len(positions))
        new = np.where(is_verdict, np.where(old == State.HEALTHY, bad, State.HEALTHY), old).astype(np.uint8)
        self.states[positions] = new
        is_bad = new != State.HEALTHY
        rows["at"], rows["agent"], rows["old"], rows["new"] = round(at, 3), self.agents[positions], old, new
        rows["reason"] = np.where(is_bad, Reason.PROXY_UNHEALTHY, Reason.NONE)
        rows["recovery"] = np.where(is_bad, Recovery.BY_ITSELF, Recovery.NOT_NEEDED)
        rows["cause"] = np.where(is_bad, self.draws.choice(self.proxies, len(positions)), 0)
        rows["auth"] = self.draws.choice(self.auths, len(positions))
        rows["recovers_after_ms"] = np.where(is_bad, self.draws.integers(1, 600_000, len(positions)), 0)
        return rows

    def _pack_proxies(self, count: int) -> tuple[bytes, ...]:
        counts = self.draws.integers(1, _MAX_TUNNELS + 1, count)
        packed_proxies = self.draws.choice(self.proxies, int(counts.sum())).astype("<u4").tobytes()
        ends = (np.cumsum(counts) * 4).tolist()
        return tuple(
            packed_proxies[end - size * 4 : end] for end, size in zip(ends, counts.tolist(), strict=True)
        )


def _pack_evidence(rows: npt.NDArray[np.void]) -> tuple[bytes, ...]:
    """Return the evidence of changes: none of a healthy agent, and a deadline of an agent at risk."""
    evidence = (ResourcePresence.UNEXPIRED | 0x56).to_bytes(2, "little")
    tail = EVIDENCE_TAIL.pack(15_000, 0)
    evidence_by_state = {State.HEALTHY: b"", State.AT_RISK: evidence + tail}
    return tuple(evidence_by_state.get(state, evidence) for state in rows["new"].tolist())
