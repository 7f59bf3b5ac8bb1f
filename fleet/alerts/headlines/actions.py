"""Actions that help the agents of a cause or end its failure, and those that only prevent the next one. Pure.

The buttons of runbooks are these actions, too. docs/explanation/recovery.md has the mechanisms;
docs/reference/headline.md, "Actions", has the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt

from fleet.alerts.facts import cause_codes_of
from fleet.alerts.headlines.causes import ActiveCause, CauseAgents
from fleet.alerts.wording.failure_clauses import has_lost_backend
from fleet.monitoring.columns import HEALTH_CHECK
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.campaigns import ConnectionKind
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import CUT_OFF_STATES, FAULT_STATES, InstanceKind, InstanceState
from fleet.vocabulary.runbooks import RUNBOOK_BY_CAUSE_KIND, RunbookCause, runbook_path_of
from fleet.vocabulary.verdicts import AFFECTED_STATES

#: Permissions that actions need (fleet.models.access.Permission).
VIEW, ACT, CONFIGURE = "view_fleet", "act_on_fleet", "change_config"

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class HeadlineAction:
    """An action that a headline offers."""

    #: Verb and noun: `Reconnect agents of auth-1`.
    label: str
    #: Path of its page below the prefix of the cluster.
    path: str
    #: Codename of the permission that the page needs.
    permission: str = VIEW
    #: The page also opens as a dialog.
    is_dialog: bool = False


def _repair(subject: str, runbook: RunbookCause, instance_id: str = "") -> HeadlineAction:
    """Return the action that opens the runbook; with an instance, what is known of it, and how to repair it."""
    return HeadlineAction(f"Repair {subject}", runbook_path_of(runbook, instance_id=instance_id))


def _repair_instance(cause: ActiveCause) -> HeadlineAction:
    is_instance = cause.cause.kind in (CauseKind.AUTH, CauseKind.PROXY)
    return _repair(
        cause.cause.name,
        RUNBOOK_BY_CAUSE_KIND[cause.cause.kind],
        cause.cause.id if is_instance else "",
    )


#: What is broken in Refloat, and what to do.
OPEN_DATA_HEALTH = HeadlineAction("Open Data health", "/data-health/")
#: Refloat cannot see the fleet.
BLIND_ACTIONS = (
    OPEN_DATA_HEALTH,
    HeadlineAction("Check the pollers of Refloat", runbook_path_of(RunbookCause.CONSOLE)),
)
#: The preset *Failover on* of the policies.
TURN_ON_FAILOVER = HeadlineAction(
    "Turn on failover: agents leave an unhealthy auth",
    "/policy-presets/failover/",
    CONFIGURE,
    is_dialog=True,
)


def select_actions(
    table: FleetTable, cause: ActiveCause | None, recovery_group: CauseAgents | None
) -> tuple[HeadlineAction, ...]:
    """Return what helps the agents of a cause now; if all of them recover automatically, what ends the failure itself.

    `recovery_group`: those of them whose recovery is predicted.
    """
    if cause is None:
        return ()
    if recovery_group is not None and recovery_group.automatic_count == recovery_group.count:
        return (_repair_instance(cause),) if _is_failing(table, cause.cause) else ()
    affected = _affected_agents_of(table, cause)
    match cause.cause.kind:
        case CauseKind.CLUSTER:
            return (
                HeadlineAction(
                    "Check the network between Refloat and the cluster", runbook_path_of(RunbookCause.CLUSTER)
                ),
            )
        case CauseKind.BACKEND:
            auths = [view for view in table.instances.values() if _is_registered_auth(view)]
            return (
                _repair("the auth backend" if has_lost_backend(auths) else "the auths", RunbookCause.BACKEND),
            )
        case CauseKind.AUTH if can_move_off_auth(table, cause.cause, affected):
            return (move_off_auth(cause.cause.name),)
        case CauseKind.PROXY if can_move_off_proxy(table, cause.cause):
            return (move_off_proxy(cause.cause.name),)
        case CauseKind.AGENTS:
            query = urlencode([("state", state.slug) for state in AFFECTED_STATES if cause.count(state)])
            return (HeadlineAction("View the affected agents", f"/agents/?{query}"),) if query else ()
        case _:
            return (_repair_instance(cause),)


def select_preventions(table: FleetTable, cause: ActiveCause | None) -> tuple[HeadlineAction, ...]:
    """Return what prevents that the next failure affects agents.

    Agents read the policy of their auth connection when they connect, so it does not help those that are stuck now.
    """
    if cause is None or cause.cause.kind is not CauseKind.AUTH:
        return ()
    affected = _affected_agents_of(table, cause)
    modes, flags = table.heartbeats["mode"][affected], table.heartbeats["flags"][affected]
    keeps_connection = (modes == ReconnectMode.PICK_FIRST) | (
        (modes == ReconnectMode.RECONNECT) & ((flags & HEALTH_CHECK) == 0)
    )
    return (TURN_ON_FAILOVER,) if keeps_connection.any() else ()


def _is_failing(table: FleetTable, cause: Cause) -> bool:
    """Return whether the cause is an instance with a fault, which it still has."""
    return cause.kind in (CauseKind.AUTH, CauseKind.PROXY) and any(
        view.facts.id == cause.id and view.state in FAULT_STATES for view in table.instances.values()
    )


def move_off_auth(name: str) -> HeadlineAction:
    """Return the campaign that moves the auth connections of agents to another auth."""
    query = urlencode({"connection": ConnectionKind.AUTH.value, "auth": name})
    return HeadlineAction(f"Reconnect agents of {name}", f"/reconnect/?{query}", ACT)


def move_off_proxy(name: str) -> HeadlineAction:
    """Return the campaign that moves the tunnels of agents to another proxy."""
    return HeadlineAction(f"Reconnect agents of {name}", f"/reconnect/?{urlencode({'proxy': name})}", ACT)


def take_out_of_service(name: str, instance_id: str) -> HeadlineAction:
    """Return the form that drains an instance and moves its agents."""
    return HeadlineAction(f"Take {name} out of service", _service_path_of(instance_id), ACT, is_dialog=True)


def bring_back_into_service(name: str, instance_id: str) -> HeadlineAction:
    """Return the form that lets a drained instance accept new connections again."""
    return HeadlineAction(
        f"Bring {name} back into service", _service_path_of(instance_id), ACT, is_dialog=True
    )


def _service_path_of(instance_id: str) -> str:
    return f"/instances/{quote(instance_id, safe='')}/service/"


def can_move_off_auth(table: FleetTable, cause: Cause, agents: Indices) -> bool:
    """Return whether a campaign can move any of these agents: another auth is OK, and a tunnel carries the advice."""
    return has_other_auth(table, cause) and has_reachable_tunnel(table, agents)


def has_other_auth(table: FleetTable, cause: Cause) -> bool:
    """Return whether an auth other than the cause is OK."""
    return any(
        _is_registered_auth(view) and view.facts.id != cause.id and view.state is InstanceState.OK
        for view in table.instances.values()
    )


def can_move_off_proxy(table: FleetTable, cause: Cause) -> bool:
    """Return whether agents can leave a proxy: another proxy is OK, and this one responds, because it advises them."""
    proxies = [view for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY]
    is_reachable = any(
        view.facts.id == cause.id and view.state not in CUT_OFF_STATES and view.agent_count
        for view in proxies
    )
    return is_reachable and any(
        view.facts.id != cause.id and view.state is InstanceState.OK for view in proxies
    )


def has_reachable_tunnel(table: FleetTable, agents: Indices) -> bool:
    """Return whether any of these agents has a tunnel to a proxy that responds and is registered."""
    proxies = [
        index
        for index, view in table.instances.items()
        if view.facts.kind is InstanceKind.PROXY and view.state not in CUT_OFF_STATES
    ]
    reachable = table.tunnel_agents[np.isin(table.tunnel_proxies, proxies)]
    return bool(np.isin(agents, reachable).any())


def _affected_agents_of(table: FleetTable, cause: ActiveCause) -> Indices:
    """Return the indices of the agents that the cause strands or puts at risk."""
    affected = np.flatnonzero(np.isin(table.verdicts["state"], AFFECTED_STATES))
    return affected[np.isin(cause_codes_of(table.verdicts, affected), list(cause.codes))]


def _is_registered_auth(view: InstanceView) -> bool:
    return view.facts.kind is InstanceKind.AUTH and view.state is not InstanceState.GONE
