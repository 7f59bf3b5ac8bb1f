"""The facts that alert rules use: one fleet table, counted by cause in one vectorised pass. Pure.

docs/reference/alerts.md, "Inputs of an evaluation".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from fleet.alerts.instance_causes import (
    backend_cause_of,
    cause_of_instance,
    cluster_cause_of,
    group_instances,
    is_instance_recovering,
    root_cause_key_of,
)
from fleet.alerts.wording.failure_clauses import (
    CLUSTER_CLAUSE,
    PAST_BACKEND_CLAUSE,
    FailureClause,
    clause_of_backend,
    clause_of_instance,
    clause_of_reason,
)
from fleet.monitoring.classify import FleetFrame, prepare_frame
from fleet.monitoring.columns import HEALTH_CHECK, REASON_BITS, RECOVERY_SHIFT
from fleet.monitoring.state.identities import ExpiringIdentity
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import FAULT_STATES, InstanceState
from fleet.vocabulary.verdicts import (
    AFFECTED_STATES,
    BACKEND_CAUSE,
    LOST_OR_AT_RISK_STATES,
    Reason,
    Recovery,
    State,
)

#: Seconds over which the loss rate is counted.
LOSS_RATE_SECONDS = 60.0
_MAX_AGENT_NAMES = 10

Mask = npt.NDArray[np.bool_]
#: One shared object, because `AffectedGroupCache` compares agent sets by identity.
_NO_AGENT_SETS: Mapping[str, Mask] = {}


@dataclass(frozen=True, slots=True)
class AffectedGroup:
    """The agents that one cause affects."""

    cause: Cause
    stranded_count: int = 0
    at_risk_count: int = 0
    #: Number of stranded agents by agent set, and of agents at risk.
    stranded_by_agent_set: Mapping[str, int] = field(default_factory=dict)
    at_risk_by_agent_set: Mapping[str, int] = field(default_factory=dict)
    agent_names: tuple[str, ...] = ()
    #: When the last of the agents that recover automatically has recovered; None without them, or if the recovery of
    #: an agent is not known.
    recovers_at: float | None = None
    #: Some of the agents recover only after the cause recovers.
    is_stuck: bool = False
    #: When the first stranded agent became stranded; without one, when the first agent came at risk.
    since: float | None = None

    def count(self, *, is_stranded: bool, agent_set: str = "") -> int:
        """Return the number of stranded agents or agents at risk; with `agent_set` only those of that set."""
        if agent_set:
            return (self.stranded_by_agent_set if is_stranded else self.at_risk_by_agent_set).get(
                agent_set, 0
            )
        return self.stranded_count if is_stranded else self.at_risk_count

    @property
    def agent_sets(self) -> frozenset[str]:
        """Agent sets of the affected agents."""
        agent_set_counts = (*self.stranded_by_agent_set.items(), *self.at_risk_by_agent_set.items())
        return frozenset(agent_set for agent_set, count in agent_set_counts if count)


@dataclass(frozen=True, slots=True)
class SickInstance:
    """An auth or proxy that is not responding, unhealthy or expired."""

    cause: Cause
    summary: str
    agent_count: int
    #: A proxy that responds, whose resource expired, and whose auth is not known: any failing auth explains it.
    is_expired_only: bool = False
    #: Key of the auth that receives the heartbeats of a proxy; empty if not known.
    heartbeat_auth_key: str = ""
    #: Key of the cause behind the failure; empty if the instance itself is the cause.
    root_cause_key: str = ""
    #: The instance reports that it is recovering.
    is_recovering: bool = False


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts of one cluster at one evaluation."""

    cluster: str
    now: float
    #: Time of the newest poll of the fleet; identifies the poll.
    as_of: float | None
    #: False while Refloat is blind: the fields after `blind_reason` are then meaningless.
    is_fresh: bool
    #: Why Refloat is blind, as one sentence; empty if it is not.
    blind_reason: str = ""
    #: False: Refloat is blind because it cannot read the fleet state, whatever the polls do.
    can_read: bool = True
    #: Alerting has just started, and the first poll may still be on its way: Refloat is not blind yet.
    is_starting: bool = False
    #: Nothing is monitored, on purpose: no rule matches, and open incidents resolve.
    is_paused: bool = False
    agent_count: int = 0
    stranded_count: int = 0
    affected_groups: tuple[AffectedGroup, ...] = ()
    sick_instances: tuple[SickInstance, ...] = ()
    backend_down: bool = False
    unreachable: bool = False
    #: Agents that became stranded, offline or at risk within the last minute.
    recently_lost_count: int = 0
    excess_agent_count: int = 0
    drifted_agent_count: int = 0
    #: Names of instances that do not match their desired policies.
    drifted_instances: tuple[str, ...] = ()
    #: Name and version of every instance that reports a version, by id.
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: Proxy groups and regions, each with the keys of its instances: instances that fail together have one cause.
    members_by_cause: Mapping[Cause, tuple[str, ...]] = field(default_factory=dict)
    #: Start of the failure of each failing instance, by key; for backend and cluster the earliest possible time.
    sick_since: Mapping[str, float] = field(default_factory=dict)
    #: What failed, by key of the cause: instances, backend, cluster, and reasons without an instance.
    clauses: Mapping[str, FailureClause] = field(default_factory=dict)
    #: When the first agent became unknown because no instance responds; None if an instance responds.
    unreachable_since: float | None = None
    #: Start of the failure of the auth backend; None if the backend does not fail.
    backend_down_since: float | None = None
    #: Identity of Refloat for the cluster that must be renewed.
    expiring_identity: ExpiringIdentity | None = None


