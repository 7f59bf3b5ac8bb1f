from __future__ import annotations

import json
from dataclasses import replace

from dashboards.fleet.agent_report import present_agent_report
from fleet.monitoring.agent_report import AgentReportResponse, parse_agent_report
from fleet.monitoring.views import Explanation
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0
ASKED = NOW - 3.0


def explained(answer: AgentReportResponse | None) -> Explanation:
    """One agent of a fleet whose instances all have names."""
    reader = FakeReader(as_of=NOW)
    found = reader.explain("default", reader.table("default", NOW).ids[0], NOW)
    assert found is not None
    instances = {view.facts.index: view for view in reader.instances("default", NOW)}
    return replace(found, report_response=answer, instances=instances)


def proxies() -> list[tuple[int, str, str]]:
    """Index, id and name of the fleet's proxies."""
    views = FakeReader(as_of=NOW).instances("default", NOW)
    return [(v.facts.index, v.facts.id, v.facts.name) for v in views if v.facts.kind.value == "proxy"]


def test_not_asked_lately() -> None:
    """There is nothing to show."""
    assert present_agent_report(explained(None), NOW) is None


def test_no_answer_says_why_and_through_whom() -> None:
    """An error is shown with its proxy and its age."""
    index, identity, name = proxies()[0]
    shown = present_agent_report(explained(AgentReportResponse(ASKED, index, None, "unavailable: gone")), NOW)
    assert shown is not None
    assert (shown.error, shown.through, shown.through_id, shown.at_ms) == (
        *("unavailable: gone", name, identity),
        3000,
    )
    assert shown.proxies == ()


def test_proxies_it_knows_holds_and_has_forgotten() -> None:
    """By name, those with a tunnel first; one it holds and knows no more has no expiry; a stranger keeps its id."""
    (index, first, first_name), (_, second, second_name) = proxies()[:2]
    tracked = [
        {
            "proxy_id": first,
            "group": "g",
            "generation": 2,
            "expires_in_ms": 5000,
            "desired": True,
            "draining": True,
        },
        {"proxy_id": second, "expires_in_ms": 1000},
    ]
    tracker = {
        "desired_count": 1,
        "inflight": 2,
        "leaving": ["odd"],
        "claimed": [second, "odd"],
        "proxies": tracked,
    }
    tunnel = {"proxy_id": second, "open_for_ms": 2000, "sessions": 3, "retired": True, "advised": True}
    document = {
        "agent_id": "a",
        "version": "9",
        "services": ["web"],
        "tracker": tracker,
        "tunnels": [tunnel],
    }
    report = parse_agent_report(json.dumps(document))
    shown = present_agent_report(explained(AgentReportResponse(ASKED, index, report)), NOW)
    assert shown is not None
    assert (shown.version, shown.desired, shown.dials, shown.services) == ("9", 1, 2, ("web",))
    stranger, held, known = shown.proxies
    assert [proxy.name for proxy in shown.proxies] == ["odd", second_name, first_name]
    assert (held.claimed, held.opened_ms, held.sessions, held.retired) == (True, 5000, 3, True)
    assert held.expires_ms == 2000
    assert (stranger.id, stranger.claimed, stranger.expires_at, stranger.opened_at) == (
        "odd",
        True,
        None,
        None,
    )
    assert (known.claimed, known.desired, known.group, known.generation) == (False, True, "g", 2)
    assert known.expires_ms == -2000
    assert [(one.draining, one.leaving, one.advised) for one in shown.proxies] == [
        *((False, True, False), (False, False, True), (True, False, False))
    ]


def test_when_the_auth_connection_moves() -> None:
    """In words; an agent of another version says nothing of it."""
    index, identity, _ = proxies()[0]
    settings = {"first_wait_ms": 250, "drain_timeout_ms": 60_000, "every_ms": 3_600_000}
    report = parse_agent_report(json.dumps({"agent_id": identity, "auth_reconnect": settings}))
    shown = present_agent_report(explained(AgentReportResponse(ASKED, index, report)), NOW)
    assert shown is not None
    assert shown.auth_reconnect is not None
    assert dict(shown.auth_reconnect.rows) == {
        "First connection attempt to another auth": "within 250 ms",
        "Timeout of RPCs on the old auth connection": "1 min",
        "Planned reconnect to an auth": "every 1 h",
    }
    none = parse_agent_report(json.dumps({"agent_id": identity, "auth_reconnect": {}}))
    shown = present_agent_report(explained(AgentReportResponse(ASKED, index, none)), NOW)
    assert shown is not None
    assert shown.auth_reconnect is not None
    assert [value for _, value in shown.auth_reconnect.rows] == [
        "after 2 s to 3 s (Teleport default)",
        "none",
        "never",
    ]
    silent = present_agent_report(
        explained(AgentReportResponse(ASKED, index, parse_agent_report(json.dumps({"agent_id": identity})))),
        NOW,
    )
    assert silent is not None
    assert silent.auth_reconnect is None
