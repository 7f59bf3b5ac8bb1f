"""Connections of one agent, drawn on its page: its proxies and its auth, with what each side reports. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dashboards.fleet.agent_report import AgentReportView, ReportedProxy
from dashboards.shared.instance_states import ShownInstanceState, shown_state_of
from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from fleet.models.moments import to_seconds
from fleet.monitoring.views import Explanation, InstanceView
from fleet.vocabulary.instances import CUT_OFF_STATES
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import State

#: Proxies without a tunnel that are drawn; the agent's report lists all of them.
_MAX_UNCONNECTED_COUNT = 6


class Line(StrEnum):
    """How a connection is drawn. The members are in the order of the drawing."""

    #: The other end reports it, and responds.
    LIVE = "live"
    #: Only the agent reports it.
    ONE_SIDED = "one-sided"
    #: As last reported: the other end does not respond, or the heartbeat has expired.
    PAST = "past"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class AgentPath:
    """A connection between the agent and a proxy or an auth, or the lack of one."""

    #: Id and name of the instance; an instance that Refloat does not know has no state.
    id: str
    name: str
    shown_state: ShownInstanceState | None
    #: Why the instance is not OK, as a sentence; empty when it is.
    problem: str
    line: Line
    #: What it is: `Tunnel`, `No tunnel`.
    title: str
    #: What the instance and the agent report; empty if they report nothing of it.
    instance_report: str
    agent_report: str
    #: When it was opened, as the instance reports it.
    opened_at: datetime | None = None
    opened_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AgentPaths:
    """The drawing. Without tunnels of the cluster's source, `proxies` is empty."""

    proxies: tuple[AgentPath, ...]
    #: Proxies that the agent knows and that are not drawn.
    more_proxy_count: int
    #: None: the product has no auths.
    auth: AgentPath | None


def find_agent_paths(
    explanation: Explanation, report: AgentReportView | None, now: float, *, has_auths: bool
) -> AgentPaths:
    """Return the connections of an agent as both sides report them.

    report: the agent's own report, None without one; has_auths: whether agents of the product have an auth.
    """
    answer = None if report is None or report.error else report
    paths = sorted(
        _list_proxy_paths(explanation, answer, now),
        key=lambda path: (list(Line).index(path.line), natural_sort_key(path.name)),
    )
    connected_paths = [path for path in paths if path.line is not Line.NONE]
    unconnected_paths = paths[len(connected_paths) :]
    return AgentPaths(
        proxies=(*connected_paths, *unconnected_paths[:_MAX_UNCONNECTED_COUNT]),
        more_proxy_count=max(len(unconnected_paths) - _MAX_UNCONNECTED_COUNT, 0),
        auth=_auth_path_of(explanation, now) if has_auths else None,
    )


def _list_proxy_paths(
    explanation: Explanation, report: AgentReportView | None, now: float
) -> list[AgentPath]:
    """Return a path for each proxy that either side names, in no order."""
    views_by_id = {view.facts.id: view for view in explanation.instances.values()}
    tunnels = {
        explanation.instances[index].facts.id: explanation.opened_at_by_proxy.get(index)
        for index in explanation.evidence.tunnels
        if index in explanation.instances
    }
    reported_by_id = {proxy.id: proxy for proxy in report.proxies} if report else {}
    # Without a tunnel, the proxies that had one show where to look.
    last_ids = (
        []
        if tunnels
        else [
            explanation.instances[index].facts.id
            for index in explanation.evidence.last_proxies
            if index in explanation.instances
        ]
    )
    return [
        _proxy_path_of(
            id_,
            views_by_id.get(id_),
            reported_by_id.get(id_),
            has_tunnel=id_ in tunnels,
            opened_at=tunnels.get(id_),
            had_tunnel=id_ in last_ids,
            report=report,
            stranding_id=explanation.view.verdict.cause if explanation.view.state is State.STRANDED else "",
            now=now,
        )
        for id_ in dict.fromkeys((*tunnels, *last_ids, *reported_by_id))
    ]