def make_blind_facts(
    cluster: str, now: float, as_of: float | None, reason: str, *, can_read: bool = True
) -> ClusterFacts:
    """Return the facts of a cluster while Refloat is blind."""
    return ClusterFacts(cluster, now, as_of, is_fresh=False, blind_reason=reason, can_read=can_read)


def make_paused_facts(cluster: str, now: float) -> ClusterFacts:
    """Return the facts of a paused cluster."""
    return ClusterFacts(cluster, now, None, is_fresh=True, is_paused=True)


def facts_of_table(
    table: FleetTable,
    now: float,
    mask_by_agent_set: Mapping[str, Mask] | None = None,
    silenced_mask: Mask | None = None,
    drifted_instances: Sequence[str] = (),
    group_cache: AffectedGroupCache | None = None,
) -> ClusterFacts:
    """Return the facts of one fleet table. `mask_by_agent_set`: agents by agent set; `silenced_mask`: silenced agents.

    `group_cache`: cache of the previous evaluation, if any.
    """
    if table.as_of is None:
        return make_blind_facts(
            table.cluster, now, None, "Refloat monitoring has not completed a poll of the fleet yet."
        )
    if table.stale:
        age = round(now - table.as_of)
        return make_blind_facts(
            table.cluster, now, table.as_of, f"Refloat monitoring has stopped: data is {age} s old."
        )
    frame = prepare_frame(table.fleet, table.as_of)
    if frame.blind:
        return make_blind_facts(
            table.cluster,
            now,
            table.as_of,
            "Refloat receives no monitoring data: its connection test to itself (self-probe) fails.",
        )
    states_of_instances = {view.state for view in table.instances.values()}
    if len(table.ids) and states_of_instances <= {InstanceState.UNKNOWN}:
        # Agents and instances of the database after a start: no incident has ended because nothing is known.
        return make_blind_facts(
            table.cluster, now, table.as_of, "No auth or proxy of this cluster has responded to Refloat yet."
        )
    verdicts = table.verdicts if silenced_mask is None or not silenced_mask.any() else table.verdicts.copy()
    if verdicts is not table.verdicts and silenced_mask is not None:
        verdicts["state"][silenced_mask] = State.HEALTHY
    states = verdicts["state"]
    affected_groups = (group_cache or AffectedGroupCache()).groups_of(
        table, verdicts, mask_by_agent_set or _NO_AGENT_SETS
    )
    return ClusterFacts(
        cluster=table.cluster,
        now=now,
        as_of=table.as_of,
        is_fresh=True,
        agent_count=int(np.count_nonzero(_mask_counted_agents(table, verdicts))),
        stranded_count=int(np.count_nonzero(states == State.STRANDED)),
        affected_groups=affected_groups,
        sick_instances=tuple(
            _sick_instance_of(view) for view in table.instances.values() if view.state in FAULT_STATES
        ),
        backend_down=frame.backend_down,
        unreachable=frame.cluster_unreachable,
        recently_lost_count=int(np.count_nonzero(_mask_recently_lost_agents(table, verdicts))),
        excess_agent_count=int(np.count_nonzero(_mask_excess_agents(table, verdicts))),
        drifted_agent_count=int(np.count_nonzero(_mask_off_majority_agents(table, verdicts))),
        drifted_instances=tuple(drifted_instances),
        versions={
            view.facts.id: (view.facts.name, view.facts.version)
            for view in table.instances.values()
            if view.facts.version
        },
        members_by_cause=group_instances(table.instances.values()),
        sick_since=sick_since_by_key(table, frame),
        clauses=_clauses_by_key(table, frame, {group.cause.key for group in affected_groups}),
        unreachable_since=_find_unknown_since(verdicts) if frame.cluster_unreachable else None,
        backend_down_since=frame.backend_down_since,
    )


