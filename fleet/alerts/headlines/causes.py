"""The current causes of trouble in the fleet: those that incidents would have, with their agents by state. Pure.

docs/reference/alerts.md, "Inhibition".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.alerts.facts import cause_codes_of, cause_of_code, sick_since_by_key
from fleet.alerts.inhibition import CAUSE_KINDS_BY_STRENGTH, JOINT_KINDS
from fleet.alerts.instance_causes import (
    backend_cause_of,
    cause_of_instance,
    cluster_cause_of,
    group_instances,
    is_joint_failure,
    root_cause_key_of,
)
from fleet.alerts.wording.failure_clauses import (
    CLUSTER_CLAUSE,
    PAST_BACKEND_CLAUSE,
    FailureClause,
    clause_of_backend,
    clause_of_instance,
    clause_of_members,
    clause_of_reason,
)
from fleet.alerts.wording.words import AffectedCounts
from fleet.monitoring.classify import FleetFrame, prepare_frame
from fleet.monitoring.columns import REASON_BITS, RECOVERY_SHIFT
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.destination.health import Health
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import FAULT_STATES, InstanceKind, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import AFFECTED_STATES, Reason, Recovery, State

#: States of agents that something has harmed, for a headline.
HEADLINE_STATES = sorted(
    (state for state in State if state.look.headline_order), key=lambda state: state.look.headline_order
)


@dataclass(frozen=True, slots=True)
class CauseAgents:
    """The agents of one cause in one state. Times are seconds since the epoch."""

    count: int
    #: When the first of them entered the state; None if not known.
    since: float | None = None
    #: How many of them recover automatically, and only after the cause; no prediction is possible for the others.
    automatic_count: int = 0
    stuck_count: int = 0
    #: When the last of those has recovered that recover automatically.
    recovers_at: float | None = None
    #: When the first of them becomes stranded; None without a deadline.
    strands_at: float | None = None


@dataclass(frozen=True, slots=True)
class ActiveCause:
    """A cause that no stronger cause inhibits, with its agents."""

    cause: Cause
    clause: FailureClause
    #: Start of the failure; None if not known.
    since: float | None = None
    #: Agents by state, those of inhibited causes included; only states of `HEADLINE_STATES`.
    groups: Mapping[State, CauseAgents] = field(default_factory=dict)
    #: Causes of these agents as in `facts.cause_codes_of`.
    codes: frozenset[int] = frozenset()

    @property
    def key(self) -> str:
        """Return the key of the cause."""
        return self.cause.key

    @property
    def affected_counts(self) -> AffectedCounts:
        """Return the number of agents that the cause strands or puts at risk, as incidents count them."""
        return AffectedCounts(*(self.count(state) for state in AFFECTED_STATES))

    def count(self, state: State) -> int:
        """Return the number of agents in a state."""
        group = self.groups.get(state)
        return 0 if group is None else group.count


#: The agents with one code (`facts.cause_codes_of`): code, and groups by state.
_Part = tuple[int, Mapping[State, CauseAgents]]


def find_causes(table: FleetTable) -> tuple[ActiveCause, ...]:
    """Return the current causes, the strongest first, without those that a stronger cause inhibits.

    The last ones have agents, but no failure with an incident: instances that are degraded, deregistered or OK again,
    and reasons without an instance.
    """
    if table.as_of is None or table.stale:
        return ()
    frame = prepare_frame(table.fleet, table.as_of)
    if frame.blind:
        return ()
    grouped_agents = _group_agents(table)
    if frame.cluster_unreachable:
        unknown = [(code, groups) for code, groups in grouped_agents.items() if State.UNKNOWN in groups]
        cause = ActiveCause(cluster_cause_of(table.cluster), CLUSTER_CLAUSE)
        cause = _with_agents(
            cause, ((code, {State.UNKNOWN: groups[State.UNKNOWN]}) for code, groups in unknown)
        )
        return (replace(cause, since=_since_of(cause.groups.get(State.UNKNOWN))),)
    causes, inhibitor_by_key = _find_failures(table, frame)
    listed_keys = {cause.key for cause in causes}
    groups_by_key: dict[str, list[_Part]] = {}
    for code, groups in grouped_agents.items():
        key = cause_of_code(table, code).key
        while key in inhibitor_by_key:
            key = inhibitor_by_key[key]
        groups_by_key.setdefault(key, []).append((code, groups))
    causes += _find_causes_without_incident(table, {*groups_by_key} - listed_keys)
    causes += _find_causes_without_instance(table, groups_by_key)
    return tuple(_with_agents(cause, groups_by_key.get(cause.key, ())) for cause in causes)


def _find_failures(table: FleetTable, frame: FleetFrame) -> tuple[list[ActiveCause], dict[str, str]]:
    """Return the failures that have incidents, and the inhibitor of each other failure by key."""
    sick_since = sick_since_by_key(table, frame)
    sick_views = [view for view in table.instances.values() if view.state in FAULT_STATES]
    sick_keys = {cause_of_instance(view).key for view in sick_views}
    inhibitor_by_key = {
        cause_of_instance(view).key: root_cause_key_of(view)
        for view in sick_views
        if root_cause_key_of(view) in sick_keys
    }
    sick_views = _drop_inhibited(sick_views, inhibitor_by_key)
    causes: list[ActiveCause] = []
    if frame.backend_down:
        backend_cause = backend_cause_of(table.cluster)
        causes.append(ActiveCause(backend_cause, clause_of_backend(table), frame.backend_down_since))
        backend_since = sick_since[backend_cause.key]
        inhibitor_by_key |= {
            cause_of_instance(view).key: backend_cause.key
            for view in sick_views
            if sick_since.get(cause_of_instance(view).key, frame.now) >= backend_since
            or root_cause_key_of(view) == backend_cause.key
        }
        sick_views = _drop_inhibited(sick_views, inhibitor_by_key)
    members_by_cause = group_instances(table.instances.values())
    for cause in sorted(members_by_cause, key=lambda cause: CAUSE_KINDS_BY_STRENGTH.index(cause.kind)):
        assert cause.kind in JOINT_KINDS, "only regions and proxy groups fail together"
        members = members_by_cause[cause]
        sick_members = [view for view in sick_views if cause_of_instance(view).key in members]
        if is_joint_failure(len(sick_members), len(members)):
            clause = clause_of_members(cause.name, len(sick_members), len(members))
            member_since = [sick_since.get(cause_of_instance(view).key, frame.now) for view in sick_members]
            causes.append(ActiveCause(cause, clause, min(member_since)))
            inhibitor_by_key |= {cause_of_instance(view).key: cause.key for view in sick_members}
            sick_views = _drop_inhibited(sick_views, inhibitor_by_key)
    inhibitor_by_key |= _find_inhibiting_auths(sick_views)
    for view in sorted(_drop_inhibited(sick_views, inhibitor_by_key), key=_sort_key_of):
        cause = cause_of_instance(view)
        causes.append(ActiveCause(cause, clause_of_instance(view), sick_since.get(cause.key)))
    return causes, inhibitor_by_key


def _drop_inhibited(views: Sequence[InstanceView], inhibitor_by_key: Mapping[str, str]) -> list[InstanceView]:
    return [view for view in views if cause_of_instance(view).key not in inhibitor_by_key]


def _group_agents(table: FleetTable) -> dict[int, dict[State, CauseAgents]]:
    """Return the harmed agents by cause (`facts.cause_codes_of`) and state, in one pass over the columns."""
    verdicts = table.verdicts
    rows = np.flatnonzero(np.isin(verdicts["state"], HEADLINE_STATES))
    if not len(rows):
        return {}
    pairs = cause_codes_of(verdicts, rows) << 8 | verdicts["state"][rows]
    order = np.argsort(pairs, kind="stable")
    rows = rows[order]
    distinct_pairs, starts = np.unique(pairs[order], return_index=True)
    recovery = verdicts["reason_and_recovery"][rows] >> RECOVERY_SHIFT
    is_automatic = recovery == Recovery.BY_ITSELF

    def count_by_group(selected: npt.NDArray[np.bool_]) -> list[int]:
        return list(map(int, np.add.reduceat(selected.astype(np.int64), starts)))

    def earliest_by_group(times: npt.NDArray[np.float64]) -> list[float | None]:
        # 0 stands for no time.
        earliest = np.minimum.reduceat(np.where(times > 0, times, np.inf), starts)
        return [None if at == np.inf else float(at) for at in earliest]

    latest_recoveries = np.maximum.reduceat(
        np.where(is_automatic, verdicts["recovers_at"][rows], 0.0), starts
    )
    columns = zip(
        distinct_pairs.tolist(),
        np.diff(starts, append=len(rows)).tolist(),
        earliest_by_group(verdicts["since"][rows]),
        count_by_group(is_automatic),
        count_by_group(recovery == Recovery.ONLY_IF_CAUSE_RECOVERS),
        (float(at) or None for at in latest_recoveries),
        earliest_by_group(verdicts["strands_at"][rows]),
        strict=True,
    )
    groups_by_code: dict[int, dict[State, CauseAgents]] = {}
    for pair, *group_fields in columns:
        code, state = divmod(pair, 1 << 8)
        groups_by_code.setdefault(code, {})[State(state)] = CauseAgents(*group_fields)
    return groups_by_code


def merge_groups(groups: Sequence[CauseAgents]) -> CauseAgents:
    """Return several groups of agents as one."""
    return CauseAgents(
        sum(group.count for group in groups),
        min((group.since for group in groups if group.since is not None), default=None),
        sum(group.automatic_count for group in groups),
        sum(group.stuck_count for group in groups),
        max((group.recovers_at for group in groups if group.recovers_at is not None), default=None),
        min((group.strands_at for group in groups if group.strands_at is not None), default=None),
    )


def _since_of(group: CauseAgents | None) -> float | None:
    return None if group is None else group.since


def _with_agents(cause: ActiveCause, parts: Iterable[_Part]) -> ActiveCause:
    """Return a cause with its agents."""
    groups_by_state: dict[State, list[CauseAgents]] = {}
    codes = set[int]()
    for code, groups in parts:
        codes.add(code)
        for state, group in groups.items():
            groups_by_state.setdefault(state, []).append(group)
    merged_groups = {state: merge_groups(groups) for state, groups in groups_by_state.items()}
    return replace(cause, groups=merged_groups, codes=frozenset(codes))


def _find_causes_without_incident(table: FleetTable, keys: set[str]) -> list[ActiveCause]:
    """Return the backend and the instances with these keys: agents still depend on or recover from them."""
    backend_cause = backend_cause_of(table.cluster)
    causes = [ActiveCause(backend_cause, PAST_BACKEND_CLAUSE)] if backend_cause.key in keys else []
    views = [view for view in table.instances.values() if cause_of_instance(view).key in keys]
    for view in sorted(views, key=_sort_key_of):
        since = view.health_since if view.health is Health.DEGRADED else view.facts.gone_at
        causes.append(ActiveCause(cause_of_instance(view), clause_of_instance(view), since))
    return causes


def _find_causes_without_instance(
    table: FleetTable, groups_by_key: Mapping[str, Sequence[_Part]]
) -> list[ActiveCause]:
    """Return the reasons of agents without a failing instance as the cause, as far as a clause describes them."""
    causes = []
    for parts in groups_by_key.values():
        cause = cause_of_code(table, parts[0][0])
        clause = (
            clause_of_reason(Reason(parts[0][0] & REASON_BITS)) if cause.kind is CauseKind.AGENTS else None
        )
        if clause is not None:
            causes.append(ActiveCause(cause, clause))
    return causes


def _find_inhibiting_auths(sick_views: Sequence[InstanceView]) -> dict[str, str]:
    """Return the keys of expired proxies of unknown auth, each with the key of the first failing auth, if any.

    Such a proxy probably could not write its heartbeat because of a failing auth.
    """
    sick_auths = sorted(
        (view for view in sick_views if view.facts.kind is InstanceKind.AUTH), key=_sort_key_of
    )
    return {
        cause_of_instance(view).key: cause_of_instance(auth).key
        for auth in sick_auths[:1]
        for view in sick_views
        if _is_proxy_without_auth(view) and view.state is InstanceState.EXPIRED
    }


def _sort_key_of(view: InstanceView) -> tuple[InstanceKind, Any]:
    return view.facts.kind, natural_sort_key(view.facts.name)


def _is_proxy_without_auth(view: InstanceView) -> bool:
    return view.facts.kind is InstanceKind.PROXY and not view.facts.heartbeat_auth
