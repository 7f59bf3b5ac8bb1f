"""The headline of a fleet: how many agents are cut off, why, since when, when they recover, and what helps now. Pure.

Pages, API, CLI, tab titles and live updates show this one text. docs/reference/headline.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fleet.alerts.facts import facts_of_table
from fleet.alerts.findings import index_causes, summarize_cause
from fleet.alerts.headlines.actions import BLIND_ACTIONS, HeadlineAction, select_actions, select_preventions
from fleet.alerts.headlines.activity import (
    NO_ACTIVITY,
    Activity,
    HeadlineChange,
    describe_activity,
    describe_changes,
    describe_recoveries,
    find_restarting_instances,
    link_activity,
    link_incident,
)
from fleet.alerts.headlines.causes import HEADLINE_STATES, ActiveCause, CauseAgents, find_causes, merge_groups
from fleet.alerts.instance_causes import is_recovering
from fleet.alerts.wording.words import (
    AffectedCounts,
    describe_counts,
    describe_recovery,
    describe_remaining,
    format_agents,
    format_apart,
    format_since,
)
from fleet.monitoring.classify import count_states, prepare_frame
from fleet.monitoring.views import FleetTable, StreamHeader
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import AFFECTED_STATES, State

#: Maximum number of causes that the sentence names after the first one.
_MAX_OTHER_CAUSES = 2
#: Maximum number of linked incidents of causes, as in headline.js.
_MAX_LINKED_INCIDENTS = 3
_NO_DATA = "No data yet: Refloat has not completed a poll of the fleet."
_NO_INSTANCES = (
    "No data yet: no auth of this cluster has responded. Check its addresses and its certificates."
)
_NONE_STRANDED = "No stranded agents."
#: States of agents that do not show whether the state of the fleet is known.
_UNCOUNTED_STATES = (State.UNKNOWN, State.RETIRED, State.NEVER)


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An open incident: number in URLs, and key of the cause."""

    number: int
    key: str


@dataclass(frozen=True, slots=True)
class HeadlineCause:
    """One cause that a headline names."""

    #: Key of the cause: `auth/<id>`.
    key: str
    name: str
    #: What failed, as a clause: `auth-1 lost its backend`.
    description: str
    #: Start of the failure, seconds since the epoch; None if not known.
    since: float | None
    #: Number of its agents by state; only states of harmed agents that have some.
    counts: Mapping[State, int]
    #: Number of its open incident; None without one.
    incident: int | None


@dataclass(frozen=True, slots=True)
class Headline:
    """The state of a fleet in one round. Times are seconds since the epoch."""

    #: The most urgent state of agents: symbol and colours. Without harmed agents, WORKING while a change runs.
    state: State
    #: Number of agents in this state; 0 if no agent is harmed.
    count: int
    #: How many agents, since when and why; whether they recover; other causes. One sentence each, or empty.
    summary: str
    recovery: str
    also: str
    #: Changes in progress, and what ended recently; sentences, or empty.
    activity: str
    #: Number of causes in `also`, with those that it only counts.
    more_count: int
    #: Since when agents are in this state; without such agents, start of the first cause; None if not known.
    since: float | None
    #: When the agents of the first cause have recovered automatically; None if they do not, or it is not known.
    recovers_at: float | None
    #: When the first agent at risk of that cause becomes stranded; None without a deadline, or if some are stranded.
    strands_at: float | None
    #: Causes, the one with the most agents first.
    causes: tuple[HeadlineCause, ...]
    #: What helps the agents that are affected now, or ends the failure if they recover automatically.
    actions: tuple[HeadlineAction, ...]
    #: What only prevents the next failure, because agents notice it when they connect.
    preventions: tuple[HeadlineAction, ...]
    #: Changes in progress, and those that ended recently.
    changes: tuple[HeadlineChange, ...]
    #: Pages of these changes, and of incidents that ended recently.
    links: tuple[HeadlineAction, ...]
    #: Round: epoch and place in the event stream, end of the round, and number of agents by state; every state.
    epoch: str
    seq: int
    as_of: float | None
    is_stale: bool
    counts: Mapping[State, int]

    @property
    def text(self) -> str:
        """Return the whole text."""
        return " ".join(
            sentence for sentence in (self.summary, self.recovery, self.also, self.activity) if sentence
        )

    @property
    def lead(self) -> str:
        """Return the text without other causes, for pages, which count them beside it and lead to the incidents."""
        return " ".join(sentence for sentence in (self.summary, self.recovery, self.activity) if sentence)

    @property
    def remaining(self) -> str:
        """Return how long it is from the end of the round to deadline and recovery; empty without both."""
        return "" if self.as_of is None else describe_remaining(self.strands_at, self.recovers_at, self.as_of)

    @property
    def tab_title(self) -> str:
        """Return the beginning of the title of a tab: symbol and number, `✖67`; empty if all is well."""
        count = f"{self.count:,}" if self.count else ""
        return f"{self.state.look.glyph}{count}" if self.state.look.glyph else ""

    @property
    def incident_links(self) -> tuple[HeadlineAction, ...]:
        """Return links to the open incidents of the first causes, as headline.js paints them."""
        links = (
            link_incident(cause.incident, cause.name) for cause in self.causes if cause.incident is not None
        )
        return tuple(links)[:_MAX_LINKED_INCIDENTS]

    @property
    def incidents(self) -> tuple[int, ...]:
        """Return the numbers of the open incidents of the causes, in their order."""
        return tuple(cause.incident for cause in self.causes if cause.incident is not None)