def _proxy_path_of(
    id_: str,
    view: InstanceView | None,
    reported_proxy: ReportedProxy | None,
    *,
    has_tunnel: bool,
    opened_at: float | None,
    had_tunnel: bool,
    report: AgentReportView | None,
    stranding_id: str,
    now: float,
) -> AgentPath:
    is_claimed = reported_proxy is not None and reported_proxy.is_claimed
    responds = view is not None and view.state not in CUT_OFF_STATES
    if has_tunnel and responds:
        line, title, instance_report = Line.LIVE, "Tunnel", "The proxy reports it"
    elif has_tunnel or had_tunnel:
        line, title = (Line.ONE_SIDED if is_claimed else Line.PAST), "Last known tunnel"
        instance_report = (
            "The proxy reports it no more"
            if responds
            else "The proxy reported it before it stopped responding"
        )
    elif is_claimed:
        line, title, instance_report = Line.ONE_SIDED, "Tunnel", "The proxy does not report it"
    else:
        line, title, instance_report = Line.NONE, "No tunnel", ""
    return AgentPath(
        id=id_,
        name=view.facts.name if view else reported_proxy.name if reported_proxy else id_,
        shown_state=None if view is None else shown_state_of(view, is_stranding=id_ == stranding_id),
        problem="" if view is None else view.sentence or view.health_sentence,
        line=line,
        title=title,
        instance_report=instance_report,
        agent_report=_describe_agent_side(reported_proxy, report, opened_at),
        opened_at=to_moment_or_none(opened_at),
        opened_age_ms=age_ms_of(opened_at, now),
    )


def _describe_agent_side(
    reported_proxy: ReportedProxy | None, report: AgentReportView | None, opened_at: float | None
) -> str:
    """Return what the agent's own report says of its tunnel to a proxy; empty without a report."""
    if report is None:
        return ""
    if opened_at is not None and report.requested_at is not None:
        is_newer = opened_at > to_seconds(report.requested_at)
        if is_newer and (reported_proxy is None or not reported_proxy.is_claimed):
            return "it is newer than the agent's last report"
    if reported_proxy is None:
        return "the agent does not know the proxy"
    if not reported_proxy.is_claimed:
        return (
            "the agent has none"
            if reported_proxy.is_desired
            else "the agent wants none: the proxy has an old generation"
            if not reported_proxy.is_draining
            else "the agent wants none: the proxy is draining"
        )
    if reported_proxy.is_retired:
        return "the agent closes it when its user connections have ended"
    return "the agent gives it up" if reported_proxy.is_leaving else "the agent reports it"


def _auth_path_of(explanation: Explanation, now: float) -> AgentPath | None:
    """Return the connection to the auth that lists the agent, or did last; None if there was none."""
    evidence = explanation.evidence
    heartbeat = evidence.heartbeat
    index = evidence.last_auth if heartbeat is None else heartbeat.auth
    view = None if index is None else explanation.instances.get(index)
    if view is None:
        return None
    responds = view.state not in CUT_OFF_STATES
    # Of past moments no heartbeat is kept, only the auth.
    expires_at = explanation.view.expires_at if heartbeat is None else heartbeat.expires_at
    is_current = explanation.view.auth == view.facts.id and (expires_at is None or expires_at > now)
    if not responds:
        instance_report = "The auth listed the agent before it stopped responding"
    else:
        instance_report = "The auth lists the agent" if is_current else "The heartbeat has expired"
    via_view = (
        None
        if heartbeat is None or heartbeat.via_proxy is None
        else explanation.instances.get(heartbeat.via_proxy)
    )
    is_cause = explanation.view.state is State.STRANDED and explanation.view.verdict.cause == view.facts.id
    return AgentPath(
        id=view.facts.id,
        name=view.facts.name,
        shown_state=shown_state_of(view, is_stranding=is_cause),
        problem=view.sentence or view.health_sentence,
        line=Line.LIVE if is_current and responds else Line.PAST,
        title="Heartbeat" if via_view is None else f"Heartbeat through {via_view.facts.name}",
        instance_report=instance_report,
        agent_report="",
    )
