"""What an agent said of itself when it was asked through its tunnel, as pages and API show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dashboards.shared.presenters import age_ms, moment
from fleet.monitoring.agent_report import AgentReport, AgentReportResponse
from fleet.monitoring.views import Explanation, InstanceView
from fleet.protocol.durations import format_seconds
from fleet.vocabulary.naming import natural_sort_key

_UPSTREAM = "after 2 s to 3 s, as Teleport waits"


@dataclass(frozen=True, slots=True)
class ReportedProxy:
    """A proxy that the agent knows, or holds a tunnel to."""

    id: str
    name: str
    group: str
    generation: int
    #: It wants a tunnel there: the newest generation of its group.
    desired: bool
    #: It has one there.
    claimed: bool
    #: When its tracker forgets the proxy, unless it hears of it again; None for one it knows no more.
    expires_at: datetime | None
    expires_ms: int | None
    #: Of its tunnel there: since when, user connections, and whether it closes when those have ended.
    opened_at: datetime | None = None
    opened_ms: int | None = None
    sessions: int = 0
    retired: bool = False
    #: The proxy takes no new tunnels.
    draining: bool = False
    #: The agent lets its tunnel go, and was asked to by the proxy.
    leaving: bool = False
    advised: bool = False


@dataclass(frozen=True, slots=True)
class AuthReconnect:
    """When an agent moves its auth connection."""

    #: From an unhealthy auth to the first attempt at another, at most; None: 2 s to 3 s, as Teleport waits.
    first_wait_seconds: float | None
    #: RPCs on a connection that was left end by force after this; None: never.
    drain_timeout_seconds: float | None
    #: It moves to a new connection this often; None: never.
    every_seconds: float | None

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The settings as words and values."""
        first_attempt = (
            _UPSTREAM
            if self.first_wait_seconds is None
            else f"within {format_seconds(self.first_wait_seconds)}"
        )
        timeout = (
            "no limit" if self.drain_timeout_seconds is None else format_seconds(self.drain_timeout_seconds)
        )
        interval = "never" if self.every_seconds is None else f"every {format_seconds(self.every_seconds)}"
        return (
            ("First attempt at another auth", first_attempt),
            ("RPCs on an auth connection that was left", timeout),
            ("New auth connection", interval),
        )


@dataclass(frozen=True, slots=True)
class AgentReportView:
    """What came of asking."""

    at: datetime | None
    at_ms: int | None
    #: Name and id of the proxy it was asked through.
    through: str
    through_id: str
    #: Why it did not answer; empty when it did.
    error: str
    version: str = ""
    desired: int = 0
    #: Dials under way.
    dials: int = 0
    services: tuple[str, ...] = ()
    proxies: tuple[ReportedProxy, ...] = ()
    #: None of an agent that does not say.
    auth_reconnect: AuthReconnect | None = None


def present_agent_report(explanation: Explanation, now: float) -> AgentReportView | None:
    """Present the newest answer; None when the agent was not asked lately."""
    response = explanation.report_response
    if response is None:
        return None
    proxy = explanation.instances.get(response.proxy)
    report = response.report
    return AgentReportView(
        at=moment(response.at),
        at_ms=age_ms(response.at, now),
        through="a proxy" if proxy is None else proxy.facts.name,
        through_id="" if proxy is None else proxy.facts.id,
        error=response.error,
        version=report.version if report else "",
        desired=report.tracker.desired_count if report else 0,
        dials=report.tracker.inflight if report else 0,
        services=report.services if report else (),
        proxies=_proxies(response, report, explanation.instances, now) if report else (),
        auth_reconnect=_auth_reconnect(report),
    )


def _auth_reconnect(report: AgentReport | None) -> AuthReconnect | None:
    settings = report.auth_reconnect if report else None
    if settings is None:
        return None
    return AuthReconnect(
        first_wait_seconds=_seconds(settings.first_wait_ms),
        drain_timeout_seconds=_seconds(settings.drain_timeout_ms),
        every_seconds=_seconds(settings.every_ms),
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _proxies(
    response: AgentReportResponse, report: AgentReport, instances: Mapping[int, InstanceView], now: float
) -> tuple[ReportedProxy, ...]:
    names = {view.facts.id: view.facts.name for view in instances.values()}
    tracked_proxies = {proxy.proxy_id: proxy for proxy in report.tracker.proxies}
    tunnels = {tunnel.proxy_id: tunnel for tunnel in report.tunnels}
    leaving_proxies = {*report.tracker.leaving, *report.tracker.going}
    proxies = []
    for identity in {**tracked_proxies, **dict.fromkeys(report.tracker.claimed), **tunnels}:
        proxy, tunnel = tracked_proxies.get(identity), tunnels.get(identity)
        expires_at = response.at + proxy.expires_in_ms / 1000 if proxy else None
        opened_at = response.at - tunnel.open_for_ms / 1000 if tunnel and tunnel.open_for_ms else None
        proxies.append(
            ReportedProxy(
                id=identity,
                name=names.get(identity, identity),
                group=proxy.group if proxy else "",
                generation=proxy.generation if proxy else 0,
                desired=proxy.desired if proxy else False,
                claimed=identity in report.tracker.claimed,
                expires_at=moment(expires_at),
                expires_ms=age_ms(expires_at, now),
                opened_at=moment(opened_at),
                opened_ms=age_ms(opened_at, now),
                sessions=tunnel.sessions if tunnel else 0,
                retired=tunnel.retired if tunnel else False,
                draining=proxy.draining if proxy else False,
                leaving=identity in leaving_proxies,
                advised=tunnel.advised if tunnel else False,
            )
        )
    return tuple(sorted(proxies, key=lambda proxy: (not proxy.claimed, natural_sort_key(proxy.name))))
