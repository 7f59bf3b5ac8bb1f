"""The buttons of a runbook's remedies: each an action of `headlines.actions`, or why there is none. Pure.

docs/reference/alerts.md, "Runbooks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import numpy as np

from fleet.alerts.headlines.actions import (
    ACT,
    CONFIGURE,
    OPEN_DATA_HEALTH,
    TURN_ON_FAILOVER,
    HeadlineAction,
    bring_back_into_service,
    can_move_off_proxy,
    has_other_auth,
    has_reachable_tunnel,
    move_off_auth,
    move_off_proxy,
    take_out_of_service,
)
from fleet.alerts.instance_causes import cause_of_instance
from fleet.alerts.matchers import Matcher, escape_name, format_matchers
from fleet.alerts.notifications import agents_path
from fleet.alerts.runbooks.texts import RUNBOOKS, Remedy, RemedyAction
from fleet.monitoring.last_tunnels import describe_unreachable_agents, find_proxy_agents, is_responding
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import SICK_STATES, InstanceKind, InstanceState
from fleet.vocabulary.runbooks import RunbookCause
from fleet.vocabulary.verdicts import AFFECTED_STATES, State


@dataclass(frozen=True, slots=True)
class RemedyScope:
    """What the buttons act on: an incident, an instance, or neither, where they lead to a choice."""

    #: Cause of the incident, or of the incidents of the instance.
    cause: Cause | None = None
    #: Number of the incident in URLs; None without one.
    incident_number: int | None = None
    is_resolved: bool = False
    #: Agents that the incident affects now; None without an incident, or while the data is old.
    affected_count: int | None = None
    #: The instance of the cause, and the newest round; None if not known.
    instance: InstanceView | None = None
    table: FleetTable | None = None
    #: The last request of an operator drained the instance; it may not report that it drains yet.
    is_drain_requested: bool = False
    #: Names of the failing instances of a cause that is not one instance.
    failing_names: tuple[str, ...] = ()
    #: Version that sets the affected agents apart; empty without one.
    agent_version: str = ""
    #: Targets of desired policies: id and name of the instances that do not match theirs.
    drifted_instances: tuple[tuple[str, str], ...] = ()
    #: Number of the newest change of policies or the networking config that can be undone; None without one.
    undoable_change: int | None = None
    #: Moment before the incident to compare with, as in URLs; empty: the page suggests one.
    compare_at: str = ""


@dataclass(frozen=True, slots=True)
class RemedyButton:
    """A remedy with its button, or why it has none now."""

    remedy: Remedy
    action: HeadlineAction | None = None
    #: Why the action is not possible, as a sentence; empty if it is, or if Refloat cannot carry out the remedy.
    refusal: str = ""
    #: Why the action has no effect yet, as a sentence; empty if it has. Such a button never stands out.
    delay_reason: str = ""


def find_buttons(runbook: RunbookCause, scope: RemedyScope) -> tuple[RemedyButton, ...]:
    """Return the remedies of a runbook in order, with their buttons."""
    return tuple(_find_button(remedy, runbook, scope) for remedy in RUNBOOKS[runbook].remedies)


def find_main_button(buttons: Iterable[RemedyButton], scope: RemedyScope) -> RemedyButton | None:
    """Return the button that helps most, the first one; None if nothing needs help.

    Of an instance that is not failing, only to bring it back into service.
    """
    view = scope.instance
    is_failing = view is None or view.state in SICK_STATES
    is_drained = view is not None and (view.drain_request is not None or scope.is_drain_requested)
    return next(
        (
            button
            for button in buttons
            if button.action is not None
            and not button.delay_reason
            and (is_failing or (is_drained and button.remedy.action is RemedyAction.CHANGE_SERVICE))
        ),
        None,
    )


def _find_button(remedy: Remedy, runbook: RunbookCause, scope: RemedyScope) -> RemedyButton:
    if remedy.action is None:
        return RemedyButton(remedy)
    action = _FINDERS[remedy.action](runbook, scope)
    if isinstance(action, str):
        return RemedyButton(remedy, refusal=action)
    is_service_change = remedy.action is RemedyAction.CHANGE_SERVICE
    return RemedyButton(
        remedy, action, delay_reason=_describe_drain_delay(scope) if is_service_change else ""
    )


def _describe_drain_delay(scope: RemedyScope) -> str:
    """Return why an instance cannot be taken out of service at once; empty if it can, or is out of service."""
    view = scope.instance
    if view is None or view.drain_request is not None or scope.is_drain_requested or is_responding(view):
        return ""
    return f"{view.facts.name} is not responding: a drain begins as soon as it responds."


def _find_move(runbook: RunbookCause, scope: RemedyScope) -> HeadlineAction | str:
    view = scope.instance
    if view is None or scope.table is None:
        if agent_filter := _agent_filter_of(scope):
            return HeadlineAction(
                "Reconnect affected agents", f"/reconnect/?{urlencode({'q': agent_filter})}", ACT
            )
        query = "?connection=auth" if runbook is RunbookCause.AUTH else ""
        return HeadlineAction("Choose agents to move", f"/reconnect/{query}", ACT)
    if view.facts.kind is InstanceKind.AUTH:
        refusal = find_auth_refusal(scope.table, view)
        return refusal or move_off_auth(view.facts.name)
    refusal = find_proxy_refusal(scope.table, view)
    return refusal or move_off_proxy(view.facts.name)


def _agent_filter_of(scope: RemedyScope) -> str:
    """Return the filter of the affected agents of an incident, in the language of lists; empty: it cannot say."""
    if scope.agent_version:
        return _format_term("version", scope.agent_version)
    if scope.failing_names:
        return " ".join(_format_term("cause", name) for name in scope.failing_names)
    is_of_agents = scope.cause is not None and scope.cause.kind is CauseKind.AGENTS
    return " ".join(f"state:{state.slug}" for state in AFFECTED_STATES) if is_of_agents else ""


def _format_term(key: str, value: str) -> str:
    return f'"{key}:{value}"' if " " in value else f"{key}:{value}"


def find_auth_refusal(table: FleetTable, view: InstanceView) -> str:
    """Return why no campaign can move the agents of an auth, as a sentence; empty if one can."""
    name, cause = view.facts.name, cause_of_instance(view)
    agents = np.flatnonzero(table.memory["last_auth"] == view.facts.index)
    if not len(agents):
        return f"{name} has no agents to move."
    if not has_other_auth(table, cause):
        return f"Refloat cannot move the agents of {name}: no other auth is OK. Repair {name}."
    if not has_reachable_tunnel(table, agents):
        return f"Refloat cannot move the agents of {name}: none of them has a reachable tunnel."
    return ""


def find_proxy_refusal(table: FleetTable, view: InstanceView) -> str:
    """Return why no campaign can move the agents of a proxy, as a sentence; empty if one can."""
    name = view.facts.name
    if view.state is InstanceState.SILENT:
        agents = find_proxy_agents(table, view)
        return describe_unreachable_agents(name, len(agents.remaining_agents), len(agents.moved_agents))
    if not view.agent_count:
        return f"{name} has no agents to move."
    if not can_move_off_proxy(table, cause_of_instance(view)):
        return f"Refloat cannot move the agents of {name}: no other proxy is OK. Repair {name}."
    return ""


def _find_service_change(_: RunbookCause, scope: RemedyScope) -> HeadlineAction | str:
    view = scope.instance
    if view is None:
        return HeadlineAction("Choose an instance", _INSTANCES_PATH, ACT)
    if view.state is InstanceState.GONE:
        return f"{view.facts.name} was deregistered: it is out of service."
    if view.drain_request is not None or scope.is_drain_requested:
        return bring_back_into_service(view.facts.name, view.facts.id)
    return take_out_of_service(view.facts.name, view.facts.id)


def _find_failover(_runbook: RunbookCause, _scope: RemedyScope) -> HeadlineAction:
    return TURN_ON_FAILOVER


def _find_affected(runbook: RunbookCause, scope: RemedyScope) -> HeadlineAction | str:
    if runbook is RunbookCause.EXCESS:
        return HeadlineAction("View agents with excess tunnels", f"/agents/?state={State.EXCESS.slug}")
    if scope.affected_count == 0:
        return "No agents are affected now."
    if scope.agent_version:
        query = urlencode({"q": _format_term("version", scope.agent_version)})
        return HeadlineAction(f"View agents with version {scope.agent_version}", f"/agents/?{query}")
    cause = scope.cause or Cause(CauseKind.AGENTS, "", "")
    return HeadlineAction("View affected agents", agents_path(cause))


def _find_instances(_runbook: RunbookCause, _scope: RemedyScope) -> HeadlineAction:
    return HeadlineAction("View all auths and proxies", _INSTANCES_PATH)


def _find_comparison(_: RunbookCause, scope: RemedyScope) -> HeadlineAction:
    query = f"?{urlencode({'a': scope.compare_at})}" if scope.compare_at else ""
    label = "Compare with the time before" if query else "Compare two moments"
    return HeadlineAction(label, f"/history/compare/{query}")


def _find_drift(_runbook: RunbookCause, _scope: RemedyScope) -> HeadlineAction:
    return HeadlineAction("View differences", "/policies/?drift=1")


def _find_rollout(_: RunbookCause, scope: RemedyScope) -> HeadlineAction:
    if len(scope.drifted_instances) == 1:
        ((instance_id, name),) = scope.drifted_instances
        return HeadlineAction(f"Roll out to {name}", f"/policies/{quote(instance_id, safe='')}/", CONFIGURE)
    return HeadlineAction("Choose instances to roll out to", "/policies/?drift=1", CONFIGURE)


def _find_undo(_: RunbookCause, scope: RemedyScope) -> HeadlineAction | str:
    if scope.undoable_change is None:
        return "No change of policies or of the networking config can be undone now."
    number = scope.undoable_change
    return HeadlineAction(f"Review and undo change {number}", f"/changes/{number}/", CONFIGURE)


def _find_closing(_runbook: RunbookCause, _scope: RemedyScope) -> HeadlineAction:
    return HeadlineAction("Open networking config", "/networking/", CONFIGURE)


def _find_data_health(_runbook: RunbookCause, _scope: RemedyScope) -> HeadlineAction:
    return OPEN_DATA_HEALTH


def _find_test(_runbook: RunbookCause, _scope: RemedyScope) -> HeadlineAction:
    return HeadlineAction("Choose a channel to test", "/alerts/channels/", CONFIGURE)


def _find_silence(_: RunbookCause, scope: RemedyScope) -> HeadlineAction | str:
    if scope.is_resolved:
        return "The incident is resolved and sends no notifications, so it needs no silence."
    if scope.incident_number is not None:
        return HeadlineAction(
            f"Silence incident {scope.incident_number}",
            f"/incidents/{scope.incident_number}/silence/",
            ACT,
            is_dialog=True,
        )
    if scope.cause is None:
        return HeadlineAction("Create a silence", "/silences/new/", ACT, is_dialog=True)
    query = urlencode({"matchers": format_matchers([Matcher("cause", escape_name(scope.cause.key))])})
    return HeadlineAction(f"Silence {scope.cause.name}", f"/silences/new/?{query}", ACT, is_dialog=True)


_INSTANCES_PATH = "/#instances"
_FINDERS: Mapping[RemedyAction, Callable[[RunbookCause, RemedyScope], HeadlineAction | str]] = {
    RemedyAction.MOVE_AGENTS: _find_move,
    RemedyAction.CHANGE_SERVICE: _find_service_change,
    RemedyAction.TURN_ON_FAILOVER: _find_failover,
    RemedyAction.VIEW_AFFECTED: _find_affected,
    RemedyAction.VIEW_INSTANCES: _find_instances,
    RemedyAction.COMPARE_MOMENTS: _find_comparison,
    RemedyAction.VIEW_DRIFT: _find_drift,
    RemedyAction.ROLL_OUT: _find_rollout,
    RemedyAction.UNDO_CHANGE: _find_undo,
    RemedyAction.ENABLE_CLOSING: _find_closing,
    RemedyAction.OPEN_DATA_HEALTH: _find_data_health,
    RemedyAction.TEST_CHANNELS: _find_test,
    RemedyAction.SILENCE: _find_silence,
}
