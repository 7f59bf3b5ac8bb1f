"""The report of an agent, requested through its tunnel, as pages and API show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from fleet.monitoring.agent_report import AgentReport, AgentReportResponse
from fleet.monitoring.views import Explanation, InstanceView
from fleet.protocol.durations import format_readable
from fleet.vocabulary.natural_order import natural_sort_key

_DEFAULT_DELAY_TEXT = "after 2 s to 3 s (Teleport default)"


@dataclass(frozen=True, slots=True)
class ReportedProxy:
    """A proxy that the agent knows, or has a tunnel to."""

    id: str
    name: str
    group: str
    generation: int
    #: The agent wants a tunnel to the proxy: it has the newest generation of its group.
    is_desired: bool
    #: The agent has a tunnel to the proxy.
    is_claimed: bool
    #: When the agent's tracker removes the proxy, unless the proxy is announced again, as of the report; None if it is
    #: removed already.
    expires_at: datetime | None
    #: When the tunnel was opened, its user connections, and whether it closes after they have ended.
    opened_at: datetime | None = None
    opened_age_ms: int | None = None
    sessions: int = 0
    is_retired: bool = False
    #: The proxy accepts no new tunnels.
    is_draining: bool = False
    #: The agent gives up its tunnel; the proxy requested a reconnect.
    is_leaving: bool = False
    reconnect_requested: bool = False


@dataclass(frozen=True, slots=True)
class AuthReconnectSettings:
    """Settings of an agent for reconnecting to an auth, in seconds."""

    #: Maximum wait before the first connection attempt to another auth; None: 2 s to 3 s, as in Teleport.
    initial_delay_seconds: float | None
    #: Time after which RPCs on the old connection are cancelled; None: never.
    drain_timeout_seconds: float | None
    #: Interval of planned reconnects; None: never.
    interval_seconds: float | None

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The settings as (label, value)."""
        initial_delay_text = (
            _DEFAULT_DELAY_TEXT
            if self.initial_delay_seconds is None
            else f"within {format_readable(self.initial_delay_seconds)}"
        )
        drain_timeout_text = (
            "none" if self.drain_timeout_seconds is None else format_readable(self.drain_timeout_seconds)
        )
        interval_text = (
            "never" if self.interval_seconds is None else f"every {format_readable(self.interval_seconds)}"
        )
        return (
            ("First connection attempt after leaving an auth", initial_delay_text),
            ("Timeout of RPCs on the old auth connection", drain_timeout_text),
            ("Planned reconnect to an auth", interval_text),
        )


@dataclass(frozen=True, slots=True)
class AgentReportView:
    """The last report of an agent, or why it did not send one."""

    requested_at: datetime | None
    requested_age_ms: int | None
    #: Name and id of the proxy through which the report was requested.
    via_proxy: str
    via_proxy_id: str
    #: Why the agent did not answer; empty if it did.
    error: str
    version: str = ""
    desired_count: int = 0
    dials_in_progress: int = 0
    services: tuple[str, ...] = ()
    proxies: tuple[ReportedProxy, ...] = ()
    #: None if the agent does not report it.
    auth_reconnect: AuthReconnectSettings | None = None


def present_agent_report(explanation: Explanation, now: float) -> AgentReportView | None:
    """Return the newest report for pages and API; None if none was requested recently."""
    response = explanation.agent_report_response
    if response is None:
        return None
    proxy = explanation.instances.get(response.proxy)
    report = response.report
    return AgentReportView(
        requested_at=to_moment_or_none(response.requested_at),
        requested_age_ms=age_ms_of(response.requested_at, now),
        via_proxy="a proxy" if proxy is None else proxy.facts.name,
        via_proxy_id="" if proxy is None else proxy.facts.id,
        error=response.error,
        version=report.version if report else "",
        desired_count=report.tracker.desired_count if report else 0,
        dials_in_progress=report.tracker.inflight if report else 0,
        services=report.services if report else (),
        proxies=_reported_proxies_of(response, report, explanation.instances, now) if report else (),
        auth_reconnect=_auth_reconnect_of(report),
    )


def _auth_reconnect_of(report: AgentReport | None) -> AuthReconnectSettings | None:
    settings = report.auth_reconnect if report else None
    if settings is None:
        return None
    return AuthReconnectSettings(
        initial_delay_seconds=_to_seconds(settings.first_wait_ms),
        drain_timeout_seconds=_to_seconds(settings.drain_timeout_ms),
        interval_seconds=_to_seconds(settings.every_ms),
    )


def _to_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _reported_proxies_of(
    response: AgentReportResponse, report: AgentReport, instances: Mapping[int, InstanceView], now: float
) -> tuple[ReportedProxy, ...]:
    names = {view.facts.id: view.facts.name for view in instances.values()}
    tracked_by_id = {proxy.proxy_id: proxy for proxy in report.tracker.proxies}
    tunnels_by_proxy_id = {tunnel.proxy_id: tunnel for tunnel in report.tunnels}
    leaving_proxy_ids = {*report.tracker.leaving_proxies, *report.tracker.departing_proxies}
    proxies = []
    for proxy_id in {**tracked_by_id, **dict.fromkeys(report.tracker.claimed_proxies), **tunnels_by_proxy_id}:
        proxy, tunnel = tracked_by_id.get(proxy_id), tunnels_by_proxy_id.get(proxy_id)
        expires_at = response.requested_at + proxy.expires_in_ms / 1000 if proxy else None
        opened_at = (
            response.requested_at - tunnel.open_for_ms / 1000 if tunnel and tunnel.open_for_ms else None
        )
        proxies.append(
            ReportedProxy(
                id=proxy_id,
                name=names.get(proxy_id, proxy_id),
                group=proxy.group if proxy else "",
                generation=proxy.generation if proxy else 0,
                is_desired=proxy.is_desired if proxy else False,
                is_claimed=proxy_id in report.tracker.claimed_proxies,
                expires_at=to_moment_or_none(expires_at),
                opened_at=to_moment_or_none(opened_at),
                opened_age_ms=age_ms_of(opened_at, now),
                sessions=tunnel.sessions if tunnel else 0,
                is_retired=tunnel.is_retired if tunnel else False,
                is_draining=proxy.is_draining if proxy else False,
                is_leaving=proxy_id in leaving_proxy_ids,
                reconnect_requested=tunnel.is_advised if tunnel else False,
            )
        )
    return tuple(sorted(proxies, key=lambda proxy: (not proxy.is_claimed, natural_sort_key(proxy.name))))