def _clauses_by_key(table: FleetTable, frame: FleetFrame, keys: set[str]) -> dict[str, FailureClause]:
    """Return what failed, by key of the cause: of the failing instances, and of those with one of these keys."""
    clauses = {
        f"{CauseKind.AGENTS.value}/{reason.slug}": clause
        for reason in Reason
        if (clause := clause_of_reason(reason)) is not None
    }
    for view in table.instances.values():
        if view.state in FAULT_STATES or cause_of_instance(view).key in keys:
            clauses[cause_of_instance(view).key] = clause_of_instance(view)
    clauses[backend_cause_of(table.cluster).key] = (
        clause_of_backend(table) if frame.backend_down else PAST_BACKEND_CLAUSE
    )
    if frame.cluster_unreachable:
        clauses[cluster_cause_of(table.cluster).key] = CLUSTER_CLAUSE
    return clauses


def _find_unknown_since(verdicts: npt.NDArray[np.void]) -> float | None:
    """Return when the first of the agents in state unknown entered it."""
    times = verdicts["since"][(verdicts["state"] == State.UNKNOWN) & (verdicts["since"] > 0)]
    return float(times.min()) if len(times) else None


class AffectedAgents:
    """The affected agents of one table, sorted by cause once for many incidents."""

    def __init__(self, table: FleetTable) -> None:
        self._table = table
        affected = np.flatnonzero(np.isin(table.verdicts["state"], AFFECTED_STATES))
        cause_codes = cause_codes_of(table.verdicts, affected)
        order = np.argsort(cause_codes, kind="stable")
        distinct_codes, starts = np.unique(cause_codes[order], return_index=True)
        self._parts_by_key: dict[str, list[npt.NDArray[np.intp]]] = {}
        ends = [*starts[1:].tolist(), len(affected)]
        for cause_code, start, end in zip(distinct_codes.tolist(), starts.tolist(), ends, strict=False):
            key = cause_of_code(table, cause_code).key
            self._parts_by_key.setdefault(key, []).append(affected[order[start:end]])
        self._keys_by_joint_key = {
            cause.key: keys for cause, keys in group_instances(table.instances.values()).items()
        }

    def indices_of(self, cause_key: str) -> npt.NDArray[np.intp]:
        """Return the indices of the agents that the cause with this key affects."""
        table = self._table
        mask_of = _MASK_FUNCTION_OF_KEY.get(cause_key) or (
            _mask_counted_agents if cause_key == cluster_cause_of(table.cluster).key else None
        )
        if mask_of is not None:
            return np.flatnonzero(mask_of(table, table.verdicts))
        keys = self._keys_by_joint_key.get(cause_key, (cause_key,))
        parts = [part for key in keys for part in self._parts_by_key.get(key, ())]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.intp)


def affected_agents_of(table: FleetTable, cause_key: str) -> npt.NDArray[np.intp]:
    """Return the indices of the agents that the cause with this key affects now."""
    return AffectedAgents(table).indices_of(cause_key)


class AffectedGroupCache:
    """The affected agents by cause, kept while polls change nothing."""

    def __init__(self) -> None:
        self._mask_by_agent_set: Mapping[str, Mask] = {}
        self._verdicts: npt.NDArray[np.void] | None = None
        self._table_key: tuple[object, ...] = ()
        self._groups: tuple[AffectedGroup, ...] = ()

    def groups_of(
        self, table: FleetTable, verdicts: npt.NDArray[np.void], mask_by_agent_set: Mapping[str, Mask]
    ) -> tuple[AffectedGroup, ...]:
        """Return the affected agents of one table by cause. Within an epoch agents keep their index and name."""
        instances = (
            (index, view.facts.kind, view.facts.id, view.facts.name)
            for index, view in table.instances.items()
        )
        table_key = (table.cluster, table.epoch, len(table.names), *instances)
        if (
            self._verdicts is None
            or table_key != self._table_key
            or mask_by_agent_set is not self._mask_by_agent_set
            or not _are_equal_verdicts(verdicts, self._verdicts)
        ):
            self._groups = _group_affected_agents(table, verdicts, mask_by_agent_set)
            self._verdicts, self._table_key, self._mask_by_agent_set = verdicts, table_key, mask_by_agent_set
        return self._groups


