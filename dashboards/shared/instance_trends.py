"""Agents of each auth and proxy in the last hour, as small charts in the table of instances. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboards.shared.step_lines import CountSample, StepScale, split_at_gaps
from fleet.monitoring.state.codec import Rows
from fleet.vocabulary.verdicts import State

#: Seconds that a chart shows.
TREND_SECONDS = 3600.0
#: Coordinates of a chart: one unit per minute.
_WIDTH, _HEIGHT = 60.0, 20.0
#: States of the agents that the area counts.
_AFFECTED_STATES = (State.STRANDED, State.AT_RISK)


@dataclass(frozen=True, slots=True)
class InstanceTrend:
    """The chart of one instance."""

    #: Points of polylines: number of agents. A new line begins after minutes without data.
    lines: tuple[str, ...]
    #: Points of polygons: number of stranded and at-risk agents.
    areas: tuple[str, ...]
    #: `20 to 25 agents, 5 affected at most`.
    sentence: str


def instance_trends_of(
    minutes: Iterable[tuple[float, int, Rows]], instance_by_key: Mapping[int, str], since: float, until: float
) -> dict[str, InstanceTrend]:
    """Return the charts by id of the instance.

    `minutes`: start, seconds covered and GROUP_KEY_COUNT rows of auths and proxies, oldest first; `instance_by_key`:
    id by key. An instance without agents in a minute with data has 0.
    """
    periods: list[tuple[float, int]] = []
    counts: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for position, (at, duration, rows) in enumerate(minutes):
        periods.append((at, duration))
        for key, *agent_counts in _count_agents(rows):
            counts[key][position] = (agent_counts[0], agent_counts[1])
    return {
        instance_by_key[key]: _draw_trend(
            periods, [by_position.get(position, (0, 0)) for position in range(len(periods))], since, until
        )
        for key, by_position in counts.items()
        if key in instance_by_key
    }


def _count_agents(rows: Rows) -> list[list[int]]:
    """Return (key of the instance, agents, affected agents) of one minute."""
    keys, positions = np.unique(rows["instance"], return_inverse=True)
    is_affected = np.isin(rows["state"], _AFFECTED_STATES)
    totals = np.bincount(positions, rows["count"], len(keys))
    affected_counts = np.bincount(positions, rows["count"] * is_affected, len(keys))
    rows_of_keys: list[list[int]] = np.column_stack((keys, totals, affected_counts)).astype(int).tolist()
    return rows_of_keys


def _draw_trend(
    periods: Sequence[tuple[float, int]], counts: Sequence[tuple[int, int]], since: float, until: float
) -> InstanceTrend:
    totals, affected = (
        [CountSample(at, duration, count) for (at, duration), count in zip(periods, column, strict=True)]
        for column in zip(*counts, strict=True)
    )
    scale = StepScale(since, until, _WIDTH, _HEIGHT, max(1, *(sample.count for sample in totals)))
    affected_peak = max(sample.count for sample in affected)
    return InstanceTrend(
        lines=tuple(map(scale.line_of, split_at_gaps(totals))),
        areas=scale.areas_of(affected),
        sentence=_describe_counts([sample.count for sample in totals], affected_peak),
    )


def _describe_counts(totals: list[int], affected_peak: int) -> str:
    low, high = min(totals), max(totals)
    agents = f"{high:,} agent{'' if high == 1 else 's'}" if low == high else f"{low:,} to {high:,} agents"
    return f"{agents}, {f'{affected_peak:,} affected at most' if affected_peak else 'none affected'}"
