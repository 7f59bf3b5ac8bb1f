from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.alerts.incident_list import (
    IncidentTab,
    locate_page,
    page_query_of,
    read_sort,
    read_tab,
    resolved_order_of,
    sort_heads_of,
    sort_incidents,
    tab_links_of,
    tab_of,
)
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, Severity


def _make_incident(name: str, **fields: object) -> Incident:
    incident = Incident("default", Cause(CauseKind.PROXY, name, name), 1, IncidentState.FIRING, 1.0)
    return replace(incident, **fields)  # type: ignore[arg-type]  # fields of an incident


def _sort_names(incidents: list[Incident], sort_text: str) -> list[str]:
    return [
        incident.cause.name for incident in sort_incidents(incidents, lambda incident: incident, sort_text)
    ]


@pytest.mark.parametrize(
    ("incident", "expected"),
    [
        (_make_incident("a"), IncidentTab.OPEN),
        (_make_incident("a", state=IncidentState.PENDING), IncidentTab.OPEN),
        (_make_incident("a", silenced_by="known"), IncidentTab.SUPPRESSED),
        (_make_incident("a", inhibited_by="auth/1", state=IncidentState.PENDING), IncidentTab.SUPPRESSED),
        (_make_incident("a", silenced_by="known", state=IncidentState.RESOLVED), IncidentTab.RESOLVED),
    ],
)
def test_every_incident_has_one_tab(incident: Incident, expected: IncidentTab) -> None:
    """Suppressed ones send no notifications; resolved ones are resolved, whatever suppressed them."""
    assert tab_of(incident) is expected


def test_worst_incident_is_first_and_pending_ones_are_last() -> None:
    """Then the one with most affected agents, then the newest."""
    incidents = [
        _make_incident("pending", severity=Severity.CRITICAL, state=IncidentState.PENDING),
        _make_incident("few", severity=Severity.WARNING, affected_count=1),
        _make_incident("old", severity=Severity.WARNING, affected_count=5),
        _make_incident("new", severity=Severity.WARNING, affected_count=5, opened_at=9.0),
        _make_incident("critical", severity=Severity.CRITICAL),
    ]
    assert _sort_names(incidents, "") == ["critical", "new", "old", "few", "pending"]
    assert _sort_names(incidents, "pk") == ["critical", "new", "old", "few", "pending"]
    assert _sort_names(incidents, "-since")[0] == "new"
    assert _sort_names(incidents, "affected") == ["critical", "pending", "few", "new", "old"]


def test_names_are_in_natural_order() -> None:
    """proxy-2 before proxy-10."""
    incidents = [_make_incident(name) for name in ("proxy-10", "proxy-2", "proxy-1")]
    assert _sort_names(incidents, "incident") == ["proxy-1", "proxy-2", "proxy-10"]
    assert _sort_names(incidents, "-incident") == ["proxy-10", "proxy-2", "proxy-1"]


@pytest.mark.parametrize(
    ("page_text", "expected"),
    [("", 1), ("2", 2), ("0", 1), ("99", 3), ("-1", 1), ("x", 1), ("9" * 5000, 1), ("\u0662", 1)],
)
def test_page_that_does_not_exist_is_the_nearest_or_the_first(page_text: str, expected: int) -> None:
    """Any text is possible in a URL."""
    assert locate_page(page_text, 101) == (expected, 3)
    assert locate_page(page_text, 0) == (1, 1)


def test_invalid_parameters_are_the_defaults() -> None:
    """Tab of open incidents, default order."""
    assert read_tab("x") is read_tab("") is IncidentTab.OPEN
    assert read_tab("suppressed") is IncidentTab.SUPPRESSED
    assert (read_sort("-since"), read_sort("pk"), read_sort("--since")) == (
        ("since", True),
        ("", False),
        ("", False),
    )


def test_links_keep_the_tab_and_the_order() -> None:
    """A header of the present order reverses it."""
    heads = sort_heads_of(IncidentTab.RESOLVED, "since")
    assert heads["since"] == {"query": "tab=resolved&sort=-since", "aria": "ascending"}
    assert heads["severity"] == {"query": "tab=resolved&sort=severity", "aria": ""}
    assert sort_heads_of(IncidentTab.OPEN, "-since")["since"] == {
        "query": "tab=open&sort=since",
        "aria": "descending",
    }
    assert page_query_of(IncidentTab.OPEN, "pk", 2) == "tab=open&page=2"
    links = tab_links_of(dict.fromkeys(IncidentTab, 3), IncidentTab.SUPPRESSED)
    assert [(link.tab.label, link.query, link.is_current) for link in links] == [
        ("Open", "tab=open", False),
        ("Suppressed", "tab=suppressed", True),
        ("Resolved", "tab=resolved", False),
    ]


def test_resolved_incidents_are_newest_first() -> None:
    """Also among equals of another order."""
    assert resolved_order_of("") == ("-resolved_at", "-pk")
    assert resolved_order_of("-affected") == ("-peak_count", "-resolved_at", "-pk")