@dataclass(frozen=True, slots=True)
class _HeadlineParts:
    """What a headline says."""

    state: State
    summary: str
    recovery: str = ""
    also: str = ""
    more_count: int = 0
    since: float | None = None
    recovers_at: float | None = None
    strands_at: float | None = None
    causes: tuple[ActiveCause, ...] = ()
    actions: tuple[HeadlineAction, ...] = ()
    preventions: tuple[HeadlineAction, ...] = ()


def describe_fleet(
    table: FleetTable, incidents: Iterable[OpenIncident], now: float, activity: Activity = NO_ACTIVITY
) -> Headline:
    """Return the headline of a fleet. `now` only decides which times have a date."""
    counts = count_states(table.verdicts["state"])
    parts = _compose(table, counts, now)
    if _explains_all(find_restarting_instances(activity), parts):
        # Expected, and over within seconds; a restart that fails pauses its rollout, which ends this.
        parts = _HeadlineParts(State.HEALTHY, _summarize_restart(counts), causes=parts.causes)
    return _headline_of(parts, table, counts, incidents, activity, now, _find_empty_proxies(table))


@dataclass(frozen=True, slots=True)
class IncidentHeadline:
    """What an incident is about in one round, in the words of the headline."""

    #: Number of agents that its cause affects, these agents as a sentence, and whether they recover.
    affected_count: int
    summary: str
    recovery: str
    #: When the last of the agents that recover automatically has recovered; None without a prediction.
    recovers_at: float | None
    preventions: tuple[HeadlineAction, ...]


class ActionFinder:
    """Finds what helps the agents of causes of one round. The causes are found once, when they are needed."""

    def __init__(self, table: FleetTable) -> None:
        self._table = table

    @cached_property
    def active_cause_by_key(self) -> Mapping[str, ActiveCause]:
        """The current causes without inhibited ones."""
        return {cause.key: cause for cause in find_causes(self._table)}

    def find(self, cause_key: str) -> tuple[HeadlineAction, ...]:
        """Return what helps the agents of a cause, or else what ends its failure; nothing for an inhibited cause."""
        return _actions_of(self._table, self.active_cause_by_key.get(cause_key))


class IncidentDescriber:
    """Describes the incidents of a cluster in one round: what they share is computed once."""

    def __init__(self, table: FleetTable, now: float) -> None:
        self._table = table
        self._now = now
        self._facts = facts_of_table(table, now)
        self._index = index_causes(self._facts)
        self.actions = ActionFinder(table)

    def describe(self, cause: Cause) -> IncidentHeadline | None:
        """Return what an incident of this cause is about; None if it affects no agents, or that is not known."""
        if not self._facts.is_fresh or cause.kind in (CauseKind.CONSOLE, CauseKind.FLEET):
            return None
        cause_summary = summarize_cause(cause, self._facts, self._index)
        if not cause_summary.affected_count:
            return None
        recovery = ""
        if cause.kind is not CauseKind.CLUSTER:
            recovery = describe_recovery(
                cause,
                cause_summary.recovers_at,
                self._now,
                is_stuck=cause_summary.is_stuck,
                is_recovering=cause_summary.is_cause_recovering,
            )
        active_cause = self.actions.active_cause_by_key.get(cause.key)
        return IncidentHeadline(
            cause_summary.affected_count,
            cause_summary.summary,
            recovery,
            cause_summary.recovers_at if recovery else None,
            select_preventions(self._table, active_cause),
        )


def describe_stale_fleet(header: StreamHeader, now: float) -> Headline:
    """Return the headline of a fleet whose data is too old, without its table."""
    return _headline_of(
        _compose_without_polls(header.as_of, now), header, header.counts, (), NO_ACTIVITY, now
    )