def _are_equal_verdicts(verdicts: npt.NDArray[np.void], other_verdicts: npt.NDArray[np.void]) -> bool:
    """Return whether all columns are equal. Compares bytes, which is faster than numpy's column by column."""
    return len(verdicts) == len(other_verdicts) and np.array_equal(
        verdicts.view(np.uint8), other_verdicts.view(np.uint8)
    )


def _group_affected_agents(
    table: FleetTable, verdicts: npt.NDArray[np.void], mask_by_agent_set: Mapping[str, Mask]
) -> tuple[AffectedGroup, ...]:
    """Count agents by cause in one pass over the columns; `affected` is sorted by cause."""
    states = verdicts["state"]
    affected = np.flatnonzero(np.isin(states, AFFECTED_STATES))
    if not len(affected):
        return ()
    cause_codes = cause_codes_of(verdicts, affected)
    order = np.argsort(cause_codes, kind="stable")
    affected = affected[order]
    distinct_codes, group_starts = np.unique(cause_codes[order], return_index=True)
    is_stranded = states[affected] == State.STRANDED
    recovers_at = verdicts["recovers_at"][affected]
    since = np.where(verdicts["since"][affected] > 0, verdicts["since"][affected], np.inf)
    is_stuck = (
        verdicts["reason_and_recovery"][affected] >> RECOVERY_SHIFT
    ) == Recovery.ONLY_IF_CAUSE_RECOVERS

    def count_by_group(selected: Mask) -> list[int]:
        return cast("list[int]", np.add.reduceat(selected.astype(np.int64), group_starts).tolist())

    stranded_counts, group_sizes = (
        count_by_group(is_stranded),
        np.diff(group_starts, append=len(affected)).tolist(),
    )
    is_unpredicted = ~is_stuck & (recovers_at <= 0)
    recovers_at_by_group = np.where(
        np.logical_or.reduceat(is_unpredicted, group_starts)
        | (np.maximum.reduceat(recovers_at, group_starts) <= 0),
        np.nan,
        np.maximum.reduceat(recovers_at, group_starts),
    ).tolist()
    stranded_since, at_risk_since = (
        np.minimum.reduceat(np.where(selected, since, np.inf), group_starts)
        for selected in (is_stranded, ~is_stranded)
    )
    since_by_group = np.where(np.isinf(stranded_since), at_risk_since, stranded_since).tolist()
    stuck_counts = count_by_group(is_stuck)
    stranded_by_agent_set = {
        agent_set: count_by_group(mask[affected] & is_stranded)
        for agent_set, mask in mask_by_agent_set.items()
    }
    at_risk_by_agent_set = {
        agent_set: count_by_group(mask[affected] & ~is_stranded)
        for agent_set, mask in mask_by_agent_set.items()
    }
    return tuple(
        AffectedGroup(
            cause=cause_of_code(table, cause_code),
            stranded_count=stranded_counts[index],
            at_risk_count=group_sizes[index] - stranded_counts[index],
            stranded_by_agent_set={name: counts[index] for name, counts in stranded_by_agent_set.items()},
            at_risk_by_agent_set={name: counts[index] for name, counts in at_risk_by_agent_set.items()},
            agent_names=_select_agent_names(
                table,
                affected[start : start + group_sizes[index]],
                is_stranded[start : start + group_sizes[index]],
            ),
            recovers_at=None if math.isnan(recovers_at_by_group[index]) else recovers_at_by_group[index],
            is_stuck=bool(stuck_counts[index]),
            since=None if math.isinf(since_by_group[index]) else since_by_group[index],
        )
        for index, (cause_code, start) in enumerate(
            zip(distinct_codes.tolist(), group_starts.tolist(), strict=True)
        )
    )


def _select_agent_names(
    table: FleetTable, members: npt.NDArray[np.intp], is_stranded: Mask
) -> tuple[str, ...]:
    """Return the names of the first ten agents, stranded ones first."""
    first = members[:_MAX_AGENT_NAMES]
    if not is_stranded[:_MAX_AGENT_NAMES].all():
        first = np.concatenate(
            (members[is_stranded][:_MAX_AGENT_NAMES], members[~is_stranded][:_MAX_AGENT_NAMES])
        )[:_MAX_AGENT_NAMES]
    return tuple(table.names[index] for index in first.tolist())


