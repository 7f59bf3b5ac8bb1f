from __future__ import annotations

import json
from dataclasses import replace

from dashboards.fleet.agent_report import present_agent_report
from fleet.models.moments import to_moment
from fleet.monitoring.agent_report import AgentReportResponse, parse_agent_report
from fleet.monitoring.views import Explanation
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0
ASKED = NOW - 3.0


def explain(answer: AgentReportResponse | None) -> Explanation:
    """One agent of a fleet whose instances all have names."""
    reader = FakeReader(as_of=NOW)
    explanation = reader.explain("default", reader.table("default", NOW).ids[0], NOW)
    assert explanation is not None
    instances = {view.facts.index: view for view in reader.instances("default", NOW)}
    return replace(explanation, agent_report_response=answer, instances=instances)


def proxies() -> list[tuple[int, str, str]]:
    """Index, id and name of the fleet's proxies."""
    views = FakeReader(as_of=NOW).instances("default", NOW)
    return [(v.facts.index, v.facts.id, v.facts.name) for v in views if v.facts.kind.value == "proxy"]


def test_not_asked_lately() -> None:
    """There is nothing to show."""
    assert present_agent_report(explain(None), NOW) is None


def test_missing_report_shows_reason_and_proxy() -> None:
    """An error is shown with its proxy and its age."""
    index, identity, name = proxies()[0]
    report_view = present_agent_report(
        explain(AgentReportResponse(ASKED, index, None, "unavailable: gone")), NOW
    )
    assert report_view is not None
    assert (
        report_view.error,
        report_view.via_proxy,
        report_view.via_proxy_id,
        report_view.requested_age_ms,
    ) == (
        *("unavailable: gone", name, identity),
        3000,
    )
    assert report_view.proxies == ()


def test_report_shows_tracked_connected_and_expired_proxies() -> None:
    """By name, those with a tunnel first; one it holds and knows no more has no expiry; a stranger keeps its id."""
    (index, first, first_name), (_, second, second_name) = proxies()[:2]
    tracked_proxies = [
        {
            "proxy_id": first,
            "group": "g",
            "generation": 2,
            "expires_in_ms": 5000,
            "is_desired": True,
            "is_draining": True,
        },
        {"proxy_id": second, "expires_in_ms": 1000},
    ]
    tracker = {
        "desired_count": 1,
        "inflight": 2,
        "leaving_proxies": ["odd"],
        "claimed_proxies": [second, "odd"],
        "proxies": tracked_proxies,
    }
    tunnel = {"proxy_id": second, "open_for_ms": 2000, "sessions": 3, "is_retired": True, "is_advised": True}
    document = {
        "agent_id": "a",
        "version": "9",
        "services": ["web"],
        "tracker": tracker,
        "tunnels": [tunnel],
    }
    report = parse_agent_report(json.dumps(document))
    report_view = present_agent_report(explain(AgentReportResponse(ASKED, index, report)), NOW)
    assert report_view is not None
    assert (
        report_view.version,
        report_view.desired_count,
        report_view.dials_in_progress,
        report_view.services,
    ) == (
        "9",
        1,
        2,
        ("web",),
    )
    stranger, tunnel_proxy, tracked_proxy = report_view.proxies
    assert [proxy.name for proxy in report_view.proxies] == ["odd", second_name, first_name]
    assert (
        tunnel_proxy.is_claimed,
        tunnel_proxy.opened_age_ms,
        tunnel_proxy.sessions,
        tunnel_proxy.is_retired,
    ) == (True, 5000, 3, True)
    assert tunnel_proxy.expires_at == to_moment(ASKED + 1)
    assert (stranger.id, stranger.is_claimed, stranger.expires_at, stranger.opened_at) == (
        "odd",
        True,
        None,
        None,
    )
    assert (
        tracked_proxy.is_claimed,
        tracked_proxy.is_desired,
        tracked_proxy.group,
        tracked_proxy.generation,
    ) == (False, True, "g", 2)
    assert tracked_proxy.expires_at == to_moment(ASKED + 5)
    assert [(row.is_draining, row.is_leaving, row.reconnect_requested) for row in report_view.proxies] == [
        *((False, True, False), (False, False, True), (True, False, False))
    ]


def test_when_the_auth_connection_moves() -> None:
    """In words; an agent of another version says nothing of it."""
    index, identity, _ = proxies()[0]
    settings = {"first_wait_ms": 250, "drain_timeout_ms": 60_000, "every_ms": 3_600_000}
    report = parse_agent_report(json.dumps({"agent_id": identity, "auth_reconnect": settings}))
    report_view = present_agent_report(explain(AgentReportResponse(ASKED, index, report)), NOW)
    assert report_view is not None
    assert report_view.auth_reconnect is not None
    assert dict(report_view.auth_reconnect.rows) == {
        "First connection attempt after leaving an auth": "within 250 ms",
        "Timeout of RPCs on the old auth connection": "1 min",
        "Planned reconnect to an auth": "every 1 h",
    }
    none = parse_agent_report(json.dumps({"agent_id": identity, "auth_reconnect": {}}))
    report_view = present_agent_report(explain(AgentReportResponse(ASKED, index, none)), NOW)
    assert report_view is not None
    assert report_view.auth_reconnect is not None
    assert [value for _, value in report_view.auth_reconnect.rows] == [
        "after 2 s to 3 s (Teleport default)",
        "none",
        "never",
    ]
    silent = present_agent_report(
        explain(AgentReportResponse(ASKED, index, parse_agent_report(json.dumps({"agent_id": identity})))),
        NOW,
    )
    assert silent is not None
    assert silent.auth_reconnect is None