def _headline_of(
    parts: _HeadlineParts,
    position: FleetTable | StreamHeader,
    counts: Mapping[State, int],
    incidents: Iterable[OpenIncident],
    activity: Activity,
    now: float,
    empty_proxy_names: Sequence[str] = (),
) -> Headline:
    number_by_key = {incident.key: incident.number for incident in incidents}
    changes = describe_changes(activity, now, empty_proxy_names)
    is_well = parts.state is State.HEALTHY
    # While something is wrong, that alone matters; an ended change may be the cause.
    recoveries = activity.recoveries if is_well else ()
    sentences = [describe_activity(changes)]
    if recoveries:
        sentences.append(describe_recoveries(activity, now))
    return Headline(
        state=State.WORKING if is_well and any(change.is_running for change in changes) else parts.state,
        count=counts[parts.state] if parts.state in HEADLINE_STATES else 0,
        summary=parts.summary,
        recovery=parts.recovery,
        also=parts.also,
        more_count=parts.more_count,
        activity=" ".join(filter(None, sentences)),
        since=parts.since,
        recovers_at=parts.recovers_at,
        strands_at=parts.strands_at,
        causes=tuple(
            HeadlineCause(
                key=cause.key,
                name=cause.cause.name,
                description=cause.clause.present,
                since=cause.since,
                counts={state: group.count for state, group in cause.groups.items()},
                incident=number_by_key.get(cause.key),
            )
            for cause in parts.causes
        ),
        actions=parts.actions,
        preventions=parts.preventions,
        changes=changes,
        links=link_activity(changes, recoveries),
        epoch=position.epoch,
        seq=position.seq,
        as_of=position.as_of,
        is_stale=position.stale,
        counts=counts,
    )


def _summarize_restart(counts: Mapping[State, int]) -> str:
    count = counts[State.AT_RISK]
    if not count:
        return _NONE_STRANDED
    return (
        f"{_NONE_STRANDED} {format_agents(count)} reconnect{'s' if count == 1 else ''} because of a restart."
    )


def _explains_all(restarting_names: Collection[str], parts: _HeadlineParts) -> bool:
    """Return whether agents are at risk only because a rollout restarts the instances with these names."""
    return (
        parts.state is State.AT_RISK
        and bool(parts.causes)
        and all(cause.cause.name in restarting_names for cause in parts.causes)
    )


def _find_empty_proxies(table: FleetTable) -> list[str]:
    """Return the names of proxies that are OK and accept connections, but have no tunnels while others have some."""
    proxies = [view for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY]
    if table.stale or not any(view.agent_count for view in proxies):
        return []
    names = (
        view.facts.name
        for view in proxies
        if view.state is InstanceState.OK and not view.agent_count and view.drain_request is None
    )
    return sorted(names, key=natural_sort_key)


def _actions_of(table: FleetTable, cause: ActiveCause | None) -> tuple[HeadlineAction, ...]:
    worst = next((state for state in HEADLINE_STATES if cause is not None and cause.count(state)), None)
    return select_actions(table, cause, None if worst is None else _recovery_group_of(cause, worst))


def _compose_without_polls(as_of: float | None, now: float) -> _HeadlineParts:
    """Return what a headline says without current data; `as_of`: when the newest round was concluded."""
    if as_of is None:
        return _HeadlineParts(State.UNKNOWN, _NO_DATA, actions=BLIND_ACTIONS)
    summary = f"Agent states are unknown since {format_since(as_of, now)} because polling has stopped."
    return _HeadlineParts(State.UNKNOWN, summary, since=as_of, actions=BLIND_ACTIONS)


def _compose(table: FleetTable, counts: Mapping[State, int], now: float) -> _HeadlineParts:
    if table.as_of is None or table.stale:
        return _compose_without_polls(table.as_of, now)
    causes = find_causes(table)
    worst = next((state for state in HEADLINE_STATES if counts[state]), None)
    if worst is None:
        return _compose_without_agents(table, causes, now)
    causes = tuple(sorted(causes, key=lambda cause: [-cause.count(state) for state in HEADLINE_STATES]))
    first = causes[0] if causes and causes[0].count(worst) else None
    since, other_causes = _find_since(table, worst), causes if first is None else causes[1:]
    recovery_group = _recovery_group_of(first, worst)
    is_blind = worst is State.UNKNOWN and prepare_frame(table.fleet, table.as_of).blind
    strands_at = _find_deadline(first, recovery_group)
    actions = BLIND_ACTIONS if is_blind else select_actions(table, first, recovery_group)
    return _HeadlineParts(
        worst,
        _summarize(worst, counts, first, since, now, is_blind=is_blind),
        _describe_recovery_of(
            first,
            recovery_group,
            strands_at,
            since,
            now,
            is_recovering=first is not None and is_recovering(table, first.cause),
        ),
        _describe_others(other_causes, now),
        len(other_causes),
        since,
        _find_recovery_time(recovery_group),
        strands_at,
        causes,
        actions,
        select_preventions(table, first),
    )