def cause_codes_of(verdicts: npt.NDArray[np.void], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """Return the cause index of each agent, or 2^16 plus the reason for agents without a cause."""
    causes = verdicts["cause"][rows].astype(np.int64)
    reasons = (verdicts["reason_and_recovery"][rows] & REASON_BITS).astype(np.int64)
    return np.where(causes >= 0xFFFF, 0x10000 + reasons, causes)


def cause_of_code(table: FleetTable, cause_code: int) -> Cause:
    """Return the cause of agents with this code (`cause_codes_of`)."""
    if cause_code == BACKEND_CAUSE:
        return backend_cause_of(table.cluster)
    view = table.instances.get(cause_code)
    if view is not None:
        return cause_of_instance(view)
    reason = Reason(cause_code & REASON_BITS) if cause_code > 0xFFFF else Reason.NONE
    return Cause(CauseKind.AGENTS, reason.slug, f"agents without a common cause ({reason.slug})")


def _sick_instance_of(view: InstanceView) -> SickInstance:
    auth = view.facts.heartbeat_auth
    return SickInstance(
        cause_of_instance(view),
        view.sentence,
        view.agent_count,
        is_expired_only=view.state is InstanceState.EXPIRED and not auth,
        heartbeat_auth_key=f"{CauseKind.AUTH.value}/{auth}" if auth else "",
        root_cause_key=root_cause_key_of(view),
        is_recovering=is_instance_recovering(view),
    )


def sick_since_by_key(table: FleetTable, frame: FleetFrame) -> dict[str, float]:
    """Return the start of each failure by key of the cause; for backend and cluster the earliest possible time."""
    sick_since = {
        cause_of_instance(table.instances[index]).key: condition.since
        for index, condition in frame.conditions.items()
        if condition.is_sick and index in table.instances
    }
    # A poll may see the effect before the cause, by up to the time after which a source is stale.
    margin = frame.timing.stale_after
    if frame.backend_down_since is not None:
        sick_since[backend_cause_of(table.cluster).key] = frame.backend_down_since - margin
    if frame.cluster_unreachable:
        sick_since[cluster_cause_of(table.cluster).key] = frame.now - margin
    # Round as the database does, because a time may be compared with one that was read from a row.
    return {key: round(at, 6) for key, at in sick_since.items()}


def _mask_counted_agents(_: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Return the mask of agents that count as the fleet: neither retired nor never connected."""
    states = verdicts["state"]
    return cast("Mask", (states != State.RETIRED) & (states != State.NEVER))


def _mask_unknown_agents(_: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Return the mask of agents in state unknown."""
    return cast("Mask", verdicts["state"] == State.UNKNOWN)


def _mask_recently_lost_agents(table: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Return the mask of agents that became stranded, offline or at risk within the last minute."""
    is_lost = np.isin(verdicts["state"], LOST_OR_AT_RISK_STATES)
    return is_lost & (verdicts["since"] > (table.as_of or 0.0) - LOSS_RATE_SECONDS)


def _mask_excess_agents(_: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Return the mask of agents with excess tunnels."""
    return cast("Mask", verdicts["state"] == State.EXCESS)


def _mask_off_majority_agents(table: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Return the mask of agents whose reported reconnect mode or health check differs from the majority."""
    is_reporting = (table.heartbeats["mode"] > 0) & (verdicts["state"] != State.UNKNOWN)
    policies = table.heartbeats["mode"].astype(np.int64) * 2 + (table.heartbeats["flags"] & HEALTH_CHECK)
    if not is_reporting.any():
        return np.zeros(len(policies), np.bool_)
    return cast("Mask", is_reporting & (policies != np.bincount(policies[is_reporting]).argmax()))


#: Masks of the agents that incidents of the whole fleet count, by key.
_MASK_FUNCTION_OF_KEY: Mapping[str, Callable[[FleetTable, npt.NDArray[np.void]], Mask]] = {
    f"{CauseKind.FLEET.value}/rate": _mask_recently_lost_agents,
    f"{CauseKind.FLEET.value}/excess": _mask_excess_agents,
    f"{CauseKind.FLEET.value}/drift": _mask_off_majority_agents,
}
