"""The current causes of trouble in the fleet: those that incidents would have, with the states of their agents. Pure.

Pages list them in the words of incidents. docs/reference/alerts.md, "Inhibition".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleet.alerts.facts import (
    backend_cause_of,
    cause_of_instance,
    cluster_cause_of,
    group_instances,
    is_joint_failure,
    root_cause_key_of,
    sick_since_by_key,
)
from fleet.alerts.inhibition import CAUSE_KINDS_BY_STRENGTH, JOINT_KINDS
from fleet.monitoring.classify import prepare_frame
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import FAULT_STATES, InstanceKind, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State


@dataclass(frozen=True, slots=True)
class UninhibitedCause:
    """A cause that no stronger cause inhibits."""

    key: str
    #: A clause without a full stop: `proxy-1 does not answer`.
    description: str
    #: States of the agents that this cause affects; empty if it affects no agent.
    agent_states: frozenset[State] = frozenset()


def find_causes(table: FleetTable) -> tuple[UninhibitedCause, ...]:
    """Return the current causes, the strongest first, without those that a stronger cause inhibits.

    The last ones are instances that have no incident, but degrade agents: degraded and deregistered ones.
    """
    if table.as_of is None:
        return ()
    frame = prepare_frame(table.fleet, table.as_of)
    if frame.cluster_unreachable:
        cause = cluster_cause_of(table.cluster)
        return (
            UninhibitedCause(cause.key, "no instance of the cluster responds", frozenset({State.UNKNOWN})),
        )
    sick_views = [view for view in table.instances.values() if view.state in FAULT_STATES]
    sick_keys = {cause_of_instance(view).key for view in sick_views}
    inhibitor_by_key = {
        cause_of_instance(view).key: root_cause_key_of(view)
        for view in sick_views
        if root_cause_key_of(view) in sick_keys
    }
    sick_views = _drop_inhibited(sick_views, inhibitor_by_key)
    causes: list[UninhibitedCause] = []
    if frame.backend_down:
        sick_since = sick_since_by_key(table, frame)
        backend_cause = backend_cause_of(table.cluster)
        causes.append(UninhibitedCause(backend_cause.key, _describe_backend_failure(table)))
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
        sick_members = [view for view in sick_views if cause_of_instance(view).key in members_by_cause[cause]]
        if is_joint_failure(len(sick_members), len(members_by_cause[cause])):
            description = (
                f"{len(sick_members)} of {len(members_by_cause[cause])} instances of {cause.name} are failing"
            )
            causes.append(UninhibitedCause(cause.key, description))
            inhibitor_by_key |= {cause_of_instance(view).key: cause.key for view in sick_members}
            sick_views = _drop_inhibited(sick_views, inhibitor_by_key)
    inhibitor_by_key |= _find_inhibiting_auths(sick_views)
    causes += _find_instance_causes(_drop_inhibited(sick_views, inhibitor_by_key))
    states_by_key = _find_agent_states(table, inhibitor_by_key)
    return (
        *(replace(cause, agent_states=states_by_key.get(cause.key, frozenset())) for cause in causes),
        *_find_causes_without_incident(table, states_by_key),
    )


def _drop_inhibited(views: Sequence[InstanceView], inhibitor_by_key: Mapping[str, str]) -> list[InstanceView]:
    return [view for view in views if cause_of_instance(view).key not in inhibitor_by_key]


def _find_agent_states(table: FleetTable, inhibitor_by_key: Mapping[str, str]) -> dict[str, frozenset[State]]:
    """Return the states of the affected agents by key of the cause; an inhibited cause counts as its inhibitor."""
    verdicts = table.verdicts
    states_by_key: dict[str, set[State]] = {}
    pairs = np.unique(verdicts["cause"].astype(np.int64) << 8 | verdicts["state"]).tolist()
    for index, state in (divmod(pair, 1 << 8) for pair in pairs):
        view = table.instances.get(index)
        if index == BACKEND_CAUSE:
            key = backend_cause_of(table.cluster).key
        elif view is not None:
            key = cause_of_instance(view).key
        else:
            continue
        while key in inhibitor_by_key:
            key = inhibitor_by_key[key]
        states_by_key.setdefault(key, set()).add(State(state))
    return {key: frozenset(states) for key, states in states_by_key.items()}


def _find_causes_without_incident(
    table: FleetTable, states_by_key: Mapping[str, frozenset[State]]
) -> list[UninhibitedCause]:
    complaints_by_view = [
        (view, view.state.look.complaint if view.state is InstanceState.GONE else "is degraded")
        for view in table.instances.values()
        if view.state is InstanceState.GONE
        or (view.state not in FAULT_STATES and view.health is Health.DEGRADED)
    ]
    complaints_by_view.sort(key=lambda pair: _sort_key_of(pair[0]))
    return [
        UninhibitedCause(key, f"{view.facts.name} {complaint}", states_by_key[key])
        for view, complaint in complaints_by_view
        if (key := cause_of_instance(view).key) in states_by_key
    ]


def _describe_backend_failure(table: FleetTable) -> str:
    auths = [
        view
        for view in table.instances.values()
        if view.facts.kind is InstanceKind.AUTH and view.state is not InstanceState.GONE
    ]
    subject = "both auths" if len(auths) == 2 else f"all {len(auths)} auths"
    return f"{subject} failed at the same time, probably because of the auth backend"


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


def _find_instance_causes(sick_views: Sequence[InstanceView]) -> list[UninhibitedCause]:
    return [
        UninhibitedCause(cause_of_instance(view).key, f"{view.facts.name} {view.state.look.complaint}")
        for view in sorted(sick_views, key=_sort_key_of)
    ]


def _sort_key_of(view: InstanceView) -> tuple[InstanceKind, Any]:
    return view.facts.kind, natural_sort_key(view.facts.name)


def _is_proxy_without_auth(view: InstanceView) -> bool:
    return view.facts.kind is InstanceKind.PROXY and not view.facts.heartbeat_auth