def _compose_without_agents(table: FleetTable, causes: tuple[ActiveCause, ...], now: float) -> _HeadlineParts:
    if not table.instances and not len(table.verdicts):
        return _HeadlineParts(State.UNKNOWN, _NO_INSTANCES)
    if not causes:
        return _HeadlineParts(State.HEALTHY, _NONE_STRANDED)
    first, *other_causes = causes
    summary = f"No stranded agents, but {first.clause.describe(first.since, now)}."
    return _HeadlineParts(
        State.AT_RISK,
        summary,
        also=_describe_others(other_causes, now),
        more_count=len(other_causes),
        since=first.since,
        causes=causes,
        actions=select_actions(table, first, None),
    )


def _find_since(table: FleetTable, state: State) -> float | None:
    """Return when the first of the agents in a state entered it."""
    times = table.verdicts["since"][table.verdicts["state"] == state]
    known_times = times[times > 0]
    return float(known_times.min()) if len(known_times) else None


def _summarize(
    worst: State,
    counts: Mapping[State, int],
    first: ActiveCause | None,
    since: float | None,
    now: float,
    *,
    is_blind: bool,
) -> str:
    """Return the first sentence: how many agents, since when, and why."""
    since_text = "" if since is None else f" since {format_since(since, now)}"
    because = "" if first is None else f" because {first.clause.present}"
    if worst in AFFECTED_STATES:
        affected = AffectedCounts(*(counts[state] for state in AFFECTED_STATES))
        lead = describe_counts(affected, since_text=since_text)
        if not affected.stranded_count:
            lead = f"No stranded agents, but {lead}"
        if first is not None and first.affected_counts.total < affected.total:
            because = f", {first.affected_counts.total:,} of them{because}"
        return f"{lead}{because}."
    if worst is State.UNKNOWN:
        if is_blind:
            because = " because Refloat's own pollers missed polls or failed their self-test"
        if not any(count for state, count in counts.items() if state not in _UNCOUNTED_STATES):
            return f"Agent states are unknown{since_text}{because}."
        return f"{format_agents(counts[worst])} unknown{since_text}{because}. No other agents are stranded."
    return f"No stranded agents, but {format_agents(counts[worst])} {worst.label}{since_text}{because}."


def _recovery_group_of(cause: ActiveCause | None, worst: State) -> CauseAgents | None:
    """Return the agents whose recovery is predicted: all affected ones, or those in the worst state."""
    if cause is None or worst in (State.UNKNOWN, State.OFFLINE):
        return None
    states = AFFECTED_STATES if worst in AFFECTED_STATES else (worst,)
    return merge_groups([cause.groups[state] for state in states if state in cause.groups])


def _find_recovery_time(group: CauseAgents | None) -> float | None:
    """Return when the last of the agents has recovered; None unless all recover automatically."""
    return group.recovers_at if group is not None and group.automatic_count == group.count else None


def _find_deadline(cause: ActiveCause | None, group: CauseAgents | None) -> float | None:
    """Return when the first agent at risk becomes stranded; None if the cause has stranded agents already."""
    if cause is None or group is None or cause.count(State.STRANDED) or not cause.count(State.AT_RISK):
        return None
    return group.strands_at


def _describe_recovery_of(
    cause: ActiveCause | None,
    group: CauseAgents | None,
    strands_at: float | None,
    since: float | None,
    now: float,
    *,
    is_recovering: bool,
) -> str:
    """Return when agents at risk become stranded, and whether and when the agents recover."""
    if cause is None or group is None:
        return ""
    is_unpredicted = group.automatic_count + group.stuck_count < group.count
    recovers_at = None if is_unpredicted else group.recovers_at
    recovery = describe_recovery(
        cause.cause, recovers_at, now, is_stuck=bool(group.stuck_count), is_recovering=is_recovering
    )
    if strands_at is None:
        return recovery
    return f"The first become stranded at {format_apart(strands_at, since, now)}. {recovery}"


def _describe_others(causes: Sequence[ActiveCause], now: float) -> str:
    clauses = [_describe_other(cause, now) for cause in causes[:_MAX_OTHER_CAUSES]]
    more_count = len(causes) - len(clauses)
    if more_count:
        clauses.append("1 more cause" if more_count == 1 else f"{more_count} more causes")
    return f"Also: {'; '.join(clauses)}." if clauses else ""


def _describe_other(cause: ActiveCause, now: float) -> str:
    affected = describe_counts(cause.affected_counts)
    if affected:
        return f"{affected} because {cause.clause.present}"
    return cause.clause.describe(cause.since, now)
