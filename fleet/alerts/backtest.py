"""Backtest of an alert rule over the history of state changes, with the same thresholds as live. Pure.

A backtest runs one rule alone, without inhibition and silences. docs/reference/alerts.md, "Backtest".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from operator import attrgetter

from fleet.alerts.facts import LOSS_RATE_SECONDS
from fleet.alerts.rules import Rule, RuleKind
from fleet.protocol.durations import format_readable
from fleet.vocabulary.instances import FAULT_STATES
from fleet.vocabulary.verdicts import AFFECTED_STATES, LOST_OR_AT_RISK_STATES, State

_STATE_SLUG_OF_KIND = {
    RuleKind.STRANDED: State.STRANDED.slug,
    RuleKind.AT_RISK: State.AT_RISK.slug,
    RuleKind.EXCESS: State.EXCESS.slug,
}
_LOST_OR_AT_RISK_SLUGS = frozenset(state.slug for state in LOST_OR_AT_RISK_STATES)
_AFFECTED_SLUGS = frozenset(state.slug for state in AFFECTED_STATES)
_FAULT_SLUGS = frozenset(state.slug for state in FAULT_STATES)
#: Prefixes of history ids that are not instances, before the name of the cluster.
_BACKEND_PREFIX, _CLUSTER_PREFIX = "backend/", "cluster/"
#: Rule kinds about instances, each with the history ids it considers.
_HISTORY_ID_FILTERS: Mapping[RuleKind, Callable[[str], bool]] = {
    RuleKind.INSTANCE: lambda instance: not instance.startswith((_BACKEND_PREFIX, _CLUSTER_PREFIX)),
    RuleKind.BACKEND: lambda instance: instance.startswith(_BACKEND_PREFIX),
    RuleKind.UNREACHABLE: lambda instance: instance.startswith(_CLUSTER_PREFIX),
}
#: Rule kinds that are backtested over the history of instances.
INSTANCE_RULE_KINDS = frozenset(_HISTORY_ID_FILTERS)
#: Reasons why a rule kind cannot be backtested.
UNSUPPORTED_REASONS: Mapping[RuleKind, str] = {
    RuleKind.BLIND: "This rule cannot be backtested: nothing is recorded while Refloat is not polling.",
    RuleKind.IDENTITY: "This rule cannot be backtested: the history contains no identities.",
    RuleKind.DRIFT: "This rule cannot be backtested: the history contains no policies.",
}


@dataclass(frozen=True, slots=True)
class AgentStateChange:
    """A state change of one agent."""

    at: float
    agent: str
    old: str
    new: str
    cause: str = ""
    #: Number of the poll that observed it; 0: not known.
    round: int = 0


@dataclass(frozen=True, slots=True)
class InstanceStateChange:
    """A state change of one instance."""

    at: float
    instance: str
    new: str
    round: int = 0


@dataclass(frozen=True, slots=True)
class FiringPeriod:
    """A time range in which a rule held; if it held long enough, the rule would have fired."""

    cause: str
    began_at: float
    ended_at: float
    peak_count: int
    #: Number of polls in which the rule held; None: still holding, or not known.
    round_count: int | None = None

    @property
    def duration_seconds(self) -> float:
        """Time from the start to the end."""
        return self.ended_at - self.began_at


def run_backtest(
    rule: Rule,
    agent_changes: Iterable[AgentStateChange],
    agent_count: int,
    until: float,
    agents_of_set: Collection[str] | None = None,
    instance_changes: Iterable[InstanceStateChange] = (),
) -> list[FiringPeriod]:
    """Return the times a rule would have fired up to `until`, oldest first.

    `agent_changes` and `instance_changes` are sorted by time; `agents_of_set`: ids of the agents of the
    rule's agent set.
    """
    if rule.agent_set and agents_of_set is not None:
        agent_changes = (change for change in agent_changes if change.agent in agents_of_set)
    if rule.kind in _HISTORY_ID_FILTERS:
        relevant_changes = (
            instance_change
            for instance_change in instance_changes
            if _HISTORY_ID_FILTERS[rule.kind](instance_change.instance)
        )
        firing_periods = _find_periods_by_instance(relevant_changes, agent_changes, until)
        if rule.kind is RuleKind.UNREACHABLE:
            firing_periods = [
                replace(firing_period, peak_count=agent_count) for firing_period in firing_periods
            ]
    elif rule.kind is RuleKind.RATE:
        firing_periods = _find_periods_by_rate(agent_changes, rule.threshold(agent_count), until)
    else:
        firing_periods = _find_periods_by_count(
            _STATE_SLUG_OF_KIND[rule.kind], agent_changes, rule.threshold(agent_count), until
        )
    return sorted(
        _merge_firing_periods(firing_periods, rule), key=lambda firing_period: firing_period.began_at
    )


def summary_of(firing_periods: Sequence[FiringPeriod], days: float) -> str:
    """Return the result of a backtest: `Would have fired 3 times in the last 7 days, longest 12 min.`"""
    history_length = (
        f"{days:g} day{'s' if days != 1 else ''}" if days >= 1 else format_readable(round(days * 86400.0))
    )
    if not firing_periods:
        return f"Would not have fired in the last {history_length}."
    times = "once" if len(firing_periods) == 1 else f"{len(firing_periods)} times"
    longest = max(firing_period.duration_seconds for firing_period in firing_periods)
    return (
        f"Would have fired {times} in the last {history_length}, longest {format_readable(round(longest))}."
    )


class _AgentCountByCause:
    """The number of agents in one of the given states, by cause."""

    def __init__(self, states: Collection[str]) -> None:
        self._states = states
        self._cause_by_agent: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __getitem__(self, cause: str) -> int:
        return self._counts.get(cause, 0)

    def apply(self, change: AgentStateChange) -> Iterator[str]:
        """Apply a change, and yield the causes whose counts may have changed."""
        previous_cause = self._cause_by_agent.pop(change.agent, None)
        if previous_cause is not None:
            self._counts[previous_cause] -= 1
            yield previous_cause
        if change.new in self._states:
            self._cause_by_agent[change.agent] = change.cause
            self._counts[change.cause] = self[change.cause] + 1
            if change.cause != previous_cause:
                yield change.cause


class _ConditionTracker:
    """The causes for which a rule holds, and the times for which it held before."""

    def __init__(self) -> None:
        self._start_by_cause: dict[str, tuple[float, int]] = {}
        self._peak_by_cause: dict[str, int] = {}
        self._ended_periods: list[FiringPeriod] = []

    def __contains__(self, cause: str) -> bool:
        return cause in self._start_by_cause

    def record(self, cause: str, event: AgentStateChange | InstanceStateChange, count: int) -> None:
        self._start_by_cause.setdefault(cause, (event.at, event.round))
        self._peak_by_cause[cause] = max(self._peak_by_cause.get(cause, 0), count)

    def end(self, cause: str, event: AgentStateChange | InstanceStateChange) -> None:
        if cause in self._start_by_cause:
            began_at, first_round = self._start_by_cause.pop(cause)
            self._ended_periods.append(
                FiringPeriod(
                    cause,
                    began_at,
                    event.at,
                    self._peak_by_cause.pop(cause),
                    _count_rounds(first_round, event.round),
                )
            )

    def collect_periods(self, until: float) -> list[FiringPeriod]:
        open_periods = (
            FiringPeriod(cause, began_at, until, self._peak_by_cause[cause])
            for cause, (began_at, _) in self._start_by_cause.items()
        )
        return [*self._ended_periods, *open_periods]


def _count_rounds(first_round: int, last_round: int) -> int | None:
    # Poll numbers derive from time and interval, so they are not comparable after the interval changed.
    return last_round - first_round if 0 < first_round <= last_round else None


def _find_periods_by_count(
    state: str, agent_changes: Iterable[AgentStateChange], threshold: int, until: float
) -> list[FiringPeriod]:
    counts, tracker = _AgentCountByCause({state}), _ConditionTracker()
    for change in agent_changes:
        for cause in tuple(counts.apply(change)):
            if counts[cause] >= threshold:
                tracker.record(cause, change, counts[cause])
            else:
                tracker.end(cause, change)
    return tracker.collect_periods(until)


def _find_periods_by_instance(
    instance_changes: Iterable[InstanceStateChange], agent_changes: Iterable[AgentStateChange], until: float
) -> list[FiringPeriod]:
    counts, tracker = _AgentCountByCause(_AFFECTED_SLUGS), _ConditionTracker()
    streams: tuple[
        Iterable[AgentStateChange | InstanceStateChange], Iterable[AgentStateChange | InstanceStateChange]
    ] = (agent_changes, instance_changes)
    for event in merge(*streams, key=attrgetter("at")):
        if isinstance(event, AgentStateChange):
            for cause in counts.apply(event):
                if cause in tracker:
                    tracker.record(cause, event, counts[cause])
        elif event.new in _FAULT_SLUGS:
            tracker.record(event.instance, event, counts[event.instance])
        else:
            tracker.end(event.instance, event)
    return tracker.collect_periods(until)


def _find_periods_by_rate(
    agent_changes: Iterable[AgentStateChange], threshold: int, until: float
) -> list[FiringPeriod]:
    loss_times: list[float] = []
    firing_periods: list[FiringPeriod] = []
    for change in agent_changes:
        if change.new not in _LOST_OR_AT_RISK_SLUGS or change.old in _LOST_OR_AT_RISK_SLUGS:
            continue
        loss_times = [at for at in loss_times if change.at - at < LOSS_RATE_SECONDS] + [change.at]
        if len(loss_times) < threshold:
            continue
        ended_at = min(change.at + LOSS_RATE_SECONDS, until)
        if firing_periods and change.at <= firing_periods[-1].ended_at:
            firing_periods[-1] = FiringPeriod(
                "", firing_periods[-1].began_at, ended_at, max(firing_periods[-1].peak_count, len(loss_times))
            )
        else:
            firing_periods.append(FiringPeriod("", change.at, ended_at, len(loss_times)))
    return firing_periods


def _merge_firing_periods(firing_periods: Iterable[FiringPeriod], rule: Rule) -> list[FiringPeriod]:
    """Return the times that lasted long enough to fire, merged where the rule held again before it was resolved."""
    merged_periods: list[FiringPeriod] = []
    last_index_by_cause: dict[str, int] = {}
    for firing_period in sorted(firing_periods, key=lambda candidate: candidate.began_at):
        last_index = last_index_by_cause.get(firing_period.cause)
        if (
            last_index is not None
            and firing_period.began_at - merged_periods[last_index].ended_at < rule.recover_seconds
        ):
            previous = merged_periods[last_index]
            merged_periods[last_index] = FiringPeriod(
                firing_period.cause,
                previous.began_at,
                firing_period.ended_at,
                max(previous.peak_count, firing_period.peak_count),
            )
        elif firing_period.duration_seconds >= rule.pending_seconds and (
            firing_period.round_count is None or firing_period.round_count >= rule.pending_rounds
        ):
            last_index_by_cause[firing_period.cause] = len(merged_periods)
            merged_periods.append(firing_period)
    return merged_periods
